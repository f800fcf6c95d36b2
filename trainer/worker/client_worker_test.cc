// SPDX-License-Identifier: Apache-2.0
// Whole jobs with parameter servers, in one process, under every consistency model: each sample is
// used once an epoch whoever dies, each step is the average of its pushes, and bounds hold.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "trainer/testing/visit_job.h"
#include "trainer/worker/worker.h"

namespace starling::worker {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::Ge;
using ::testing::IsEmpty;
using ::testing::Le;
using ::testing::Ne;
using ::testing::Not;
using ::testing::SizeIs;

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

// Holds whoever comes until it is let through, one after the other, or it is opened. Thread-safe.
class Turnstile {
 public:
  void Pass() {
    const sync::MutexLock lock(mutex_);
    ++arrived_;
    while (!open_ && allowed_ < arrived_) changed_.Wait(mutex_);
  }
  // How many have come; and how many of them have passed.
  std::size_t arrived() {
    const sync::MutexLock lock(mutex_);
    return arrived_;
  }
  std::size_t allowed() {
    const sync::MutexLock lock(mutex_);
    return allowed_;
  }
  void LetOne() {
    const sync::MutexLock lock(mutex_);
    ++allowed_;
    changed_.NotifyAll();
  }
  void Open() {
    const sync::MutexLock lock(mutex_);
    open_ = true;
    changed_.NotifyAll();
  }

 private:
  sync::Mutex mutex_;
  sync::Condition changed_;
  std::size_t arrived_ ABSL_GUARDED_BY(mutex_) = 0;
  std::size_t allowed_ ABSL_GUARDED_BY(mutex_) = 0;
  bool open_ ABSL_GUARDED_BY(mutex_) = false;
};

TEST_F(ClientWorkerTest, OneWorkerTrainsToTheEnd) {
  const std::string folder = NewJobDir();
  ServerCluster cluster(VisitJob(2), VisitData(), NewVisitEngine, folder);
  cluster.AddServers(2);
  cluster.AddWorkers(1);

  const v1alpha1::Result result = cluster.AwaitResult();

  EXPECT_EQ(result.steps(), 2 * kPerEpoch);
  EXPECT_EQ(result.samples(), 2 * kSamples);
  EXPECT_EQ(result.epochs(), 2);
  EXPECT_THAT(VisitsOf(result), SizeIs(kSamples));
  EXPECT_THAT(VisitsOf(result), Each(2.0F));
  EXPECT_THAT(LinesOf(folder + "/audit/steps.jsonl"), SizeIs(2 * kPerEpoch));
  cluster.Finish();
  EXPECT_TRUE(cluster.AwaitEnd(ServerCluster::WorkerUid(0)));
  EXPECT_TRUE(cluster.EndOf(ServerCluster::WorkerUid(0)).ok());
  EXPECT_TRUE(cluster.AwaitEnd(ServerCluster::ServerUid(1)));
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
    return spec;
  }
};

TEST_P(EveryModelOfSums, SeveralWorkersUseEverySampleOnceAnEpoch) {
  ServerCluster cluster(Job(3, GetParam()), VisitData(), NewVisitEngine, NewJobDir());
  cluster.AddServers(3);
  cluster.AddWorkers(3);

  const v1alpha1::Result result = cluster.AwaitResult();

  EXPECT_EQ(result.steps(), 3 * kPerEpoch);
  EXPECT_THAT(VisitsOf(result), Each(3.0F));
  for (int worker = 0; worker < 3; ++worker) {
    EXPECT_THAT(cluster.EngineOf<VisitEngine>(worker).calls(), SizeIs(Ge(10)));
  }
}

TEST_P(EveryModelOfSums, ADeadWorkersLeasesAreRedoneOnce) {
  ServerCluster cluster(Job(10, GetParam()), VisitData(), NewVisitEngine, NewJobDir());
  cluster.AddServers(2);
  cluster.AddWorkers(3);
  ASSERT_TRUE(cluster.AwaitSettled(20));

  cluster.Kill(ServerCluster::WorkerUid(0));  // the first client, too: audit, validations
  ASSERT_TRUE(cluster.AwaitSettled(200));
  cluster.Restart(ServerCluster::WorkerUid(0));
  ASSERT_TRUE(cluster.AwaitSettled(400));
  cluster.Kill(ServerCluster::WorkerUid(2));

  EXPECT_THAT(VisitsOf(cluster.AwaitResult()), Each(10.0F));
}

