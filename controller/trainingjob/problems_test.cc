// SPDX-License-Identifier: Apache-2.0
// What the condition Degraded says of pods and nodes, and from when on.
#include <string>

#include "controller/testing/test_cluster.h"
#include "controller/trainingjob/policies.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace starling::trainingjob {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr absl::Duration kLeast = absl::Nanoseconds(1);

// A job on two nodes that trains.
class Problems : public testing::Test {
 protected:
  Problems() { InCluster(scene_); }

  std::string Reason() { return ReasonOf(scene_.Do(), "Degraded"); }
  std::string Message() { return MessageOf(scene_.Do(), "Degraded"); }
  absl::Duration LookAgain() {
    Pass pass(scene_.seen, scene_.options, scene_.now);
    FindProblems(pass, false);
    return pass.decision.requeue_after;
  }

  Scene scene_;
};

TEST_F(Problems, OfAPodAreToldWhenTheyHaveLasted) {
  scene_.worker().set_replicas(3);
  ObservedPod& pod = Pending(scene_, 2, kUnschedulable);
  pod.problem->since = scene_.now - scene_.options.problem_grace + kLeast;
  EXPECT_EQ(Reason(), "");
  EXPECT_EQ(LookAgain(), absl::Milliseconds(1));
  pod.problem->since -= kLeast;
  EXPECT_EQ(Reason(), "Unschedulable");
  pod.terminating = true;
  pod.deletion_due = scene_.now;
  EXPECT_EQ(Reason(), "") << "it goes";
  pod.terminating = false;
  pod.phase = PodPhase::kFailed;
  EXPECT_EQ(Reason(), "") << "it has gone";
}

TEST_F(Problems, OfAPodThatIsDeletedNowAreNotTold) {
  ObservedPod& pod = Pending(scene_, 2, kUnschedulable);  // one more than is wanted
  const Decision decision = scene_.Do();
  EXPECT_NE(Deletes(decision, pod.name), nullptr);
  EXPECT_EQ(ReasonOf(decision, "Degraded"), "");
}

TEST_F(Problems, APodIsStuckThirtySecondsAfterItsGrace) {
  ObservedPod& pod = scene_.Pod("digits-worker-1");
  pod.terminating = true;
  pod.deletion_due = scene_.now - absl::Seconds(30) + kLeast;
  EXPECT_EQ(Reason(), "");
  EXPECT_EQ(LookAgain(), absl::Milliseconds(1));
  pod.deletion_due -= kLeast;
  EXPECT_EQ(Reason(), "PodStuckTerminating");
  EXPECT_THAT(Message(), HasSubstr("digits-worker-1: on b"));
  pod.node.clear();
  EXPECT_THAT(Message(), HasSubstr("digits-worker-1: it has no node"));
  pod.phase = PodPhase::kSucceeded;
  EXPECT_EQ(Reason(), "") << "it has ended";
}

TEST_F(Problems, ANodeThatIsGoneIsToldApartFromOneThatDoesNotAnswer) {
  scene_.seen.nodes["b"].exists = scene_.seen.nodes["b"].ready = false;
  EXPECT_EQ(Reason(), "NodeLost");
  EXPECT_THAT(Message(), HasSubstr("b: it is gone"));
  scene_.seen.nodes["b"].exists = true;
  EXPECT_THAT(Message(), HasSubstr("b: it does not answer"));
  scene_.seen.nodes["b"] = {};
  scene_.seen.nodes["b"].exists = false;
  EXPECT_EQ(Reason(), "NodeLost");
}

TEST_F(Problems, OfAPodOnALostNodeIsTheNode) {
  scene_.worker().set_replicas(3);
  Pending(scene_, 2, kImagePullFailed).node = "b";
  ASSERT_EQ(Reason(), "ImagePullFailed");
  scene_.seen.nodes["b"].ready = false;
  EXPECT_EQ(Reason(), "NodeLost");
}

TEST_F(Problems, FailuresOfWhichNobodyKnowsHowTheyEndedAreNone) {
  scene_.seen.status.set_failures_since_step(100);
  scene_.seen.status.set_failures(1);
  EXPECT_EQ(Reason(), "");
}

TEST_F(Problems, AJobThatBringsItsContainerIsNotShortOfServers) {
  scene_.seen.spec.mutable_exchange()->mutable_parameter_server()->set_replication(2);
  EXPECT_EQ(Reason(), "UnderReplicated");
  scene_.seen.spec.mutable_workload()->mutable_container();
  EXPECT_EQ(Reason(), "");
}

TEST_F(Problems, MemoryIsOneWhileKilledPodsAreARowOfFailures) {
  const auto add = [&](const char* reason, bool ended) {
    v1alpha1::Incident& incident = *scene_.seen.status.add_incidents();
    incident.set_reason(reason);
    incident.set_pod("digits-worker-1");
    incident.set_message("it was killed");
    if (ended) incident.set_exit_code(137);
    SetTime(incident.mutable_time(),
            scene_.now + absl::Minutes(scene_.seen.status.incidents_size()));
  };
  scene_.seen.status.set_failures_since_step(100);
  add("WorkerFailed", true);
  add("OOMKilled", true);
  add("WorkerSilent", false);
  EXPECT_EQ(Reason(), "") << "training has gone on since";
  scene_.seen.status.set_failures(1);
  EXPECT_EQ(Reason(), "OutOfMemory");
  EXPECT_THAT(Message(), HasSubstr("digits-worker-1: it was killed; raise"));
  add("WorkerFailed", true);
  EXPECT_EQ(Reason(), "") << "the last failed otherwise";
}

