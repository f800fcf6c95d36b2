// SPDX-License-Identifier: Apache-2.0
// The life of a job without failures: start, grants, scaling, suspension, end.
#include "controller/trainingjob/decide.h"

#include <functional>

#include "controller/trainingjob/test_scene.h"
#include "gtest/gtest.h"

namespace starling::trainingjob {
namespace {

// Arranges a scene; checks what is decided.
struct Case {
  const char* name;
  std::function<void(Scene&)> arrange;
  std::function<void(const Decision&)> check;
};

void PrintTo(const Case& value, std::ostream* out) { *out << value.name; }

class DecideCase : public testing::TestWithParam<Case> {};

TEST_P(DecideCase, Holds) {
  Scene scene;
  GetParam().arrange(scene);
  GetParam().check(scene.Do());
}

std::string NameOf(const testing::TestParamInfo<Case>& info) { return info.param.name; }

void TrainingFour(Scene& s) { s.Training(4); }

const Case kStart[] = {
    {"NewJobGetsAllItsObjects", [](Scene&) {},
     [](const Decision& d) {
       EXPECT_EQ(Count<CreateSecret>(d), 1);
       EXPECT_EQ(Count<CreateService>(d), 1);
       EXPECT_EQ(Count<CreateConfig>(d), 1);
       EXPECT_TRUE(Creates(d, Role::kCoordinator, 0));
       EXPECT_TRUE(Creates(d, Role::kWorker, 0));
       EXPECT_TRUE(Creates(d, Role::kWorker, 1));
       EXPECT_EQ(Count<CreatePod>(d), 3);
     }},
    {"WhatPodsMountIsMadeBeforeThem", [](Scene&) {},
     [](const Decision& d) {
       bool pods = false;
       for (const Action& action : d.actions) {
         pods |= std::holds_alternative<CreatePod>(action);
         const bool mounted = std::holds_alternative<CreateSecret>(action) ||
                              std::holds_alternative<CreateConfig>(action);
         EXPECT_FALSE(pods && mounted);
       }
     }},
    {"NewJobIsCreatedAndPending", [](Scene&) {},
     [](const Decision& d) {
       EXPECT_TRUE(d.write_status);
       EXPECT_TRUE(Is(d, "Created"));
       EXPECT_EQ(d.status.state(), "Pending");
       EXPECT_EQ(d.status.replicas(), 2);
       EXPECT_EQ(d.status.selector(), "starling.dev/job=digits,starling.dev/role=worker");
       EXPECT_TRUE(d.status.has_start_time());
       EXPECT_TRUE(Emits(d, "Created"));
     }},
    {"SecretIsMadeOnce", [](Scene& s) { s.seen.has_secret = true; },
     [](const Decision& d) { EXPECT_EQ(Count<CreateSecret>(d), 0); }},
    {"JobBeingDeletedGetsNothing", [](Scene& s) { s.seen.deleting = true; },
     [](const Decision& d) {
       EXPECT_TRUE(d.actions.empty());
       EXPECT_FALSE(d.write_status);
       EXPECT_FALSE(d.supervision.has_value());
     }},
    {"CoordinatorThatHasNotStartedIsNotDialled",
     [](Scene& s) { s.Prepared().Add(Role::kCoordinator, 0, PodPhase::kPending); },
     [](const Decision& d) { EXPECT_FALSE(d.supervision.has_value()); }},
    {"RunningCoordinatorIsDialled", [](Scene& s) { s.Prepared().Add(Role::kCoordinator, 0); },
     [](const Decision& d) {
       ASSERT_TRUE(d.supervision.has_value());
       EXPECT_FALSE(d.supervision->desired.has_value());
     }},
    {"SettledTrainingIsLeftAlone", [](Scene& s) { s.Training(); },
     [](const Decision& d) {
       EXPECT_TRUE(d.actions.empty());
       EXPECT_FALSE(d.write_status);
       EXPECT_EQ(d.status.state(), "Running");
     }},
    {"SecondCoordinatorIsDeleted", [](Scene& s) { s.Training().Add(Role::kCoordinator, 1); },
     [](const Decision& d) {
       EXPECT_NE(Deletes(d, "digits-coordinator-1"), nullptr);
       EXPECT_EQ(Deletes(d, "digits-coordinator-0"), nullptr);
     }},
};

const Case kGrants[] = {
    {"FirstProcessIsGrantedTheFirstIncarnation",
     [](Scene& s) {
       s.Prepared().Add(Role::kCoordinator, 0);
       s.Add(Role::kWorker, 0);
       s.Add(Role::kWorker, 1);
       s.Booted();
     },
     [](const Decision& d) {
       EXPECT_TRUE(d.write_status);
       EXPECT_EQ(d.status.coordinator().incarnation(), 1);
       EXPECT_EQ(d.status.coordinator().boot_id(), "boot-a");
       ASSERT_TRUE(d.supervision->grant.has_value());
       EXPECT_EQ(d.supervision->grant->incarnation(), 1U);
       EXPECT_EQ(d.supervision->grant->roster_size(), 2);
       EXPECT_EQ(d.supervision->boot_id, "boot-a");
     }},
    {"SameBootIdGetsTheSameGrantAgain",
     [](Scene& s) {
       s.Training();
       s.report().set_incarnation(0);
     },
     [](const Decision& d) {
       EXPECT_EQ(d.status.coordinator().incarnation(), 1);
       ASSERT_TRUE(d.supervision->grant.has_value());
       EXPECT_EQ(d.supervision->grant->incarnation(), 1U);
     }},
    {"RestartedProcessGetsTheNextIncarnation",
     [](Scene& s) {
       s.Training();
       s.Booted("boot-b");
     },
     [](const Decision& d) {
       EXPECT_EQ(d.status.coordinator().incarnation(), 2);
       EXPECT_EQ(d.supervision->grant->newest_view(), (1ULL << 32) + 1);
     }},
    {"GrantedProcessIsNotGrantedAgain", [](Scene& s) { s.Training(); },
     [](const Decision& d) {
       EXPECT_FALSE(d.supervision->grant.has_value());
       EXPECT_TRUE(d.supervision->desired.has_value());
     }},
    {"SupersededProcessIsReplacedNotGranted",
     [](Scene& s) {
       s.Training();
       s.report().set_boot_id("boot-of-long-ago");
     },
     [](const Decision& d) {
       EXPECT_EQ(d.status.coordinator().incarnation(), 1);
       EXPECT_NE(Deletes(d, "digits-coordinator-0"), nullptr);
       EXPECT_TRUE(Creates(d, Role::kCoordinator, 1));
     }},
    {"TerminatedPodIsNotOnTheRoster",
     [](Scene& s) {
       s.Prepared().Add(Role::kCoordinator, 0);
       s.Add(Role::kWorker, 0);
       s.Add(Role::kWorker, 1);
       s.End("digits-worker-1", 137, 9);
       s.Booted();
     },
     [](const Decision& d) { EXPECT_EQ(d.supervision->grant->roster_size(), 1); }},
    {"TerminatingPodIsOnTheRoster",
     [](Scene& s) {
       s.Prepared().Add(Role::kCoordinator, 0);
       s.Add(Role::kWorker, 0).terminating = true;
       s.Booted();
     },
     [](const Decision& d) { EXPECT_EQ(d.supervision->grant->roster_size(), 1); }},
    {"PodThatNeverStartedIsNotOnTheRoster",
     [](Scene& s) {
       s.Prepared().Add(Role::kCoordinator, 0);
       s.Add(Role::kWorker, 0, PodPhase::kPending);
       s.Booted();
     },
     [](const Decision& d) { EXPECT_EQ(d.supervision->grant->roster_size(), 0); }},
    {"NewestViewIsKeptOnRecord",
     [](Scene& s) {
       s.Training();
       s.report().set_newest_view((1ULL << 32) + 7);
     },
     [](const Decision& d) {
       EXPECT_TRUE(d.write_status);
       EXPECT_EQ(d.status.newest_view(), (1LL << 32) + 7);
     }},
    {"OlderViewChangesNothing",
     [](Scene& s) {
       s.Training();
       s.report().set_newest_view(5);
     },
     [](const Decision& d) { EXPECT_EQ(d.status.newest_view(), (1LL << 32) + 1); }},
    {"ResultOfAnUngrantedProcessIsNotBelieved",
     [](Scene& s) {
       s.Training();
       s.Booted("boot-b");
       s.report().mutable_training()->mutable_result()->set_steps(3);
     },
     [](const Decision& d) { EXPECT_FALSE(Is(d, "Succeeded")); }},
};

const Case kScaling[] = {
    {"ScaleUpTakesTheLowestFreeIndexes",
     [](Scene& s) {
       s.Training();
       s.worker().set_replicas(4);
     },
     [](const Decision& d) {
       EXPECT_TRUE(Creates(d, Role::kWorker, 2));
       EXPECT_TRUE(Creates(d, Role::kWorker, 3));
       EXPECT_EQ(Count<CreatePod>(d), 2);
     }},
    {"TerminatingPodKeepsItsIndex",
     [](Scene& s) {
       s.Training();
       s.Pod("digits-worker-0").terminating = true;
     },
     [](const Decision& d) {
       EXPECT_TRUE(Creates(d, Role::kWorker, 2));
       EXPECT_FALSE(Creates(d, Role::kWorker, 0));
     }},
    {"ScaleDownDrainsTheHighestIndexes",
     [](Scene& s) {
       TrainingFour(s);
       s.worker().set_replicas(2);
     },
     [](const Decision& d) {
       EXPECT_EQ(d.supervision->desired->workers(), 2);
       EXPECT_EQ(StateInDesired(d, "digits-worker-1"), v1alpha1::Pod::LIVE);
       EXPECT_EQ(StateInDesired(d, "digits-worker-2"), v1alpha1::Pod::DRAINING);
       EXPECT_EQ(StateInDesired(d, "digits-worker-3"), v1alpha1::Pod::DRAINING);
       EXPECT_EQ(Count<DeletePod>(d), 0);
     }},
    {"DrainedPodIsDeleted",
     [](Scene& s) {
       TrainingFour(s);
       s.worker().set_replicas(3);
       s.report().mutable_members(3)->set_drained(true);
     },
     [](const Decision& d) {
       ASSERT_NE(Deletes(d, "digits-worker-3"), nullptr);
       EXPECT_FALSE(Deletes(d, "digits-worker-3")->grace_seconds.has_value());
     }},
    {"DrainThatTakesTooLongEnds",
     [](Scene& s) {
       TrainingFour(s);
       s.worker().set_replicas(3);
       s.Pod("digits-worker-3").surplus_since = s.now - absl::Seconds(61);
     },
     [](const Decision& d) { EXPECT_NE(Deletes(d, "digits-worker-3"), nullptr); }},
    {"SurplusPodThatNeverStartedGoesAtOnce",
     [](Scene& s) {
       s.Training();
       s.Add(Role::kWorker, 2, PodPhase::kPending);
     },
     [](const Decision& d) { EXPECT_NE(Deletes(d, "digits-worker-2"), nullptr); }},
    {"PodThatLeftAfterItsDrainIsNoFailure",
     [](Scene& s) {
       s.Training(3);
       s.worker().set_replicas(2);
       s.End("digits-worker-2", 0);
     },
     [](const Decision& d) {
       EXPECT_EQ(d.status.failures(), 0);
       EXPECT_EQ(d.status.incidents_size(), 0);
       EXPECT_EQ(Deletes(d, "digits-worker-2")->grace_seconds, 0);
     }},
    {"MaxReplicasBoundsAndTells",
     [](Scene& s) {
       s.Training();
       s.worker().set_replicas(9);
       s.worker().set_max_replicas(3);
     },
     [](const Decision& d) {
       EXPECT_EQ(d.status.replicas(), 3);
       EXPECT_EQ(Count<CreatePod>(d), 1);
       EXPECT_TRUE(Emits(d, "ReplicasBounded"));
     }},
    {"MinReplicasBoundsFromBelow",
     [](Scene& s) {
       s.Training();
       s.worker().set_replicas(0);
       s.worker().set_min_replicas(2);
     },
     [](const Decision& d) {
       EXPECT_EQ(d.status.replicas(), 2);
       EXPECT_TRUE(d.surplus.empty());
     }},
    {"ReproducibleJobsAreCappedAtSixteen",
     [](Scene& s) {
       s.Training();
       s.worker().set_replicas(40);
       s.seen.spec.set_reproducible(true);
     },
     [](const Decision& d) { EXPECT_EQ(d.status.replicas(), 16); }},
    {"ReproducibleJobsAreCappedAtTheirBatch",
     [](Scene& s) {
       s.Training();
       s.worker().set_replicas(40);
       s.seen.spec.set_reproducible(true);
       s.seen.spec.mutable_dataset()->set_global_batch_size(5);
     },
     [](const Decision& d) { EXPECT_EQ(d.status.replicas(), 5); }},
    {"BoundIsToldOnce",
     [](Scene& s) {
       s.worker().set_max_replicas(2);
       s.Training(9);
     },
     [](const Decision& d) { EXPECT_FALSE(Emits(d, "ReplicasBounded")); }},
    {"WithoutExchangeOneWorkerTrains",
     [](Scene& s) { s.seen.spec.mutable_exchange()->mutable_none(); },
     [](const Decision& d) { EXPECT_EQ(Count<CreatePod>(d), 2); }},
    {"SettingsCarryWhatMayChange",
     [](Scene& s) {
       s.Training();
       s.seen.generation = 7;
       s.seen.spec.mutable_stop()->set_epochs(99);
     },
     [](const Decision& d) {
       EXPECT_EQ(d.supervision->desired->settings().stop().epochs(), 99);
       EXPECT_FALSE(d.supervision->desired->settings().halt());
       EXPECT_FALSE(d.supervision->desired->finished());
       EXPECT_EQ(d.status.observed_generation(), 7);
     }},
};

const Case kSuspension[] = {
    {"EndingControllerHaltsTrainingAndMakesNothing",
     [](Scene& s) {
       s.Training();
       s.worker().set_replicas(5);
       s.seen.shutting_down = true;
     },
     [](const Decision& d) {
       EXPECT_TRUE(d.supervision->desired->settings().halt());
       EXPECT_EQ(Count<CreatePod>(d), 0);
       EXPECT_EQ(Count<DeletePod>(d), 0);
       EXPECT_FALSE(d.at_rest);
       EXPECT_EQ(FindCondition(d.status, "Suspended"), nullptr);
     }},
    {"HaltedTrainingIsAtRest",
     [](Scene& s) {
       s.Training();
       s.seen.shutting_down = true;
       s.report().set_stopped(true);
     },
     [](const Decision& d) { EXPECT_TRUE(d.at_rest); }},
    {"JobSuspendedFromTheStartHasNoPods", [](Scene& s) { s.policy().set_suspend(true); },
     [](const Decision& d) {
       EXPECT_TRUE(Is(d, "Suspended"));
       EXPECT_EQ(d.status.state(), "Suspended");
       EXPECT_EQ(Count<CreatePod>(d), 0);
       EXPECT_FALSE(d.status.has_start_time());
     }},
    {"SuspensionFirstAsksForAHalt",
     [](Scene& s) {
       s.Training();
       s.policy().set_suspend(true);
     },
     [](const Decision& d) {
       EXPECT_EQ(ConditionStatus(d.status, "Suspended"), "Unknown");
       EXPECT_TRUE(d.supervision->desired->settings().halt());
       EXPECT_EQ(Count<DeletePod>(d), 0);
       EXPECT_LE(d.requeue_after, absl::Seconds(30));
     }},
    {"WorkersAreReleasedWhenTheyHaveStopped",
     [](Scene& s) {
       s.Training();
       s.policy().set_suspend(true);
       s.report().set_stopped(true);
     },
     [](const Decision& d) {
       EXPECT_NE(Deletes(d, "digits-worker-0"), nullptr);
       EXPECT_NE(Deletes(d, "digits-worker-1"), nullptr);
       EXPECT_EQ(Deletes(d, "digits-coordinator-0"), nullptr);
     }},
    {"HaltThatTakesTooLongEnds",
     [](Scene& s) {
       s.Training();
       s.policy().set_suspend(true);
       s.Settle();
       s.now += absl::Seconds(31);
     },
     [](const Decision& d) { EXPECT_NE(Deletes(d, "digits-worker-0"), nullptr); }},
    {"CoordinatorGoesWhenTheWorkersAreGone",
     [](Scene& s) {
       s.Training();
       s.policy().set_suspend(true);
       s.Settle();
       s.seen.pods.resize(1);
     },
     [](const Decision& d) { EXPECT_NE(Deletes(d, "digits-coordinator-0"), nullptr); }},
    {"SuspendedOnlyWhenNoPodIsLeft",
     [](Scene& s) {
       s.Training();
       s.policy().set_suspend(true);
       s.Settle();
       s.seen.pods.clear();
       s.seen.link.reset();
     },
     [](const Decision& d) {
       EXPECT_TRUE(Is(d, "Suspended"));
       EXPECT_FALSE(Is(d, "Running"));
     }},
    {"SuspensionStopsTheClock",
     [](Scene& s) {
       s.Training();
       s.now += absl::Seconds(40);
       s.policy().set_suspend(true);
       s.Settle();
       s.now += absl::Seconds(1000);
     },
     [](const Decision& d) { EXPECT_DOUBLE_EQ(d.status.active_seconds(), 40); }},
    {"ResumeMakesThePodsAgain",
     [](Scene& s) {
       s.Suspended();
       s.policy().set_suspend(false);
     },
     [](const Decision& d) {
       EXPECT_FALSE(Is(d, "Suspended"));
       EXPECT_EQ(Count<CreatePod>(d), 3);
       EXPECT_EQ(Count<CreateConfig>(d), 0);
       EXPECT_TRUE(Emits(d, "Resumed"));
     }},
    {"ResumeAfterAnEditFreezesTheSpecAnew",
     [](Scene& s) {
       s.Suspended();
       s.policy().set_suspend(false);
       s.seen.generation = 4;
       s.seen.configs = {{1, false}};
     },
     [](const Decision& d) {
       ASSERT_EQ(Count<CreateConfig>(d), 1);
       for (const Action& action : d.actions) {
         if (const auto* pod = std::get_if<CreatePod>(&action)) {
           EXPECT_EQ(pod->config_generation, 4);
         }
       }
     }},
    {"ResumeInTheMidstOfASuspensionCompletesItFirst",
     [](Scene& s) {
       s.Training();
       s.policy().set_suspend(true);
       s.Settle();
       s.policy().set_suspend(false);
     },
     [](const Decision& d) {
       EXPECT_TRUE(d.supervision->desired->settings().halt());
       EXPECT_EQ(Count<CreatePod>(d), 0);
     }},
    {"PodsOfAnOutdatedSpecAreLetGoFirst",
     [](Scene& s) {
       s.Training();
       s.seen.configs = {{1, false}};
     },
     [](const Decision& d) {
       EXPECT_TRUE(d.supervision->desired->settings().halt());
       EXPECT_EQ(Count<CreateConfig>(d), 0);
     }},
};

const Case kEnd[] = {
    {"ResultMakesTheJobSucceed",
     [](Scene& s) {
       s.Training();
       auto& result = *s.report().mutable_training()->mutable_result();
       result.set_steps(230);
       (*result.mutable_metrics())["validation/accuracy"] = 0.96;
     },
     [](const Decision& d) {
       EXPECT_TRUE(Is(d, "Succeeded"));
       EXPECT_EQ(d.status.state(), "Succeeded");
       EXPECT_EQ(d.status.result().steps(), 230);
       EXPECT_TRUE(d.status.has_completion_time());
       EXPECT_TRUE(d.write_status);
       EXPECT_TRUE(d.supervision->desired->finished());
       EXPECT_EQ(Count<DeletePod>(d), 0);
     }},
    {"EndedJobIsNotStartedAgain",
     [](Scene& s) {
       s.Finished(true);
       s.seen.pods.clear();
     },
     [](const Decision& d) { EXPECT_EQ(Count<CreatePod>(d), 0); }},
    {"PodsThatStayAfterSuccessAreDeletedInTheEnd",
     [](Scene& s) {
       s.Finished(true);
       s.now += absl::Seconds(11);
     },
     [](const Decision& d) { EXPECT_NE(Deletes(d, "digits-worker-0"), nullptr); }},
    {"CoordinatorGoesAsSoonAsTheWorkersHaveEnded",
     [](Scene& s) {
       s.Finished(true);
       s.End("digits-worker-0", 0);
       s.End("digits-worker-1", 0);
     },
     [](const Decision& d) {
       EXPECT_NE(Deletes(d, "digits-coordinator-0"), nullptr);
       EXPECT_EQ(Count<DeletePod>(d), 1);
     }},
    {"ResultTellsHowLongItTook",
     [](Scene& s) {
       s.Training();
       s.now += absl::Seconds(30);
       s.report().mutable_training()->mutable_result()->set_steps(230);
     },
     [](const Decision& d) { EXPECT_DOUBLE_EQ(d.status.result().seconds(), 30); }},
    {"CleanRunningKeepsPodsThatEnded",
     [](Scene& s) {
       s.Finished(true);
       s.End("digits-worker-0", 0);
       s.now += absl::Seconds(11);
     },
     [](const Decision& d) { EXPECT_EQ(Deletes(d, "digits-worker-0"), nullptr); }},
    {"CleanAllDeletesPodsThatEnded",
     [](Scene& s) {
       s.Finished(true);
       s.policy().set_clean_pod_policy(v1alpha1::CLEAN_POD_POLICY_ALL);
       for (ObservedPod& pod : s.seen.pods) pod.phase = PodPhase::kSucceeded;
     },
     [](const Decision& d) { EXPECT_EQ(Count<DeletePod>(d), 3); }},
    {"CleanNoneDeletesNothing",
     [](Scene& s) {
       s.Finished(false);
       s.policy().set_clean_pod_policy(v1alpha1::CLEAN_POD_POLICY_NONE);
       s.now += absl::Hours(1);
     },
     [](const Decision& d) {
       EXPECT_EQ(Count<DeletePod>(d), 0);
       EXPECT_TRUE(d.supervision->desired->finished());
     }},
    {"FailureOfTrainingFailsTheJobAndEndsItsPods",
     [](Scene& s) {
       s.Training();
       s.report().mutable_training()->set_failure("the loss is not a number");
     },
     [](const Decision& d) {
       EXPECT_EQ(ReasonOf(d, "Failed"), "TrainingFailed");
       EXPECT_NE(Deletes(d, "digits-worker-0"), nullptr);
     }},
    {"TimeToLiveDeletesTheJob",
     [](Scene& s) {
       s.Finished(true);
       s.policy().set_ttl_seconds_after_finished(5);
       s.now += absl::Seconds(5);
     },
     [](const Decision& d) { EXPECT_EQ(Count<DeleteJob>(d), 1); }},
    {"TimeToLiveIsWaitedFor",
     [](Scene& s) {
       s.Finished(true);
       s.policy().set_ttl_seconds_after_finished(5);
       s.now += absl::Seconds(2);
     },
     [](const Decision& d) {
       EXPECT_EQ(Count<DeleteJob>(d), 0);
       EXPECT_LE(d.requeue_after, absl::Seconds(3));
     }},
    {"DeadlineFailsTheJob",
     [](Scene& s) {
       s.Training();
       s.policy().set_active_deadline_seconds(60);
       s.now += absl::Seconds(60);
     },
     [](const Decision& d) { EXPECT_EQ(ReasonOf(d, "Failed"), "DeadlineExceeded"); }},
    {"DeadlineIsWaitedFor",
     [](Scene& s) {
       s.Training();
       s.policy().set_active_deadline_seconds(60);
       s.now += absl::Seconds(59.5);
     },
     [](const Decision& d) {
       EXPECT_FALSE(Is(d, "Failed"));
       EXPECT_LE(d.requeue_after, absl::Seconds(1));
     }},
    {"TimeInSuspensionDoesNotCountForTheDeadline",
     [](Scene& s) {
       s.Training();
       s.policy().set_active_deadline_seconds(60);
       s.policy().set_suspend(true);
       s.Settle();
       s.now += absl::Hours(2);
     },
     [](const Decision& d) { EXPECT_FALSE(Is(d, "Failed")); }},
    {"InvalidSpecFailsTheJob", [](Scene& s) { s.seen.spec_error = "spec.workload: required"; },
     [](const Decision& d) {
       EXPECT_EQ(ReasonOf(d, "Failed"), "InvalidSpec");
       EXPECT_EQ(Count<CreatePod>(d), 0);
       EXPECT_EQ(d.status.state(), "Failed");
     }},
    {"MereProgressWaitsForItsTurn",
     [](Scene& s) {
       s.Training();
       s.seen.since_status_write = absl::Milliseconds(300);
       s.report().mutable_training()->mutable_progress()->set_step(101);
     },
     [](const Decision& d) {
       EXPECT_FALSE(d.write_status);
       EXPECT_LE(d.requeue_after, absl::Milliseconds(700));
     }},
    {"ProgressIsWrittenInItsTurn",
     [](Scene& s) {
       s.Training();
       s.seen.since_status_write = absl::Seconds(1);
       s.report().mutable_training()->mutable_progress()->set_step(101);
     },
     [](const Decision& d) {
       EXPECT_TRUE(d.write_status);
       EXPECT_EQ(d.status.progress().step(), 101);
     }},
};

std::int64_t SettingsOf(const Scene& scene) {
  return scene.Do().supervision->desired->settings().generation();
}

// Members, and checkpoints, know only the number: each change must raise it, a halt that is taken
// back by a later process too.
TEST(DecideSettings, NumberRisesWithWhateverChangesThem) {
  Scene scene;
  scene.Training();
  const std::int64_t first = SettingsOf(scene);
  EXPECT_EQ(SettingsOf(scene), first);
  scene.seen.shutting_down = true;
  const std::int64_t halted = SettingsOf(scene);
  EXPECT_GT(halted, first);
  scene.seen.shutting_down = false;
  scene.options.lease_transition = 2;
  const std::int64_t next_controller = SettingsOf(scene);
  EXPECT_GT(next_controller, halted);
  scene.seen.generation = 2;
  const std::int64_t edited = SettingsOf(scene);
  EXPECT_GT(edited, next_controller);
  scene.seen.generation = 1;
  scene.seen.status.mutable_coordinator()->set_incarnation(2);
  scene.report().set_incarnation(2);
  EXPECT_GT(SettingsOf(scene), edited);
  scene.seen.generation = 1LL << 60;
  scene.options.lease_transition = 1LL << 60;
  EXPECT_LT(SettingsOf(scene), 1LL << 53);
}

INSTANTIATE_TEST_SUITE_P(Start, DecideCase, testing::ValuesIn(kStart), NameOf);
INSTANTIATE_TEST_SUITE_P(Grants, DecideCase, testing::ValuesIn(kGrants), NameOf);
INSTANTIATE_TEST_SUITE_P(Scaling, DecideCase, testing::ValuesIn(kScaling), NameOf);
INSTANTIATE_TEST_SUITE_P(Suspension, DecideCase, testing::ValuesIn(kSuspension), NameOf);
INSTANTIATE_TEST_SUITE_P(End, DecideCase, testing::ValuesIn(kEnd), NameOf);

}  // namespace
}  // namespace starling::trainingjob