TEST_P(EveryModelOfSums, ADeadServerLosesAndRepeatsNothing) {
  ServerCluster cluster(Job(10, GetParam()), VisitData(), NewVisitEngine, NewJobDir());
  cluster.AddServers(3);
  cluster.AddWorkers(2);
  ASSERT_TRUE(cluster.AwaitSettled(20));

  cluster.Kill(ServerCluster::ServerUid(1));
  ASSERT_TRUE(cluster.AwaitSettled(200));
  cluster.Restart(ServerCluster::ServerUid(1));
  ASSERT_TRUE(cluster.AwaitSettled(400));
  cluster.Kill(ServerCluster::ServerUid(0));

  EXPECT_THAT(VisitsOf(cluster.AwaitResult()), Each(10.0F));
}

INSTANTIATE_TEST_SUITE_P(Models, EveryModelOfSums,
                         ::testing::Values("Asynchronous", "BoundedDelay", "StaleSynchronous",
                                           "Eager"),
                         [](const auto& one) { return std::string(one.param); });

// Models of which a step is the average of several pushes.

class EveryModelOfAverages : public ClientWorkerTest,
                             public ::testing::WithParamInterface<const char*> {
 protected:
  static v1alpha1::TrainingJobSpec Job(std::int64_t epochs, const std::string& name) {
    v1alpha1::TrainingJobSpec spec = VisitJob(epochs);
    v1alpha1::Consistency& model = ModelOf(spec);
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
  ServerCluster cluster(spec, VisitData(), NewVisitEngine, NewJobDir());

  const v1alpha1::Result result = TrainThroughDeaths(cluster);

  EXPECT_EQ(result.steps(), 10 * kPerEpoch);
  ExpectAllUsed(result, 10);
}

INSTANTIATE_TEST_SUITE_P(Models, EveryModelOfAverages,
                         ::testing::Values("BackupWorkers", "SoftSync"),
                         [](const auto& one) { return std::string(one.param); });

// A worker that is always slow: what it brings comes too late each time.
TEST_F(ClientWorkerTest, ALeaseRefusedFromASlowWorkerIsDoneByAnother) {
  constexpr int kSlow = 2;
  const std::string folder = NewJobDir();
  v1alpha1::TrainingJobSpec spec = VisitJob(1);
  ModelOf(spec).mutable_backup_workers()->set_backups(1);
  Turnstile turnstile;
  ServerCluster cluster(
      spec, VisitData(),
      [&](int worker) {
        return std::make_unique<VisitEngine>(kSamples, [&turnstile, worker](std::size_t) {
          if (worker == kSlow) turnstile.Pass();
        });
      },
      folder);
  const std::unique_ptr<Turnstile, void (*)(Turnstile*)> opened_in_the_end(
      &turnstile, [](Turnstile* one) { one->Open(); });
  cluster.AddServers(2);
  cluster.AddWorkers(3);
  const auto others = [&] {
    std::vector<VisitEngine::Call> calls = cluster.EngineOf<VisitEngine>(0).calls();
    for (auto& call : cluster.EngineOf<VisitEngine>(1).calls()) calls.push_back(call);
    return calls;
  };

  ASSERT_TRUE(cluster.Await([&] { return turnstile.arrived() == 1; }));
  const std::size_t before = others().size();
  ASSERT_TRUE(cluster.Await([&] { return others().size() > before + 10; }));
  // It passes each time when the others have gone on without it, or cannot.
  std::size_t gone = others().size();
  int still = 0;
  ASSERT_TRUE(cluster.Await([&] {
    if (turnstile.allowed() < turnstile.arrived() && (others().size() > gone + 4 || ++still > 50)) {
      gone = others().size();
      still = 0;
      turnstile.LetOne();
    }
    return cluster.Training().has_result();
  }));
  EXPECT_EQ(cluster.Training().result().steps(), kPerEpoch);
  const auto slow = cluster.EngineOf<VisitEngine>(kSlow).calls();
  ASSERT_THAT(slow, Not(IsEmpty()));
  const auto refused = slow.front().samples;
  EXPECT_TRUE(std::ranges::any_of(others(), [&](const auto& one) {
    return one.samples == refused;
  })) << "its first lease was to be another's";
  EXPECT_EQ(std::ranges::count_if(slow, [&](const auto& one) { return one.samples == refused; }),
            1);
  const std::vector<std::string> lines = LinesOf(folder + "/audit/steps.jsonl");
  EXPECT_THAT(lines, SizeIs(kPerEpoch));
  EXPECT_THAT(std::set<std::string>(lines.begin(), lines.end()), SizeIs(kPerEpoch));
  EXPECT_THAT(VisitsOf(cluster.Training().result()),
              Each(AllOf(Ge(1 / 3.0F - 1e-3F), Le(1 + 1e-3F))));
}

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
  ServerCluster cluster(
      spec, VisitData(),
      [&](int worker) {
        return std::make_unique<VisitEngine>(kSamples, [&gate, worker](std::size_t call) {
          if (worker == 1) gate.Pass(call);
        });
      },
      NewJobDir());
  cluster.AddServers(2);
  cluster.AddWorkers(2);
  const auto calls = [&] { return cluster.EngineOf<VisitEngine>(0).calls().size(); };

  ASSERT_TRUE(cluster.Await([&] { return gate.reached(); }));
  const std::size_t before = calls();
  if (GetParam().staleness) {
    // Each may be `staleness` clocks before the other, and computes one more.
    const std::size_t most = before + 2 * *GetParam().staleness + 2;
    for (int turn = 0; turn < 300; ++turn) cluster.Turn();
    const std::size_t now = calls();
    EXPECT_LE(now, most);
    for (int turn = 0; turn < 300; ++turn) cluster.Turn();
    EXPECT_EQ(calls(), now) << "it stands";
  } else {
    EXPECT_TRUE(cluster.Await([&] { return calls() > before + 100; }));
  }
  gate.Open();
  EXPECT_EQ(cluster.AwaitResult().steps(), 3 * kPerEpoch);
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
  v1alpha1::LocalSgd& local = *spec.mutable_update()->mutable_local_sgd();
  local.set_fetch_every(2);
  local.set_push_every(4);
  ServerCluster cluster(spec, VisitData(), NewVisitEngine, NewJobDir());
  cluster.AddServers(2);
  cluster.AddWorkers(1);

  const v1alpha1::Result result = cluster.AwaitResult();

  EXPECT_EQ(result.steps(), 2 * kPerEpoch / 4) << "a step is a push";
  EXPECT_THAT(VisitsOf(result), Each(2.0F)) << "the sum of all changes";
  const std::vector<VisitEngine::Call> calls = cluster.EngineOf<VisitEngine>(0).calls();
  ASSERT_EQ(calls.size(), static_cast<std::size_t>(2 * kPerEpoch));
  const auto sum = [](const std::vector<float>& values) {
    double total = 0;
    for (const float value : values) total += static_cast<double>(value);
    return total;
  };
  // A fetch finds what was pushed: whole fours. Between fetches the own copy goes on.
  for (std::size_t unit = 0; unit < calls.size(); ++unit) {
    const std::size_t fours = unit / 4;
    const auto pushed = static_cast<double>(fours * 4 * kBatch);
    const double own = unit % 2 == 1 ? static_cast<double>(kBatch) : 0;
    EXPECT_EQ(sum(calls[unit].parameters), pushed + own) << unit;
  }
}

