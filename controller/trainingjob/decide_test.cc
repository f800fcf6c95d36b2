// SPDX-License-Identifier: Apache-2.0
// The life of a job without failures: start, grants, scaling.
#include "controller/trainingjob/decide.h"

#include "controller/testing/test_cases.h"
#include "gtest/gtest.h"

namespace starling::trainingjob {
namespace {

class DecideCase : public testing::TestWithParam<Case> {};

TEST_P(DecideCase, Holds) {
  Scene scene;
  GetParam().arrange(scene);
  GetParam().check(scene.Do());
}

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
     }},
    {"SecretIsMadeOnce", [](Scene& s) { s.seen.has_secret = true; },
     [](const Decision& d) { EXPECT_EQ(Count<CreateSecret>(d), 0); }},
    {"JobBeingDeletedGetsNothing", [](Scene& s) { s.seen.deleting = true; },
     [](const Decision& d) {
       EXPECT_TRUE(d.actions.empty());
       EXPECT_FALSE(d.write_status);
       EXPECT_FALSE(d.supervision.has_value());
     }},
    {"JobBeingDeletedKeepsItsStatus", [](Scene& s) { s.Training().seen.deleting = true; },
     [](const Decision& d) {
       EXPECT_EQ(d.status.state(), "Running");
       EXPECT_EQ(d.status.coordinator().boot_id(), "boot-a");
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
    {"ProcessThatSaysNotWhoItIsIsGrantedNothing",
     [](Scene& s) {
       s.Training();
       s.Booted("");
     },
     [](const Decision& d) {
       EXPECT_EQ(d.status.coordinator().incarnation(), 1);
       EXPECT_EQ(d.status.coordinator().boot_id(), "boot-a");
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
    {"ResultUnderAFormerIncarnationIsNotBelieved",
     [](Scene& s) {
       s.Training();
       s.seen.status.mutable_coordinator()->set_incarnation(2);
       s.report().mutable_training()->mutable_result()->set_steps(3);
     },
     [](const Decision& d) {
       EXPECT_FALSE(Is(d, "Succeeded"));
       EXPECT_EQ(d.supervision->grant->incarnation(), 2U);
     }},
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
    {"ReproducibleJobsWhoseProgramSaysTheBatchAreCappedAtSixteen",
     [](Scene& s) {
       s.Training();
       s.worker().set_replicas(40);
       s.seen.spec.set_reproducible(true);
       s.seen.spec.mutable_dataset()->clear_global_batch_size();
     },
     [](const Decision& d) { EXPECT_EQ(d.status.replicas(), 16); }},
    {"BoundIsToldOnce",
     [](Scene& s) {
       s.worker().set_max_replicas(2);
       s.Training(9);
     },
     [](const Decision& d) { EXPECT_FALSE(Emits(d, "ReplicasBounded")); }},
    {"WithoutExchangeOneWorkerTrains",
     [](Scene& s) { s.seen.spec.mutable_exchange()->mutable_none(); },
     [](const Decision& d) { EXPECT_EQ(Count<CreatePod>(d), 2); }},
    {"SettingsSayNothingOfAnEndThatTheFileLeavesToTheProgram",
     [](Scene& s) {
       s.Training();
       s.seen.spec.clear_stop();
     },
     [](const Decision& d) { EXPECT_FALSE(d.supervision->desired->settings().has_stop()); }},
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
  scene.seen.status.mutable_coordinator()->set_incarnation(1LL << 40);
  scene.report().set_incarnation(1ULL << 40);
  EXPECT_EQ(SettingsOf(scene), (1LL << 53) - 2);
}

// Members of jobs that run through an upgrade of the controller know numbers of the former one.
TEST(DecideSettings, NumberHasTheSamePartsInEveryRelease) {
  Scene scene;
  scene.Training();
  scene.options.lease_transition = 5;
  scene.seen.status.mutable_coordinator()->set_incarnation(3);
  scene.report().set_incarnation(3);
  scene.seen.generation = 7;
  EXPECT_EQ(SettingsOf(scene), (5LL << 41) + (3LL << 25) + (7LL << 1));
  scene.seen.shutting_down = true;
  EXPECT_EQ(SettingsOf(scene), (5LL << 41) + (3LL << 25) + (7LL << 1) + 1);
}

// A lease that does not say how often it was taken counts as 0.
TEST(DecideSettings, NumberIsHigherUnderTheSecondControllerThanUnderTheFirst) {
  Scene scene;
  scene.Training();
  scene.options.lease_transition = 0;
  const std::int64_t first = SettingsOf(scene);
  scene.options.lease_transition = 1;
  EXPECT_GT(SettingsOf(scene), first);
}

TEST(DecideSettings, PartThatHasNoRoomForMoreLeavesTheOthersAsTheyAre) {
  Scene scene;
  scene.Training();
  scene.options.lease_transition = 2;
  scene.seen.status.mutable_coordinator()->set_incarnation(1LL << 40);
  scene.report().set_incarnation(1ULL << 40);
  EXPECT_EQ(SettingsOf(scene), (2LL << 41) + (0xFFFFLL << 25) + (1LL << 1));
  scene.seen.status.mutable_coordinator()->set_incarnation(2);
  scene.report().set_incarnation(2);
  scene.seen.generation = 1LL << 40;
  EXPECT_EQ(SettingsOf(scene), (2LL << 41) + (2LL << 25) + (0xFF'FFFFLL << 1));
}

TEST(Supervise, ACoordinatorIsToldOfASingleServerToo) {
  Scene scene;
  scene.servers(1);
  scene.Training();
  const v1alpha1::Desired desired = *scene.Do().supervision->desired;
  EXPECT_EQ(desired.servers(), 1);
  EXPECT_EQ(desired.min_servers(), 1);
}

TEST(Supervise, TheCoordinatorIsToldAllThatItNeedsOfAPod) {
  Scene scene;
  scene.Training();
  ObservedPod& worker = scene.Pod("digits-worker-1");
  worker.node = "b";
  scene.seen.spec.mutable_checkpoint()->set_uri("/checkpoints");
  scene.worker().set_min_replicas(1);
  const v1alpha1::Desired desired = *scene.Do().supervision->desired;
  ASSERT_EQ(desired.pods_size(), 2) << "the coordinator is no member";
  const v1alpha1::Pod& told = desired.pods(1);
  EXPECT_EQ(told.uid(), worker.uid);
  EXPECT_EQ(told.name(), "digits-worker-1");
  EXPECT_EQ(told.role(), "worker");
  EXPECT_EQ(told.index(), 1);
  EXPECT_EQ(told.ip(), worker.ip);
  EXPECT_EQ(told.node(), "b");
  EXPECT_EQ(told.state(), v1alpha1::Pod::LIVE);
  EXPECT_EQ(desired.min_workers(), 1);
  EXPECT_EQ(desired.settings().checkpoint().uri(), "/checkpoints");
  EXPECT_FALSE(desired.has_standby());
  scene.worker().set_min_replicas(5);
  EXPECT_EQ(scene.Do().supervision->desired->min_workers(),
            scene.Do().supervision->desired->workers());
  scene.End("digits-worker-1", 1);
  EXPECT_EQ(StateInDesired(scene.Do(), "digits-worker-1"), v1alpha1::Pod::TERMINATED);
  worker.ip.clear();
  EXPECT_EQ(scene.Do().supervision->desired->pods_size(), 1) << "it never ran";
}

TEST(Supervise, AGrantSaysFromWhereTrainingGoesOn) {
  Scene scene;
  scene.Training();
  scene.Settle();
  (*scene.seen.status.mutable_goodput())["compute"] = 5;
  scene.Booted("boot-b");
  const v1alpha1::Grant grant = *scene.Do().supervision->grant;
  EXPECT_EQ(grant.incarnation(), 2U);
  EXPECT_EQ(grant.boot_id(), "boot-b");
  EXPECT_EQ(grant.settled_step(), 100);
  EXPECT_EQ(grant.goodput().at("compute"), 5);
  EXPECT_EQ(scene.Do().status.coordinator().pod_uid(), scene.Pod("digits-coordinator-0").uid);
}

TEST(Supervise, ACoordinatorIsDialledWhileItRunsAndHasAnAddress) {
  Scene scene;
  scene.Prepared().Add(Role::kCoordinator, 0);
  scene.Booted();
  EXPECT_EQ(scene.Do().supervision->address, scene.seen.pods[0].ip);
  EXPECT_EQ(scene.Do().supervision->pod_uid, scene.seen.pods[0].uid);
  scene.seen.pods[0].phase = PodPhase::kPending;
  EXPECT_FALSE(scene.Do().supervision.has_value());
  scene.seen.pods[0].phase = PodPhase::kRunning;
  scene.seen.pods[0].ip.clear();
  EXPECT_FALSE(scene.Do().supervision.has_value());
}

INSTANTIATE_TEST_SUITE_P(Start, DecideCase, testing::ValuesIn(kStart), NameOf);
INSTANTIATE_TEST_SUITE_P(Grants, DecideCase, testing::ValuesIn(kGrants), NameOf);
INSTANTIATE_TEST_SUITE_P(Scaling, DecideCase, testing::ValuesIn(kScaling), NameOf);

}  // namespace
}  // namespace starling::trainingjob
