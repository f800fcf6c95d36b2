// SPDX-License-Identifier: Apache-2.0
// Which pods are replaced, given up or let go, and what is said of it.
#include <string>
#include <utility>
#include <variant>

#include "controller/testing/test_scene.h"
#include "controller/trainingjob/policies.h"
#include "gtest/gtest.h"

namespace starling::trainingjob {
namespace {

constexpr char kLeader[] = "digits-coordinator-0";

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

// Suspension

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
