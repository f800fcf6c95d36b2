// SPDX-License-Identifier: Apache-2.0
#include <sys/resource.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/clock/clock.h"
#include "common/sync/mutex.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/metric_export/event_file.h"
#include "trainer/metric_export/exporter.h"
#include "trainer/metric_export/open_exporters.h"
#include "trainer/metric_export/points.h"
#include "trainer/metric_export/run_record.h"
#include "trainer/metric_export/tensorboard_sink.h"

namespace starling::metric_export {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::SizeIs;

const absl::Time kBegin = absl::FromUnixSeconds(1'700'000'000);

Points At(std::int64_t step, std::map<std::string, double> values, bool last = false) {
  return {.step = step,
          .time = kBegin + absl::Seconds(step),
          .values = std::move(values),
          .last = last};
}
Points Loss(std::int64_t step) { return At(step, {{"loss", 1.0 / static_cast<double>(step + 1)}}); }

// An event as "loss@3=0.25", "START@3", "brain.Event:2".
std::string Say(const tensorboard::Event& event) {
  if (event.has_file_version()) return event.file_version();
  if (event.has_session_log()) return absl::StrCat("START@", event.step());
  std::string text;
  for (const auto& value : event.summary().value()) {
    absl::StrAppend(&text, text.empty() ? "" : " ", value.tag(), "@", event.step(), "=",
                    value.simple_value());
  }
  return text;
}

TEST(PointsTest, AreWhatStatusAndHistoryShow) {
  v1alpha1::TrainingReport training;
  EXPECT_EQ(PointsOf(training, kBegin), std::nullopt);
  v1alpha1::Progress& progress = *training.mutable_progress();
  progress.set_step(7);
  EXPECT_EQ(PointsOf(training, kBegin), std::nullopt);
  const std::vector<Event> events = {{Event::Kind::kView, kBegin, "view 1-1", {}}};
  const auto happened = PointsOf(training, kBegin, events);
  ASSERT_TRUE(happened);
  EXPECT_EQ(happened->events, events);
  EXPECT_THAT(happened->values, testing::IsEmpty());
  progress.set_loss(0.5);
  progress.set_samples_per_second(640);
  (*progress.mutable_metrics())["validation/accuracy"] = 0.75;
  const auto points = PointsOf(training, kBegin);
  ASSERT_TRUE(points);
  EXPECT_EQ(points->step, 7);
  EXPECT_FALSE(points->last);
  EXPECT_THAT(points->values, ElementsAre(Pair("loss", 0.5), Pair("samplesPerSecond", 640),
                                          Pair("validation/accuracy", 0.75)));
  training.mutable_result()->set_steps(8);
  (*training.mutable_result()->mutable_metrics())["validation/accuracy"] = 0.875;
  const auto end = PointsOf(training, kBegin);
  ASSERT_TRUE(end);
  EXPECT_EQ(end->step, 8);
  EXPECT_TRUE(end->last);
  EXPECT_EQ(end->values.at("validation/accuracy"), 0.875);
}

TEST(PaceTest, OneASecondWhatHappensAndTheEndAreTold) {
  Pace pace;
  const auto at = [](std::int64_t step, double seconds, bool last = false) {
    return Points{step, kBegin + absl::Seconds(seconds), {}, last};
  };
  EXPECT_TRUE(pace.Tells(at(1, 0)));
  EXPECT_FALSE(pace.Tells(at(2, 0.25)));
  EXPECT_FALSE(pace.Tells(at(1, 5))) << "nothing has happened";
  EXPECT_TRUE(pace.Tells(at(9, 5)));
  Points happened = at(9, 5.05);
  happened.events.emplace_back();
  EXPECT_TRUE(pace.Tells(happened));
  EXPECT_TRUE(pace.Tells(at(10, 5.1, true)));
  EXPECT_FALSE(pace.Tells(at(10, 9, true))) << "there is one end";
}

TEST(EventFileTest, RecordsAreAsOthersWriteThem) {
  // The check value of CRC-32C, e3069283, masked.
  EXPECT_EQ(absl::BytesToHexString(RecordOf(std::string_view("123456789"))),
            "090000000000000037f97139313233343536373839e5b08ac7");
}

class RunRecordTest : public ::testing::Test {
 protected:
  // As "START@3", "loss@3=0.25".
  std::vector<std::string> Tell(const Points& points) {
    const RunRecord::News news = record_.NewsIn(points);
    record_.Take(news);
    std::vector<std::string> said;
    if (news.restart_at) said.push_back(absl::StrCat("START@", *news.restart_at));
    for (const auto& [name, value] : news.points.values) {
      said.push_back(absl::StrCat(name, "@", news.points.step, "=", value));
    }
    return said;
  }

  RunRecord record_;
};

TEST_F(RunRecordTest, OtherMetricsThanLossAreToldWhereTheyChange) {
  EXPECT_THAT(Tell(At(1, {{"accuracy", 0.5}, {"loss", 2}})),
              ElementsAre("accuracy@1=0.5", "loss@1=2"));
  EXPECT_THAT(Tell(At(2, {{"accuracy", 0.5}, {"loss", 2}})), ElementsAre("loss@2=2"));
  EXPECT_THAT(Tell(At(2, {{"accuracy", 0.75}, {"loss", 2}})), ElementsAre("accuracy@2=0.75"));
  EXPECT_THAT(Tell(At(2, {{"accuracy", 0.25}, {"loss", 1}})), IsEmpty()) << "a step is told once";
  EXPECT_THAT(Tell(At(3, {{"accuracy", 0.75}, {"loss", 1}}, /*last=*/true)),
              ElementsAre("accuracy@3=0.75", "loss@3=1"));
}

TEST_F(RunRecordTest, LateNewsIsNotToldAndTrainingThatGoesBackIs) {
  const auto tell = [this](std::int64_t step) {
    return Tell(At(step, {{"loss", static_cast<double>(step)}}));
  };
  EXPECT_THAT(tell(90), ElementsAre("loss@90=90"));
  EXPECT_THAT(tell(88), IsEmpty());
  EXPECT_THAT(tell(88), IsEmpty());
  EXPECT_THAT(tell(95), ElementsAre("loss@95=95")) << "88 was late";
  EXPECT_THAT(tell(40), IsEmpty());
  EXPECT_THAT(tell(45), ElementsAre("START@40", "loss@45=45"));
  EXPECT_THAT(tell(50), ElementsAre("loss@50=50"));
}

class TensorBoardSinkTest : public ::testing::Test {
 protected:
  TensorBoardSinkTest() {
    std::string name = ::testing::TempDir() + "events-XXXXXX";
    root_ = ::mkdtemp(name.data());
    folder_ = root_ + "/logs/digits-01234567";
  }
  ~TensorBoardSinkTest() override { std::filesystem::remove_all(root_); }

  std::vector<std::string> Files() const {
    std::vector<std::string> files;
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
      files.push_back(entry.path().string());
    }
    std::sort(files.begin(), files.end());
    return files;
  }
  // Of all files, in their order.
  std::vector<std::string> Told() const {
    std::vector<std::string> told;
    for (const std::string& file : Files()) {
      EXPECT_TRUE(
          ReadEvents(file, [&told](const auto& event) { told.push_back(Say(event)); }).ok());
    }
    return told;
  }

  std::string root_;
  std::string folder_;
};

TEST_F(TensorBoardSinkTest, ASuccessorGoesOnInAFileOfItsOwnAndRepeatsNoStep) {
  TensorBoardSink first(folder_, "digits-coordinator-0");
  for (const int step : {0, 1, 3}) ASSERT_TRUE(first.Tell(Loss(step)).ok());
  // Half of a record, of a process that was killed.
  std::ofstream(Files().at(0), std::ios::app | std::ios::binary) << std::string(9, '\x07');
  TensorBoardSink second(folder_, "digits-coordinator-0");
  Points late = Loss(3);
  late.time = kBegin - absl::Hours(1);  // on a node whose clock is behind
  ASSERT_TRUE(second.Tell(late).ok());
  ASSERT_TRUE(second.Tell(Loss(7)).ok());
  EXPECT_THAT(Files(), SizeIs(2));
  EXPECT_THAT(Told(), ElementsAre("brain.Event:2", "START@0", "loss@0=1", "loss@1=0.5",
                                  "loss@3=0.25", "brain.Event:2", "START@4", "loss@7=0.125"));
}

TEST_F(TensorBoardSinkTest, TrainingThatGoesBackIsToldAndASuccessorKnowsIt) {
  TensorBoardSink first(folder_, "w");
  for (const int step : {7, 1, 3}) ASSERT_TRUE(first.Tell(Loss(step)).ok());
  TensorBoardSink second(folder_, "w");
  ASSERT_TRUE(second.Tell(Loss(3)).ok());
  ASSERT_TRUE(second.Tell(Loss(7)).ok());
  EXPECT_THAT(Told(), ElementsAre("brain.Event:2", "START@0", "loss@7=0.125", "START@1",
                                  "loss@3=0.25", "brain.Event:2", "START@4", "loss@7=0.125"));
}

// A reader takes a value that is not there for one of another kind, and drops it.
TEST_F(TensorBoardSinkTest, AZeroIsWrittenToo) {
  TensorBoardSink sink(folder_, "w");
  ASSERT_TRUE(sink.Tell(At(0, {{"loss", 0}})).ok());
  bool zero = false;
  ASSERT_TRUE(ReadEvents(Files().at(0), [&zero](const auto& event) {
                for (const auto& value : event.summary().value()) {
                  zero = zero || value.has_simple_value();
                }
              }).ok());
  EXPECT_TRUE(zero);
}

TEST_F(TensorBoardSinkTest, DeletedFilesAreBegunAnew) {
  TensorBoardSink sink(folder_, "w");
  ASSERT_TRUE(sink.Tell(Loss(1)).ok());
  std::filesystem::remove_all(folder_);
  ASSERT_TRUE(sink.Tell(Loss(3)).ok());
  EXPECT_THAT(Told(), ElementsAre("brain.Event:2", "START@0", "loss@3=0.25"));
}

// A file that may not grow is, to whoever writes, as a disk that is full: a part is written, then
// nothing.
TEST_F(TensorBoardSinkTest, AFullDiskCostsPointsAndNothingElse) {
  TensorBoardSink sink(folder_, "w");
  ASSERT_TRUE(sink.Tell(Loss(0)).ok());
  const auto full = std::filesystem::file_size(Files().at(0)) + 10;
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto restore = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit limit{full, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  const absl::Status status = sink.Tell(Loss(1));
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, restore);
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()), HasSubstr(folder_));
  EXPECT_THAT(std::string(status.message()), HasSubstr("make room"));
  EXPECT_EQ(std::filesystem::file_size(Files().at(0)) + 10, full) << "no half record is left";
  ASSERT_TRUE(sink.Tell(Loss(3)).ok());
  EXPECT_THAT(Told(), ElementsAre("brain.Event:2", "START@0", "loss@0=1", "loss@3=0.25"));
}

