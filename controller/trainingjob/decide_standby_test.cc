// SPDX-License-Identifier: Apache-2.0
// spec.replicaSpecs.coordinator.standby: who is granted what, who is waited for, who is taken away.
#include "controller/testing/test_cases.h"
#include "controller/trainingjob/policies.h"

namespace starling::trainingjob {
namespace {

constexpr char kLeader[] = "digits-coordinator-0";
constexpr char kStandby[] = "digits-coordinator-1";

v1alpha1::CoordinatorReport& StandbyReport(Scene& scene) { return scene.seen.second_link->report; }

// A job that trains, and asks for a standby.
Scene& Asked(Scene& scene) {
  scene.seen.spec.mutable_replica_specs()->mutable_coordinator()->set_standby(true);
  scene.Training();
  scene.seen.status.mutable_coordinator()->set_pod_uid(scene.Pod(kLeader).uid);
  return scene;
}

// The pod of the second one runs, and has been heard.
Scene& Waits(Scene& scene) {
  Asked(scene).Add(Role::kCoordinator, 1);
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

// It leads, and says so.
Scene& Leads(Scene& scene) {
  Armed(scene);
  StandbyReport(scene).clear_standby();
  StandbyReport(scene).set_incarnation(2);
  StandbyReport(scene).set_view_synced(true);
  *StandbyReport(scene).mutable_members() = scene.report().members();
  return scene;
}

void LoseThePod(Scene& scene, const char* name) {
  std::erase_if(scene.seen.pods, [&](const ObservedPod& pod) { return pod.name == name; });
}

class Standby : public testing::TestWithParam<Case> {};

TEST_P(Standby, IsDecided) {
  Scene scene;
  GetParam().arrange(scene);
  GetParam().check(scene.Do());
}

const v1alpha1::CoordinatorGrant& GrantIn(const Decision& decision) {
  return decision.status.coordinator();
}

INSTANTIATE_TEST_SUITE_P(
    DecideStandby, Standby,
    testing::Values(Case{"WhoAsksForOneGetsASecondPod", [](Scene& s) { Asked(s); },
                         [](const Decision& d) {
                           EXPECT_TRUE(Creates(d, Role::kCoordinator, 1));
                           EXPECT_FALSE(d.supervision->desired->has_standby());
                           EXPECT_EQ(ReasonOf(d, "StandbyReady"), "StandbyStarting");
                         }},
                    Case{"WhoDoesNotAskHasTheSecondOneTakenAway",
                         [](Scene& s) {
                           Armed(s);
                           s.seen.spec.mutable_replica_specs()->mutable_coordinator()->set_standby(
                               false);
                         },
                         [](const Decision& d) {
                           EXPECT_NE(Deletes(d, kStandby), nullptr);
                           EXPECT_FALSE(d.standby_supervision.has_value());
                         }},
                    Case{"ThereIsNoneBeforeSomebodyLeads",
                         [](Scene& s) {
                           Asked(s);
                           s.seen.link.reset();
                         },
                         [](const Decision& d) { EXPECT_EQ(Count<CreatePod>(d), 0); }},
                    Case{"ItIsGrantedItsNumberAheadOfTime", [](Scene& s) { Waits(s); },
                         [](const Decision& d) {
                           EXPECT_EQ(Count<DeletePod>(d), 0);
                           EXPECT_EQ(Count<CreatePod>(d), 0);
                           EXPECT_TRUE(d.write_status);
                           EXPECT_EQ(GrantIn(d).incarnation(), 1);
                           EXPECT_EQ(GrantIn(d).standby().incarnation(), 2);
                           EXPECT_EQ(GrantIn(d).standby().follows(), 1);
                           EXPECT_EQ(GrantIn(d).standby().boot_id(), "boot-s");
                           ASSERT_TRUE(d.standby_supervision->grant.has_value());
                           EXPECT_EQ(d.standby_supervision->grant->incarnation(), 2U);
                           EXPECT_EQ(d.standby_supervision->grant->follows(), 1U);
                           EXPECT_FALSE(d.standby_supervision->desired.has_value());
                           EXPECT_EQ(d.supervision->desired->standby().incarnation(), 2U);
                           EXPECT_FALSE(d.supervision->desired->standby().ip().empty());
                         }},
                    Case{"ItIsReadyOnceItIsArmed", [](Scene& s) { Armed(s); },
                         [](const Decision& d) {
                           EXPECT_TRUE(Is(d, "StandbyReady"));
                           EXPECT_FALSE(d.standby_supervision->grant.has_value());
                         }},
                    Case{"WhatIsNotHeardOfItTakesNothingFromTheLeader",
                         [](Scene& s) { Armed(s).seen.second_link.reset(); },
                         [](const Decision& d) {
                           EXPECT_EQ(d.supervision->desired->standby().incarnation(), 2U);
                           EXPECT_TRUE(d.standby_supervision.has_value());
                           EXPECT_FALSE(Is(d, "StandbyReady"));
                         }},
                    Case{"OneThatHasGoneIsReplacedAndTheLeaderGrantedAnewAboveIt",
                         [](Scene& s) { LoseThePod(Armed(s), kStandby); },
                         [](const Decision& d) {
                           EXPECT_EQ(GrantIn(d).incarnation(), 3);
                           EXPECT_EQ(GrantIn(d).boot_id(), "boot-a");
                           EXPECT_FALSE(GrantIn(d).has_standby());
                           EXPECT_EQ(d.supervision->grant->incarnation(), 3U);
                           EXPECT_FALSE(d.supervision->desired->has_standby());
                           EXPECT_EQ(Count<DeletePod>(d), 0);
                         }},
                    Case{"OneWhoseProcessIsAnotherIsAsGoodAsGone",
                         [](Scene& s) {
                           StandbyReport(Armed(s)).set_boot_id("boot-t");
                           StandbyReport(s).clear_standby();
                         },
                         [](const Decision& d) {
                           EXPECT_EQ(GrantIn(d).incarnation(), 3);
                           EXPECT_FALSE(GrantIn(d).has_standby());
                           EXPECT_EQ(Count<DeletePod>(d), 0) << "its pod may stand by again";
                         }},
                    Case{"OneThatIsSilentIsReplaced",
                         [](Scene& s) { Armed(s).seen.second_link->silent = absl::Seconds(2); },
                         [](const Decision& d) {
                           EXPECT_NE(Deletes(d, kStandby), nullptr);
                           EXPECT_TRUE(Emits(d, "StandbyLost"));
                           EXPECT_EQ(GrantIn(d).incarnation(), 3);
                         }},
                    Case{"OneWhoseNodeIsAboutToGoIsReplaced",
                         [](Scene& s) {
                           Armed(s).Pod(kStandby).node = "a";
                           s.seen.nodes["a"].departure = "a taint";
                         },
                         [](const Decision& d) {
                           EXPECT_NE(Deletes(d, kStandby), nullptr);
                           EXPECT_EQ(Deletes(d, kLeader), nullptr);
                           EXPECT_TRUE(Creates(d, Role::kCoordinator, 2));
                         }},
                    Case{"OneThatLeadsIsWrittenDown", [](Scene& s) { Leads(s); },
                         [](const Decision& d) {
                           EXPECT_TRUE(d.write_status);
                           EXPECT_EQ(GrantIn(d).incarnation(), 2);
                           EXPECT_EQ(GrantIn(d).boot_id(), "boot-s");
                           EXPECT_FALSE(GrantIn(d).has_standby());
                           EXPECT_TRUE(Emits(d, "CoordinatorTakenOver"));
                           EXPECT_NE(Deletes(d, kLeader), nullptr) << "it has led";
                           EXPECT_EQ(Deletes(d, kStandby), nullptr);
                           EXPECT_FALSE(d.supervision->grant.has_value());
                           EXPECT_EQ(d.supervision->boot_id, "boot-s");
                           EXPECT_EQ(d.status.state(), "Running");
                           EXPECT_EQ(d.status.failures(), 0);
                         }},
                    Case{"WhoLedBeforeMayStandByOnceItsProcessIsAnother",
                         [](Scene& s) {
                           Leads(s).report().Clear();
                           s.report().set_boot_id("boot-c");
                         },
                         [](const Decision& d) {
                           EXPECT_EQ(Count<DeletePod>(d), 0);
                           EXPECT_EQ(GrantIn(d).standby().boot_id(), "boot-c");
                           EXPECT_EQ(GrantIn(d).standby().incarnation(), 3);
                           EXPECT_EQ(GrantIn(d).standby().follows(), 2);
                         }},
                    Case{"OneThatLeadsTooLateIsTakenAway",
                         [](Scene& s) {
                           Leads(s).report().set_incarnation(3);
                           s.seen.status.mutable_coordinator()->set_incarnation(3);
                         },
                         [](const Decision& d) {
                           EXPECT_NE(Deletes(d, kStandby), nullptr);
                           EXPECT_EQ(GrantIn(d).incarnation(), 3);
                           EXPECT_EQ(GrantIn(d).boot_id(), "boot-a");
                         }},
                    Case{"WhereTheLeaderHasEndedItIsLeftToTheStandby",
                         [](Scene& s) { Armed(s).End(kLeader, 137, 9); },
                         [](const Decision& d) {
                           EXPECT_EQ(Count<CreatePod>(d), 0);
                           EXPECT_EQ(GrantIn(d).incarnation(), 1);
                           EXPECT_FALSE(d.supervision.has_value());
                           EXPECT_TRUE(d.standby_supervision.has_value());
                           EXPECT_LE(d.requeue_after, absl::Seconds(1));
                         }},
                    Case{"OneThatIsNotArmedIsGrantedLikeAnySuccessor",
                         [](Scene& s) {
                           Armed(s).End(kLeader, 137, 9);
                           StandbyReport(s).mutable_standby()->set_armed(false);
                         },
                         [](const Decision& d) {
                           EXPECT_EQ(GrantIn(d).incarnation(), 3);
                           EXPECT_EQ(GrantIn(d).boot_id(), "boot-s");
                           EXPECT_FALSE(GrantIn(d).has_standby());
                           ASSERT_TRUE(d.supervision->grant.has_value());
                           EXPECT_EQ(d.supervision->grant->follows(), 0U);
                           EXPECT_EQ(d.supervision->grant->incarnation(), 3U);
                         }},
                    Case{"WhereTheLeaderIsAskedToLeaveTheStandbyIsGrantedImmediately",
                         [](Scene& s) { Armed(s).Pod(kLeader).terminating = true; },
                         [](const Decision& d) {
                           EXPECT_EQ(GrantIn(d).incarnation(), 3);
                           EXPECT_EQ(GrantIn(d).boot_id(), "boot-s");
                         }},
                    Case{"OneThatIsAboutToLeadIsWaitedForBeforeTheLeadersNextProcessIsGranted",
                         [](Scene& s) {
                           Armed(s).report().Clear();
                           s.report().set_boot_id("boot-b");
                           StandbyReport(s).mutable_standby()->set_silent_seconds(1.2);
                         },
                         [](const Decision& d) { EXPECT_EQ(GrantIn(d).incarnation(), 1); }},
                    Case{"TheLeadersNextProcessIsGrantedAboveBothAndIsFollowedAnew",
                         [](Scene& s) {
                           Armed(s).report().Clear();
                           s.report().set_boot_id("boot-b");
                         },
                         [](const Decision& d) {
                           EXPECT_EQ(GrantIn(d).incarnation(), 3);
                           EXPECT_FALSE(d.supervision->boot_id.empty());
                           EXPECT_FALSE(d.supervision->desired->has_standby())
                               << "that one follows another";
                         }},
                    Case{"ANewControllerKnowsThemByTheirPods",
                         [](Scene& s) {
                           Armed(s).seen.link.reset();
                           s.seen.second_link.reset();
                           std::swap(s.Pod(kLeader).index, s.Pod(kStandby).index);
                         },
                         [](const Decision& d) {
                           EXPECT_EQ(Count<DeletePod>(d), 0);
                           EXPECT_EQ(d.supervision->pod_uid, d.status.coordinator().pod_uid());
                           EXPECT_EQ(d.standby_supervision->pod_uid,
                                     GrantIn(d).standby().pod_uid());
                         }},
                    Case{"WhatIsOverIsSaidToTheStandbyToo",
                         [](Scene& s) {
                           Armed(s).report().mutable_training()->mutable_result()->set_steps(100);
                         },
                         [](const Decision& d) {
                           EXPECT_TRUE(Is(d, "Succeeded"));
                           EXPECT_TRUE(d.standby_supervision->desired->finished());
                           EXPECT_TRUE(d.supervision->desired->has_standby());
                         }}),
    NameOf);

// The leader's next process reports; then it is followed by the one that waits, anew.
TEST(DecideStandby, TheStandbyFollowsWhomeverIsGrantedAfterwards) {
  Scene scene;
  Armed(scene).report().Clear();
  scene.report().set_boot_id("boot-b");
  scene.Settle();
  scene.report().set_incarnation(3);

  const Decision decision = scene.Do();

  EXPECT_EQ(GrantIn(decision).incarnation(), 3);
  EXPECT_EQ(GrantIn(decision).standby().incarnation(), 4);
  EXPECT_EQ(GrantIn(decision).standby().follows(), 3);
  EXPECT_EQ(decision.standby_supervision->grant->incarnation(), 4U);
  EXPECT_EQ(decision.supervision->desired->standby().incarnation(), 4U);
}

// Everything at once: nobody is left, and the next one is above both.
TEST(DecideStandby, WhoComesAfterBothIsGrantedAboveBoth) {
  Scene scene;
  Armed(scene);
  LoseThePod(scene, kStandby);
  LoseThePod(scene, kLeader);
  scene.Add(Role::kCoordinator, 0);
  scene.Booted("boot-n");

  const Decision decision = scene.Do();

  EXPECT_EQ(GrantIn(decision).incarnation(), 3);
  EXPECT_EQ(GrantIn(decision).boot_id(), "boot-n");
}

}  // namespace
}  // namespace starling::trainingjob
