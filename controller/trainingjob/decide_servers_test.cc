// SPDX-License-Identifier: Apache-2.0
// Decisions about the parameter servers of a job: a role like the workers, but what one holds may
// be nowhere else.
#include "controller/trainingjob/reasons.h"
#include "controller/trainingjob/test_scene.h"
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