TEST_F(TensorBoardSinkTest, AFolderThatCannotBeMadeIsTriedAgain) {
  std::ofstream(root_ + "/logs") << "a file";
  TensorBoardSink sink(folder_, "w");
  EXPECT_THAT(std::string(sink.Tell(Loss(0)).message()), HasSubstr("cannot make the folder"));
  std::filesystem::remove(root_ + "/logs");
  ASSERT_TRUE(sink.Tell(Loss(1)).ok());
  EXPECT_THAT(Told(), ElementsAre("brain.Event:2", "START@0", "loss@1=0.5"));
}

TEST_F(TensorBoardSinkTest, EachJobHasAFolderOfItsOwn) {
  const clock::SystemClock clock;
  v1alpha1::Export places;
  const Origin origin{"digits", "0123456789", "digits-coordinator-0"};
  EXPECT_THAT(*OpenExporters(places, origin, clock), IsEmpty());
  places.mutable_tensorboard()->set_uri("file://" + root_ + "/logs");
  auto exporters = OpenExporters(places, origin, clock);
  ASSERT_TRUE(exporters.ok());
  ASSERT_THAT(*exporters, SizeIs(1));
  exporters->at(0)->Tell(Loss(1));
  exporters->clear();
  EXPECT_THAT(Files(),
              ElementsAre(folder_ + "/events.out.tfevents.1700000001.digits-coordinator-0"));
  places.mutable_tensorboard()->set_uri("https://host/logs");
  EXPECT_THAT(std::string(OpenExporters(places, origin, clock).status().message()),
              HasSubstr("spec.export.tensorboard.uri"));
}

