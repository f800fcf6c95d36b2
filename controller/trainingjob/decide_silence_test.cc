// SPDX-License-Identifier: Apache-2.0
// Coordinators and workers that fall silent, and what is done about it.
#include "controller/testing/test_scene.h"
#include "controller/trainingjob/policies.h"
#include "gtest/gtest.h"

namespace starling::trainingjob {
namespace {

TEST(DecideSilence, DeadCoordinatorIsReplacedAtItsIndex) {
  Scene scene;
  scene.Training();
  scene.End("digits-coordinator-0", 137, 9);

  const Decision decision = scene.Do();

  EXPECT_NE(Deletes(decision, "digits-coordinator-0"), nullptr);
  EXPECT_TRUE(Creates(decision, Role::kCoordinator, 0));
  EXPECT_FALSE(decision.supervision.has_value());
  EXPECT_EQ(decision.status.state(), "Running");  // steps go on under the last view
}

TEST(DecideSilence, CoordinatorRestartedInPlaceIsAnIncidentOnce) {
  Scene scene;
  scene.Training();
  scene.Booted("boot-b");
  scene.seen.link->former_boot_id = "boot-a";

  scene.Settle().Settle();

  ASSERT_EQ(scene.seen.status.incidents_size(), 1);
  EXPECT_EQ(scene.seen.status.incidents(0).reason(), "CoordinatorRestarted");
  EXPECT_EQ(scene.seen.status.restarts(), 1);
  EXPECT_EQ(scene.seen.status.failures(), 0);
}

// The report of a coordinator that was started again in its pod, granted its incarnation, and has
// heard of nobody yet.
Scene RestartedCoordinator() {
  Scene scene;
  scene.Training();
  scene.Booted("boot-b");
  scene.seen.link->former_boot_id = "boot-a";
  scene.Settle();
  scene.report().set_incarnation(2);
  scene.report().set_newest_view((1ULL << 32) + 1);  // as its grant says
  return scene;
}

TEST(DecideSilence, NewCoordinatorThatHasNotHeardOfAllWorkersDoesNotSayThatTrainingStopped) {
  Scene scene = RestartedCoordinator();

  EXPECT_EQ(scene.Do().status.state(), "Running");
  EXPECT_FALSE(Emits(scene.Do(), "Restarting"));

  // One has reported, and was not in the midst of a step.
  scene.Member(scene.Pod("digits-worker-0")).set_in_view(false);
  scene.report().mutable_members(0)->set_phase(v1alpha1::PHASE_OUT);
  EXPECT_EQ(scene.Do().status.state(), "Running");
  EXPECT_FALSE(Emits(scene.Do(), "Restarting"));
}

TEST(DecideSilence, NewCoordinatorThatHasHeardOfAllWorkersSaysWhetherTheyTrain) {
  Scene scene = RestartedCoordinator();
  for (const char* name : {"digits-worker-0", "digits-worker-1"}) {
    v1alpha1::MemberStatus& member = scene.Member(scene.Pod(name));
    member.set_in_view(false);
    member.set_phase(v1alpha1::PHASE_OUT);
  }
  EXPECT_TRUE(Emits(scene.Do(), "Restarting"));

  scene.report().mutable_members(1)->set_phase(v1alpha1::PHASE_RUN);
  EXPECT_FALSE(Emits(scene.Do(), "Restarting"));
}

TEST(DecideSilence, WorkersThatHaveEndedDoNotTrainWhateverTheNewCoordinatorHasHeard) {
  Scene scene = RestartedCoordinator();
  scene.End("digits-worker-0", 137, 9);
  scene.End("digits-worker-1", 137, 9);

  EXPECT_TRUE(Emits(scene.Do(), "Restarting"));
}

TEST(DecideSilence, CoordinatorWithAViewOfItsOwnKnowsWhoTrains) {
  Scene scene = RestartedCoordinator();
  scene.report().set_newest_view((2ULL << 32) + 2);

  EXPECT_TRUE(Emits(scene.Do(), "Restarting"));
}

TEST(DecideSilence, SilentCoordinatorIsReplacedAtTheLowestFreeIndex) {
  Scene scene;
  scene.Training();
  scene.seen.link->silent = absl::Seconds(2);

  const Decision decision = scene.Do();

  ASSERT_NE(Deletes(decision, "digits-coordinator-0"), nullptr);
  EXPECT_EQ(Deletes(decision, "digits-coordinator-0")->grace_seconds, 1);
  EXPECT_TRUE(Creates(decision, Role::kCoordinator, 1));
  ASSERT_EQ(decision.status.incidents_size(), 1);
  EXPECT_EQ(decision.status.incidents(0).reason(), "CoordinatorLost");
  EXPECT_EQ(decision.status.failures(), 0);
  EXPECT_FALSE(decision.supervision.has_value());
}

TEST(DecideSilence, CondemnedCoordinatorGoesEvenIfItSpeaksAgain) {
  Scene scene;
  scene.Training();
  scene.seen.link->silent = absl::Seconds(2);
  scene.Settle();
  scene.seen.link->silent = absl::ZeroDuration();

  const Decision decision = scene.Do();

  EXPECT_NE(Deletes(decision, "digits-coordinator-0"), nullptr);
  EXPECT_EQ(decision.status.incidents_size(), 1);
}

TEST(DecideSilence, CoordinatorThatIsAlmostSilentIsGivenItsTime) {
  Scene scene;
  scene.Training();
  scene.seen.link->silent = absl::Milliseconds(1900);

  const Decision decision = scene.Do();

  EXPECT_EQ(Count<DeletePod>(decision), 0);
  EXPECT_LE(decision.requeue_after, absl::Milliseconds(110));
}

TEST(DecideSilence, CoordinatorThatHasNeverSpokenIsGivenLonger) {
  Scene scene;
  scene.Prepared().Add(Role::kCoordinator, 0);
  scene.Booted();
  scene.seen.link->heard = false;
  scene.seen.link->report.Clear();
  scene.seen.link->silent = absl::Seconds(5);
  EXPECT_EQ(Count<DeletePod>(scene.Do()), 0);

  scene.seen.link->silent = absl::Seconds(16);
  EXPECT_EQ(Count<DeletePod>(scene.Do()), 1);
}

// Someone from whom no report has come.
struct Unheard {
  absl::Duration age;
  absl::Duration silent;
  int deleted;
};

TEST(DecideSilence, WhoWasNeverHeardIsGivenTheTimeToStartByItsNodesClockOrLess) {
  const auto least = absl::Milliseconds(1);
  const Unheard coordinators[] = {
      {absl::Seconds(5), absl::Seconds(10) - least, 0}, {absl::Seconds(5), absl::Seconds(10), 1},
      {absl::Seconds(60), absl::Seconds(4) - least, 0}, {absl::Seconds(60), absl::Seconds(4), 1},
      {-absl::Hours(1), absl::Seconds(15) - least, 0},  {-absl::Hours(1), absl::Seconds(15), 1}};
  for (const Unheard& one : coordinators) {
    Scene scene;
    scene.Prepared().Add(Role::kCoordinator, 0).created = absl::InfinitePast();
    scene.Booted();
    scene.seen.pods[0].started = scene.now - one.age;
    scene.seen.link->heard = false;
    scene.seen.link->report.Clear();
    scene.seen.link->silent = one.silent;
    EXPECT_EQ(Count<DeletePod>(scene.Do()), one.deleted) << one.age << " " << one.silent;
  }
  const Unheard workers[] = {
      {absl::Seconds(5), absl::Seconds(55) - least, 0}, {absl::Seconds(5), absl::Seconds(55), 1},
      {absl::Minutes(5), absl::Seconds(10) - least, 0}, {absl::Minutes(5), absl::Seconds(10), 1},
      {-absl::Hours(1), absl::Seconds(60) - least, 0},  {-absl::Hours(1), absl::Seconds(60), 1}};
  for (const Unheard& one : workers) {
    Scene scene;
    scene.Training();
    scene.report().mutable_members()->RemoveLast();
    ObservedPod& pod = scene.Pod("digits-worker-1");
    pod.created = absl::InfinitePast();
    pod.started = scene.now - one.age;
    pod.unheard_since = scene.now - one.silent;
    EXPECT_EQ(Count<DeletePod>(scene.Do()), one.deleted) << one.age << " " << one.silent;
  }
}

TEST(DecideSilence, SilenceOfAnotherPodsLinkSaysNothing) {
  Scene scene;
  scene.Training();
  scene.seen.link->pod_uid = "of-a-former-pod";
  scene.seen.link->silent = absl::Hours(1);

  EXPECT_EQ(Count<DeletePod>(scene.Do()), 0);
}

TEST(DecideSilence, SilentWorkerIsReplacedAtAnotherIndex) {
  Scene scene;
  scene.Training();
  scene.report().mutable_members(1)->set_connected(false);
  scene.report().mutable_members(1)->set_silent_seconds(6);

  const Decision decision = scene.Do();

  ASSERT_NE(Deletes(decision, "digits-worker-1"), nullptr);
  EXPECT_EQ(Deletes(decision, "digits-worker-1")->grace_seconds, 1);
  EXPECT_TRUE(Creates(decision, Role::kWorker, 2));
  EXPECT_EQ(decision.status.incidents(0).reason(), "WorkerLost");
  EXPECT_EQ(decision.status.failures(), 0);
  EXPECT_EQ(StateInDesired(decision, "digits-worker-1"), v1alpha1::Pod::DRAINING);
}

TEST(DecideSilence, RestartedProcessOfASilentMemberIsNoSilence) {
  Scene scene;
  scene.Training();
  scene.report().mutable_members(1)->set_connected(false);
  scene.report().mutable_members(1)->set_silent_seconds(60);
  v1alpha1::MemberStatus& next = scene.Member(scene.Pod("digits-worker-1"));
  next.mutable_id()->set_start(2);

  EXPECT_EQ(Count<DeletePod>(scene.Do()), 0);
}

TEST(DecideSilence, WorkerThatIsStillStartingIsNotSilent) {
  Scene scene;
  scene.Training();
  v1alpha1::MemberStatus& member = *scene.report().mutable_members(1);
  member.set_connected(false);
  member.set_in_view(false);
  member.set_phase(v1alpha1::PHASE_OUT);
  member.set_silent_seconds(20);

  EXPECT_EQ(Count<DeletePod>(scene.Do()), 0);
}

}  // namespace
}  // namespace starling::trainingjob
