// SPDX-License-Identifier: Apache-2.0
// Jobs that bring their own container: rounds of workers, success and failure from pods alone.
#include "controller/testing/test_scene.h"
#include "controller/trainingjob/policies.h"
#include "gtest/gtest.h"

namespace starling::trainingjob {
namespace {

Scene& Bring(Scene& s, std::int64_t workers = 2) {
  s.Prepared();
  s.seen.spec.clear_exchange();
  s.seen.spec.clear_dataset();
  s.seen.spec.mutable_workload()->mutable_container();
  s.worker().set_replicas(workers);
  return s;
}

// What a kubelet would do about the decision: makes and removes the pods.
Scene& Obey(Scene& s, PodPhase phase = PodPhase::kRunning) {
  const Decision decision = s.Do();
  s.seen.status = decision.status;
  std::erase_if(s.seen.pods,
                [&](const ObservedPod& pod) { return Deletes(decision, pod.name) != nullptr; });
  for (const Action& action : decision.actions) {
    const auto* create = std::get_if<CreatePod>(&action);
    if (create != nullptr) s.Add(create->role, create->index, phase).world = create->world;
  }
  return s;
}

Scene& Running(Scene& s, std::int64_t workers = 2) { return Obey(Bring(s, workers)).Settle(); }

// A job of two workers whose first round is over and whose second one is not made yet.
Scene& InSecondRound(Scene& s) {
  Bring(s);
  s.seen.status.mutable_round()->set_number(2);
  s.seen.status.mutable_round()->set_workers(2);
  s.seen.status.set_replicas(2);
  return s;
}

const World kFirstRound{.round = 1, .members = {0, 1}, .wanted = 2};
const World kSecondRound{.round = 2, .members = {0, 1}, .wanted = 2};

World WorldOf(const Decision& d) {
  for (const Action& action : d.actions) {
    if (const auto* create = std::get_if<CreatePod>(&action)) return create->world;
  }
  return {};
}

TEST(ContainerJob, HasNoCoordinatorAndNoCredentials) {
  Scene scene;
  Bring(scene).seen.has_secret = false;

  const Decision decision = scene.Do();

  EXPECT_EQ(Count<CreateSecret>(decision), 0);
  EXPECT_EQ(Count<CreatePod>(decision), 2);
  EXPECT_TRUE(Creates(decision, Role::kWorker, 0));
  EXPECT_TRUE(Creates(decision, Role::kWorker, 1));
  EXPECT_EQ(WorldOf(decision), (World{.round = 1, .members = {0, 1}, .wanted = 2}));
  EXPECT_EQ(decision.status.round().number(), 1);
  EXPECT_FALSE(decision.supervision.has_value());
}

TEST(ContainerJob, RunsWhenAllWorkersRun) {
  Scene scene;
  Running(scene);
  EXPECT_TRUE(Is(scene.Do(), "Running"));
  EXPECT_TRUE(scene.Do().actions.empty());
  EXPECT_TRUE(scene.Do().at_rest) << "what it knows its program keeps";
  scene.Pod("digits-worker-1").phase = PodPhase::kPending;
  EXPECT_FALSE(Is(scene.Do(), "Running"));
}

TEST(ContainerJob, OnAClusterARoundRunsOnceItHasLasted) {
  Scene scene;
  Obey(Bring(scene));
  scene.options.round_settle = ClusterOptions().round_settle;
  ASSERT_GT(scene.options.round_settle, absl::ZeroDuration());
  scene.Pod("digits-worker-1").started = scene.now - absl::Milliseconds(400);
  const Decision early = scene.Do();
  EXPECT_FALSE(Is(early, "Running"));
  EXPECT_EQ(early.requeue_after, scene.options.round_settle - absl::Milliseconds(400));
  scene.now += early.requeue_after;
  EXPECT_TRUE(Is(scene.Do(), "Running"));
  // A node whose clock is ahead is not waited for.
  scene.Pod("digits-worker-1").started = scene.now + absl::Hours(1);
  EXPECT_TRUE(Is(scene.Do(), "Running"));
}

TEST(ContainerJob, OnAClusterARoundThatStartsThisVeryMomentHasNotLasted) {
  Scene scene;
  Obey(Bring(scene));
  scene.options.round_settle = ClusterOptions().round_settle;
  for (ObservedPod& pod : scene.seen.pods) pod.started = scene.now;

  const Decision decision = scene.Do();

  EXPECT_FALSE(Is(decision, "Running"));
  EXPECT_EQ(decision.requeue_after, scene.options.round_settle);
}

// As after the end of a controller that had not written the job's first status yet.
TEST(ContainerJob, ARoundThatOnlyItsPodsTellOfDoesNotRunWhileOneOfThemGoes) {
  for (const bool going : {false, true}) {
    Scene scene;
    Running(scene).seen.status.Clear();
    scene.Pod("digits-worker-1").terminating = going;
    scene.Pod("digits-worker-1").deletion_due = scene.now + absl::Seconds(30);
    EXPECT_EQ(Is(scene.Do(), "Running"), !going);
  }
}

TEST(ContainerJob, RoundThatWasHalfMadeIsCompleted) {
  Scene scene;
  Obey(Bring(scene), PodPhase::kPending);
  scene.seen.pods.pop_back();

  const Decision decision = scene.Do();

  EXPECT_EQ(Count<CreatePod>(decision), 1);
  EXPECT_TRUE(Creates(decision, Role::kWorker, 1));
  EXPECT_EQ(decision.status.round().number(), 1);
  EXPECT_EQ(Count<DeletePod>(decision), 0);
}

TEST(ContainerJob, ScalingStartsAllWorkersAgain) {
  Scene scene;
  Running(scene).worker().set_replicas(3);

  const Decision first = scene.Do();
  EXPECT_EQ(Count<DeletePod>(first), 2);
  EXPECT_EQ(Count<CreatePod>(first), 0);  // not before the old ones are gone
  EXPECT_EQ(first.status.round().number(), 2);

  const Decision second = Obey(scene).Do();
  EXPECT_EQ(WorldOf(second), (World{.round = 2, .members = {0, 1, 2}, .wanted = 3}));
  EXPECT_EQ(second.status.failures(), 0);
}

TEST(ContainerJob, ItsStatusSaysHowManyWorkersAreWantedAndWhatBoundsThem) {
  Scene scene;
  Running(scene).worker().set_replicas(5);
  scene.worker().set_max_replicas(3);

  const Decision decision = scene.Do();

  EXPECT_EQ(decision.status.replicas(), 3);
  EXPECT_TRUE(Emits(decision, "ReplicasBounded"));
}

TEST(ContainerJob, NoWorkerIsMadeBeforeARefusedAttemptMayBeRepeated) {
  Scene scene;
  Bring(scene).seen.refusal = Refusal{kQuotaExceeded, "exceeded quota: team", scene.now};

  const Decision early = scene.Do();

  EXPECT_EQ(Count<CreatePod>(early), 0);
  EXPECT_TRUE(early.delayed);
  scene.now += early.requeue_after;
  EXPECT_EQ(Count<CreatePod>(scene.Do()), 2);
}

TEST(ContainerJob, FailedWorkerStartsAllAgainAndCountsOnce) {
  Scene scene;
  Running(scene, 3);
  scene.End("digits-worker-1", 1);
  scene.End("digits-worker-2", 1);  // its peer is gone

  const Decision decision = scene.Do();

  EXPECT_EQ(decision.status.failures(), 1);
  EXPECT_EQ(decision.status.round().number(), 2);
  EXPECT_EQ(Count<DeletePod>(decision), 3);
  scene.Settle();
  EXPECT_EQ(scene.Do().status.failures(), 1);
}

TEST(ContainerJob, BackoffLimitEndsAProgramThatCannotLive) {
  Scene scene;
  Running(scene);
  for (int i = 0; i < 10 && scene.seen.status.state() != "Failed"; ++i) {
    scene.End("digits-worker-0", 1);
    Obey(scene);
    scene.now += absl::Minutes(1);
    Obey(scene).Settle();
  }
  EXPECT_EQ(ReasonOf(scene.Do(), "Failed"), "BackoffLimitExceeded");
}

TEST(ContainerJob, ProgramThatRunsForLongMayFailOnceInAWhile) {
  Scene scene;
  Running(scene);
  for (int i = 0; i < 10; ++i) {
    for (ObservedPod& pod : scene.seen.pods) pod.started = scene.now;
    scene.now += absl::Hours(1);
    scene.End("digits-worker-0", 1);
    Obey(scene);
    scene.now += absl::Minutes(1);
    Obey(scene).Settle();
  }
  EXPECT_FALSE(Is(scene.Do(), "Failed"));
  EXPECT_EQ(scene.seen.status.failures(), 1);
}

TEST(ContainerJob, EvictionStartsAllAgainAndIsNoFailure) {
  Scene scene;
  Running(scene);
  scene.Pod("digits-worker-1").terminating = true;
  scene.Pod("digits-worker-1").disrupted = true;
  scene.Pod("digits-worker-1").disruption = "EvictionByEvictionAPI";
  scene.Pod("digits-worker-1").deletion_due = scene.now + absl::Seconds(30);

  const Decision decision = scene.Do();

  EXPECT_EQ(decision.status.failures(), 0);
  EXPECT_EQ(decision.status.round().number(), 2);
  EXPECT_NE(Deletes(decision, "digits-worker-0"), nullptr);
  EXPECT_EQ(Count<CreatePod>(decision), 0);
}

TEST(ContainerJob, StuckPodOfALostNodeHoldsNobodyUpAndKeepsItsIndex) {
  Scene scene;
  Running(scene);
  ObservedPod& pod = scene.Pod("digits-worker-0");
  pod.node = "b";
  pod.terminating = true;
  pod.deletion_due = scene.now + absl::Seconds(30);
  scene.seen.nodes["b"].ready = false;
  scene.Settle();
  std::erase_if(scene.seen.pods, [](const ObservedPod& other) { return other.index == 1; });

  EXPECT_EQ(WorldOf(scene.Do()), (World{.round = 2, .members = {1, 2}, .wanted = 2}));
}

TEST(ContainerJob, SucceedsWhenAllWorkersHave) {
  Scene scene;
  Running(scene);
  scene.End("digits-worker-0", 0);
  EXPECT_FALSE(Is(scene.Do(), "Succeeded"));
  EXPECT_TRUE(Is(scene.Do(), "Running")) << "the other one goes on";
  EXPECT_EQ(Count<DeletePod>(scene.Do()), 0);
  EXPECT_EQ(scene.Do().status.failures(), 0);
  scene.End("digits-worker-1", 0);

  const Decision decision = scene.Do();

  EXPECT_EQ(ReasonOf(decision, "Succeeded"), "WorkersSucceeded");
  EXPECT_TRUE(decision.status.has_completion_time());
}

TEST(ContainerJob, FirstWorkerDecidesWhereThePolicySaysSo) {
  Scene scene;
  Running(scene);
  scene.policy().set_success_policy(v1alpha1::SUCCESS_POLICY_FIRST_WORKER);
  scene.End("digits-worker-1", 0);
  EXPECT_FALSE(Is(scene.Do(), "Succeeded"));
  scene.End("digits-worker-0", 0);
  EXPECT_TRUE(Is(scene.Do(), "Succeeded"));
}

TEST(ContainerJob, OthersAreDeletedWhenTheFirstWorkerHasSucceeded) {
  Scene scene;
  Running(scene);
  scene.policy().set_success_policy(v1alpha1::SUCCESS_POLICY_FIRST_WORKER);
  scene.End("digits-worker-0", 0);

  const Decision decision = scene.Do();

  EXPECT_NE(Deletes(decision, "digits-worker-1"), nullptr);
  EXPECT_EQ(Deletes(decision, "digits-worker-0"), nullptr);
}

TEST(ContainerJob, WorkerWithoutAPlaceIsDoneWithoutIfTheMinimumIsThere) {
  Scene scene;
  Obey(Bring(scene, 3));
  ObservedPod& pod = scene.Pod("digits-worker-2");
  pod.phase = PodPhase::kPending;
  pod.problem = PodProblem{kUnschedulable, "no room", scene.now};
  EXPECT_EQ(Count<DeletePod>(scene.Do()), 0);
  scene.now += absl::Seconds(31);

  Obey(scene);

  EXPECT_EQ(WorldOf(scene.Do()), (World{.round = 2, .members = {0, 1}, .wanted = 3}));
  Obey(scene).Settle();
  EXPECT_TRUE(scene.Do().actions.empty());  // and that stands until another number is wanted
}

TEST(ContainerJob, RestartPolicyNeverEndsTheJob) {
  Scene scene;
  Running(scene).worker().set_restart_policy(v1alpha1::RESTART_POLICY_NEVER);
  scene.End("digits-worker-1", 3);
  EXPECT_EQ(ReasonOf(scene.Do(), "Failed"), "PodFailed");
}

// The exit code 2 has a meaning for programs of ours alone.
TEST(ContainerJob, ExitCodeTwoIsAFailureLikeAnyOther) {
  Scene scene;
  Running(scene);
  scene.End("digits-worker-1", 2);
  EXPECT_FALSE(Is(scene.Do(), "Failed"));
}

TEST(ContainerJob, SuspensionLetsAllGoAndResumeBeginsANewRound) {
  Scene scene;
  Running(scene).policy().set_suspend(true);
  Obey(scene).Settle();
  EXPECT_TRUE(Is(scene.Do(), "Suspended"));
  EXPECT_TRUE(scene.seen.pods.empty());
  scene.policy().set_suspend(false);
  EXPECT_EQ(Count<CreatePod>(scene.Do()), 2);
}

TEST(ContainerJob, SaysWhyItStartsAllAgain) {
  const struct {
    const char* why;
    void (*happens)(Scene&);
  } cases[] = {
      {"3 workers are wanted", [](Scene& s) { s.worker().set_replicas(3); }},
      {"worker 1 is gone", [](Scene& s) { s.seen.pods.pop_back(); }},
      {"digits-worker-1 failed", [](Scene& s) { s.End("digits-worker-1", 1); }},
      {"digits-worker-1 is being deleted",
       [](Scene& s) { s.Pod("digits-worker-1").terminating = true; }},
      {"b does not answer", [](Scene& s) { s.seen.nodes["b"].ready = false; }},
      {"b does not answer", [](Scene& s) { s.seen.nodes["b"].exists = false; }},
      {"digits-worker-1 must go", [](Scene& s) { s.seen.nodes["b"].departure = "taint spot"; }}};
  for (const auto& one : cases) {
    Scene scene;
    Running(scene);
    scene.Pod("digits-worker-1").node = "b";
    scene.seen.nodes["b"] = {};
    one.happens(scene);
    const Decision decision = scene.Do();
    EXPECT_EQ(decision.status.round().number(), 2) << one.why;
    std::string note;
    for (const Action& action : decision.actions) {
      const auto* event = std::get_if<EmitEvent>(&action);
      if (event != nullptr && event->reason == "RoundStarted") note = event->note;
    }
    EXPECT_EQ(note, "all " + std::to_string(decision.status.round().workers()) +
                        " workers are started again: " + one.why);
  }
}

TEST(ContainerJob, AWorkerThatHasEndedWellMayBeDeletedOrLoseItsNode) {
  void (*const cases[])(Scene&) = {[](Scene& s) { s.Pod("digits-worker-1").terminating = true; },
                                   [](Scene& s) { s.seen.nodes["b"].ready = false; },
                                   [](Scene& s) { s.seen.nodes["b"].departure = "taint spot"; }};
  for (const auto& happens : cases) {
    Scene scene;
    Running(scene);
    scene.End("digits-worker-1", 0).node = "b";
    scene.seen.nodes["b"] = {};
    happens(scene);
    EXPECT_EQ(scene.Do().status.round().number(), 1);
    EXPECT_EQ(Count<CreatePod>(scene.Do()), 0);
  }
}

TEST(ContainerJob, APlaceIsWaitedForForThirtySecondsAndNotWhereAllAreNeeded) {
  for (const std::int64_t least : {2, 3}) {
    Scene scene;
    Obey(Bring(scene, 3));
    scene.worker().set_min_replicas(least);
    ObservedPod& pod = scene.Pod("digits-worker-2");
    pod.phase = PodPhase::kPending;
    pod.problem = PodProblem{kUnschedulable, "no room", scene.now};
    scene.now += absl::Seconds(30) - absl::Nanoseconds(1);
    EXPECT_EQ(scene.Do().status.round().number(), 1);
    EXPECT_EQ(scene.Do().requeue_after, absl::Milliseconds(1));
    scene.now += absl::Nanoseconds(1);
    const Decision decision = scene.Do();
    EXPECT_EQ(decision.status.round().number(), least == 2 ? 2 : 1);
    EXPECT_EQ(decision.status.round().workers(), least == 2 ? 2 : 3);
    pod.problem->reason = kImagePullFailed;
    EXPECT_EQ(scene.Do().status.round().number(), 1) << "its place is not what it lacks";
    pod.problem->reason = kUnschedulable;
    scene.seen.pods.pop_back();
    EXPECT_EQ(scene.Do().status.round().number(), 1) << "it is made again";
  }
}

// Nobody of a round has a place: it goes on waiting, for there is nobody to go on with.
TEST(ContainerJob, ARoundThatHasNoPlaceAtAllWaits) {
  Scene scene;
  Obey(Bring(scene, 2), PodPhase::kPending);
  scene.worker().set_min_replicas(0);
  for (ObservedPod& pod : scene.seen.pods) {
    pod.problem = PodProblem{kUnschedulable, "no room", scene.now};
  }
  scene.now += absl::Hours(1);
  EXPECT_EQ(scene.Do().status.round().number(), 1);
  scene.seen.pods[0].problem.reset();
  EXPECT_EQ(scene.Do().status.round().workers(), 1) << "one has";
}

TEST(ContainerJob, WhatIsLeftOfFormerRoundsHoldsUpTheNextWhileItMayCompute) {
  const struct {
    const char* what;
    void (*is)(Scene&, ObservedPod&);
    bool next;
    int deleted;
  } cases[] = {
      {"runs", [](Scene&, ObservedPod&) {}, false, 1},
      {"has never started", [](Scene&, ObservedPod& p) { p.phase = PodPhase::kPending; }, true, 1},
      {"has ended", [](Scene&, ObservedPod& p) { p.phase = PodPhase::kFailed; }, true, 1},
      {"has ended and goes",
       [](Scene&, ObservedPod& p) {
         p.phase = PodPhase::kFailed;
         p.terminating = true;
       },
       true, 0},
      {"is being deleted", [](Scene&, ObservedPod& p) { p.terminating = true; }, false, 0},
      {"does not end",
       [](Scene& s, ObservedPod& p) {
         p.terminating = true;
         p.deletion_due = s.now - s.options.stuck_grace;
       },
       true, 0},
      {"will soon be stuck",
       [](Scene& s, ObservedPod& p) {
         p.terminating = true;
         p.deletion_due = s.now - s.options.stuck_grace + absl::Seconds(1);
       },
       false, 0},
      {"is on a node that is lost",
       [](Scene& s, ObservedPod& p) {
         p.terminating = true;
         p.deletion_due = s.now;
         p.node = "b";
         s.seen.nodes["b"].ready = false;
       },
       true, 0},
  };
  for (const auto& one : cases) {
    Scene scene;
    InSecondRound(scene);
    ObservedPod& former = scene.Add(Role::kWorker, 0);
    former.world = kFirstRound;
    former.deletion_due = scene.now;
    one.is(scene, former);
    const Decision decision = scene.Do();
    EXPECT_EQ(Count<CreatePod>(decision) > 0, one.next) << one.what;
    EXPECT_EQ(Count<DeletePod>(decision), one.deleted) << one.what;
    EXPECT_EQ(decision.status.round().number(), 2) << one.what;
    if (!one.next) {
      EXPECT_EQ(decision.requeue_after < absl::Minutes(1), former.terminating) << one.what;
    }
  }
}

TEST(ContainerJob, ARoundWithoutPodsIsMadeAgainAndInAnotherNumberWhereThatIsWanted) {
  Scene scene;
  Obey(Bring(scene, 3));
  scene.seen.status.mutable_round()->set_workers(2);  // one had no place
  scene.seen.pods.clear();
  EXPECT_EQ(WorldOf(scene.Do()), (World{.round = 1, .members = {0, 1}, .wanted = 3}));
  scene.worker().set_replicas(4);
  EXPECT_EQ(WorldOf(scene.Do()), (World{.round = 1, .members = {0, 1, 2, 3}, .wanted = 4}));
}

TEST(ContainerJob, ItsResultSaysHowLongItTookAndWhoDecided) {
  for (const bool first : {true, false}) {
    Scene scene;
    Running(scene);
    scene.now += absl::Seconds(30);
    if (first) scene.policy().set_success_policy(v1alpha1::SUCCESS_POLICY_FIRST_WORKER);
    scene.End("digits-worker-0", 0);
    scene.End("digits-worker-1", 0);
    const Decision decision = scene.Do();
    EXPECT_EQ(decision.status.result().seconds(), 30);
    EXPECT_EQ(FindCondition(decision.status, "Succeeded")->message(),
              first ? "the worker of rank 0 has ended well" : "all 2 workers have ended well");
  }
}

TEST(ContainerJob, FromNoWorkerAtAllItHasNotSucceeded) {
  Scene scene;
  Running(scene);
  scene.seen.pods.clear();
  EXPECT_FALSE(Is(scene.Do(), "Succeeded"));
  Scene ours;
  ours.Training();
  for (ObservedPod& pod : ours.seen.pods) {
    pod.phase = PodPhase::kSucceeded;
    pod.world = {.round = 0, .members = {0, 1}, .wanted = 2};  // as its template may say
  }
  EXPECT_FALSE(Is(ours.Do(), "Succeeded")) << "a job of ours tells its result";
}

// Of several that are left, one that may compute holds up the next round whatever the others do.
TEST(ContainerJob, EachThatIsLeftOfAFormerRoundHoldsUpTheNext) {
  for (const bool terminating : {false, true}) {
    Scene scene;
    InSecondRound(scene);
    scene.Add(Role::kWorker, 0);
    scene.Add(Role::kWorker, 1, terminating ? PodPhase::kRunning : PodPhase::kPending);
    for (ObservedPod& pod : scene.seen.pods) {
      pod.world = kFirstRound;
      pod.terminating = terminating;
      pod.deletion_due = scene.now - scene.options.stuck_grace;
    }
    scene.seen.pods[0].deletion_due = scene.now;
    EXPECT_EQ(Count<CreatePod>(scene.Do()), 0) << terminating;
  }
}

TEST(ContainerJob, ANameIsTakenUntilThePodOfTheFormerRoundIsGone) {
  Scene scene;
  InSecondRound(scene);
  scene.Add(Role::kWorker, 1).world = kSecondRound;
  scene.Add(Role::kWorker, 0, PodPhase::kPending).world = kFirstRound;
  EXPECT_NE(Deletes(scene.Do(), "digits-worker-0"), nullptr);
  EXPECT_EQ(Count<CreatePod>(scene.Do()), 0);
  scene.seen.pods.pop_back();
  EXPECT_TRUE(Creates(scene.Do(), Role::kWorker, 0));
}

TEST(ContainerJob, WhatHasEndedOfAFormerRoundGoesAtOnceAndWhatRunsHasItsGrace) {
  Scene scene;
  InSecondRound(scene);
  scene.Add(Role::kWorker, 0).world = kFirstRound;
  scene.Add(Role::kWorker, 1, PodPhase::kFailed).world = kFirstRound;

  const Decision decision = scene.Do();

  ASSERT_NE(Deletes(decision, "digits-worker-0"), nullptr);
  EXPECT_EQ(Deletes(decision, "digits-worker-0")->grace_seconds, std::nullopt);
  ASSERT_NE(Deletes(decision, "digits-worker-1"), nullptr);
  EXPECT_EQ(Deletes(decision, "digits-worker-1")->grace_seconds, 0);
}

TEST(ContainerJob, TheNameOfWhatHasEndedIsTakenAgainAtOnce) {
  Scene scene;
  InSecondRound(scene);
  scene.Add(Role::kWorker, 0, PodPhase::kFailed).world = kFirstRound;

  const Decision decision = scene.Do();

  EXPECT_TRUE(Creates(decision, Role::kWorker, 0));
  EXPECT_TRUE(Creates(decision, Role::kWorker, 1));
}

TEST(ContainerJob, HowAWorkerOfAFormerRoundEndedDecidesNothing) {
  for (const std::int64_t code : {0, 1}) {
    Scene scene;
    InSecondRound(scene).policy().set_success_policy(v1alpha1::SUCCESS_POLICY_FIRST_WORKER);
    scene.Add(Role::kWorker, 0).world = kFirstRound;
    scene.Add(Role::kWorker, 1).world = kSecondRound;
    scene.End("digits-worker-0", code);

    const Decision decision = scene.Do();

    EXPECT_FALSE(decision.status.has_completion_time()) << code;
    EXPECT_EQ(decision.status.failures(), 0) << code;
    EXPECT_EQ(decision.status.round().number(), 2) << code;
    EXPECT_TRUE(Creates(decision, Role::kWorker, 0)) << code;
  }
}

// A pod of another role may be left of what the job was before it was edited.
TEST(ContainerJob, APodOfAnotherRoleIsLeftAloneAndHoldsUpNobody) {
  Scene scene;
  Bring(scene).Add(Role::kParameterServer, 0);

  const Decision decision = scene.Do();

  EXPECT_EQ(Count<DeletePod>(decision), 0);
  EXPECT_TRUE(Creates(decision, Role::kWorker, 0));
  EXPECT_TRUE(Creates(decision, Role::kWorker, 1));
}

TEST(ContainerJob, APodOfAnotherRoleIsOfNoRoundWhateverItsTemplateSays) {
  Scene scene;
  InSecondRound(scene);
  scene.Add(Role::kWorker, 0, PodPhase::kPending).world = kSecondRound;
  scene.Add(Role::kParameterServer, 1, PodPhase::kPending).world = kSecondRound;

  EXPECT_TRUE(Creates(scene.Do(), Role::kWorker, 1));
}

// Pods of what the job was before are let go; until then they may fail like any other.
TEST(ContainerJob, FailuresFromBeforeItBroughtItsContainerCount) {
  for (const char* name : {"digits-coordinator-0", "digits-worker-0"}) {
    Scene scene;
    scene.Training();
    scene.seen.spec.mutable_workload()->mutable_container();
    scene.seen.configs = {{1, false}};
    scene.End(name, 1);

    const Decision decision = scene.Do();

    EXPECT_EQ(decision.status.failures(), 1) << name;
    EXPECT_EQ(decision.status.incidents_size(), 1) << name;
  }
}

TEST(ContainerJob, FailuresCountInAJobThatBringsItsContainerNoMore) {
  Scene scene;
  scene.Training();
  scene.seen.status.mutable_round()->set_number(2);  // stays in its status
  scene.End("digits-worker-1", 1);

  const Decision decision = scene.Do();

  EXPECT_EQ(decision.status.failures(), 1);
  EXPECT_EQ(decision.status.incidents_size(), 1);
}

}  // namespace
}  // namespace starling::trainingjob