// Whose Tell waits while it is held, and fails while it is told to.
class HeldSink final : public Sink {
 public:
  struct Log {
    sync::Mutex mutex;
    sync::Condition changed;
    std::vector<std::int64_t> steps ABSL_GUARDED_BY(mutex);
    absl::Status status ABSL_GUARDED_BY(mutex);
    bool held ABSL_GUARDED_BY(mutex) = false;
    int began ABSL_GUARDED_BY(mutex) = 0;

    void Hold(bool hold) {
      const sync::MutexLock lock(mutex);
      held = hold;
      changed.NotifyAll();
    }
    void AwaitBegun(int count) {
      const sync::MutexLock lock(mutex);
      while (began < count) changed.Wait(mutex);
    }
    void Answer(absl::Status answer) {
      const sync::MutexLock lock(mutex);
      status = std::move(answer);
    }
    std::vector<std::int64_t> Steps() {
      const sync::MutexLock lock(mutex);
      return steps;
    }
  };

  explicit HeldSink(std::shared_ptr<Log> log) : log_(std::move(log)) {}
  absl::Status Tell(const Points& points) override {
    const sync::MutexLock lock(log_->mutex);
    ++log_->began;
    log_->changed.NotifyAll();
    while (log_->held) log_->changed.Wait(log_->mutex);
    log_->steps.push_back(points.step);
    return log_->status;
  }

