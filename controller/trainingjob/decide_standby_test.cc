// SPDX-License-Identifier: Apache-2.0
// spec.replicaSpecs.coordinator.standby: who is granted what, who is waited for, who is taken away.
#include <functional>
#include <string>
#include <utility>

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
                           EXPECT_EQ(d.standby_supervision->grant->boot_id(), "boot-s");
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
                           EXPECT_EQ(d.standby_supervision->boot_id, "");
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
                         [](const Decision& d) {
                           EXPECT_EQ(GrantIn(d).incarnation(), 1);
                           EXPECT_EQ(d.supervision->boot_id, "");
                           EXPECT_FALSE(d.supervision->grant.has_value());
                           EXPECT_FALSE(d.supervision->desired.has_value());
                         }},
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

TEST(DecideStandby, TheEndIsSaidToWhicheverProcessIsInItsPodAndNothingElse) {
  Scene scene;
  Armed(scene).report().mutable_training()->mutable_result()->set_steps(100);
  scene.Settle();
  StandbyReport(scene).Clear();
  StandbyReport(scene).set_boot_id("boot-t");

  const Decision decision = scene.Do();

  ASSERT_TRUE(Is(decision, "Succeeded"));
  EXPECT_EQ(decision.standby_supervision->boot_id, "boot-t");
  EXPECT_FALSE(decision.standby_supervision->grant.has_value());
  EXPECT_TRUE(decision.standby_supervision->desired->finished());
}

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

TEST(DecideStandby, OneThatWasNotHeardYetIsNotTakenForGone) {
  Scene scene;
  Armed(scene).seen.second_link->heard = false;
  StandbyReport(scene).Clear();
  const Decision decision = scene.Do();
  EXPECT_EQ(GrantIn(decision).incarnation(), 1);
  EXPECT_EQ(GrantIn(decision).standby().incarnation(), 2);
  EXPECT_EQ(Count<DeletePod>(decision), 0);
}

TEST(DecideStandby, WhatIsKnownOfASilentOneIsOnRecord) {
  Scene scene;
  Armed(scene).seen.second_link->silent = absl::Milliseconds(1995);
  EXPECT_EQ(Count<DeletePod>(scene.Do()), 0);
  EXPECT_EQ(scene.Do().requeue_after, absl::Milliseconds(10));
  scene.seen.second_link->silent = absl::Seconds(2);
  const Decision decision = scene.Do();
  EXPECT_EQ(Deletes(decision, kStandby)->grace_seconds, 1);
  const v1alpha1::Incident& incident = decision.status.incidents(0);
  EXPECT_EQ(incident.detection_seconds(), 2);
  EXPECT_EQ(incident.pod(), kStandby);
  EXPECT_EQ(incident.pod_uid(), scene.Pod(kStandby).uid);
  EXPECT_EQ(ToTime(incident.time()), scene.now);
  EXPECT_NE(incident.message().find("it is replaced"), std::string::npos);
}

TEST(DecideStandby, ATakeoverIsOnRecordUnlessTheJobHasEnded) {
  Scene scene;
  Leads(scene);
  const v1alpha1::Incident incident = scene.Do().status.incidents(0);
  EXPECT_EQ(incident.pod(), kStandby);
  EXPECT_EQ(incident.pod_uid(), scene.Pod(kStandby).uid);
  EXPECT_EQ(ToTime(incident.time()), scene.now);
  EXPECT_NE(incident.message().find("it stood by, and leads"), std::string::npos);
  EXPECT_EQ(GrantIn(scene.Do()).pod_uid(), scene.Pod(kStandby).uid);
  v1alpha1::Condition& ended = *scene.seen.status.add_conditions();
  ended.set_type("Succeeded");
  ended.set_status("True");
  EXPECT_EQ(scene.Do().status.incidents_size(), 0);
  EXPECT_EQ(GrantIn(scene.Do()).incarnation(), 2);
}

