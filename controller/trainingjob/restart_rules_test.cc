// SPDX-License-Identifier: Apache-2.0
// Who is replaced, stands by or is let go where more than one thing happens to a job at once.
#include <string>
#include <utility>
#include <variant>

#include "controller/testing/test_scene.h"
#include "controller/trainingjob/policies.h"
#include "gtest/gtest.h"

namespace starling::trainingjob {
namespace {

constexpr char kLeader[] = "digits-coordinator-0";
constexpr char kStandby[] = "digits-coordinator-1";

TEST(FailByRestartPolicy, ReplacesAPodThatWasEvictedOrDeletedWhateverThePolicy) {
  for (const bool disrupted : {true, false}) {
    Scene scene;
    scene.Training();
    scene.worker().set_restart_policy(v1alpha1::RESTART_POLICY_NEVER);
    ObservedPod& pod = scene.End("digits-worker-1", 2);
    (disrupted ? pod.disrupted : pod.terminating) = true;
    EXPECT_FALSE(Is(scene.Do(), "Failed"));
  }
}

TEST(FailByRestartPolicy, DoesNotSpeakOfPodsOfAFormerRound) {
  Scene scene;
  scene.Prepared();
  scene.seen.spec.mutable_workload()->mutable_container();
  scene.worker().set_restart_policy(v1alpha1::RESTART_POLICY_NEVER);
  scene.seen.status.mutable_round()->set_number(2);
  scene.Add(Role::kWorker, 0).world = {.round = 1, .members = {0, 1}, .wanted = 2};
  scene.End("digits-worker-0", 1);
  EXPECT_FALSE(Is(scene.Do(), "Failed"));
  scene.Pod("digits-worker-0").world.round = 2;
  EXPECT_TRUE(Is(scene.Do(), "Failed"));
}

TEST(FailByRestartPolicy, TheFirstPodThatMayNotBeStartedAgainIsToldOfAndNoOther) {
  for (const auto& [code, reason] : {std::pair(1, "PodFailed"), {2, "BadConfiguration"}}) {
    Scene scene;
    scene.Training();
    scene.worker().set_restart_policy(v1alpha1::RESTART_POLICY_NEVER);
    scene.End("digits-worker-0", code);
    scene.End("digits-worker-1", code);
    const Decision decision = scene.Do();
    EXPECT_EQ(ReasonOf(decision, "Failed"), reason);
    const v1alpha1::Condition* failed = FindCondition(decision.status, "Failed");
    ASSERT_NE(failed, nullptr);
    EXPECT_TRUE(failed->message().starts_with("digits-worker-0 ")) << failed->message();
  }
}

// Members that are silent

void Silence(v1alpha1::MemberStatus& member, double seconds) {
  member.set_connected(false);
  member.set_silent_seconds(seconds);
}

// One that has not joined yet.
void Start(v1alpha1::MemberStatus& member, double seconds) {
  Silence(member, seconds);
  member.set_in_view(false);
  member.set_phase(v1alpha1::PHASE_OUT);
}

TEST(GiveUpSilentMembers, OnlyAWorkerHasTheTimeThatAProgramOfOnesOwnNeedsToStart) {
  Scene scene;
  scene.servers(1);
  scene.seen.spec.mutable_workload()->mutable_pytorch();
  scene.Training();
  Start(*scene.report().mutable_members(0), 61);
  Start(*scene.report().mutable_members(1), 61);
  const Decision decision = scene.Do();
  EXPECT_NE(Deletes(decision, "digits-parameter-server-0"), nullptr);
  EXPECT_EQ(Deletes(decision, "digits-worker-0"), nullptr);
}

TEST(GiveUpSilentMembers, OneThatIsConnectedIsNotSilent) {
  Scene scene;
  scene.Training();
  scene.report().mutable_members(1)->set_silent_seconds(60);
  EXPECT_EQ(Count<DeletePod>(scene.Do()), 0);
}

// The deletion of one that was given up before has failed.
TEST(GiveUpSilentMembers, NobodyElseGoesWithACoordinatorThatIsCutOff) {
  Scene scene;
  scene.Training();
  for (ObservedPod& pod : scene.seen.pods) pod.node = pod.role == Role::kWorker ? "b" : "a";
  for (v1alpha1::MemberStatus& member : *scene.report().mutable_members()) Silence(member, 3);
  v1alpha1::Incident& before = *scene.seen.status.add_incidents();
  before.set_reason(std::string(kWorkerLost));
  before.set_pod("digits-worker-1");
  before.set_pod_uid(scene.Pod("digits-worker-1").uid);
  SetTime(before.mutable_time(), scene.now - absl::Minutes(1));
  const Decision decision = scene.Do();
  EXPECT_NE(Deletes(decision, kLeader), nullptr);
  EXPECT_EQ(Count<DeletePod>(decision), 1);
}

// A coordinator that stands by

v1alpha1::CoordinatorReport& StandbyReport(Scene& scene) { return scene.seen.second_link->report; }

// A job that trains, and a second coordinator that has been heard.
Scene& Waits(Scene& scene) {
  scene.seen.spec.mutable_replica_specs()->mutable_coordinator()->set_standby(true);
  scene.Training();
  scene.seen.status.mutable_coordinator()->set_pod_uid(scene.Pod(kLeader).uid);
  scene.Add(Role::kCoordinator, 1);
  ObservedLink& link = scene.seen.second_link.emplace();
  link.pod_uid = scene.Pod(kStandby).uid;
  link.heard = true;
  link.silent = absl::Milliseconds(10);
  link.report.set_boot_id("boot-s");
  return scene;
}

// It has incarnation 2, and could take over from 1.
Scene& Armed(Scene& scene) {
  Waits(scene).Settle();
  v1alpha1::StandbyStatus& standby = *StandbyReport(scene).mutable_standby();
  standby.set_incarnation(2);
  standby.set_follows(1);
  standby.set_armed(true);
  standby.set_silent_seconds(0.05);
  return scene.Settle();
}

void LoseThePod(Scene& scene, const char* name) {
  std::erase_if(scene.seen.pods, [&](const ObservedPod& pod) { return pod.name == name; });
}

TEST(DecideStandby, AnotherPodIsNotTakenForTheOneThatHasGone) {
  Scene scene;
  LoseThePod(Armed(scene), kStandby);
  scene.seen.second_link.reset();
  scene.Add(Role::kCoordinator, 2);  // and has not been heard yet
  const v1alpha1::CoordinatorGrant grant = scene.Do().status.coordinator();
  EXPECT_EQ(grant.incarnation(), 3);
  EXPECT_FALSE(grant.has_standby());
}

TEST(DecideStandby, NobodyIsGrantedAnythingWhereNoCoordinatorIsLeft) {
  Scene scene;
  LoseThePod(Armed(scene), kStandby);
  LoseThePod(scene, kLeader);
  const v1alpha1::CoordinatorGrant grant = scene.Do().status.coordinator();
  EXPECT_EQ(grant.incarnation(), 1);
  EXPECT_EQ(grant.standby().incarnation(), 2) << "whoever comes next is above both";
}

TEST(DecideStandby, OneWhoseProcessHasNoNameYetIsGrantedNothing) {
  Scene scene;
  StandbyReport(Waits(scene)).clear_boot_id();
  EXPECT_FALSE(scene.Do().status.coordinator().has_standby());
}

TEST(DecideStandby, OneThatWasSupersededDoesNotStandBy) {
  Scene scene;
  StandbyReport(Waits(scene)).set_superseded(true);
  const Decision decision = scene.Do();
  EXPECT_NE(Deletes(decision, kStandby), nullptr);
  EXPECT_FALSE(decision.status.coordinator().has_standby());
}

TEST(DecideStandby, OneThatLeadsAfterTheEndStandsByNoMore) {
  Scene scene;
  Armed(scene).report().mutable_training()->mutable_result()->set_steps(100);
  scene.Settle();
  ASSERT_TRUE(scene.seen.status.coordinator().has_standby());
  StandbyReport(scene).clear_standby();
  StandbyReport(scene).set_incarnation(2);
  const v1alpha1::CoordinatorGrant grant = scene.Do().status.coordinator();
  EXPECT_EQ(grant.boot_id(), "boot-s");
  EXPECT_FALSE(grant.has_standby());
}

TEST(DecideStandby, TheNodeOfOneThatFellSilentIsAvoided) {
  Scene scene;
  scene.options.avoid_nodes = true;
  Armed(scene).Pod(kStandby).node = "b";
  scene.seen.second_link->silent = absl::Seconds(2);
  const Decision decision = scene.Do();
  ASSERT_EQ(decision.status.avoided_nodes_size(), 1);
  EXPECT_EQ(decision.status.avoided_nodes(0).name(), "b");
}

TEST(DecideStandby, AJobWithoutCoordinatorsSaysNothingOfAny) {
  Scene scene;
  scene.Prepared();
  scene.seen.spec.mutable_workload()->mutable_container();
  EXPECT_FALSE(scene.Do().status.has_coordinator());
}

// Suspension

// Its leader's pod has ended; the other one is about to lead, and will have the workers save.
TEST(Suspension, WorkersWaitForAStandbyThatIsAboutToLead) {
  Scene scene;
  Armed(scene).End(kLeader, 137, 9);
  scene.policy().set_suspend(true);
  const Decision decision = scene.Do();
  EXPECT_EQ(ReasonOf(decision, "Suspended"), "Suspending");
  EXPECT_EQ(Deletes(decision, "digits-worker-0"), nullptr);
  EXPECT_EQ(Deletes(decision, "digits-worker-1"), nullptr);
}

// A job that trains, is suspended, and a while later has no pod any more.
Scene WithoutPods(absl::Duration later, bool durable = true) {
  Scene scene;
  scene.Training();
  scene.seen.checkpoint_durable = durable;
  scene.policy().set_suspend(true);
  scene.Settle();
  scene.now += later;
  scene.Settle();
  scene.seen.pods.clear();
  scene.seen.link.reset();
  return scene;
}

TEST(Suspension, OneThatWasTakenBackMeanwhileIsNotSaidToBeTheQueues) {
  Scene scene = WithoutPods(absl::Seconds(1));
  scene.policy().set_suspend(false);
  const Decision decision = scene.Do();
  EXPECT_EQ(ReasonOf(decision, "Suspended"), "JobSuspended");
  EXPECT_EQ(FindCondition(decision.status, "Suspended")->message(), "no pod is left");
}

TEST(Suspension, WhatWasNotWrittenIsSaidOnceAllPodsAreGone) {
  const Scene scene = WithoutPods(absl::Minutes(1));
  const std::string said = FindCondition(scene.seen.status, "Suspended")->message();
  ASSERT_TRUE(said.starts_with("no checkpoint was written")) << said;
  EXPECT_EQ(FindCondition(scene.Do().status, "Suspended")->message(), said);
}

TEST(Suspension, ThatAllIsSavedIsNotSaidWhereItIsLost) {
  const Decision decision = WithoutPods(absl::Seconds(1), /*durable=*/false).Do();
  ASSERT_EQ(ReasonOf(decision, "Suspended"), kCheckpointNotDurable);
  for (const Action& action : decision.actions) {
    const auto* event = std::get_if<EmitEvent>(&action);
    if (event == nullptr || event->reason != "Suspended") continue;
    EXPECT_EQ(event->note, FindCondition(decision.status, "Suspended")->message());
  }
  EXPECT_TRUE(Emits(decision, "Suspended"));
}

TEST(Suspension, OfAJobThatHasNoPodStopsTheClockToo) {
  Scene scene;
  scene.Training();
  scene.now += absl::Seconds(40);
  scene.seen.pods.clear();
  scene.seen.link.reset();
  scene.policy().set_suspend(true);
  EXPECT_EQ(scene.Do().status.active_seconds(), 40);
}

}  // namespace
}  // namespace starling::trainingjob
