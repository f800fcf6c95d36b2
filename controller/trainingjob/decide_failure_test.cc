// SPDX-License-Identifier: Apache-2.0
// What goes wrong in the life of a job, and what is done about it.
#include <tuple>

#include "controller/testing/test_scene.h"
#include "controller/trainingjob/policies.h"
#include "gtest/gtest.h"

namespace starling::trainingjob {
namespace {

TEST(DecideFailure, FailedPodIsRecordedRemovedAndReplacedAtItsIndex) {
  Scene scene;
  scene.Training();
  scene.End("digits-worker-1", 137, 9).exit->message = "last words";

  const Decision decision = scene.Do();

  EXPECT_TRUE(decision.write_status);
  EXPECT_EQ(decision.status.failures(), 1);
  EXPECT_EQ(decision.status.restarts(), 1);
  ASSERT_EQ(decision.status.incidents_size(), 1);
  EXPECT_EQ(decision.status.incidents(0).signal(), 9);
  EXPECT_EQ(decision.status.incidents(0).log_tail(), "last words");
  ASSERT_NE(Deletes(decision, "digits-worker-1"), nullptr);
  EXPECT_EQ(Deletes(decision, "digits-worker-1")->grace_seconds, 0);
  EXPECT_TRUE(Creates(decision, Role::kWorker, 1));
}

TEST(DecideFailure, FailedPodIsCountedOnceHoweverOftenItIsSeen) {
  Scene scene;
  scene.Training();
  scene.End("digits-worker-1", 1);

  scene.Settle().Settle();

  EXPECT_EQ(scene.Do().status.failures(), 1);
  EXPECT_EQ(scene.Do().status.incidents_size(), 1);
}

TEST(DecideFailure, TwoPodsOfOneNameThatFailInTheSameSecondAreTwoFailures) {
  Scene scene;
  scene.Training();
  scene.End("digits-worker-1", 1);
  scene.Settle();
  scene.seen.pods.pop_back();
  scene.Add(Role::kWorker, 1);
  scene.End("digits-worker-1", 1);

  EXPECT_EQ(scene.Do().status.failures(), 2);
}

TEST(DecideFailure, PodsKilledAtOnceAreOneFailure) {
  Scene scene;
  scene.Training(8);
  for (int i = 0; i < 8; ++i) scene.End(resources::PodName("digits", Role::kWorker, i), 137, 9);
  scene.End("digits-coordinator-0", 137, 9);

  const Decision decision = scene.Do();

  EXPECT_EQ(decision.status.failures(), 1);
  EXPECT_EQ(decision.status.incidents_size(), 9);
  EXPECT_FALSE(Is(decision, "Failed"));
}

TEST(DecideFailure, PodsKilledAtOnceAgainAndAgainAreMoreThanOneFailure) {
  Scene scene;
  scene.Training();
  scene.policy().set_backoff_limit(100);
  for (int round = 0; round < 4; ++round) {
    scene.End("digits-worker-0", 137, 9);
    scene.End("digits-worker-1", 137, 9);
    scene.Settle();
    scene.seen.pods.resize(1);
    scene.now += absl::Seconds(1);
    scene.Add(Role::kWorker, 0);
    scene.Add(Role::kWorker, 1);
  }

  EXPECT_GE(scene.seen.status.failures(), 4);
}

TEST(DecideFailure, MembersLetGoByASuspensionAreNoIncidents) {
  Scene scene;
  scene.Training();
  scene.policy().set_suspend(true);
  scene.Settle();
  v1alpha1::Incident& incident = *scene.report().add_incidents();
  incident.set_reason("WorkerLost");
  incident.set_pod("digits-worker-1");
  SetTime(incident.mutable_time(), scene.now);

  EXPECT_EQ(scene.Do().status.incidents_size(), 0);
}

TEST(DecideFailure, DeletedPodIsNoFailure) {
  Scene scene;
  scene.Training();
  scene.End("digits-worker-1", 143, 15).terminating = true;

  const Decision decision = scene.Do();

  EXPECT_EQ(decision.status.failures(), 0);
  EXPECT_EQ(Deletes(decision, "digits-worker-1"), nullptr);
  EXPECT_TRUE(Creates(decision, Role::kWorker, 2));
}

TEST(DecideFailure, EvictionIsAnIncidentButNoFailure) {
  Scene scene;
  scene.Training();
  ObservedPod& pod = scene.End("digits-worker-1", 137, 9);
  pod.disrupted = true;
  pod.reason = "Evicted";

  const Decision decision = scene.Do();

  EXPECT_EQ(decision.status.failures(), 0);
  ASSERT_EQ(decision.status.incidents_size(), 1);
  EXPECT_EQ(decision.status.incidents(0).reason(), "WorkerEvicted");
  EXPECT_TRUE(Creates(decision, Role::kWorker, 1));
}

TEST(DecideFailure, ShutdownOfTheNodeIsNoIncident) {
  Scene scene;
  scene.Training();
  ObservedPod& pod = scene.End("digits-worker-1", 143, 15);
  pod.disrupted = true;
  pod.reason = "NodeShutdown";

  const Decision decision = scene.Do();

  EXPECT_EQ(decision.status.incidents_size(), 0);
  EXPECT_TRUE(Creates(decision, Role::kWorker, 1));
}

TEST(DecideFailure, WorkerThatLeavesUnaskedIsAFailure) {
  Scene scene;
  scene.Training();
  scene.End("digits-worker-1", 0);

  const Decision decision = scene.Do();

  EXPECT_EQ(decision.status.failures(), 1);
  EXPECT_EQ(decision.status.incidents(0).reason(), "WorkerLeftEarly");
  EXPECT_TRUE(Creates(decision, Role::kWorker, 1));
}

TEST(DecideFailure, NewStepEndsARowOfFailures) {
  Scene scene;
  scene.Training();
  scene.End("digits-worker-1", 1);
  scene.Settle();
  scene.seen.pods.pop_back();

  scene.report().set_settled_step(101);

  EXPECT_EQ(scene.Do().status.failures(), 0);
}

TEST(DecideFailure, RepeatedStepsDoNotEndARowOfFailures) {
  Scene scene;
  scene.Training();
  scene.End("digits-worker-1", 1);
  scene.Settle();
  scene.seen.pods.pop_back();

  scene.report().set_settled_step(90);

  EXPECT_EQ(scene.Do().status.failures(), 1);
}

TEST(DecideFailure, BackoffLimitFailsTheJobAndKeepsTheLastPod) {
  Scene scene;
  scene.Training();
  scene.seen.status.set_failures(2);
  scene.seen.status.set_failures_since_step(100);
  scene.End("digits-worker-1", 1).exit->message = "no such file";

  const Decision decision = scene.Do();

  EXPECT_EQ(ReasonOf(decision, "Failed"), "BackoffLimitExceeded");
  EXPECT_NE(FindCondition(decision.status, "Failed")->message().find("no such file"),
            std::string::npos);
  EXPECT_EQ(Deletes(decision, "digits-worker-1"), nullptr);
  EXPECT_NE(Deletes(decision, "digits-worker-0"), nullptr);
}

TEST(DecideFailure, BackoffLimitOfZeroFailsAtTheFirstFailure) {
  Scene scene;
  scene.Training();
  scene.policy().set_backoff_limit(0);
  scene.End("digits-worker-1", 1);

  EXPECT_TRUE(Is(scene.Do(), "Failed"));
}

TEST(DecideFailure, ReplacementsAreDelayedAfterSomeFailures) {
  Scene scene;
  scene.Training();
  scene.policy().set_backoff_limit(10);
  scene.seen.status.set_failures(3);
  scene.seen.status.set_failures_since_step(100);
  scene.End("digits-worker-1", 1);

  const Decision decision = scene.Do();

  EXPECT_EQ(Count<CreatePod>(decision), 0);
  EXPECT_LE(decision.requeue_after, absl::Seconds(1));
  scene.Settle();
  scene.now += absl::Seconds(1);
  EXPECT_EQ(Count<CreatePod>(scene.Do()), 1);
}

TEST(DecideFailure, BadConfigurationFailsTheJobWhateverThePolicy) {
  Scene scene;
  scene.Training();
  scene.End("digits-worker-1", 2).exit->message = "labels.gz: no such file";

  const Decision decision = scene.Do();

  EXPECT_EQ(ReasonOf(decision, "Failed"), "BadConfiguration");
  EXPECT_NE(FindCondition(decision.status, "Failed")->message().find("labels.gz"),
            std::string::npos);
}

TEST(DecideFailure, NeverFailsTheJobAtTheFirstFailure) {
  Scene scene;
  scene.Training();
  scene.worker().set_restart_policy(v1alpha1::RESTART_POLICY_NEVER);
  scene.End("digits-worker-1", 137, 9);

  EXPECT_EQ(ReasonOf(scene.Do(), "Failed"), "PodFailed");
}

TEST(DecideFailure, NeverDoesNotSpeakOfTheCoordinator) {
  Scene scene;
  scene.Training();
  scene.worker().set_restart_policy(v1alpha1::RESTART_POLICY_NEVER);
  scene.End("digits-coordinator-0", 137, 9);

  EXPECT_FALSE(Is(scene.Do(), "Failed"));
}

TEST(DecideFailure, ExitCodeFailsOnCodesAndRestartsOnSignals) {
  for (const auto& [code, signal, fails] : {std::tuple(1, 0, true), std::tuple(127, 0, true),
                                            std::tuple(137, 9, false), std::tuple(143, 0, false)}) {
    Scene scene;
    scene.Training();
    scene.worker().set_restart_policy(v1alpha1::RESTART_POLICY_EXIT_CODE);
    scene.End("digits-worker-1", code, signal);
    EXPECT_EQ(Is(scene.Do(), "Failed"), fails) << code;
  }
}

TEST(DecideFailure, EndOfAPodAndItsNoticeAreOneIncident) {
  Scene scene;
  scene.Training();
  v1alpha1::Incident& notice = *scene.report().add_incidents();
  notice.set_reason("WorkerLost");
  notice.set_pod("digits-worker-1");
  SetTime(notice.mutable_time(), scene.now + absl::Milliseconds(40));
  notice.set_detection_seconds(0.03);
  notice.set_repeated_steps(1);
  scene.End("digits-worker-1", 137, 9);

  scene.Settle().Settle();

  ASSERT_EQ(scene.seen.status.incidents_size(), 1);
  EXPECT_EQ(scene.seen.status.incidents(0).signal(), 9);
  EXPECT_DOUBLE_EQ(scene.seen.status.incidents(0).detection_seconds(), 0.03);
  EXPECT_EQ(scene.seen.status.failures(), 1);
}

TEST(DecideFailure, RecoveryIsAddedToTheIncidentWhenItIsKnown) {
  Scene scene;
  scene.Training();
  scene.End("digits-worker-1", 137, 9);
  scene.Settle();
  v1alpha1::Incident& notice = *scene.report().add_incidents();
  notice.set_reason("WorkerLost");
  notice.set_pod("digits-worker-1");
  SetTime(notice.mutable_time(), scene.now + absl::Milliseconds(40));
  notice.set_recovery_seconds(0.05);

  scene.Settle();

  ASSERT_EQ(scene.seen.status.incidents_size(), 1);
  EXPECT_DOUBLE_EQ(scene.seen.status.incidents(0).recovery_seconds(), 0.05);
}

TEST(DecideFailure, TwentyIncidentsAreKept) {
  Scene scene;
  scene.Training();
  for (int i = 0; i < 50; ++i) {
    v1alpha1::Incident& incident = *scene.report().add_incidents();
    incident.set_reason("WorkerLost");
    incident.set_pod("digits-worker-1");
    SetTime(incident.mutable_time(), scene.now + absl::Minutes(i));
  }

  scene.Settle();

  EXPECT_EQ(scene.seen.status.incidents_size(), 20);
  EXPECT_EQ(ToTime(scene.seen.status.incidents(19).time()), scene.now + absl::Minutes(49));
  EXPECT_FALSE(scene.Do().write_status);
  EXPECT_FALSE(Emits(scene.Do(), "WorkerLost"));
}

TEST(DecideFailure, ManyFailuresAtOnceAreAllCounted) {
  Scene scene;
  scene.Training(40);
  scene.policy().set_backoff_limit(1000);
  for (int i = 0; i < 40; ++i) {
    scene.End(resources::PodName("digits", Role::kWorker, i), 1);
  }
  // Each round, what is deleted goes.
  for (int round = 0; round < 10; ++round) {
    const Decision decision = scene.Do();
    scene.seen.status = decision.status;
    std::erase_if(scene.seen.pods, [&](const ObservedPod& pod) {
      return Deletes(decision, pod.name) != nullptr && pod.Terminated();
    });
  }

  EXPECT_EQ(scene.seen.status.failures(), 40);
}

TEST(DecideFailure, JobWithoutWorkersIsRestarting) {
  Scene scene;
  scene.Training(1);
  scene.End("digits-worker-0", 137, 9);
  scene.report().clear_members();
  scene.report().set_view_synced(false);

  const Decision decision = scene.Do();

  EXPECT_TRUE(Is(decision, "Restarting"));
  EXPECT_FALSE(Is(decision, "Running"));
  EXPECT_EQ(decision.status.state(), "Restarting");
}

TEST(DecideFailure, RestartingEndsWhenWorkersTrainAgain) {
  Scene scene;
  scene.Training(1);
  scene.report().mutable_members(0)->set_connected(false);
  scene.Settle();
  ASSERT_EQ(scene.seen.status.state(), "Restarting");
  scene.report().mutable_members(0)->set_connected(true);

  scene.Settle();

  EXPECT_EQ(scene.seen.status.state(), "Running");
}

TEST(DecideFailure, ShortSyncOfANewViewIsNoRestart) {
  Scene scene;
  scene.Training();
  scene.report().set_view_synced(false);

  EXPECT_EQ(scene.Do().status.state(), "Running");
}

TEST(DecideFailure, RestartOfACoordinatorSaysThatTrainingWentOn) {
  Scene scene;
  scene.Training();
  scene.Booted("boot-b");
  scene.seen.link->former_boot_id = "boot-a";

  const Decision decision = scene.Do();

  ASSERT_EQ(decision.status.incidents_size(), 1);
  EXPECT_EQ(decision.status.incidents(0).message(),
            "its process ended and was started again; training went on");
}

// Its deletion failed, and members leave in order only while their coordinator lives.
TEST(DecideFailure, CoordinatorThatWasGivenUpAsTheJobEndedLetsItsMembersGo) {
  Scene scene;
  scene.Training();
  scene.policy().set_backoff_limit(0);
  scene.End("digits-worker-1", 1);
  scene.seen.link->silent = absl::Seconds(2);
  scene.Settle();
  ASSERT_EQ(scene.seen.status.state(), "Failed");
  ASSERT_TRUE(IsCondemned(scene.seen.status, scene.Pod("digits-coordinator-0")));
  scene.seen.link->silent = absl::ZeroDuration();

  const Decision decision = scene.Do();

  EXPECT_EQ(Deletes(decision, "digits-coordinator-0"), nullptr);
  ASSERT_TRUE(decision.supervision.has_value());
  EXPECT_TRUE(decision.supervision->desired->finished());
}

TEST(DecideFailure, SuccessIsNotTakenBackByALateFailure) {
  Scene scene;
  scene.Finished(true);
  scene.End("digits-worker-0", 1);
  scene.report().mutable_training()->set_failure("too late");

  const Decision decision = scene.Do();

  EXPECT_TRUE(Is(decision, "Succeeded"));
  EXPECT_FALSE(Is(decision, "Failed"));
  EXPECT_EQ(decision.status.failures(), 0);
}

TEST(DecideFailure, RestartPolicyJudgesByCodeAndSignal) {
  const struct {
    v1alpha1::RestartPolicy policy;
    std::int64_t code, signal;
    const char* reason;
  } cases[] = {
      {v1alpha1::RESTART_POLICY_ON_FAILURE, 1, 0, ""},
      {v1alpha1::RESTART_POLICY_ON_FAILURE, 2, 0, "BadConfiguration"},
      {v1alpha1::RESTART_POLICY_ON_FAILURE, 3, 0, ""},
      {v1alpha1::RESTART_POLICY_ON_FAILURE, 2, 15, ""},
      {v1alpha1::RESTART_POLICY_NEVER, 1, 0, "PodFailed"},
      {v1alpha1::RESTART_POLICY_NEVER, 137, 9, "PodFailed"},
      {v1alpha1::RESTART_POLICY_EXIT_CODE, 0, 0, ""},
      {v1alpha1::RESTART_POLICY_EXIT_CODE, 1, 0, "PodFailed"},
      {v1alpha1::RESTART_POLICY_EXIT_CODE, 127, 0, "PodFailed"},
      {v1alpha1::RESTART_POLICY_EXIT_CODE, 127, 9, ""},
      {v1alpha1::RESTART_POLICY_EXIT_CODE, 128, 0, ""},
  };
  for (const auto& one : cases) {
    Scene scene;
    scene.Training();
    scene.worker().set_restart_policy(one.policy);
    scene.End("digits-worker-1", one.code, one.signal).phase = PodPhase::kFailed;
    EXPECT_EQ(ReasonOf(scene.Do(), "Failed"), one.reason)
        << one.policy << " " << one.code << " " << one.signal;
  }
}

TEST(DecideFailure, AnEndWithoutACodeIsTakenForOneOfItsOwn) {
  Scene scene;
  scene.Training();
  scene.worker().set_restart_policy(v1alpha1::RESTART_POLICY_EXIT_CODE);
  scene.End("digits-worker-1", 1).exit.reset();
  EXPECT_EQ(ReasonOf(scene.Do(), "Failed"), "PodFailed");
  EXPECT_EQ(FindCondition(scene.Do().status, "Failed")->message(),
            "digits-worker-1 ended with code 1, which its restartPolicy does not restart");
}

TEST(DecideFailure, RestartPolicyOfTheCoordinatorIsItsOwn) {
  Scene scene;
  scene.Training();
  scene.seen.spec.mutable_replica_specs()->mutable_coordinator()->set_restart_policy(
      v1alpha1::RESTART_POLICY_NEVER);
  scene.End("digits-coordinator-0", 1);
  EXPECT_EQ(ReasonOf(scene.Do(), "Failed"), "PodFailed");
}

TEST(DecideFailure, AWorkerThatLeftWellIsNoMatterOfItsRestartPolicy) {
  Scene scene;
  scene.Training();
  scene.worker().set_restart_policy(v1alpha1::RESTART_POLICY_NEVER);
  scene.End("digits-worker-1", 0);
  EXPECT_EQ(ReasonOf(scene.Do(), "Failed"), "");
}

}  // namespace
}  // namespace starling::trainingjob