TEST(DecideStandby, OnlyItsOwnNumberOfItsOwnProcessMakesItTheLeader) {
  const std::pair<const char*, void (*)(v1alpha1::CoordinatorReport&)> others[] = {
      {"another process",
       [](v1alpha1::CoordinatorReport& report) { report.set_boot_id("boot-t"); }},
      {"another number", [](v1alpha1::CoordinatorReport& report) { report.set_incarnation(1); }},
      {"superseded", [](v1alpha1::CoordinatorReport& report) { report.set_superseded(true); }}};
  for (const auto& [what, happens] : others) {
    Scene scene;
    Leads(scene);
    happens(StandbyReport(scene));
    EXPECT_NE(GrantIn(scene.Do()).boot_id(), "boot-s") << what;
  }
}

// Leader and standby of a job that lost its leader's pod, in so many ways not ready to take over.
TEST(DecideStandby, OnlyOneThatCouldTakeOverIsWaitedFor) {
  const auto waited_for = [](const std::function<void(Scene&)>& change) {
    Scene scene;
    Armed(scene).End(kLeader, 137, 9);
    change(scene);
    return GrantIn(scene.Do()).incarnation() == 1;
  };
  EXPECT_TRUE(waited_for([](Scene&) {}));
  EXPECT_FALSE(waited_for([](Scene& s) { StandbyReport(s).mutable_standby()->set_armed(false); }));
  EXPECT_FALSE(
      waited_for([](Scene& s) { StandbyReport(s).mutable_standby()->set_incarnation(1); }));
  EXPECT_FALSE(waited_for(
      [](Scene& s) { s.seen.status.mutable_coordinator()->mutable_standby()->set_follows(0); }));
  EXPECT_FALSE(waited_for([](Scene& s) { StandbyReport(s).set_boot_id("boot-t"); }));
  EXPECT_TRUE(waited_for([](Scene& s) { s.seen.second_link->heard = false; }))
      << "nothing is known of it";
  EXPECT_TRUE(waited_for([](Scene& s) { s.seen.second_link.reset(); }));
}

TEST(DecideStandby, OneThatIsNotArmedLeavesTheLeadToASuccessorThatIsThere) {
  Scene scene;
  Armed(scene).End(kLeader, 137, 9);
  StandbyReport(scene).mutable_standby()->set_armed(false);
  const std::string successor = scene.Add(Role::kCoordinator, 2).uid;

  const Decision decision = scene.Do();

  ASSERT_TRUE(decision.supervision.has_value());
  EXPECT_EQ(decision.supervision->pod_uid, successor);
  ASSERT_TRUE(decision.standby_supervision.has_value());
  EXPECT_EQ(decision.standby_supervision->pod_uid, scene.Pod(kStandby).uid);
}

TEST(DecideStandby, OneThatIsGrantedAfterTheEndStandsByNoMore) {
  Scene scene;
  Armed(scene).report().mutable_training()->mutable_result()->set_steps(100);
  scene.Settle().End(kLeader, 137, 9);
  StandbyReport(scene).mutable_standby()->set_armed(false);

  const Decision decision = scene.Do();

  ASSERT_TRUE(Is(decision, "Succeeded"));
  EXPECT_EQ(GrantIn(decision).boot_id(), "boot-s");
  EXPECT_FALSE(GrantIn(decision).has_standby());
}

// Nothing has been heard of it, as by a controller that has just begun to lead.
TEST(DecideStandby, WhoIsToLeadDoesNotStandByAsWell) {
  Scene scene;
  Asked(scene).seen.link.reset();

  const Decision decision = scene.Do();

  EXPECT_TRUE(decision.supervision.has_value());
  EXPECT_FALSE(decision.standby_supervision.has_value());
}

TEST(DecideStandby, OneThatHasNoNumberYetKeepsNobodyFromBeingGranted) {
  Scene scene;
  Asked(scene).Add(Role::kCoordinator, 1);
  scene.Booted("boot-b");

  const Decision decision = scene.Do();

  EXPECT_EQ(GrantIn(decision).incarnation(), 2);
  EXPECT_EQ(GrantIn(decision).boot_id(), "boot-b");
}