TEST_F(ClientWorkerTest, WhileAWarmStartLastsOneWorkerWorksAndTheOthersWait) {
  constexpr int kWarm = 40;
  v1alpha1::TrainingJobSpec spec = VisitJob(2);
  v1alpha1::LocalSgd& local = *spec.mutable_update()->mutable_local_sgd();
  local.set_fetch_every(1);
  local.set_push_every(1);
  local.set_warm_start(kWarm);
  sync::Mutex mutex;
  std::vector<int> worked;  // who, unit after unit
  const auto new_engine = [&](int worker) {
    return std::make_unique<VisitEngine>(kSamples, [&mutex, &worked, worker](std::size_t) {
      const sync::MutexLock lock(mutex);
      worked.push_back(worker);
    });
  };
  ServerCluster cluster(spec, VisitData(), new_engine, NewJobDir());
  cluster.AddServers(1);
  cluster.AddWorkers(3);

  EXPECT_THAT(VisitsOf(cluster.AwaitResult()), Each(2.0F));

  const sync::MutexLock lock(mutex);
  ASSERT_THAT(worked, SizeIs(Ge(2 * kPerEpoch)));
  EXPECT_THAT(std::vector<int>(worked.begin(), worked.begin() + kWarm), Each(worked[0]));
  EXPECT_THAT(worked, Contains(Ne(worked[0]))) << "the others work afterwards";
}

TEST_F(ClientWorkerTest, DownpourSurvivesDeaths) {
  v1alpha1::TrainingJobSpec spec = VisitJob(8);
  v1alpha1::LocalSgd& local = *spec.mutable_update()->mutable_local_sgd();
  local.set_fetch_every(3);
  local.set_push_every(2);
  local.set_warm_start(20);
  ServerCluster cluster(spec, VisitData(), NewVisitEngine, NewJobDir());
  cluster.AddServers(2);
  cluster.AddWorkers(3);
  ASSERT_TRUE(cluster.AwaitSettled(60));
  cluster.Kill(ServerCluster::WorkerUid(1));
  cluster.Kill(ServerCluster::ServerUid(1));
  EXPECT_THAT(VisitsOf(cluster.AwaitResult()), Each(8.0F));
}

}  // namespace
}  // namespace starling::worker
