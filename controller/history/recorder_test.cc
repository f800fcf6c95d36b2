// SPDX-License-Identifier: Apache-2.0
// The recorder between a real store of objects and a real history in a file.
#include "controller/history/recorder.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/str_cat.h"
#include "controller/history/sql_history.h"
#include "controller/kube/embedded_kube_client.h"
#include "controller/kube/objects.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace starling::history {
namespace {

namespace fs = std::filesystem;
using kube::Json;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

Json ShortSummary(const Json& job) { return {{"name", kube::NameOf(job)}}; }

class RecorderTest : public ::testing::Test {
 protected:
  RecorderTest() {
    std::string pattern = (fs::temp_directory_path() / "starling-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
    Begin();
  }
  ~RecorderTest() override { fs::remove_all(folder_); }

  // A process that records: nothing of an earlier one is left but the files.
  void Begin(std::int64_t change_log_limit = 5000) {
    recorder_.reset();
    informer_.reset();
    client_.reset();
    kube::EmbeddedOptions options;
    options.path = folder_ / "store.db";
    options.change_log_limit = change_log_limit;
    client_ = *kube::OpenEmbeddedKubeClient(clock_, options);
    if (history_ == nullptr) history_ = OpenSqliteHistory(folder_ / place_ / "history.db");
    informer_ = std::make_unique<runtime::Informer>(*client_, kube::kTrainingJob,
                                                    runtime::InformerOptions{});
    RecorderOptions recording;
    recording.summarize = ShortSummary;
    recording.quiet = absl::ZeroDuration();
    recording.most_waiting = most_waiting_;
    recording.read_logs = [this](const JobName& job) {
      return std::vector<LogTail>{{job.name + "-worker-0", false, log_}};
    };
    recorder_ = std::make_unique<Recorder>(*history_, *client_, *informer_, clock_, registry_,
                                           std::move(recording));
  }

  // The informer's first list, and all that it is told.
  void Turn() {
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(informer_->Poll(absl::ZeroDuration()).ok());
    recorder_->Flush();
  }
  void Create(const std::string& name) {
    const Json job = {{"apiVersion", "starling.dev/v1alpha1"},
                      {"kind", "TrainingJob"},
                      {"metadata", {{"name", name}, {"namespace", "default"}}},
                      {"spec", {{"seed", 1}}}};
    const auto created = client_->Create(kube::kTrainingJob, job);
    ASSERT_TRUE(created.ok()) << created.status();
    uids_[name] = kube::UidOf(*created);
  }
  void Train(const std::string& name, int step, const std::string& state = "Running") {
    Json status = {{"state", state}, {"progress", {{"step", step}, {"loss", 1.0 / step}}}};
    if (state == "Succeeded") status["conditions"] = {{{"type", state}, {"status", "True"}}};
    ASSERT_TRUE(
        client_->PatchStatus(kube::kTrainingJob, {"default", name}, {{"status", status}}).ok());
  }
  void Delete(const std::string& name) {
    ASSERT_TRUE(client_->Delete(kube::kTrainingJob, {"default", name}, {}).ok());
  }
  PastJob Find(const std::string& name, const std::string& uid = "") {
    auto found = history_->Find({"default", "", name, uid});
    EXPECT_TRUE(found.ok()) << found.status();
    return found.ok() ? *std::move(found) : PastJob();
  }
  std::vector<std::int64_t> StepsOf(const std::string& uid) {
    std::vector<std::int64_t> steps;
    const auto curves = *history_->Curves(uid, "loss");
    for (const auto& [metric, curve] : curves) {
      for (const Point& point : curve) steps.push_back(point.step);
    }
    return steps;
  }

  fs::path folder_;
  std::string place_ = ".";
  std::string log_ = "the end\n";
  std::size_t most_waiting_ = 10;
  clock::FakeClock clock_;
  metrics::Registry registry_;
  std::unique_ptr<kube::KubeClient> client_;
  std::unique_ptr<History> history_;
  std::unique_ptr<runtime::Informer> informer_;
  std::unique_ptr<Recorder> recorder_;
  std::map<std::string, std::string> uids_;
};

TEST_F(RecorderTest, AJobIsFollowedToItsEndAndBeyond) {
  Turn();
  Create("digits");
  for (int step = 1; step <= 5; ++step) Train("digits", step);
  Turn();
  EXPECT_FALSE(Find("digits").gone.has_value());
  Train("digits", 6, "Succeeded");
  Turn();
  EXPECT_THAT(*history_->Logs(uids_["digits"]), SizeIs(1));
  Delete("digits");
  Turn();

  const PastJob job = Find("digits");
  EXPECT_EQ(kube::StringAt(job.object, "/status/state"), "Succeeded");
  EXPECT_EQ(job.gone, clock_.WallNow());
  EXPECT_THAT(StepsOf(uids_["digits"]), ElementsAre(1, 2, 3, 4, 5, 6));
}

TEST_F(RecorderTest, EventsOfTheJobAndItsPodsAreKept) {
  Turn();
  Create("digits");
  for (const char* regarding : {"digits-worker-0", "digits-b-worker-0"}) {
    const Json event = {{"apiVersion", "events.k8s.io/v1"},
                        {"kind", "Event"},
                        {"metadata", {{"generateName", "e-"}, {"namespace", "default"}}},
                        {"reason", "Started"},
                        {"regarding", {{"kind", "Pod"}, {"name", regarding}}}};
    ASSERT_TRUE(client_->Create(kube::kEvent, event).ok());
  }
  Delete("digits");
  Turn();
  ASSERT_THAT(Find("digits").events, SizeIs(1));
  EXPECT_EQ(kube::StringAt(Find("digits").events[0], "/regarding/name"), "digits-worker-0");
}

TEST_F(RecorderTest, ARestartTellsAllAgainAndChangesNothing) {
  Turn();
  Create("digits");
  Train("digits", 1);
  Train("digits", 2);
  Turn();
  const auto before = Find("digits").object;
  Begin();
  Turn();
  Turn();
  EXPECT_EQ(Find("digits").object, before);
  EXPECT_THAT(StepsOf(uids_["digits"]), ElementsAre(1, 2));
  Train("digits", 3);
  Turn();
  EXPECT_THAT(StepsOf(uids_["digits"]), ElementsAre(1, 2, 3));
}

TEST_F(RecorderTest, WhatWasDeletedWhileNobodyListenedIsKnownAsItWasLast) {
  Turn();
  Create("known");
  Turn();
  recorder_.reset();
  Train("known", 9, "Succeeded");
  Delete("known");
  Create("unknown");
  Train("unknown", 3);
  Delete("unknown");
  Begin();
  Turn();

  EXPECT_EQ(kube::StringAt(Find("known").object, "/status/state"), "Succeeded");
  EXPECT_TRUE(Find("known").gone.has_value());
  EXPECT_EQ(kube::IntAt(Find("unknown").object, "/status/progress/step"), 3);
  EXPECT_TRUE(Find("unknown").gone.has_value());
}

TEST_F(RecorderTest, WhereTheStoreHasForgottenItTheDeletionIsNoticedAllTheSame) {
  Turn();
  Create("known");
  Create("stays");
  Train("known", 2);
  Turn();
  Begin(/*change_log_limit=*/10);
  recorder_.reset();
  Delete("known");
  for (int i = 0; i < 200; ++i) Train("stays", i + 1);
  Begin(/*change_log_limit=*/10);
  Turn();

  EXPECT_TRUE(Find("known").gone.has_value());
  EXPECT_EQ(kube::IntAt(Find("known").object, "/status/progress/step"), 2);
  EXPECT_FALSE(Find("stays").gone.has_value());
}

TEST_F(RecorderTest, AJobOfTheSameNameBeginsAHistoryOfItsOwn) {
  Turn();
  Create("digits");
  Train("digits", 1);
  Turn();
  const std::string first = uids_["digits"];
  Delete("digits");
  Create("digits");
  Train("digits", 7);
  Turn();

  EXPECT_EQ(kube::UidOf(Find("digits").object), uids_["digits"]);
  EXPECT_TRUE(Find("digits", first).gone.has_value());
  EXPECT_THAT(StepsOf(first), ElementsAre(1));
  EXPECT_THAT(StepsOf(uids_["digits"]), ElementsAre(7));
}

TEST_F(RecorderTest, WhileTheHistoryIsAwayNothingIsLost) {
  history_.reset();
  place_ = "later";
  Begin();
  Create("digits");
  Create("deleted");
  for (int step = 1; step <= 50; ++step) {
    Train("digits", step);
    Turn();
  }
  Delete("deleted");
  Turn();
  clock_.Advance(absl::Minutes(5));
  recorder_->Flush();
  EXPECT_THAT(registry_.Serialize(), testing::HasSubstr("starling_history_lag_seconds 300"));

  fs::create_directory(folder_ / "later");
  recorder_->Flush();

  EXPECT_THAT(StepsOf(uids_["digits"]), SizeIs(50));
  EXPECT_TRUE(Find("deleted").gone.has_value());
  EXPECT_THAT(registry_.Serialize(), testing::HasSubstr("starling_history_lag_seconds 0"));
}

TEST_F(RecorderTest, AfterADamagedFileAllThatIsThereIsToldAgain) {
  Turn();
  Create("digits");
  Train("digits", 1);
  Turn();
  history_.reset();
  fs::remove(folder_ / "history.db-wal");
  std::ofstream(folder_ / "history.db") << std::string(9000, 'x');
  Begin();
  Turn();
  Turn();
  EXPECT_EQ(kube::IntAt(Find("digits").object, "/status/progress/step"), 1);
}

TEST_F(RecorderTest, LogsMayGoOnceTheyAreRecorded) {
  Turn();
  Create("digits");
  Turn();
  Delete("digits");
  const JobName job{"default", "", "digits", uids_["digits"].substr(0, 8)};
  ASSERT_TRUE(informer_->Poll(absl::ZeroDuration()).ok());
  EXPECT_FALSE(recorder_->LetGo(job));
  log_ = "its last words\n";
  recorder_->Flush();
  EXPECT_TRUE(recorder_->LetGo(job));
  EXPECT_EQ(history_->Logs(uids_["digits"])->at(0).text, "its last words\n");

  const JobName unknown{"default", "", "unknown", "12345678"};
  EXPECT_FALSE(recorder_->LetGo(unknown));
  recorder_->Flush();
  EXPECT_TRUE(recorder_->LetGo(unknown)) << "nothing is known of it";
}

TEST_F(RecorderTest, LogsDoNotWaitForeverForAHistoryThatIsAway) {
  history_.reset();
  place_ = "nowhere";
  Begin();
  const JobName job{"default", "", "digits", "12345678"};
  EXPECT_FALSE(recorder_->LetGo(job));
  recorder_->Flush();
  clock_.Advance(absl::Minutes(9));
  EXPECT_FALSE(recorder_->LetGo(job));
  clock_.Advance(absl::Minutes(2));
  EXPECT_TRUE(recorder_->LetGo(job));
}

TEST_F(RecorderTest, TheOldestAreForgottenAsTimePasses) {
  Turn();
  Create("digits");
  Create("stays");
  Turn();
  Delete("digits");
  Turn();
  clock_.Advance(absl::Hours(24 * 89));
  Turn();
  EXPECT_TRUE(Find("digits").gone.has_value());
  clock_.Advance(absl::Hours(48));
  Turn();
  EXPECT_TRUE(absl::IsNotFound(history_->Find({"default", "", "digits", ""}).status()));
  EXPECT_FALSE(Find("stays").gone.has_value());
}

TEST_F(RecorderTest, BeyondAllBoundsTheOldestNewsGoesAndIsCounted) {
  history_.reset();
  place_ = "later";
  most_waiting_ = 2;
  Begin();
  for (const char* name : {"a", "b", "c"}) {
    Create(name);
    Turn();
    Delete(name);
    Turn();
    clock_.Advance(absl::Seconds(1));
  }
  fs::create_directory(folder_ / "later");
  recorder_->Flush();
  EXPECT_TRUE(absl::IsNotFound(history_->Find({"default", "", "a", ""}).status()));
  EXPECT_TRUE(Find("b").gone.has_value());
  EXPECT_TRUE(Find("c").gone.has_value());
  EXPECT_THAT(registry_.Serialize(), testing::HasSubstr("starling_history_dropped_total 1"));
}

}  // namespace
}  // namespace starling::history
