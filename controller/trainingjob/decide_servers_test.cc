// SPDX-License-Identifier: Apache-2.0
// Decisions about the parameter servers of a job: a role like the workers, but what one holds may
// be nowhere else.
#include "controller/testing/test_scene.h"
#include "controller/trainingjob/reasons.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace starling::trainingjob {
namespace {

using ::testing::HasSubstr;

constexpr char kFirst[] = "digits-parameter-server-0";
constexpr char kLast[] = "digits-parameter-server-1";

Scene WithServers(std::int64_t servers = 2) {
  Scene scene;
  scene.servers(servers);
  scene.Training();
  return scene;
}

TEST(Servers, AreMadeBesideWorkersAndToldToTheCoordinator) {
  Scene scene;
  scene.servers(2).set_min_replicas(2);
  scene.Prepared().Add(Role::kCoordinator, 0);
  const Decision made = scene.Do();
  EXPECT_TRUE(Creates(made, Role::kParameterServer, 0));
  EXPECT_TRUE(Creates(made, Role::kParameterServer, 1));
  EXPECT_FALSE(Creates(made, Role::kParameterServer, 2));
  EXPECT_TRUE(Creates(made, Role::kWorker, 1));

  const Decision told = WithServers().Do();
  const v1alpha1::Desired& desired = *told.supervision->desired;
  EXPECT_EQ(desired.servers(), 2);
  EXPECT_EQ(desired.min_servers(), 1);
  EXPECT_EQ(desired.workers(), 2);
  ASSERT_EQ(desired.pods_size(), 4);
  EXPECT_EQ(desired.pods(0).role(), "parameter-server");
  EXPECT_EQ(told.status.replica_statuses().at("parameterServer").ready(), 2);
}

TEST(Servers, AreOfNoConcernToAJobWithoutThem) {
  Scene scene;
  const Decision decision = scene.Training().Do();
  EXPECT_EQ(decision.supervision->desired->servers(), 0);
  EXPECT_FALSE(decision.status.replica_statuses().contains("parameterServer"));
  EXPECT_TRUE(decision.actions.empty());
}

TEST(Servers, ALostOneIsReplacedAndIsAnIncidentOfItsRole) {
  Scene scene = WithServers();
  scene.End(kLast, 137, 9);
  const Decision decision = scene.Do();
  EXPECT_NE(Deletes(decision, kLast), nullptr);
  EXPECT_TRUE(Creates(decision, Role::kParameterServer, 1));
  ASSERT_EQ(decision.status.incidents_size(), 1);
  EXPECT_EQ(decision.status.incidents(0).reason(), "ParameterServerFailed");
  EXPECT_FALSE(MeaningOf(decision.status.incidents(0).reason()).empty());
}

TEST(Servers, ASilentOneIsGivenUpAndReplaced) {
  Scene scene = WithServers();
  for (v1alpha1::MemberStatus& member : *scene.report().mutable_members()) {
    if (member.pod() != kFirst) continue;
    member.set_connected(false);
    member.set_silent_seconds(60);
  }
  const Decision decision = scene.Do();
  EXPECT_NE(Deletes(decision, kFirst), nullptr);
  EXPECT_EQ(Deletes(decision, kLast), nullptr);
  EXPECT_TRUE(Creates(decision, Role::kParameterServer, 2))
      << "its index is taken until it is gone";
  EXPECT_EQ(StateInDesired(decision, kFirst), v1alpha1::Pod::DRAINING);
  EXPECT_EQ(decision.status.incidents(0).reason(), "ParameterServerLost");
}

TEST(Servers, ASurplusOneIsDeletedOnceItIsDrainedAndNotBefore) {
  Scene scene = WithServers();
  scene.servers(1);
  scene.Pod(kLast).surplus_since = scene.now - absl::Hours(5);
  const Decision drains = scene.Do();
  EXPECT_EQ(StateInDesired(drains, kLast), v1alpha1::Pod::DRAINING);
  EXPECT_EQ(Deletes(drains, kLast), nullptr) << "what it holds may be nowhere else";
  EXPECT_EQ(Count<CreatePod>(drains), 0);

  for (v1alpha1::MemberStatus& member : *scene.report().mutable_members()) {
    if (member.pod() == kLast) member.set_drained(true);
  }
  const Decision gone = scene.Do();
  EXPECT_NE(Deletes(gone, kLast), nullptr);
  EXPECT_EQ(Deletes(gone, kFirst), nullptr);
}

TEST(Servers, AWorkerIsDeletedAfterItsTimeThoughItIsNotDrained) {
  Scene scene = WithServers();
  scene.worker().set_replicas(1);
  scene.Pod("digits-worker-1").surplus_since = scene.now - absl::Hours(5);
  EXPECT_NE(Deletes(scene.Do(), "digits-worker-1"), nullptr);
}

TEST(Servers, OneOnANodeThatMustGoIsReplacedBeforeItLeaves) {
  Scene scene = WithServers();
  scene.Pod(kFirst).node = "node-a";
  scene.seen.nodes["node-a"].departure = "taint starling.dev/departing";
  const Decision decision = scene.Do();
  EXPECT_TRUE(Creates(decision, Role::kParameterServer, 2));
  EXPECT_EQ(StateInDesired(decision, kFirst), v1alpha1::Pod::DRAINING);
  EXPECT_EQ(Deletes(decision, kFirst), nullptr);
}

TEST(Servers, SuspensionWaitsForThemToSaveAndLetsThemGoBeforeTheCoordinator) {
  Scene scene = WithServers();
  std::erase_if(scene.seen.pods, [](const ObservedPod& pod) { return pod.role == Role::kWorker; });
  scene.policy().set_suspend(true);
  const Decision waits = scene.Do();
  EXPECT_TRUE(waits.supervision->desired->settings().halt());
  EXPECT_EQ(Count<DeletePod>(waits), 0) << "servers hold the state, though no worker is left";

  scene.seen.status = waits.status;
  scene.report().set_stopped(true);
  const Decision goes = scene.Do();
  EXPECT_NE(Deletes(goes, kFirst), nullptr);
  EXPECT_NE(Deletes(goes, kLast), nullptr);
  EXPECT_EQ(Deletes(goes, "digits-coordinator-0"), nullptr);
}

TEST(Servers, FewerThanCopiesIsToldAsAProblem) {
  Scene scene = WithServers(1);
  EXPECT_EQ(ReasonOf(scene.Do(), "Degraded"), "");
  scene.seen.spec.mutable_exchange()->mutable_parameter_server()->set_replication(2);
  const Decision decision = scene.Do();
  EXPECT_EQ(ReasonOf(decision, "Degraded"), kUnderReplicated);
  EXPECT_THAT(FindCondition(decision.status, "Degraded")->message(),
              HasSubstr("raise replicaSpecs.parameterServer.replicas"));
}

// The pod is killed at 64 MiB; more is given up to a maximum.
Scene KilledForMemory(std::string_view name, const char* maximum) {
  Scene scene = WithServers();
  scene.worker().mutable_on_out_of_memory()->set_factor(1.5);
  scene.worker().mutable_on_out_of_memory()->set_maximum(maximum);
  for (ObservedPod& pod : scene.seen.pods) pod.memory = 64 << 20;
  scene.End(name, 137, 9).exit->reason = "OOMKilled";
  return scene;
}

std::string MemoryOfNew(const Decision& decision, Role role) {
  for (const Action& action : decision.actions) {
    const auto* create = std::get_if<CreatePod>(&action);
    if (create != nullptr && create->role == role) return create->memory;
  }
  return "none is made";
}

TEST(Servers, OneThatIsKilledForMemoryComesBackWithMoreAndItsRoleAlone) {
  Scene scene = KilledForMemory(kLast, "1Gi");
  const Decision decision = scene.Do();
  EXPECT_EQ(MemoryOfNew(decision, Role::kParameterServer), "96Mi");
  EXPECT_EQ(decision.status.replica_statuses().at("parameterServer").memory(), "96Mi");
  EXPECT_EQ(decision.status.replica_statuses().at("worker").memory(), "");
  EXPECT_EQ(decision.status.failures(), 0) << "it is answered";
  ASSERT_EQ(decision.status.incidents_size(), 1);
  EXPECT_EQ(decision.status.incidents(0).reason(), "OOMKilled");
  EXPECT_THAT(decision.status.incidents(0).message(), HasSubstr("it comes back with 96Mi"));
  EXPECT_TRUE(Emits(decision, "MemoryRaised"));
  // Kept: the next one that is made gets it too.
  scene.Settle();
  std::erase_if(scene.seen.pods, [](const ObservedPod& pod) { return pod.Terminated(); });
  EXPECT_EQ(MemoryOfNew(scene.Do(), Role::kParameterServer), "96Mi");
}

TEST(Servers, MemoryEndsAtItsMaximumAndThenAKillIsAFailureWithItsRemedy) {
  EXPECT_EQ(MemoryOfNew(KilledForMemory(kLast, "80Mi").Do(), Role::kParameterServer), "80Mi");
  const Decision at_its_end = KilledForMemory(kLast, "64Mi").Do();
  EXPECT_EQ(MemoryOfNew(at_its_end, Role::kParameterServer), "");
  EXPECT_EQ(at_its_end.status.failures(), 1);
  EXPECT_EQ(ReasonOf(at_its_end, "Degraded"), kOutOfMemory);
}

TEST(Servers, TheirCoordinatorIsGivenMoreMemoryToo) {
  Scene scene = KilledForMemory("digits-coordinator-0", "1Gi");
  scene.seen.link.reset();
  const Decision decision = scene.Do();
  EXPECT_EQ(MemoryOfNew(decision, Role::kCoordinator), "96Mi");
  EXPECT_EQ(decision.status.replica_statuses().at("coordinator").memory(), "96Mi");
  EXPECT_EQ(decision.status.failures(), 0);
}

TEST(Servers, OneCopyOnADiskThatGoesWithThePodIsToldAsAProblem) {
  Scene scene = WithServers();
  scene.seen.checkpoint_durable = false;
  const Decision decision = scene.Do();
  EXPECT_EQ(ReasonOf(decision, "Degraded"), kSingleCopy);
  EXPECT_TRUE(Emits(decision, kSingleCopy));
  const std::string message = FindCondition(decision.status, "Degraded")->message();
  EXPECT_THAT(message, HasSubstr("checkpoint.uri is not set"));
  EXPECT_THAT(message, HasSubstr("exchange.parameterServer.replication to 2"));
  scene.seen.status = decision.status;
  EXPECT_FALSE(Emits(scene.Do(), kSingleCopy)) << "once";

  scene.seen.spec.mutable_checkpoint()->set_uri("/models");
  scene.seen.status.clear_conditions();
  EXPECT_THAT(FindCondition(scene.Do().status, "Degraded")->message(),
              HasSubstr("checkpoint.uri is /models, which no lasting volume"));
}

TEST(Servers, TwoCopiesOrALastingDiskAreNoProblem) {
  Scene scene = WithServers();
  EXPECT_EQ(ReasonOf(scene.Do(), "Degraded"), "") << "a lasting disk";
  scene.seen.checkpoint_durable = false;
  scene.seen.spec.mutable_exchange()->mutable_parameter_server()->set_replication(2);
  EXPECT_EQ(ReasonOf(scene.Do(), "Degraded"), "") << "two copies";
  Scene peers;
  peers.seen.checkpoint_durable = false;
  EXPECT_EQ(ReasonOf(peers.Training().Do(), "Degraded"), "") << "every worker has all of it";
}

TEST(Servers, AQueueThatAdmittedFewerBoundsThemAndItIsToldOnce) {
  Scene scene = WithServers();
  scene.servers(4);
  scene.seen.generation = 2;
  scene.seen.queueing.server_limit = 3;
  scene.seen.queueing.server_limit_message = "queue research admitted 3";
  const Decision decision = scene.Do();
  EXPECT_TRUE(Creates(decision, Role::kParameterServer, 2));
  EXPECT_FALSE(Creates(decision, Role::kParameterServer, 3));
  EXPECT_EQ(decision.supervision->desired->servers(), 3);
  EXPECT_TRUE(Emits(decision, "ReplicasBounded"));
  EXPECT_EQ(decision.supervision->desired->workers(), 2) << "workers have a bound of their own";
  scene.seen.status = decision.status;
  EXPECT_FALSE(Emits(scene.Do(), "ReplicasBounded"));
}

TEST(Servers, HaveABudgetOfTheirOwnWhereThereAreBudgets) {
  Scene scene = WithServers();
  scene.options.budgets = true;
  EXPECT_EQ(Count<CreateBudget>(scene.Do()), 2);
  scene.seen.has_budget = true;
  const Decision decision = scene.Do();
  ASSERT_EQ(Count<CreateBudget>(decision), 1);
  for (const Action& action : decision.actions) {
    if (const auto* budget = std::get_if<CreateBudget>(&action); budget != nullptr) {
      EXPECT_EQ(budget->role, Role::kParameterServer);
    }
  }
  scene.seen.has_server_budget = true;
  EXPECT_EQ(Count<CreateBudget>(scene.Do()), 0);
}

TEST(Servers, TheirRestartPolicyIsTheirOwn) {
  Scene scene = WithServers();
  scene.servers(2).set_restart_policy(v1alpha1::RESTART_POLICY_NEVER);
  scene.End(kLast, 1);
  EXPECT_TRUE(Is(scene.Do(), "Failed"));
}

}  // namespace
}  // namespace starling::trainingjob
