// SPDX-License-Identifier: Apache-2.0
// Whole jobs with parameter servers, in one process: every consistency model, every death, and the
// equations that must hold whatever happens: each sample used once an epoch, each step the average
// of its pushes.
#include "trainer/worker/client_worker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <set>
#include <sstream>

#include "trainer/checkpoint/safetensors.h"
#include "trainer/sparse/logistic_engine.h"
#include "trainer/worker/server_flock.h"
#include "trainer/worker/tiny_engine.h"

namespace starling::worker {
namespace {

using ::testing::Each;
using ::testing::Ge;
using ::testing::HasSubstr;
using ::testing::Le;
using ::testing::Lt;
using ::testing::Ne;
using ::testing::SizeIs;

constexpr std::int64_t kSamples = 1600;
constexpr std::int64_t kBatch = 16;
constexpr std::int64_t kPerEpoch = kSamples / kBatch;

v1alpha1::TrainingJobSpec VisitJob(std::int64_t epochs) {
  v1alpha1::TrainingJobSpec spec;
  spec.set_seed(7);
  spec.mutable_dataset()->set_global_batch_size(kBatch);
  spec.mutable_dataset()->set_audit_use(true);
  // The mean of a batch is 1 / kBatch for each of its samples.
  spec.mutable_optimizer()->mutable_sgd()->set_learning_rate(kBatch);
  spec.mutable_stop()->set_epochs(epochs);
  spec.mutable_checkpoint()->set_keep(3);
  v1alpha1::ParameterServer& server = *spec.mutable_exchange()->mutable_parameter_server();
  server.set_replication(2);
  server.mutable_consistency()->mutable_asynchronous();
  return spec;
}

v1alpha1::Consistency& ModelOf(v1alpha1::TrainingJobSpec& spec) {
  return *spec.mutable_exchange()->mutable_parameter_server()->mutable_consistency();
}

data::Datasets VisitData() {
  data::Datasets datasets;
  for (std::int64_t i = 0; i < kSamples; ++i) {
    datasets.train.features.push_back(static_cast<float>(i));
    datasets.train.labels.push_back(0);
  }
  datasets.train.shape = {1};
  datasets.train.classes = 2;
  datasets.digest = "0123456789abcdef0123456789abcdef";
  return datasets;
}

std::unique_ptr<engine::Engine> NewVisitEngine(int /*worker*/) {
  return std::make_unique<VisitEngine>(kSamples);
}

// Holds whoever passes it with a number of `at` or more, until it is opened. Thread-safe.
class Gate {
 public:
  explicit Gate(std::size_t at) : at_(at) {}
  void Pass(std::size_t number) {
    const sync::MutexLock lock(mutex_);
    reached_ = reached_ || number >= at_;
    while (!open_ && number >= at_) opened_.Wait(mutex_);
  }
  bool reached() {
    const sync::MutexLock lock(mutex_);
    return reached_;
  }
  void Open() {
    const sync::MutexLock lock(mutex_);
    open_ = true;
    opened_.NotifyAll();
  }

 private:
  const std::size_t at_;
  sync::Mutex mutex_;
  sync::Condition opened_;
  bool reached_ ABSL_GUARDED_BY(mutex_) = false;
  bool open_ ABSL_GUARDED_BY(mutex_) = false;
};

class ClientWorkerTest : public ::testing::Test {
 protected:
  std::string NewJobDir() {
    std::string path =
        absl::StrCat(::testing::TempDir(), "client_worker_test_", getpid(), "_", folders_.size());
    std::filesystem::create_directories(path);
    folders_.push_back(path);
    return path;
  }
  ~ClientWorkerTest() override {
    for (const std::string& folder : folders_) std::filesystem::remove_all(folder);
  }

  // How often each sample was used, as the model says.
  static std::vector<float> VisitsOf(const v1alpha1::Result& result) {
    std::ifstream file(result.model().uri().substr(std::string("file://").size()),
                       std::ios::binary);
    std::stringstream text;
    text << file.rdbuf();
    const std::string bytes = text.str();
    const absl::StatusOr<checkpoint::Decoded> model =
        checkpoint::Decode(std::as_bytes(std::span(bytes)));
    EXPECT_TRUE(model.ok()) << model.status();
    if (!model.ok()) return {};
    const auto values = model->Find("visits")->Floats();
    std::vector<float> visits;
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (i % VisitEngine::kWidth == 0) visits.push_back(values[i]);
      EXPECT_EQ(values[i], visits.back());
    }
    return visits;
  }
  static std::vector<std::string> LinesOf(const std::string& path) {
    std::ifstream file(path);
    std::vector<std::string> lines;
    for (std::string line; std::getline(file, line);) lines.push_back(line);
    return lines;
  }