TEST(DecideStandby, OneThatDoesNotHearItsLeaderForHalfASecondIsAboutToLead) {
  for (const auto& [silent, waits] : {std::pair(0.5, true), {0.25, false}}) {
    Scene scene;
    Armed(scene).report().Clear();
    scene.report().set_boot_id("boot-b");
    StandbyReport(scene).mutable_standby()->set_silent_seconds(silent);
    const Decision decision = scene.Do();
    EXPECT_EQ(GrantIn(decision).incarnation(), waits ? 1 : 3) << silent;
    if (waits) {
      EXPECT_EQ(decision.requeue_after, absl::Milliseconds(500));
    }
  }
}

TEST(DecideStandby, TheOneThatIsKnownStaysAndAThirdGoes) {
  Scene scene;
  Armed(scene).Add(Role::kCoordinator, 2);
  Decision decision = scene.Do();
  EXPECT_EQ(Deletes(decision, kStandby), nullptr);
  ASSERT_NE(Deletes(decision, "digits-coordinator-2"), nullptr);
  scene.Pod(kStandby).index = 3;  // whatever comes first
  decision = scene.Do();
  EXPECT_EQ(Deletes(decision, kStandby), nullptr);
  EXPECT_NE(Deletes(decision, "digits-coordinator-2"), nullptr);
}

TEST(DecideStandby, OneThatWasGivenUpStandsByNoMore) {
  Scene scene;
  Armed(scene).seen.second_link->silent = absl::Seconds(2);
  scene.Settle();
  scene.seen.second_link->silent = absl::ZeroDuration();
  EXPECT_NE(Deletes(scene.Do(), kStandby), nullptr);
}

TEST(DecideStandby, TheLeaderIsToldWhomItHasAndWhere) {
  Scene scene;
  Armed(scene);
  const v1alpha1::StandbyPod told = scene.Do().supervision->desired->standby();
  EXPECT_EQ(told.uid(), scene.Pod(kStandby).uid);
  EXPECT_EQ(told.ip(), scene.Pod(kStandby).ip);
  EXPECT_EQ(FindCondition(scene.Do().status, "StandbyReady")->message(),
            "digits-coordinator-1 leads if digits-coordinator-0 falls silent, whether or not a "
            "controller is there");
}

TEST(DecideStandby, NoneIsToBeReadyForAContainerOfTheUsersOrAfterTheEnd) {
  Scene scene;
  scene.seen.spec.mutable_replica_specs()->mutable_coordinator()->set_standby(true);
  scene.seen.spec.mutable_workload()->mutable_container();
  EXPECT_EQ(FindCondition(scene.Do().status, "StandbyReady"), nullptr);
  Scene ended;
  Armed(ended).report().mutable_training()->mutable_result()->set_steps(100);
  EXPECT_EQ(ReasonOf(ended.Do(), "StandbyReady"), "JobFinished");
  EXPECT_FALSE(Is(ended.Do(), "StandbyReady"));
}

TEST(DecideStandby, ItIsMadeWhenReplacementsMayBe) {
  Scene scene;
  Asked(scene).seen.refusal = Refusal{"QuotaExceeded", "no more pods", scene.now, 1};
  EXPECT_EQ(Count<CreatePod>(scene.Do()), 0);
  scene.now += absl::Milliseconds(200);
  EXPECT_TRUE(Creates(scene.Do(), Role::kCoordinator, 1));
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

// Its leader's pod has ended; the other one is about to lead, and will have the workers save.
TEST(DecideStandby, WorkersOfASuspendedJobWaitForOneThatIsAboutToLead) {
  Scene scene;
  Armed(scene).End(kLeader, 137, 9);
  scene.policy().set_suspend(true);
  const Decision decision = scene.Do();
  EXPECT_EQ(ReasonOf(decision, "Suspended"), "Suspending");
  EXPECT_EQ(Deletes(decision, "digits-worker-0"), nullptr);
  EXPECT_EQ(Deletes(decision, "digits-worker-1"), nullptr);
}

}  // namespace
}  // namespace starling::trainingjob