 private:
  const std::shared_ptr<Log> log_;
};

class ExporterTest : public ::testing::Test {
 protected:
  std::unique_ptr<Exporter> Make(std::size_t most_waiting = 64) {
    return std::make_unique<Exporter>(
        std::make_unique<HeldSink>(log_), clock_,
        Exporter::Options{
            .name = "a sink", .most_waiting = most_waiting, .goodbye = absl::Milliseconds(200)});
  }

  const clock::SystemClock clock_;
  std::shared_ptr<HeldSink::Log> log_ = std::make_shared<HeldSink::Log>();
};

TEST_F(ExporterTest, WhatWaitsIsToldAtTheEnd) {
  auto exporter = Make();
  for (int step = 0; step < 10; ++step) exporter->Tell(Loss(step));
  exporter.reset();
  EXPECT_THAT(log_->Steps(), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9));
}

TEST_F(ExporterTest, OfWhatASlowSinkDoesNotTakeTheOldestGo) {
  log_->Hold(true);
  auto exporter = Make(3);
  exporter->Tell(Loss(0));
  log_->AwaitBegun(1);
  for (int step = 1; step < 100; ++step) exporter->Tell(Loss(step));
  EXPECT_THAT(exporter->problem(), HasSubstr("the oldest are let go"));
  log_->Hold(false);
  exporter.reset();
  EXPECT_THAT(log_->Steps(), ElementsAre(0, 97, 98, 99));
}

TEST_F(ExporterTest, WhatIsStuckIsLeftBehind) {
  log_->Hold(true);
  auto exporter = Make();
  exporter->Tell(Loss(0));
  log_->AwaitBegun(1);
  exporter->Tell(Loss(1));
  const absl::Time before = clock_.Now();
  exporter.reset();
  EXPECT_LT(clock_.Now() - before, absl::Seconds(10));
  log_->Hold(false);  // its thread goes on by itself, and ends
}

TEST_F(ExporterTest, AFailureIsToldAndTheNextPointsAreTried) {
  log_->Answer(absl::ResourceExhaustedError("cannot write it; make room"));
  auto exporter = Make();
  EXPECT_EQ(exporter->problem(), "");
  exporter->Tell(Loss(0));
  while (exporter->problem().empty()) absl::SleepFor(absl::Milliseconds(1));
  EXPECT_EQ(exporter->problem(), "cannot write it; make room");
  log_->Answer(absl::OkStatus());
  exporter->Tell(Loss(1));
  EXPECT_EQ(exporter->problem(), "cannot write it; make room") << "for a while: it may come again";
  exporter.reset();
  EXPECT_THAT(log_->Steps(), ElementsAre(0, 1));
}

}  // namespace
}  // namespace starling::metric_export
