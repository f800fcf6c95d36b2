// SPDX-License-Identifier: Apache-2.0
// Coordinators and workers that fall silent, and what is done about it.
#include <functional>
#include <string>
#include <utility>

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

TEST(DecideSilence, NewCoordinatorNeedHearOnlyOfWorkersThatRun) {
  Scene scene = RestartedCoordinator();
  scene.Pod("digits-worker-1").phase = PodPhase::kPending;
  EXPECT_FALSE(Emits(scene.Do(), "Restarting")) << "the other one may be in the midst of a step";

  scene.Member(scene.Pod("digits-worker-0")).set_in_view(false);
  scene.report().mutable_members(0)->set_phase(v1alpha1::PHASE_OUT);
  EXPECT_TRUE(Emits(scene.Do(), "Restarting"));
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
  const Unheard workers[] = {{absl::Seconds(60) - least, absl::Seconds(60) - least, 0},
                             {absl::Seconds(60), absl::Seconds(60), 1},
                             {absl::Seconds(50), absl::Seconds(30), 0},
                             {absl::Seconds(60), absl::Seconds(40), 1},
                             {absl::Minutes(5), absl::Seconds(10) - least, 0},
                             {absl::Minutes(5), absl::Seconds(10), 1},
                             {-absl::Hours(1), absl::Seconds(60) - least, 0},
                             {-absl::Hours(1), absl::Seconds(60), 1}};
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

TEST(DecideSilence, AProgramOfOnesOwnHasTenMinutesToComeToItsLoop) {
  for (const auto& [silent, deleted] :
       {std::pair(absl::Minutes(10) - absl::Milliseconds(1), 0), std::pair(absl::Minutes(10), 1)}) {
    Scene scene;
    scene.Training();
    scene.seen.spec.mutable_workload()->mutable_pytorch()->set_script("/train.py");
    scene.report().mutable_members()->RemoveLast();
    ObservedPod& pod = scene.Pod("digits-worker-1");
    pod.created = pod.started = pod.unheard_since.emplace(scene.now - silent);
    EXPECT_EQ(Count<DeletePod>(scene.Do()), deleted) << silent;
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

TEST(DecideSilence, WhatIsKnownOfASilentCoordinatorIsOnRecord) {
  Scene scene;
  scene.Training();
  scene.seen.link->silent = absl::Milliseconds(1995);
  EXPECT_EQ(scene.Do().requeue_after, absl::Milliseconds(10));
  scene.seen.link->silent = absl::Seconds(2);
  const v1alpha1::Incident incident = scene.Do().status.incidents(0);
  EXPECT_EQ(incident.detection_seconds(), 2);
  EXPECT_EQ(incident.message(), "it answers neither its stream nor a new call; it is replaced");
  EXPECT_EQ(incident.pod(), "digits-coordinator-0");
  EXPECT_EQ(incident.pod_uid(), scene.Pod("digits-coordinator-0").uid);
  EXPECT_EQ(ToTime(incident.time()), scene.now);
}

TEST(DecideSilence, WhatIsKnownOfARestartedCoordinatorIsOnRecord) {
  Scene scene;
  scene.Training();
  scene.Booted("boot-b");
  scene.seen.link->former_boot_id = "boot-a";
  scene.seen.link->outage = absl::Milliseconds(300);
  const v1alpha1::Incident incident = scene.Do().status.incidents(0);
  EXPECT_EQ(incident.recovery_seconds(), 0.3);
  EXPECT_TRUE(incident.has_repeated_steps());
  EXPECT_EQ(incident.repeated_steps(), 0);
  EXPECT_EQ(incident.pod(), "digits-coordinator-0");
  EXPECT_EQ(incident.pod_uid(), scene.Pod("digits-coordinator-0").uid);
  EXPECT_EQ(ToTime(incident.time()), scene.now);
}

TEST(DecideSilence, TheFirstProcessAndOneAfterTheEndAreNoRestarts) {
  Scene first;
  first.Prepared().Add(Role::kCoordinator, 0);
  first.Booted();
  EXPECT_EQ(first.Do().status.incidents_size(), 0);
  EXPECT_EQ(first.Do().status.coordinator().incarnation(), 1);
  Scene other;
  other.Training();
  other.Booted("boot-b");
  other.seen.link->former_boot_id = "boot-of-another-pod";
  EXPECT_EQ(other.Do().status.incidents_size(), 0);
  Scene ended;
  ended.Finished(true);
  ended.Booted("boot-b");
  ended.seen.link->former_boot_id = "boot-a";
  EXPECT_EQ(ended.Do().status.incidents_size(), 0);
}

TEST(DecideSilence, WhoSaysNotWhoItIsIsGrantedNothing) {
  Scene scene;
  scene.Prepared().Add(Role::kCoordinator, 0);
  scene.Booted("");
  EXPECT_EQ(scene.Do().status.coordinator().incarnation(), 0);
  EXPECT_EQ(Count<DeletePod>(scene.Do()), 0);
}

TEST(DecideSilence, WhoIsSupersededIsTakenAwayWhateverItsNumber) {
  for (const std::uint64_t incarnation : {0U, 1U}) {
    Scene scene;
    scene.Training();
    scene.report().set_incarnation(incarnation);
    scene.report().set_superseded(true);
    const Decision decision = scene.Do();
    ASSERT_NE(Deletes(decision, "digits-coordinator-0"), nullptr);
    EXPECT_EQ(Deletes(decision, "digits-coordinator-0")->grace_seconds, 1);
    EXPECT_EQ(decision.status.coordinator().incarnation(), 1);
  }
}

// Which of two coordinators' pods leads; the other one is deleted.
std::string Leader(const std::function<void(Scene&)>& arrange) {
  Scene scene;
  scene.Training();
  scene.Add(Role::kCoordinator, 1);
  arrange(scene);
  const Decision decision = scene.Do();
  const std::string leader = decision.supervision.has_value() ? decision.supervision->pod_uid : "";
  std::string name;
  for (const ObservedPod& pod : scene.seen.pods) {
    if (pod.role != Role::kCoordinator) continue;
    const DeletePod* removed = Deletes(decision, pod.name);
    EXPECT_EQ(removed == nullptr, pod.uid == leader) << pod.name;
    if (removed != nullptr) {
      EXPECT_EQ(removed->grace_seconds, 1);
    }
    if (pod.uid == leader) name = pod.name;
  }
  return name;
}

TEST(DecideSilence, TheOneThatWasGrantedLeadsAndThenTheOneWhosePodWas) {
  const auto second = [](Scene& s) -> ObservedPod& { return s.Pod("digits-coordinator-1"); };
  EXPECT_EQ(Leader([](Scene&) {}), "digits-coordinator-0") << "it reports the granted boot id";
  EXPECT_EQ(Leader([](Scene& s) { s.seen.link.reset(); }), "digits-coordinator-0")
      << "nothing is known of either";
  EXPECT_EQ(Leader([&](Scene& s) {
              s.seen.link.reset();
              s.seen.status.mutable_coordinator()->set_pod_uid(second(s).uid);
            }),
            "digits-coordinator-1")
      << "its pod was granted";
  EXPECT_EQ(Leader([&](Scene& s) {
              s.seen.status.mutable_coordinator()->set_pod_uid(s.Pod("digits-coordinator-0").uid);
              s.seen.link->pod_uid = second(s).uid;
            }),
            "digits-coordinator-1")
      << "its process was granted, whatever its pod";
}

TEST(DecideSilence, MembersHaveFiveSecondsOfWhichTheLinkTakesItsShare) {
  Scene scene;
  scene.Training();
  v1alpha1::MemberStatus& member = *scene.report().mutable_members(1);
  member.set_connected(false);
  member.set_silent_seconds(4.875);
  scene.seen.link->silent = absl::Milliseconds(100);
  EXPECT_EQ(Count<DeletePod>(scene.Do()), 0);
  EXPECT_EQ(scene.Do().requeue_after, absl::Milliseconds(30));
  scene.seen.link->silent = absl::Milliseconds(125);
  const Decision decision = scene.Do();
  EXPECT_EQ(Count<DeletePod>(decision), 1);
  const v1alpha1::Incident& incident = decision.status.incidents(0);
  EXPECT_EQ(incident.detection_seconds(), 5);
  EXPECT_EQ(incident.message(), "it does not answer its coordinator; it is replaced");
  EXPECT_EQ(incident.pod(), "digits-worker-1");
  EXPECT_EQ(incident.pod_uid(), scene.Pod("digits-worker-1").uid);
  EXPECT_EQ(ToTime(incident.time()), scene.now);
  scene.Pod("digits-worker-1").phase = PodPhase::kPending;
  EXPECT_EQ(Count<DeletePod>(scene.Do()), 0) << "it does not run";
}

TEST(DecideSilence, OnlyWhoWasNeverHeardIsStillStarting) {
  for (const int heard : {0, 1, 2, 3}) {
    Scene scene;
    scene.Training();
    v1alpha1::MemberStatus& member = *scene.report().mutable_members(1);
    member.set_connected(false);
    member.set_silent_seconds(20);
    member.set_in_view(heard == 1);
    member.set_phase(heard == 2 ? v1alpha1::PHASE_RUN : v1alpha1::PHASE_OUT);
    member.set_settled_step(heard == 3 ? 7 : 0);
    EXPECT_EQ(Count<DeletePod>(scene.Do()), heard == 0 ? 0 : 1) << heard;
  }
}

TEST(DecideSilence, AMemberThatWasGivenUpGoesEvenIfItSpeaksAgain) {
  Scene scene;
  scene.Training();
  scene.report().mutable_members(1)->set_connected(false);
  scene.report().mutable_members(1)->set_silent_seconds(6);
  scene.Settle();
  scene.report().mutable_members(1)->set_connected(true);
  EXPECT_NE(Deletes(scene.Do(), "digits-worker-1"), nullptr);
  EXPECT_EQ(scene.Do().status.incidents_size(), 1);
}

// Two workers on one node, their coordinator on another, silent for half of what they may be.
Scene CutOff() {
  Scene scene;
  scene.Training();
  for (ObservedPod& pod : scene.seen.pods) pod.node = pod.role == Role::kWorker ? "b" : "a";
  for (auto& member : *scene.report().mutable_members()) {
    member.set_connected(false);
    member.set_silent_seconds(2.5);
  }
  return scene;
}

bool GivesUpTheCoordinator(const Scene& scene) {
  return Deletes(scene.Do(), "digits-coordinator-0") != nullptr;
}

TEST(DecideSilence, ACoordinatorIsCutOffWhereAllAreSilentElsewhere) {
  EXPECT_TRUE(GivesUpTheCoordinator(CutOff()));
  EXPECT_EQ(CutOff().Do().status.incidents(0).message(),
            "all workers are silent to it: it may be cut off from them; it is replaced");
  const std::pair<const char*, void (*)(Scene&)> others[] = {
      {"one is not yet so silent",
       [](Scene& s) { s.report().mutable_members(1)->set_silent_seconds(2.49); }},
      {"one answers", [](Scene& s) { s.report().mutable_members(1)->set_connected(true); }},
      {"one is unheard of", [](Scene& s) { s.report().mutable_members()->RemoveLast(); }},
      {"one is starting",
       [](Scene& s) {
         s.report().mutable_members(1)->set_in_view(false);
         s.report().mutable_members(1)->set_phase(v1alpha1::PHASE_OUT);
       }},
      {"one is beside it", [](Scene& s) { s.Pod("digits-worker-1").node = "a"; }},
      {"one has no node", [](Scene& s) { s.Pod("digits-worker-1").node = ""; }},
      {"there is but one", [](Scene& s) {
         s.seen.pods.pop_back();
         s.worker().set_replicas(1);
       }}};
  for (const auto& [what, happens] : others) {
    Scene scene = CutOff();
    happens(scene);
    EXPECT_FALSE(GivesUpTheCoordinator(scene)) << what;
  }
}

TEST(DecideSilence, ServersThatAreSilentWithAllWorkersAreMembersToo) {
  Scene scene;
  scene.servers(1);
  scene.Training(1);
  for (ObservedPod& pod : scene.seen.pods) {
    pod.node = pod.role == Role::kCoordinator ? "a" : "b";
  }
  for (auto& member : *scene.report().mutable_members()) {
    member.set_connected(false);
    member.set_silent_seconds(3);
  }
  EXPECT_EQ(scene.Do().status.incidents(0).message(),
            "all members are silent to it: it may be cut off from them; it is replaced");
}

}  // namespace
}  // namespace starling::trainingjob
