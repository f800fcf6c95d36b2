// SPDX-License-Identifier: Apache-2.0
// Whole lives of jobs against the real store, undisturbed and with a controller that dies after
// every single write.
#include "controller/trainingjob/trainingjob_reconciler.h"

#include "controller/kube/objects.h"
#include "controller/testing/faulty_kube_client.h"
#include "controller/testing/test_world.h"
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
  bool own_container = false;
  std::int64_t servers = 0;
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

bool LoseAServer(TestWorld& world, int& stage) {
  if (stage == 0 && world.step() >= 4 && world.PodRuns("digits-parameter-server-1")) {
    world.KillPod("digits-parameter-server-1");
    stage = 1;
  }
  return stage == 1 && HasSucceeded(world);
}

bool ScaleServersAndSuspend(TestWorld& world, int& stage) {
  const auto scale = [&](int replicas) {
    world.PatchJob({{"spec", {{"replicaSpecs", {{"parameterServer", {{"replicas", replicas}}}}}}}});
  };
  if (stage == 0 && world.step() >= 2) {
    scale(3);
    stage = 1;
  } else if (stage == 1 && world.PodRuns("digits-parameter-server-2")) {
    scale(1);
    stage = 2;
  } else if (stage == 2 && !world.PodRuns("digits-parameter-server-1")) {
    world.PatchJob(Suspend(true));
    stage = 3;
  } else if (stage == 3 && world.State() == "Suspended") {
    EXPECT_EQ(world.CountPods(), 0U);
    world.PatchJob(Suspend(false));
    stage = 4;
  }
  return stage == 4 && HasSucceeded(world);
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

bool MeetAQuota(TestWorld& world, int& stage) {
  if (stage == 0 && world.step() >= 2) {
    world.server().LimitPods(3);
    world.PatchJob(Scale(4));
    stage = 1;
  } else if (stage == 1 && world.ReasonOf("Degraded") == "QuotaExceeded") {
    EXPECT_EQ(world.State(), "Running");  // with as many as there are
    stage = 2;
  }
  return stage == 2 && HasSucceeded(world);
}

bool ScaleContainers(TestWorld& world, int& stage) {
  if (stage == 0 && world.PodRuns("digits-worker-1")) {
    world.PatchJob(Scale(3));
    stage = 1;
  }
  return stage == 1 && HasSucceeded(world);
}

bool LoseAContainer(TestWorld& world, int& stage) {
  // While others wait nobody says so.
  const bool both = world.PodRuns("digits-worker-0") && world.PodRuns("digits-worker-1");
  if (stage == 0 && (world.State() == "Running" || (world.busy() && both))) {
    world.KillPod("digits-worker-1");
    stage = 1;
  }
  return stage == 1 && HasSucceeded(world);
}

// Runs the scenario, and a little longer; empty: it did not come to its end.
std::string Live(TestWorld& world, const Scenario& scenario) {
  if (scenario.own_container) {
    world.CreateContainerJob(scenario.workers);
  } else {
    world.CreateJob(scenario.workers, scenario.servers);
  }
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
                               {"MeetAQuota", 2, MeetAQuota},
                               {"ContainersRunToTheEnd", 2, RunToTheEnd, true},
                               {"ScaleContainers", 2, ScaleContainers, true},
                               {"LoseAContainer", 2, LoseAContainer, true},
                               {"LoseAServer", 1, LoseAServer, false, 2},
                               {"ScaleServersAndSuspend", 1, ScaleServersAndSuspend, false, 1},
                               {"ExpireAfterSuccess", 2, ExpireAfterSuccess}};

INSTANTIATE_TEST_SUITE_P(Scenarios, LifeOfAJob, testing::ValuesIn(kScenarios),
                         [](const auto& life) { return life.param.name; });

// While many jobs wait, the first status of each does too, and nothing is lost by it.
TEST_P(LifeOfAJob, EndsTheSameWhileOthersWaitHoweverTheControllerDies) {
  TestWorld undisturbed;
  const std::string expected = Live(undisturbed, GetParam());
  TestWorld busy(/*admission=*/true, /*cluster=*/false, /*busy=*/true);
  ASSERT_EQ(Live(busy, GetParam()), expected);
  EXPECT_EQ(busy.writes() < undisturbed.writes(), GetParam().own_container);
  if (!GetParam().own_container) return;  // what is written is the same
  for (std::int64_t nth = 1; nth <= busy.writes(); ++nth) {
    for (const kube::Fault fault : {kube::Fault::kCrashAfter, kube::Fault::kUnknownResult}) {
      TestWorld world(/*admission=*/true, /*cluster=*/false, /*busy=*/true);
      world.CrashAt(nth, fault);
      ASSERT_EQ(Live(world, GetParam()), expected) << "write " << nth;
    }
  }
}

// A job that waits for long says so in the end.
TEST(BusyLife, FirstStatusIsWrittenInTime) {
  TestWorld world(/*admission=*/true, /*cluster=*/true, /*busy=*/true);
  world.server().LimitPods(0);
  world.CreateContainerJob(2);
  world.Tick();
  world.Tick();
  EXPECT_EQ(world.ReasonOf("Degraded"), "QuotaExceeded") << "a problem does not wait";
  TestWorld quiet(/*admission=*/true, /*cluster=*/true, /*busy=*/true);
  quiet.CreateContainerJob(2);
  quiet.Tick();
  EXPECT_EQ(quiet.State(), "");
  EXPECT_EQ(quiet.CountPods(), 2U);
  quiet.Tick();
  EXPECT_TRUE(quiet.PodRuns("digits-worker-1"));
  EXPECT_EQ(quiet.State(), "");
  for (int i = 0; i < 120 && quiet.State().empty(); ++i) quiet.Tick();
  EXPECT_NE(quiet.State(), "");
}

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

// What a job of one coordinator and two workers costs the API server from its creation to its end,
// progress and events apart. Who makes it more has to say why.
TEST(ClusterLife, CostsFewWrites) {
  TestWorld world(/*admission=*/true, /*cluster=*/true);
  world.CreateJob(2);
  for (int i = 0; i < kMostTicks && !HasSucceeded(world); ++i) world.Tick();
  for (int i = 0; i < 12; ++i) world.Tick();
  ASSERT_EQ(world.State(), "Succeeded") << world.Summary();

  const std::map<std::string, int> expected = {
      {"create Pod", 3},          {"create Secret", 1},
      {"create Service", 1},      {"create EndpointSlice", 1},
      {"patch EndpointSlice", 0}, {"delete EndpointSlice", 1},
      {"create ConfigMap", 1},    {"create PodDisruptionBudget", 1}};
  for (const auto& [what, most] : expected) {
    const auto found = world.server().writes().find(what);
    EXPECT_EQ(found == world.server().writes().end() ? 0 : found->second, most) << what;
  }
  int status_and_deletes = 0;
  for (const auto& [what, count] : world.server().writes()) {
    if (!expected.contains(what) && what.find("Event") == std::string::npos) {
      status_and_deletes += count;
    }
  }
  EXPECT_LE(status_and_deletes,
            8);  // created, granted, running, ended, pods seen, coordinator gone
  EXPECT_EQ(world.ReasonOf("Succeeded"), "CheckpointNotDurable");
}

// A list from before the pods were made: each name is taken, by whom is asked, and no pod is made
// twice.
TEST(ClusterLife, LateListsMakeNoSecondPod) {
  TestWorld world(/*admission=*/true, /*cluster=*/true);
  world.CreateJob(2);
  world.Tick();
  ASSERT_EQ(world.CountPods(), 3U);
  world.server().HidePods(5);
  for (int i = 0; i < 5; ++i) {
    world.Tick();
    EXPECT_EQ(world.CountPods(), 3U);
  }
  for (int i = 0; i < kMostTicks && !HasSucceeded(world); ++i) world.Tick();
  EXPECT_EQ(world.State(), "Succeeded") << world.Summary();
  EXPECT_EQ(world.ReasonOf("Degraded"), "");
}

// A refusal is answered with patience, not with more requests.
TEST(ClusterLife, RefusedPodIsTriedLessAndLessOften) {
  TestWorld world(/*admission=*/true, /*cluster=*/true);
  world.server().LimitPods(2);  // of three
  world.CreateJob(2);
  for (int i = 0; i < 10; ++i) world.Tick();
  EXPECT_EQ(world.ReasonOf("Degraded"), "QuotaExceeded");
  EXPECT_EQ(world.State(), "Running");  // with the one worker that it could get
  EXPECT_LE(world.server().writes().at("create Pod"), 3 + 4);
}

// Somebody else's Secret has the name of the job's own: said, with patience, and mended by itself.
TEST(ClusterLife, TakenNameIsToldAndTriedLessAndLessOften) {
  TestWorld world(/*admission=*/true, /*cluster=*/true);
  const kube::Json foreign = {{"apiVersion", "v1"},
                              {"kind", "Secret"},
                              {"metadata", {{"name", "digits-secret"}, {"namespace", "default"}}}};
  ASSERT_TRUE(world.server().Create(kube::kSecret, foreign).ok());
  world.CreateJob(2);
  for (int i = 0; i < 70; ++i) world.Tick();  // 7 s
  EXPECT_EQ(world.ReasonOf("Degraded"), "NameTaken") << world.Summary();
  EXPECT_EQ(world.CountPods(), 0U);
  EXPECT_LE(world.server().writes().at("create Secret"), 1 + 7);
  ASSERT_TRUE(world.server().Delete(kube::kSecret, {"default", "digits-secret"}, {}).ok());
  for (int i = 0; i < 400 && !HasSucceeded(world); ++i) world.Tick();
  EXPECT_EQ(world.State(), "Succeeded") << world.Summary();
  EXPECT_EQ(world.ReasonOf("Degraded"), "");
}

TEST(LifeOfAJobControl, ASchedulingPolicyOnOneMachineIsToldToHaveNoEffect) {
  for (const bool given : {false, true}) {
    TestWorld world(/*admission=*/false);
    world.CreateJob(2);
    if (given) {
      world.PatchJob({{"spec", {{"runPolicy", {{"schedulingPolicy", {{"queue", "research"}}}}}}}});
    }
    for (int i = 0; i < 5; ++i) world.Tick();
    EXPECT_EQ(world.ReasonOf("Degraded"), given ? "SchedulingIgnored" : "") << world.Summary();
  }
}

TEST(ClusterLife, JobOfAnotherControllerIsNotTouched) {
  TestWorld world(/*admission=*/false, /*cluster=*/true);
  world.CreateJob(2);
  world.PatchJob({{"spec", {{"runPolicy", {{"managedBy", "kueue.x-k8s.io/multikueue"}}}}}});
  for (int i = 0; i < 5; ++i) world.Tick();
  EXPECT_EQ(world.CountPods(), 0U);
  EXPECT_TRUE(world.server().writes().empty());
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

// The same world, in which an API server has its own will.
class ClusterWill : public testing::Test {
 protected:
  void Ticks(int n) {
    for (int i = 0; i < n; ++i) world_.Tick();
  }

  TestWorld world_{/*admission=*/true, /*cluster=*/true};
};

TEST_F(ClusterWill, PodsThatItCallsInvalidFailTheJobInItsWords) {
  world_.server().RefusePods(absl::InvalidArgumentError("spec.containers[0].image: Required"));
  world_.CreateJob(2);
  Ticks(3);
  EXPECT_EQ(world_.State(), "Failed");
  EXPECT_EQ(world_.ReasonOf("Failed"), "InvalidSpec");
  EXPECT_NE(kube::StringAt(kube::FindCondition(world_.Job(), "Failed"), "/message")
                .find("spec.containers[0].image: Required"),
            std::string::npos);
  EXPECT_EQ(world_.CountPods(), 0U);
}

TEST_F(ClusterWill, PodsThatItForbidsAreToldAndTriedAgain) {
  world_.server().RefusePods(absl::PermissionDeniedError("violates PodSecurity \"restricted\""));
  world_.CreateJob(2);
  Ticks(5);
  EXPECT_EQ(world_.ReasonOf("Degraded"), "PodForbidden");
  EXPECT_EQ(world_.State(), "Pending");
  world_.server().RefusePods(absl::OkStatus());
  for (int i = 0; i < kMostTicks && !HasSucceeded(world_); ++i) world_.Tick();
  EXPECT_EQ(world_.State(), "Succeeded") << world_.Summary();
  EXPECT_EQ(world_.ReasonOf("Degraded"), "");
}

TEST_F(ClusterWill, AnErrorOfItsOwnIsNoVerdictOnTheJob) {
  world_.server().RefusePods(absl::UnavailableError("etcd has no leader"));
  world_.CreateJob(2);
  Ticks(30);
  EXPECT_EQ(world_.ReasonOf("Degraded"), "");
  EXPECT_EQ(world_.State(), "Pending");
  world_.server().RefusePods(absl::OkStatus());
  Ticks(2);
  EXPECT_EQ(world_.CountPods(), 3U);
}

}  // namespace
}  // namespace starling::trainingjob