  std::vector<std::string> folders_;
};

TEST_F(ClientWorkerTest, OneWorkerTrainsToTheEnd) {
  const std::string folder = NewJobDir();
  ServerFlock flock(VisitJob(2), VisitData(), NewVisitEngine, folder);
  flock.AddServers(2);
  flock.AddWorkers(1);

  const v1alpha1::Result result = flock.AwaitResult();

  EXPECT_EQ(result.steps(), 2 * kPerEpoch);
  EXPECT_EQ(result.samples(), 2 * kSamples);
  EXPECT_EQ(result.epochs(), 2);
  EXPECT_THAT(VisitsOf(result), SizeIs(kSamples));
  EXPECT_THAT(VisitsOf(result), Each(2.0F));
  EXPECT_THAT(LinesOf(folder + "/audit/steps.jsonl"), SizeIs(2 * kPerEpoch));
  flock.Finish();
  EXPECT_TRUE(flock.AwaitEnd(ServerFlock::WorkerUid(0)));
  EXPECT_TRUE(flock.EndOf(ServerFlock::WorkerUid(0)).ok());
  EXPECT_TRUE(flock.AwaitEnd(ServerFlock::ServerUid(1)));
}

// Models that apply every push by itself: whatever the order, the sum is the same.
class EveryModelOfSums : public ClientWorkerTest,
                         public ::testing::WithParamInterface<const char*> {
 protected:
  static v1alpha1::TrainingJobSpec Job(std::int64_t epochs, const std::string& name) {
    v1alpha1::TrainingJobSpec spec = VisitJob(epochs);
    v1alpha1::Consistency& model = ModelOf(spec);
    if (name == "BoundedDelay") model.mutable_bounded_delay()->set_delay(2);
    if (name == "StaleSynchronous") model.mutable_stale_synchronous()->set_staleness(1);
    if (name == "Eager") {
      model.mutable_eager_stale_synchronous()->set_staleness(1);
      model.mutable_eager_stale_synchronous()->set_bytes_per_second(2e7);
    }
    if (name == "Hogwild") model.mutable_hogwild();
    return spec;
  }
};

TEST_P(EveryModelOfSums, SeveralWorkersUseEverySampleOnceAnEpoch) {
  ServerFlock flock(Job(3, GetParam()), VisitData(), NewVisitEngine, NewJobDir());
  flock.AddServers(3);
  flock.AddWorkers(3);

  const v1alpha1::Result result = flock.AwaitResult();

  EXPECT_EQ(result.steps(), 3 * kPerEpoch);
  EXPECT_THAT(VisitsOf(result), Each(3.0F));
  for (int worker = 0; worker < 3; ++worker) {
    EXPECT_THAT(flock.EngineOf<VisitEngine>(worker).calls(), SizeIs(Ge(10)));
  }
}

TEST_P(EveryModelOfSums, ADeadWorkersLeasesAreRedoneOnce) {
  ServerFlock flock(Job(10, GetParam()), VisitData(), NewVisitEngine, NewJobDir());
  flock.AddServers(2);
  flock.AddWorkers(3);
  ASSERT_TRUE(flock.AwaitSettled(20));

  flock.Kill(ServerFlock::WorkerUid(0));  // the first client, too: audit, validations
  ASSERT_TRUE(flock.AwaitSettled(200));
  flock.Restart(ServerFlock::WorkerUid(0));
  ASSERT_TRUE(flock.AwaitSettled(400));
  flock.Kill(ServerFlock::WorkerUid(2));

  EXPECT_THAT(VisitsOf(flock.AwaitResult()), Each(10.0F));
}

TEST_P(EveryModelOfSums, ADeadServerLosesAndRepeatsNothing) {
  ServerFlock flock(Job(10, GetParam()), VisitData(), NewVisitEngine, NewJobDir());
  flock.AddServers(3);
  flock.AddWorkers(2);
  ASSERT_TRUE(flock.AwaitSettled(20));

  flock.Kill(ServerFlock::ServerUid(1));
  ASSERT_TRUE(flock.AwaitSettled(200));
  flock.Restart(ServerFlock::ServerUid(1));
  ASSERT_TRUE(flock.AwaitSettled(400));
  flock.Kill(ServerFlock::ServerUid(0));

  EXPECT_THAT(VisitsOf(flock.AwaitResult()), Each(10.0F));
}

INSTANTIATE_TEST_SUITE_P(Models, EveryModelOfSums,
                         ::testing::Values("Asynchronous", "BoundedDelay", "StaleSynchronous",
                                           "Eager", "Hogwild"),
                         [](const auto& one) { return std::string(one.param); });

// Models of which a step is the average of several pushes.

TEST_F(ClientWorkerTest, ABulkSynchronousStepIsTheAverageOfOnePushOfEveryWorker) {
  v1alpha1::TrainingJobSpec spec = VisitJob(4);
  ModelOf(spec).mutable_bulk_synchronous();
  ServerFlock flock(spec, VisitData(), NewVisitEngine, NewJobDir());
  flock.AddServers(2);
  flock.AddWorkers(3);

  const v1alpha1::Result result = flock.AwaitResult();

  EXPECT_EQ(result.steps(), 4 * kPerEpoch);
  // Who read the same parameters made one step together; the next parameters are these and the mean
  // of what those pushed.
  std::map<std::vector<float>, std::vector<std::vector<std::int64_t>>> steps;
  std::int64_t calls = 0;
  for (int worker = 0; worker < 3; ++worker) {
    for (const VisitEngine::Call& call : flock.EngineOf<VisitEngine>(worker).calls()) {
      steps[call.parameters].push_back(call.samples);
      ++calls;
    }
  }
  EXPECT_EQ(calls, 4 * kPerEpoch);
  std::size_t of_all = 0;
  std::size_t broken = 0;
  for (const auto& [parameters, pushes] : steps) {
    of_all += pushes.size() == 3 ? 1 : 0;
    std::vector<float> next = parameters;
    for (const auto& samples : pushes) {
      for (const std::int64_t sample : samples) {
        next[static_cast<std::size_t>(sample)] += 1 / static_cast<float>(pushes.size());
      }
    }
    const bool follows = std::any_of(steps.begin(), steps.end(), [&](const auto& other) {
      for (std::size_t i = 0; i < next.size(); ++i) {
        if (std::abs(other.first[i] - next[i]) > 1e-4F) return false;
      }
      return true;
    });
    broken += follows ? 0 : 1;
  }
  EXPECT_EQ(broken, 1u) << "only the last step has no successor";
  EXPECT_GE(of_all, steps.size() * 9 / 10);
}

TEST_F(ClientWorkerTest, BulkSynchronousWithOneWorkerIsTheSum) {
  v1alpha1::TrainingJobSpec spec = VisitJob(2);
  ModelOf(spec).mutable_bulk_synchronous();
  ServerFlock flock(spec, VisitData(), NewVisitEngine, NewJobDir());
  flock.AddServers(2);
  flock.AddWorkers(1);
  EXPECT_THAT(VisitsOf(flock.AwaitResult()), Each(2.0F));
}

class EveryModelOfAverages : public ClientWorkerTest,
                             public ::testing::WithParamInterface<const char*> {
 protected:
  static v1alpha1::TrainingJobSpec Job(std::int64_t epochs, const std::string& name) {
    v1alpha1::TrainingJobSpec spec = VisitJob(epochs);
    v1alpha1::Consistency& model = ModelOf(spec);
    if (name == "BulkSynchronous") model.mutable_bulk_synchronous();
    if (name == "BackupWorkers") model.mutable_backup_workers()->set_backups(1);
    if (name == "SoftSync") model.mutable_soft_sync()->set_n(1);
    return spec;
  }
  // Every sample was used, none more often than an epoch allows.
  static void ExpectAllUsed(const v1alpha1::Result& result, float epochs) {
    const std::vector<float> visits = VisitsOf(result);
    EXPECT_THAT(visits, Each(Le(epochs + 1e-3F)));
    EXPECT_THAT(visits, Each(Ge(epochs / 3 - 1e-3F)));
  }
};

TEST_P(EveryModelOfAverages, DeathsOfWorkersAndServersStopNobody) {
  v1alpha1::TrainingJobSpec spec = Job(10, GetParam());
  if (std::string(GetParam()) == "SoftSync") {
    ModelOf(spec).mutable_soft_sync()->set_staleness_aware(false);
  }
  ServerFlock flock(spec, VisitData(), NewVisitEngine, NewJobDir());
  flock.AddServers(3);
  flock.AddWorkers(3);
  ASSERT_TRUE(flock.AwaitSettled(50));
  flock.Kill(ServerFlock::WorkerUid(1));
  ASSERT_TRUE(flock.AwaitSettled(250));
  flock.Kill(ServerFlock::ServerUid(1));
  flock.Restart(ServerFlock::WorkerUid(1));
  ASSERT_TRUE(flock.AwaitSettled(450));
  flock.Kill(ServerFlock::WorkerUid(0));

  const v1alpha1::Result result = flock.AwaitResult();

  EXPECT_EQ(result.steps(), 10 * kPerEpoch);
  ExpectAllUsed(result, 10);
}

INSTANTIATE_TEST_SUITE_P(Models, EveryModelOfAverages,
                         ::testing::Values("BulkSynchronous", "BackupWorkers", "SoftSync"),
                         [](const auto& one) { return std::string(one.param); });

// Bounds: one worker is held in the middle of a lease; how far do the others get?

struct Bound {
  const char* name;
  void (*set)(v1alpha1::Consistency&);
  std::optional<std::size_t> staleness;
};

class EveryBound : public ClientWorkerTest, public ::testing::WithParamInterface<Bound> {};

TEST_P(EveryBound, HoldsWhileAWorkerStandsStill) {
  constexpr std::size_t kHeldAt = 5;
  v1alpha1::TrainingJobSpec spec = VisitJob(3);
  GetParam().set(ModelOf(spec));
  Gate gate(kHeldAt);
  ServerFlock flock(
      spec, VisitData(),
      [&](int worker) {
        return std::make_unique<VisitEngine>(kSamples, [&gate, worker](std::size_t call) {
          if (worker == 1) gate.Pass(call);
        });
      },
      NewJobDir());
  flock.AddServers(2);
  flock.AddWorkers(2);
  const auto calls = [&] { return flock.EngineOf<VisitEngine>(0).calls().size(); };

  ASSERT_TRUE(flock.Await([&] { return gate.reached(); }));
  const std::size_t before = calls();
  if (GetParam().staleness) {
    // Each may be `staleness` clocks before the other, and computes one more.
    const std::size_t most = before + 2 * *GetParam().staleness + 2;
    for (int turn = 0; turn < 300; ++turn) flock.Turn();
    const std::size_t now = calls();
    EXPECT_LE(now, most);
    for (int turn = 0; turn < 300; ++turn) flock.Turn();
    EXPECT_EQ(calls(), now) << "it stands";
  } else {
    EXPECT_TRUE(flock.Await([&] { return calls() > before + 100; }));
  }
  gate.Open();
  EXPECT_EQ(flock.AwaitResult().steps(), 3 * kPerEpoch);
}

INSTANTIATE_TEST_SUITE_P(
    Models, EveryBound,
    ::testing::Values(
        Bound{"BulkSynchronous", [](v1alpha1::Consistency& c) { c.mutable_bulk_synchronous(); }, 0},
        Bound{"StaleSynchronous0",
              [](v1alpha1::Consistency& c) { c.mutable_stale_synchronous()->set_staleness(0); }, 0},
        Bound{"StaleSynchronous3",
              [](v1alpha1::Consistency& c) { c.mutable_stale_synchronous()->set_staleness(3); }, 3},
        Bound{"Asynchronous", [](v1alpha1::Consistency& c) { c.mutable_asynchronous(); },
              std::nullopt},
        Bound{"BackupWorkers",
              [](v1alpha1::Consistency& c) { c.mutable_backup_workers()->set_backups(1); },
              std::nullopt}),
    [](const auto& one) { return std::string(one.param.name); });

// Downpour.

TEST_F(ClientWorkerTest, DownpourFetchesAndPushesOnceInItsPeriods) {
  v1alpha1::TrainingJobSpec spec = VisitJob(2);
  v1alpha1::Downpour& downpour =
      *spec.mutable_exchange()->mutable_parameter_server()->mutable_downpour();
  downpour.set_fetch_every(2);
  downpour.set_push_every(4);
  ServerFlock flock(spec, VisitData(), NewVisitEngine, NewJobDir());
  flock.AddServers(2);
  flock.AddWorkers(1);

  const v1alpha1::Result result = flock.AwaitResult();

  EXPECT_EQ(result.steps(), 2 * kPerEpoch / 4) << "a step is a push";
  EXPECT_THAT(VisitsOf(result), Each(2.0F)) << "the sum of all changes";
  const std::vector<VisitEngine::Call> calls = flock.EngineOf<VisitEngine>(0).calls();
  ASSERT_EQ(calls.size(), static_cast<std::size_t>(2 * kPerEpoch));
  const auto sum = [](const std::vector<float>& values) {
    double total = 0;
    for (const float value : values) total += static_cast<double>(value);
    return total;
  };
  // A fetch finds what was pushed: whole fours. Between fetches the own copy goes on.
  for (std::size_t unit = 0; unit < calls.size(); ++unit) {
    const auto pushed = static_cast<double>(unit / 4 * 4 * kBatch);
    const double own = unit % 2 == 1 ? static_cast<double>(kBatch) : 0;
    EXPECT_EQ(sum(calls[unit].parameters), pushed + own) << unit;
  }
}

TEST_F(ClientWorkerTest, DownpourSurvivesDeaths) {
  v1alpha1::TrainingJobSpec spec = VisitJob(8);
  v1alpha1::Downpour& downpour =
      *spec.mutable_exchange()->mutable_parameter_server()->mutable_downpour();
  downpour.set_fetch_every(3);
  downpour.set_push_every(2);
  downpour.set_warm_start(20);
  ServerFlock flock(spec, VisitData(), NewVisitEngine, NewJobDir());
  flock.AddServers(2);
  flock.AddWorkers(3);
  ASSERT_TRUE(flock.AwaitSettled(60));
  flock.Kill(ServerFlock::WorkerUid(1));
  flock.Kill(ServerFlock::ServerUid(1));
  EXPECT_THAT(VisitsOf(flock.AwaitResult()), Each(8.0F));
}

// Validation and the end.

v1alpha1::TrainingJobSpec TinyJob() {
  v1alpha1::TrainingJobSpec spec = VisitJob(20);
  const auto fill = [](v1alpha1::DataSource& source, std::int64_t samples) {
    source.mutable_synthetic()->set_samples(samples);
    source.mutable_synthetic()->add_shape(3);
    source.mutable_synthetic()->set_classes(4);
  };
  fill(*spec.mutable_dataset()->mutable_train(), 100);
  fill(*spec.mutable_dataset()->mutable_validation(), 50);
  spec.mutable_optimizer()->mutable_sgd()->set_learning_rate(0.1);
  spec.mutable_validation()->set_every_epochs(1);
  return spec;
}

std::unique_ptr<engine::Engine> NewTinyEngine(int /*worker*/) {
  return std::make_unique<TinyEngine>(3, 4, 7);
}

TEST_F(ClientWorkerTest, ValidatesAndReachesItsTarget) {
  v1alpha1::TrainingJobSpec spec = TinyJob();
  spec.mutable_stop()->set_epochs(2000);
  spec.mutable_stop()->mutable_target()->set_metric("validation/accuracy");
  spec.mutable_stop()->mutable_target()->set_at_least(0.5);
  ServerFlock flock(spec, *data::LoadDatasets(spec), NewTinyEngine, NewJobDir());
  flock.AddServers(2);
  flock.AddWorkers(2);

  const v1alpha1::Result result = flock.AwaitResult();

  EXPECT_TRUE(result.target_reached());
  EXPECT_THAT(result.steps(), Lt(2000));
  EXPECT_GE(result.metrics().at("validation/accuracy"), 0.5);
  EXPECT_THAT(result.model().sha256(), Ne(""));
}

TEST_F(ClientWorkerTest, KeepsTheBestParametersAndStopsWhenPatienceEnds) {
  v1alpha1::TrainingJobSpec spec = TinyJob();
  spec.mutable_stop()->set_epochs(2000);
  spec.mutable_optimizer()->mutable_sgd()->set_learning_rate(4);  // it wanders
  spec.mutable_validation()->set_keep_best(true);
  spec.mutable_validation()->set_patience(3);
  ServerFlock flock(spec, *data::LoadDatasets(spec), NewTinyEngine, NewJobDir());
  flock.AddServers(2);
  flock.AddWorkers(2);

  const v1alpha1::Result result = flock.AwaitResult();

  EXPECT_THAT(result.steps(), Lt(10'000));
  EXPECT_THAT(result.metrics().at("validation/loss"),
              Lt(flock.Training().progress().metrics().at("validation/loss")));
}

TEST_F(ClientWorkerTest, AnotherWorkerValidatesAndConcludesWhenTheFirstDies) {
  v1alpha1::TrainingJobSpec spec = TinyJob();
  spec.mutable_stop()->set_epochs(30);
  ServerFlock flock(spec, *data::LoadDatasets(spec), NewTinyEngine, NewJobDir());
  flock.AddServers(2);
  flock.AddWorkers(3);
  const auto turn = [&] {
    std::int64_t newest = 0;
    for (int worker = 0; worker < 3; ++worker) {
      v1alpha1::ParameterServerReport report;
      report.ParseFromString(flock.ReportOf(ServerFlock::WorkerUid(worker)).parameter_server);
      newest = std::max(newest, report.evaluation().turn());
    }
    return newest;
  };
  ASSERT_TRUE(flock.Await([&] { return turn() >= 3; }));
  flock.Kill(ServerFlock::WorkerUid(0));
  ASSERT_TRUE(flock.Await([&] { return turn() >= 10; }));
  flock.Kill(ServerFlock::WorkerUid(1));

  const v1alpha1::Result result = flock.AwaitResult();

  EXPECT_EQ(result.epochs(), 30);
  EXPECT_TRUE(result.metrics().contains("validation/accuracy"));
}

TEST_F(ClientWorkerTest, ALeavingWorkerFinishesWhatItHoldsAndGoes) {
  ServerFlock flock(VisitJob(20), VisitData(), NewVisitEngine, NewJobDir());
  flock.AddServers(2);
  flock.AddWorkers(3);
  ASSERT_TRUE(flock.AwaitSettled(50));

  flock.Terminate(ServerFlock::WorkerUid(1));

  ASSERT_TRUE(flock.AwaitEnd(ServerFlock::WorkerUid(1)));
  EXPECT_TRUE(flock.EndOf(ServerFlock::WorkerUid(1)).ok());
  EXPECT_LT(flock.coordinator().settled(), 20 * kPerEpoch) << "the others go on";
  EXPECT_THAT(VisitsOf(flock.AwaitResult()), Each(20.0F));
  // What it did is in: nothing was done twice.
  std::size_t calls = 0;
  for (int worker = 0; worker < 3; ++worker) {
    calls += flock.EngineOf<VisitEngine>(worker).calls().size();
  }
  EXPECT_EQ(calls, static_cast<std::size_t>(20 * kPerEpoch));
}

TEST_F(ClientWorkerTest, ServersAndWorkersComeAndGoWhileItTrains) {
  v1alpha1::TrainingJobSpec spec = VisitJob(30);
  ModelOf(spec).mutable_stale_synchronous()->set_staleness(3);
  ServerFlock flock(spec, VisitData(), NewVisitEngine, NewJobDir());
  flock.AddServers(1);
  flock.AddWorkers(1);
  ASSERT_TRUE(flock.AwaitSettled(50));
  flock.AddServers(2);
  flock.AddWorkers(3);
  ASSERT_TRUE(flock.AwaitSettled(700));
  flock.Drain(ServerFlock::ServerUid(0));
  flock.Drain(ServerFlock::WorkerUid(0));
  flock.Drain(ServerFlock::WorkerUid(3));
  ASSERT_TRUE(flock.AwaitEnd(ServerFlock::ServerUid(0)));
  ASSERT_TRUE(flock.AwaitEnd(ServerFlock::WorkerUid(0)));
  EXPECT_THAT(VisitsOf(flock.AwaitResult()), Each(30.0F));
}

TEST_F(ClientWorkerTest, ASuccessorOfTheCoordinatorGoesOnWhereItWas) {
  ServerFlock flock(VisitJob(20), VisitData(), NewVisitEngine, NewJobDir());
  flock.AddServers(2);
  flock.AddWorkers(2);
  ASSERT_TRUE(flock.AwaitSettled(100));
  flock.ReplaceCoordinator();
  ASSERT_TRUE(flock.AwaitSettled(300));
  flock.ReplaceCoordinator();
  EXPECT_THAT(VisitsOf(flock.AwaitResult()), Each(20.0F));
}

TEST_F(ClientWorkerTest, AllServersLostTheSlotsComeFromTheirSnapshotsAndLeasesAreRedone) {
  v1alpha1::TrainingJobSpec spec = VisitJob(40);
  spec.mutable_checkpoint()->mutable_interval()->set_nanos(20'000'000);
  ServerFlock flock(spec, VisitData(), NewVisitEngine, NewJobDir());
  flock.AddServers(2);
  flock.AddWorkers(2);
  ASSERT_TRUE(flock.AwaitSettled(300));
  ASSERT_TRUE(flock.Await([&] { return flock.Training().has_checkpoint(); }));

  flock.Kill(ServerFlock::ServerUid(0));
  flock.Kill(ServerFlock::ServerUid(1));
  flock.Restart(ServerFlock::ServerUid(0));
  flock.Restart(ServerFlock::ServerUid(1));

  EXPECT_THAT(VisitsOf(flock.AwaitResult()), Each(40.0F));
}

TEST_F(ClientWorkerTest, HaltsAndGoesOnFromWhatTheServersHaveSaved) {
  const std::string folder = NewJobDir();
  std::int64_t stopped_at = 0;
  {
    ServerFlock flock(VisitJob(30), VisitData(), NewVisitEngine, folder);
    flock.AddServers(2);
    flock.AddWorkers(2);
    ASSERT_TRUE(flock.AwaitSettled(100));
    flock.SetHalt(true);
    ASSERT_TRUE(flock.Await([&] { return flock.Summary().stopped; }));
    stopped_at = flock.coordinator().settled();
    EXPECT_LT(stopped_at, 30 * kPerEpoch);
  }
  ServerFlock flock(VisitJob(30), VisitData(), NewVisitEngine, folder);
  flock.ReplaceCoordinator();  // incarnation 2: its views are later ones
  flock.AddServers(2);
  flock.AddWorkers(3);
  ASSERT_TRUE(flock.AwaitSettled(stopped_at));
  EXPECT_THAT(VisitsOf(flock.AwaitResult()), Each(30.0F));
  std::size_t calls = 0;
  for (int worker = 0; worker < 3; ++worker) {
    calls += flock.EngineOf<VisitEngine>(worker).calls().size();
  }
  EXPECT_EQ(calls, static_cast<std::size_t>(30 * kPerEpoch - stopped_at)) << "nothing is repeated";
}

// Anybody dies at any moment, all copies of a slot at once too, and the coordinator; most come
// back.
TEST_F(ClientWorkerTest, WhoeverDiesWheneverEverySampleIsUsedOnceAnEpoch) {
  const char* wanted = std::getenv("STARLING_CHAOS_SEED");
  std::mt19937 random(wanted == nullptr ? 1 : static_cast<unsigned>(std::atoi(wanted)));
  v1alpha1::TrainingJobSpec spec = VisitJob(25);
  spec.mutable_checkpoint()->mutable_interval()->set_nanos(100'000'000);
  switch (random() % 4) {
    case 0:
      ModelOf(spec).mutable_asynchronous();
      break;
    case 1:
      ModelOf(spec).mutable_bounded_delay()->set_delay(3);
      break;
    default:
      ModelOf(spec).mutable_stale_synchronous()->set_staleness(2);
  }
  ServerFlock flock(spec, VisitData(), NewVisitEngine, NewJobDir());
  flock.AddServers(3);
  flock.AddWorkers(3);
  std::vector<std::string> uids;
  for (int i = 0; i < 3; ++i) {
    uids.push_back(ServerFlock::WorkerUid(i));
    uids.push_back(ServerFlock::ServerUid(i));
  }
  std::set<std::string> dead;
  for (int event = 0; event < 25 && !flock.Training().has_result(); ++event) {
    const std::string& uid = uids[random() % uids.size()];
    if (dead.erase(uid) > 0) {
      flock.Restart(uid);
    } else if (random() % 6 == 0) {
      flock.ReplaceCoordinator();
    } else {
      flock.Kill(uid);
      dead.insert(uid);
    }
    for (auto turns = random() % 150; turns > 0; --turns) flock.Turn();
    if (dead.size() > 4) continue;
    flock.AwaitFor(absl::Milliseconds(random() % 200));
  }
  for (const std::string& uid : dead) flock.Restart(uid);
  const v1alpha1::Result result = flock.AwaitResult();
  ASSERT_EQ(result.steps(), 25 * kPerEpoch);
  EXPECT_THAT(VisitsOf(result), Each(25.0F));
}

TEST_F(ClientWorkerTest, DivergenceIsTheJobsFailureAndNothingOfItIsPushed) {
  v1alpha1::TrainingJobSpec spec = TinyJob();
  spec.mutable_optimizer()->mutable_sgd()->set_learning_rate(1e38);
  spec.mutable_stop()->set_epochs(1000);
  ServerFlock flock(spec, *data::LoadDatasets(spec), NewTinyEngine, NewJobDir());
  flock.AddServers(1);
  flock.AddWorkers(1);
  ASSERT_TRUE(flock.AwaitEnd(ServerFlock::WorkerUid(0)));
  EXPECT_THAT(flock.EndOf(ServerFlock::WorkerUid(0)).message(), HasSubstr("not a finite number"));
  ASSERT_TRUE(flock.Await([&] { return flock.Training().failure() != ""; }));
  EXPECT_THAT(flock.Training().failure(), HasSubstr("learningRate"));
}

// Sixteen samples with a weight of their own each, and one that all share.
std::shared_ptr<const data::SparseDataset> SparseSamples() {
  auto all = std::make_shared<data::SparseDataset>();
  all->hashed = 1 << 20;
  for (std::uint64_t i = 0; i < 160; ++i) {
    all->features.insert(all->features.end(), {i % 16 * 50021 + 1, 900001});
    all->values.insert(all->values.end(), {1, 0.1F});
    all->offsets.push_back(all->features.size());
    all->labels.push_back(i % 2 == 0 ? 1 : -1);
  }
  return all;
}

TEST_F(ClientWorkerTest, ASparseModelTrainsByItsTouchedRowsThoughAServerIsKilled) {
  const std::shared_ptr<const data::SparseDataset> samples = SparseSamples();
  data::Datasets datasets;
  datasets.sparse = samples;
  datasets.digest = "0123456789abcdef0123456789abcdef";
  datasets.train.shape = {1};
  datasets.train.classes = 2;
  for (std::int64_t i = 0; i < samples->size(); ++i) {
    datasets.train.features.push_back(static_cast<float>(i));
    datasets.train.labels.push_back(i % 2 == 0 ? 1 : 0);
  }
  datasets.validation = datasets.train;
  v1alpha1::TrainingJobSpec spec = VisitJob(/*epochs=*/20);
  spec.mutable_workload()->mutable_sparse_logistic_regression()->set_hashed_features(1 << 20);
  spec.mutable_dataset()->mutable_validation()->mutable_libsvm()->set_uri("in memory here");
  spec.mutable_optimizer()->mutable_adagrad()->set_learning_rate(0.5);
  spec.mutable_validation()->set_every_epochs(1);
  ServerFlock flock(
      spec, datasets, [&](int) { return std::make_unique<sparse::LogisticEngine>(samples, 0); },
      NewJobDir());
  flock.AddServers(2);
  flock.AddWorkers(2);
  ASSERT_TRUE(flock.AwaitSettled(20));
  flock.Kill(ServerFlock::ServerUid(0));
  const v1alpha1::Result result = flock.AwaitResult();
  EXPECT_EQ(result.steps(), 200);
  EXPECT_GT(result.metrics().at("validation/accuracy"), 0.99);
}

}  // namespace
}  // namespace starling::worker