TEST_F(Problems, ANameThatIsTakenForAMomentIsNone) {
  for (const int attempts : {4, 5}) {
    scene_.seen.refusal = Refusal{kNameTaken, "it is there", scene_.now, attempts};
    EXPECT_EQ(Reason(), attempts == 5 ? "NameTaken" : "");
  }
  scene_.seen.refusal->reason = kQuotaExceeded;
  scene_.seen.refusal->attempts = 1;
  EXPECT_EQ(Reason(), "QuotaExceeded");
  EXPECT_THAT(Message(), HasSubstr(": it is there; "));
}

TEST_F(Problems, AMemberThatIsRefusedIsToldByItsRoleUntilItTakesPart) {
  Scene scene;
  scene.servers(1);
  scene.Training();
  for (auto& member : *scene.report().mutable_members()) {
    const std::string pod = member.pod();
    const bool server = pod == "digits-parameter-server-0";
    member.set_refused("its arithmetic differs");
    EXPECT_EQ(ReasonOf(scene.Do(), "Degraded"), "") << "it takes part";
    member.set_in_view(false);
    EXPECT_EQ(ReasonOf(scene.Do(), "Degraded"),
              server ? "ParameterServerRefused" : "WorkerRefused");
    EXPECT_THAT(MessageOf(scene.Do(), "Degraded"), HasSubstr(pod + ": its arithmetic differs"));
    member.set_in_view(true);
    member.clear_refused();
  }
}

TEST_F(Problems, AMemberThatDoesNotTakePartYetIsNone) {
  scene_.report().mutable_members(1)->set_in_view(false);
  EXPECT_EQ(Reason(), "");
}

TEST_F(Problems, OfOneAloneNoNumberIsTold) {
  scene_.worker().set_replicas(3);
  Pending(scene_, 2, kImagePullFailed);
  EXPECT_THAT(Message(),
              StartsWith(std::string(MeaningOf(kImagePullFailed)) + ": digits-worker-2: "));
}

TEST_F(Problems, OneOfManyIsToldAndHowManyThereAre) {
  scene_.worker().set_replicas(4);
  Pending(scene_, 3, kImagePullFailed).problem->message = std::string(700, 'y');
  EXPECT_THAT(Message(), HasSubstr("digits-worker-3: " + std::string(600, 'y') + "; check"));
  Pending(scene_, 2, kImagePullFailed).problem->message = "no such image";
  EXPECT_THAT(Message(), StartsWith(std::string(MeaningOf(kImagePullFailed)) +
                                    " (2 times): digits-worker-2: no such image; "));
}

// Kubelets change their words all the time, and each change would be a write and an event.
TEST_F(Problems, AreToldAnewOnlyWhenTheirReasonOrNumberChanges) {
  scene_.worker().set_replicas(4);
  Pending(scene_, 2, kImagePullFailed);
  EXPECT_TRUE(Emits(scene_.Do(), "ImagePullFailed"));
  const std::string first = Message();
  scene_.Settle();
  EXPECT_FALSE(Emits(scene_.Do(), "ImagePullFailed"));
  scene_.Pod("digits-worker-2").problem->message = "in other words";
  EXPECT_EQ(Message(), first);
  Pending(scene_, 3, kImagePullFailed);
  EXPECT_THAT(Message(), HasSubstr("(2 times): digits-worker-2: in other words"));
  EXPECT_FALSE(Emits(scene_.Do(), "ImagePullFailed")) << "people know of it";
  scene_.Pod("digits-worker-2").problem->reason = kContainerNotCreated;
  scene_.Pod("digits-worker-3").problem->reason = kContainerNotCreated;
  EXPECT_TRUE(Emits(scene_.Do(), "ContainerNotCreated"));
  scene_.Settle();
  scene_.seen.pods.resize(3);
  EXPECT_EQ(Reason(), "NoProblem");
  scene_.Settle();
  Pending(scene_, 2, kContainerNotCreated);
  EXPECT_TRUE(Emits(scene_.Do(), "ContainerNotCreated")) << "it was over in between";
}

TEST_F(Problems, AreOverWithTheJobAndWhileItIsSuspended) {
  scene_.seen.queueing.warning = "no Kueue";
  scene_.Settle();
  ASSERT_EQ(Reason(), "SchedulingIgnored");
  Scene suspended = scene_;
  suspended.policy().set_suspend(true);
  EXPECT_EQ(ReasonOf(suspended.Do(), "Degraded"), "NoProblem");
  scene_.report().mutable_training()->mutable_result()->set_steps(100);
  EXPECT_EQ(Reason(), "NoProblem");
}

}  // namespace
}  // namespace starling::trainingjob
