// SPDX-License-Identifier: Apache-2.0
// Whole lives of jobs against the real store, undisturbed and with a controller that dies after
// every single write.
#include "controller/trainingjob/trainingjob_reconciler.h"

#include "controller/kube/objects.h"
#include "controller/trainingjob/test_world.h"
#include "gtest/gtest.h"

namespace starling::trainingjob {
namespace {

using kube::Json;

constexpr int kMostTicks = 600;

// What users and fate do; called at every tick, returns whether all is over.
struct Scenario {
  const char* name;
  std::int64_t workers;
  std::function<bool(TestWorld&, int& stage)> drive;
};

void PrintTo(const Scenario& scenario, std::ostream* out) { *out << scenario.name; }

bool HasSucceeded(TestWorld& world) { return world.State() == "Succeeded"; }

Json Suspend(bool suspend) { return {{"spec", {{"runPolicy", {{"suspend", suspend}}}}}}; }

Json Scale(int replicas) {
  return {{"spec", {{"replicaSpecs", {{"worker", {{"replicas", replicas}}}}}}}};
}

bool RunToTheEnd(TestWorld& world, int& /*stage*/) { return HasSucceeded(world); }

bool SuspendAndResume(TestWorld& world, int& stage) {
  if (stage == 0 && world.step() >= 3) {
    world.PatchJob(Suspend(true));
    stage = 1;
  } else if (stage == 1 && world.State() == "Suspended") {
    EXPECT_EQ(world.CountPods(), 0U);
    world.PatchJob(Suspend(false));
    stage = 2;
  }
  return stage == 2 && HasSucceeded(world);
}

bool ScaleUpAndDown(TestWorld& world, int& stage) {
  if (stage == 0 && world.step() >= 2) {
    world.PatchJob(Scale(4));
    stage = 1;
  } else if (stage == 1 && world.PodRuns("digits-worker-3") && world.step() >= 4) {
    world.PatchJob(Scale(2));
    stage = 2;
  }
  return stage == 2 && HasSucceeded(world) && !world.PodRuns("digits-worker-3");
}

bool LoseAWorker(TestWorld& world, int& stage) {
  if (stage == 0 && world.step() >= 4) {
    world.KillPod("digits-worker-1");
    stage = 1;
  }
  return stage == 1 && HasSucceeded(world);
}

bool LoseTheCoordinator(TestWorld& world, int& stage) {
  if (stage == 0 && world.step() >= 4) {
    world.KillPod("digits-coordinator-0");
    stage = 1;
  }
  return stage == 1 && HasSucceeded(world);
}

bool CoordinatorHangs(TestWorld& world, int& stage) {
  if (stage == 0 && world.step() >= 4) {
    world.Hang("digits-coordinator-0");
    stage = 1;
  }
  return stage == 1 && HasSucceeded(world);
}

bool Delete(TestWorld& world, int& stage) {
  if (stage == 0 && world.step() >= 4) {
    world.DeleteJob();
    stage = 1;
  }
  return stage == 1 && world.CountPods() == 0;
}

bool ExpireAfterSuccess(TestWorld& world, int& stage) {
  if (stage == 0 && world.step() >= 4) {
    world.PatchJob({{"spec", {{"runPolicy", {{"ttlSecondsAfterFinished", 1}}}}}});
    stage = 1;
  }
  return stage == 1 && world.State() == "Gone" && world.CountPods() == 0;
}

// Runs the scenario, and a little longer; empty: it did not come to its end.
std::string Live(TestWorld& world, const Scenario& scenario) {
  world.CreateJob(scenario.workers);
  int stage = 0;
  for (int tick = 0; tick < kMostTicks; ++tick) {
    world.Tick();
    if (!scenario.drive(world, stage)) continue;
    for (int i = 0; i < 12; ++i) world.Tick();
    return world.Summary();
  }
  return "";
}

class LifeOfAJob : public testing::TestWithParam<Scenario> {};

TEST_P(LifeOfAJob, ComesToItsEnd) {
  TestWorld world;
  const std::string end = Live(world, GetParam());
  EXPECT_NE(end, "") << world.Summary();
}

TEST_P(LifeOfAJob, EndsTheSameHoweverTheControllerDies) {
  TestWorld undisturbed;
  const std::string expected = Live(undisturbed, GetParam());
  ASSERT_NE(expected, "");
  for (std::int64_t nth = 1; nth <= undisturbed.writes(); ++nth) {
    TestWorld world;
    world.CrashAt(nth, kube::Fault::kCrashAfter);
    ASSERT_EQ(Live(world, GetParam()), expected) << "write " << nth;
    ASSERT_GE(world.crashes(), nth < undisturbed.writes() / 2 ? 1 : 0);
  }
}

// Every fault at some write, every write with some fault.
TEST_P(LifeOfAJob, EndsTheSameWhenAWriteIsRefusedOrItsResultIsUnknown) {
  constexpr kube::Fault kFaults[] = {kube::Fault::kRefuse, kube::Fault::kConflict,
                                     kube::Fault::kUnknownResult, kube::Fault::kCrashBefore};
  TestWorld undisturbed;
  const std::string expected = Live(undisturbed, GetParam());
  for (std::int64_t nth = 1; nth <= undisturbed.writes(); ++nth) {
    TestWorld world;
    world.CrashAt(nth, kFaults[static_cast<std::size_t>(nth) % std::size(kFaults)]);
    ASSERT_EQ(Live(world, GetParam()), expected) << "write " << nth;
  }
}

const Scenario kScenarios[] = {{"RunToTheEnd", 2, RunToTheEnd},
                               {"SuspendAndResume", 2, SuspendAndResume},
                               {"ScaleUpAndDown", 2, ScaleUpAndDown},
                               {"LoseAWorker", 2, LoseAWorker},
                               {"LoseTheCoordinator", 2, LoseTheCoordinator},
                               {"CoordinatorHangs", 2, CoordinatorHangs},
                               {"Delete", 2, Delete},
                               {"ExpireAfterSuccess", 2, ExpireAfterSuccess}};

INSTANTIATE_TEST_SUITE_P(Scenarios, LifeOfAJob, testing::ValuesIn(kScenarios),
                         [](const auto& life) { return life.param.name; });

// Negative control: the summaries that are compared do tell lives apart.
TEST(LifeOfAJobControl, DifferentLivesHaveDifferentSummaries) {
  std::set<std::string> summaries;
  for (const Scenario& scenario : kScenarios) {
    if (std::string_view(scenario.name) == "ExpireAfterSuccess") continue;  // as empty as Delete
    TestWorld world;
    summaries.insert(Live(world, scenario));
  }
  EXPECT_GE(summaries.size(), 6U);
}

TEST(LifeOfAJobControl, SecretIsMadeOnceHoweverTheControllerDies) {
  TestWorld world;
  world.CreateJob(1);
  world.Tick();
  const std::string first = world.SecretKey();
  ASSERT_NE(first, "");
  for (int i = 0; i < 20; ++i) {
    world.CrashAt(1, kube::Fault::kCrashAfter);
    world.Tick();
  }
  EXPECT_EQ(world.SecretKey(), first);
}

TEST(LifeOfAJobControl, WrongSpecThatSlippedPastAdmissionFailsTheJob) {
  TestWorld world(/*admission=*/false);
  world.CreateJob(1);
  world.PatchJob({{"spec", {{"replicaSpecs", {{"worker", {{"replcas", 3}}}}}}}});
  for (int i = 0; i < 20; ++i) world.Tick();
  EXPECT_EQ(world.State(), "Failed") << world.Summary();
  EXPECT_EQ(world.CountPods(), 0U);
}

}  // namespace
}  // namespace starling::trainingjob
