// SPDX-License-Identifier: Apache-2.0
// What all coordinators do, shown by one of peers: who is told what and when, and what the
// controller hears. The rules about views are in peer_coordinator_rules_test.cc.
#include "trainer/membership/coordinator.h"

#include <functional>
#include <map>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/testing/scripted_peers.h"

namespace starling::membership {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

PeerCoordinator Ungranted() {
  PeerCoordinator::Options options;
  options.boot_id = "boot";
  return PeerCoordinator(options);
}

Grant GrantOf(std::uint64_t incarnation) {
  Grant grant;
  grant.incarnation = incarnation;
  grant.boot_id = "boot";
  grant.roster = {{"uid0", "w0", "worker", 0, "127.0.0.9", PodState::kLive}};
  return grant;
}

TEST(Coordinator, BeforeTheGrantThereIsNothingToTell) {
  PeerCoordinator coordinator = Ungranted();
  coordinator.OnTick(absl::FromUnixSeconds(1000));
  EXPECT_EQ(coordinator.directives_version(), 0U);
  const Summary summary = coordinator.MakeSummary(absl::FromUnixSeconds(1000));
  EXPECT_EQ(summary.boot_id, "boot");
  EXPECT_EQ(summary.incarnation, 0U);
  EXPECT_EQ(coordinator.DirectiveFor("uid0"), Directive{});
}

TEST(Coordinator, AGrantIsToldToTheMembersAndASecondOneChangesNothing) {
  PeerCoordinator coordinator = Ungranted();
  coordinator.OnGrant(GrantOf(2), absl::FromUnixSeconds(1000));
  EXPECT_EQ(coordinator.directives_version(), 1U);
  EXPECT_EQ(coordinator.DirectiveFor("uid0").incarnation, 2U);
  const std::uint64_t told = coordinator.report_version();
  EXPECT_EQ(told, 1U) << "the controller hears at once that the grant has come";
  coordinator.OnGrant(GrantOf(3), absl::FromUnixSeconds(1000));
  EXPECT_EQ(coordinator.directives_version(), 1U);
  EXPECT_EQ(coordinator.report_version(), told);
  EXPECT_EQ(coordinator.MakeSummary(absl::FromUnixSeconds(1000)).incarnation, 2U);
}

TEST(Coordinator, AGrantThatComesAfterAFreezeBeginsItsOwnPatience) {
  PeerCoordinator coordinator = Ungranted();
  absl::Time now = absl::FromUnixSeconds(1000);
  coordinator.OnTick(now);
  now += absl::Seconds(20);
  coordinator.OnGrant(GrantOf(2), now);
  const absl::Time end = now + absl::Seconds(30);
  while (now < end - absl::Milliseconds(100)) coordinator.OnTick(now += absl::Milliseconds(100));
  EXPECT_THAT(coordinator.MakeSummary(now).waiting,
              "a new coordinator has taken over; it waits for w0 to report");
  EXPECT_THAT(coordinator.assumed_terminated(), IsEmpty());
  coordinator.OnTick(end);
  EXPECT_THAT(coordinator.assumed_terminated(), ElementsAre("uid0"));
  EXPECT_THAT(coordinator.MakeSummary(end).waiting,
              "the controller has not yet said how many members are wanted");
}

TEST(Coordinator, ADesireIsToldToTheMembersAndAnOlderOneIsNot) {
  ScriptedPeers peers(1);
  const std::uint64_t before = peers.coordinator_.directives_version();
  peers.desired_.settings.generation = 4;
  peers.Want();
  EXPECT_EQ(peers.coordinator_.directives_version(), before + 1);
  EXPECT_EQ(peers.Told(0).settings.generation, 4);
  peers.desired_.sequence = -5;
  peers.Want();
  EXPECT_EQ(peers.coordinator_.directives_version(), before + 1);
}

TEST(Coordinator, WhateverEventComesFirstAfterAFreezeTheSilenceIsNotThatOfTheMembers) {
  const std::map<std::string, std::function<void(ScriptedPeers&)>> events = {
      {"tick", [](auto& peers) { peers.coordinator_.OnTick(peers.now_); }},
      {"desired", [](auto& peers) { peers.Want(); }},
      {"connected", [](auto& peers) { peers.coordinator_.OnConnected("uid2", peers.now_); }},
      {"disconnected", [](auto& peers) { peers.coordinator_.OnDisconnected("uid2", peers.now_); }},
      {"refused", [](auto& peers) { peers.coordinator_.OnRefused("uid3", peers.now_); }},
      {"report", [](auto& peers) { peers.Say(2); }},
  };
  for (const auto& [name, event] : events) {
    ScriptedPeers peers(4);
    peers.desired_.workers = 2;
    peers.Want();
    peers.Say({0, 1});
    peers.Run({0, 1});
    peers.Say({2, 3});
    peers.coordinator_.OnDisconnected("uid3", peers.now_);
    peers.Freeze(absl::Seconds(30));
    event(peers);
    EXPECT_THAT(peers.Look().incidents, IsEmpty()) << name;
    EXPECT_EQ(peers.Number(), MakeViewNumber(1, 1)) << name;
  }
}

TEST(Coordinator, AFreezeIsNoTimeInWhichOthersCouldHaveComeToTheFirstView) {
  ScriptedPeers peers(2);
  peers.Say(0);
  peers.Freeze(absl::Seconds(30));
  peers.coordinator_.OnTick(peers.now_);
  EXPECT_EQ(peers.Number(), 0U);
  peers.Pass(absl::Milliseconds(999));
  EXPECT_EQ(peers.Number(), 0U);
  peers.Pass(absl::Milliseconds(1));
  EXPECT_EQ(peers.Number(), MakeViewNumber(1, 1));
}

TEST(Coordinator, AMemberIsSilentJustAfterTheHeartbeatTimeoutThoughNothingButTimePasses) {
  ScriptedPeers peers = RunningPeers(2);
  peers.Pass(absl::Seconds(1), /*mute=*/{1});
  EXPECT_THAT(peers.Look().incidents, IsEmpty());
  const std::uint64_t before = peers.coordinator_.report_version();
  peers.now_ += absl::Milliseconds(1);
  peers.coordinator_.OnTick(peers.now_);
  ASSERT_THAT(peers.Look().incidents, SizeIs(1));
  EXPECT_EQ(peers.Look().incidents[0].message, "it stopped answering; 1 worker goes on");
  EXPECT_EQ(peers.coordinator_.report_version(), before + 1);
}

TEST(Coordinator, TheControllerHearsAtOnceWhoseConnectionEndsAndWhoseBeginsAnew) {
  ScriptedPeers peers = RunningPeers(2);
  std::uint64_t version = peers.coordinator_.report_version();
  peers.coordinator_.OnConnected("uid1", peers.now_);
  EXPECT_GT(peers.coordinator_.report_version(), version);
  EXPECT_FALSE(peers.Look().members[1].connected) << "nobody knows yet who it is";
  peers.Say(1);
  version = peers.coordinator_.report_version();
  peers.coordinator_.OnDisconnected("uid1", peers.now_);
  EXPECT_GT(peers.coordinator_.report_version(), version);
  EXPECT_FALSE(peers.Look().members[1].connected);
}

TEST(Coordinator, ProgressIsNoNewsAndAResultIs) {
  ScriptedPeers peers = RunningPeers(1);
  const std::uint64_t before = peers.coordinator_.report_version();
  peers.Of(0).training.bytes = "loss 3";
  peers.Pass(absl::Milliseconds(50));
  peers.Run({0}, 9);
  EXPECT_EQ(peers.Look().settled_step, 9);
  EXPECT_EQ(peers.Look().training.bytes, "loss 3");
  EXPECT_EQ(peers.coordinator_.report_version(), before);
  peers.Of(0).training.has_result = true;
  peers.Say(0);
  EXPECT_EQ(peers.coordinator_.report_version(), before + 1);
  peers.Say(0);
  EXPECT_EQ(peers.coordinator_.report_version(), before + 1) << "it was told already";
}

TEST(Coordinator, WhatTrainingSaidLastIsKeptForWhenNobodyIsLeftToAsk) {
  ScriptedPeers peers = RunningPeers(1);
  peers.Of(0).training = {"bytes", true, ""};
  peers.Run({0}, 7);
  peers.Restart(0);
  EXPECT_EQ(peers.Look().training, (Training{"bytes", true, ""}));
  EXPECT_EQ(peers.Look().settled_step, 7);
}

TEST(Coordinator, AViewOfWhichItHearsLaterIsToldToTheOthersAtOnce) {
  ScriptedPeers peers = RunningPeers(2);
  const std::uint64_t before = peers.coordinator_.directives_version();
  peers.Of(0).candidate = ScriptedPeers::PeerView(MakeViewNumber(1, 9), {0, 1});
  peers.Say(0);
  EXPECT_EQ(peers.Told(1).view->number, MakeViewNumber(1, 9));
  EXPECT_EQ(peers.coordinator_.directives_version(), before + 1);
}

TEST(Coordinator, WhoIsNotListedAnyMoreIsToldNothing) {
  ScriptedPeers peers(2);
  peers.desired_.workers = 1;
  peers.Want();
  peers.Say(0);
  peers.Run({0});
  peers.Say(1);
  const std::uint64_t before = peers.coordinator_.directives_version();
  peers.desired_.pods.pop_back();
  peers.Want();
  peers.coordinator_.OnTick(peers.now_);
  EXPECT_EQ(peers.coordinator_.directives_version(), before + 1) << "what is wanted, no release";
}

TEST(Coordinator, ReportsOfPodsThatAreNotOfTheJobTeachNothing) {
  ScriptedPeers peers = RunningPeers(1);
  Report stranger = peers.Of(0);
  stranger.id = {"uid7", 0};
  stranger.candidate = ScriptedPeers::PeerView(MakeViewNumber(1, 9), {7});
  peers.coordinator_.OnConnected("uid7", peers.now_);
  peers.coordinator_.OnReport("uid7", stranger, peers.now_);
  EXPECT_EQ(peers.Look().newest_view, MakeViewNumber(1, 1));
  EXPECT_THAT(peers.Look().members, SizeIs(1));
}

TEST(Coordinator, AProcessOfThePastIsToldThatItIsSuperseded) {
  ScriptedPeers peers = RunningPeers(2);
  const Report past = peers.Of(1);
  peers.Restart(1);
  EXPECT_FALSE(peers.Told(1).superseded);
  peers.coordinator_.OnReport("uid1", past, peers.now_);
  EXPECT_TRUE(peers.Told(1).superseded);
  EXPECT_FALSE(peers.Told(0).superseded);
  EXPECT_FALSE(peers.Told(5).superseded) << "nobody is there";
}

TEST(Coordinator, UntilTheRosterWasHeardMembersAreToldOfNoView) {
  ScriptedPeers peers(2, /*incarnation=*/2, MakeViewNumber(1, 1));
  const View view = ScriptedPeers::PeerView(MakeViewNumber(1, 1), {0, 1});
  peers.Hold(0, view);
  peers.Hold(1, view);
  peers.Say(0);
  EXPECT_FALSE(peers.Told(0).view);
  const std::uint64_t before = peers.coordinator_.directives_version();
  peers.Say(1);
  EXPECT_EQ(peers.Told(0).view->number, MakeViewNumber(1, 1));
  EXPECT_GT(peers.coordinator_.directives_version(), before);
}

TEST(Coordinator, WhoIsSupersededTellsMembersOfNoView) {
  ScriptedPeers peers = RunningPeers(1);
  ASSERT_TRUE(peers.Told(0).view);
  peers.Of(0).highest_incarnation = 2;
  peers.Say(0);
  EXPECT_FALSE(peers.Told(0).view);
  EXPECT_TRUE(peers.Look().superseded);
}

TEST(Coordinator, ASummaryNamesWhoLeadsAndWhoIsInTheView) {
  ScriptedPeers peers(3, /*incarnation=*/1);
  peers.desired_.workers = 2;
  peers.Want();
  peers.Say({0, 1});
  peers.Run({0, 1});
  peers.Say(2);
  const Summary summary = peers.Look();
  EXPECT_EQ(summary.boot_id, "boot");
  EXPECT_EQ(summary.incarnation, 1U);
  ASSERT_THAT(summary.members, SizeIs(3));
  EXPECT_TRUE(summary.members[0].in_view);
  EXPECT_TRUE(summary.members[1].in_view);
  EXPECT_FALSE(summary.members[2].in_view);
}

TEST(Coordinator, TheNewestViewIsNeverBelowTheOneThatTheControllerHasSeen) {
  ScriptedPeers peers(1, /*incarnation=*/2, MakeViewNumber(1, 8));
  peers.Hold(0, ScriptedPeers::PeerView(MakeViewNumber(1, 1), {0}));
  EXPECT_EQ(peers.Look().newest_view, MakeViewNumber(1, 8));
}

TEST(Coordinator, AFinishedJobPublishesNothingMore) {
  ScriptedPeers peers(2);
  peers.desired_.workers = 1;
  peers.Want();
  peers.Say(0);
  peers.Run({0});
  peers.desired_.workers = 2;
  peers.desired_.finished = true;
  peers.Want();
  peers.Say(1);
  peers.Refuse(0);
  EXPECT_EQ(peers.Look().newest_view, MakeViewNumber(1, 1));
  EXPECT_THAT(peers.Look().incidents, IsEmpty());
}

TEST(Coordinator, AllAreGoneOnceTheJobHasFinishedAndEveryAddressRefuses) {
  ScriptedPeers peers = RunningPeers(2);
  peers.Refuse(0);
  peers.Refuse(1);
  EXPECT_FALSE(peers.coordinator_.AllGone()) << "the job goes on";
  peers.desired_.finished = true;
  peers.Want();
  EXPECT_TRUE(peers.coordinator_.AllGone());
  peers.coordinator_.OnConnected("uid1", peers.now_);
  EXPECT_FALSE(peers.coordinator_.AllGone()) << "somebody answers there again";
}

// Rules of C4. ------------------------------------------------------------------------------------

// Pod 1 of two never reports to the successor; the view that pod 0 tells of is this one.
ScriptedPeers SuccessorThatHearsOne(ViewNumber seen, const View& told) {
  ScriptedPeers peers(2, /*incarnation=*/2, seen);
  peers.Hold(0, told);
  peers.Say(0);
  return peers;
}

TEST(Coordinator, WithAWitnessOfTheViewThatTheControllerSawThePatienceIsExactlyTheShortOne) {
  ScriptedPeers peers = SuccessorThatHearsOne(
      MakeViewNumber(1, 3), ScriptedPeers::PeerView(MakeViewNumber(1, 3), {0, 1}));
  peers.Pass(absl::Milliseconds(1999));
  EXPECT_THAT(peers.coordinator_.assumed_terminated(), IsEmpty());
  peers.Pass(absl::Milliseconds(1));
  EXPECT_THAT(peers.coordinator_.assumed_terminated(), ElementsAre("uid1"));
  ASSERT_THAT(peers.Look().incidents, testing::Not(IsEmpty()));
  EXPECT_EQ(peers.Look().incidents[0].reason, "StepsAtRisk");
  EXPECT_THAT(peers.Look().incidents[0].message,
              HasSubstr("w1 did not answer in time and counts as ended; steps after step "));
}

TEST(Coordinator, StepsAreAtRiskFromTheFirstThatIsSettledOn) {
  ScriptedPeers peers(2, /*incarnation=*/2, MakeViewNumber(1, 3));
  peers.Hold(0, ScriptedPeers::PeerView(MakeViewNumber(1, 3), {0, 1}), /*step=*/0);
  peers.Say(0);
  peers.Pass(absl::Seconds(2));
  ASSERT_THAT(peers.Look().incidents, testing::Not(IsEmpty()));
  EXPECT_THAT(peers.Look().incidents[0].message,
              HasSubstr("; steps after step 0 that only it knows"));
}

TEST(Coordinator, ATellerOfALaterViewIsAWitnessToo) {
  ScriptedPeers peers = SuccessorThatHearsOne(
      MakeViewNumber(1, 3), ScriptedPeers::PeerView(MakeViewNumber(1, 4), {0, 1}));
  peers.Pass(absl::Seconds(2));
  EXPECT_THAT(peers.coordinator_.assumed_terminated(), ElementsAre("uid1"));
}

TEST(Coordinator, ATellerOfAnEarlierViewIsNoWitness) {
  ScriptedPeers peers = SuccessorThatHearsOne(
      MakeViewNumber(1, 3), ScriptedPeers::PeerView(MakeViewNumber(1, 2), {0, 1}));
  peers.Pass(absl::Milliseconds(29999));
  EXPECT_THAT(peers.coordinator_.assumed_terminated(), IsEmpty());
  peers.Pass(absl::Milliseconds(1));
  EXPECT_THAT(peers.coordinator_.assumed_terminated(), ElementsAre("uid1"));
}

TEST(Coordinator, WhereTheControllerHasSeenNoViewNobodyIsAWitness) {
  ScriptedPeers peers =
      SuccessorThatHearsOne(0, ScriptedPeers::PeerView(MakeViewNumber(1, 1), {0, 1}));
  peers.Pass(absl::Seconds(3));
  EXPECT_THAT(peers.coordinator_.assumed_terminated(), IsEmpty());
}

TEST(Coordinator, WhoWasOnlyInAViewOfThePastStillMayHoldSteps) {
  View view = ScriptedPeers::PeerView(MakeViewNumber(1, 3), {0});
  view.groups[0].since = {{MakeViewNumber(1, 2), {ScriptedPeers::Id(0), ScriptedPeers::Id(1)}}};
  ScriptedPeers peers = SuccessorThatHearsOne(MakeViewNumber(1, 3), view);
  peers.Pass(absl::Seconds(2));
  ASSERT_THAT(peers.Look().incidents, testing::Not(IsEmpty()));
  EXPECT_EQ(peers.Look().incidents[0].reason, "StepsAtRisk");
}

TEST(Coordinator, ACandidateIsAsGoodAWitnessAsAnInstalledView) {
  ScriptedPeers peers(2, /*incarnation=*/2, MakeViewNumber(1, 3));
  peers.Of(0).candidate = ScriptedPeers::PeerView(MakeViewNumber(1, 3), {0, 1});
  peers.Say(0);
  peers.Pass(absl::Seconds(2));
  EXPECT_THAT(peers.coordinator_.assumed_terminated(), ElementsAre("uid1"));
}

// Rule G8: who was given up, and is back. ---------------------------------------------------------

ViewNumber Before(std::uint64_t epoch) { return MakeViewNumber(1, epoch); }

// Pod 1 has not answered the successor and counts as ended; pod 0 runs alone in the view that the
// coordinator before has published, and pod 1 knows a later one.
ScriptedPeers PeersThatGaveOneUp() {
  ScriptedPeers peers(2, /*incarnation=*/2, Before(3));
  peers.Hold(0, ScriptedPeers::PeerView(Before(3), {0}));
  peers.Say(0);
  peers.Pass(absl::Seconds(2));
  EXPECT_THAT(peers.coordinator_.assumed_terminated(), ElementsAre("uid1"));
  EXPECT_EQ(peers.Number(), Before(3));
  peers.Hold(1, ScriptedPeers::PeerView(Before(4), {1}));
  return peers;
}

TEST(Coordinator, WhoWasGivenUpIsTakenBackOnceTheOthersHaveSyncedAViewWithoutIt) {
  ScriptedPeers peers = PeersThatGaveOneUp();
  peers.Say(1);
  EXPECT_EQ(peers.Number(), MakeViewNumber(2, 1)) << "one that is above all that it can know";
  EXPECT_THAT(peers.Members(), ElementsAre(0));
  EXPECT_EQ(peers.Look().members[1].refused, kReturning);
  peers.Want();
  EXPECT_EQ(peers.Look().members[1].refused, kReturning) << "its pod is still listed";
  peers.Say(1);
  EXPECT_THAT(peers.coordinator_.assumed_terminated(), ElementsAre("uid1"));
  peers.Run({0});
  peers.Say(1);
  EXPECT_THAT(peers.coordinator_.assumed_terminated(), IsEmpty());
  EXPECT_EQ(peers.Look().members[1].refused, "");
  EXPECT_THAT(peers.Members(), ElementsAre(0, 1));
}

TEST(Coordinator, WhoKnowsAnythingOfViewsWaitsAndWhoHasJustStartedDoesNot) {
  const std::map<std::string, std::function<void(Report&)>> cases = {
      {"installed", [](Report& report) { report.state.reset(); }},
      {"candidate",
       [](Report& report) {
         report.candidate = std::exchange(report.installed, std::nullopt);
         report.state.reset();
       }},
      {"state", [](Report& report) { report.installed.reset(); }},
      {"nothing",
       [](Report& report) {
         report.installed.reset();
         report.state.reset();
       }},
  };
  for (const auto& [name, change] : cases) {
    ScriptedPeers peers = PeersThatGaveOneUp();
    change(peers.Of(1));
    peers.Say(1);
    EXPECT_EQ(peers.coordinator_.assumed_terminated().empty(), name == "nothing") << name;
  }
}

// Nobody can say yet whether a view is due: pod 0 has a new connection.
TEST(Coordinator, WhoReturnsCountsOnlyWhileItsPodIsListedAndConnected) {
  for (const bool listed : {true, false}) {
    ScriptedPeers peers = PeersThatGaveOneUp();
    peers.coordinator_.OnConnected("uid0", peers.now_);
    peers.Say(1);
    ASSERT_EQ(peers.Number(), Before(3));
    if (listed) {
      peers.coordinator_.OnDisconnected("uid1", peers.now_);
    } else {
      peers.desired_.pods.pop_back();
      peers.Want();
    }
    peers.Say(0);
    EXPECT_EQ(peers.Number(), Before(3)) << "nobody needs a view of this coordinator";
  }
}

// Pod 0 alone has the view that was published without pod 1, and does not answer any more.
TEST(Coordinator, WhoReturnsIsTakenBackWhenThoseThatItCouldHarmAreSilentTooLong) {
  ScriptedPeers peers = PeersThatGaveOneUp();
  peers.Say(1);
  ASSERT_EQ(peers.Number(), MakeViewNumber(2, 1));
  peers.Refuse(0);
  peers.Pass(absl::Milliseconds(29999));
  EXPECT_THAT(peers.coordinator_.assumed_terminated(), ElementsAre("uid1"));
  peers.Pass(absl::Milliseconds(200));
  EXPECT_THAT(peers.coordinator_.assumed_terminated(), ElementsAre("uid0"));
  peers.Pass(absl::Seconds(1));
  EXPECT_THAT(peers.Members(), ElementsAre(1));
}

// Who speaks for training. ------------------------------------------------------------------------

TEST(Coordinator, WhoIsFarthestSpeaksForTraining) {
  ScriptedPeers peers = RunningPeers(3);
  peers.Of(0).training.bytes = "a";
  peers.Of(1).training.bytes = "b";
  peers.Of(2).training.bytes = "c";
  peers.Of(0).settled_step = 4;
  peers.Of(1).settled_step = 6;
  peers.Of(2).settled_step = 5;
  peers.Say({0, 1, 2});
  EXPECT_EQ(peers.Look().training.bytes, "b");
  EXPECT_EQ(peers.Look().settled_step, 6);
  peers.Of(0).settled_step = 6;
  peers.Say(0);
  EXPECT_EQ(peers.Look().training.bytes, "a") << "of equals the first speaks";
  peers.Of(2).training.has_result = true;
  peers.Say(2);
  EXPECT_EQ(peers.Look().training.bytes, "c") << "a result comes before steps";
  peers.Of(1).training.failure = "out of data";
  peers.Say(1);
  EXPECT_EQ(peers.Look().training.failure, "out of data") << "a failure comes before a result";
}

TEST(Coordinator, WhoHoldsNoStateDoesNotSpeakForTraining) {
  ScriptedPeers peers = RunningPeers(2);
  peers.Of(1).training = {"wrong", true, ""};
  peers.Of(1).state.reset();
  peers.Say({0, 1});
  EXPECT_FALSE(peers.Look().training.has_result);
}

TEST(Coordinator, SettingsAreAgreedOnOnceTheLastMemberHasThem) {
  ScriptedPeers peers = RunningPeers(2);
  peers.Of(0).settings_generation = 5;
  peers.Of(1).settings_generation = 4;
  peers.Say({0, 1});
  EXPECT_EQ(peers.Look().settings_generation, 4);
  peers.Of(1).settings_generation = 5;
  peers.Say(1);
  EXPECT_EQ(peers.Look().settings_generation, 5);
}

TEST(Coordinator, WhereNobodyOfTheViewIsLeftNoSettingsAreAgreedOn) {
  ScriptedPeers peers = RunningPeers(1);
  peers.Of(0).settings_generation = 5;
  peers.Say(0);
  peers.desired_.workers = peers.desired_.min_workers = 2;
  peers.Want();
  peers.Restart(0);
  ASSERT_EQ(peers.Number(), MakeViewNumber(1, 1));
  EXPECT_EQ(peers.Look().settings_generation, 0);
}

// Halts. ------------------------------------------------------------------------------------------

void Halt(ScriptedPeers& peers) {
  peers.desired_.settings.halt = true;
  peers.desired_.settings.generation = 2;
  peers.Want();
}

TEST(Coordinator, AJobThatIsHaltedBeforeItBeganHasStopped) {
  ScriptedPeers peers(1);
  EXPECT_FALSE(peers.Look().stopped);
  Halt(peers);
  EXPECT_TRUE(peers.Look().stopped);
}

TEST(Coordinator, ASuccessorSaysNothingOfAHaltBeforeItHasHeardTheRoster) {
  ScriptedPeers peers(2, /*incarnation=*/2, MakeViewNumber(1, 1));
  Halt(peers);
  EXPECT_FALSE(peers.Look().stopped);
}

TEST(Coordinator, AHaltIsDoneWhenTheLastMemberHasStopped) {
  ScriptedPeers peers = RunningPeers(2);
  Halt(peers);
  peers.Of(0).stopped = true;
  peers.Say(0);
  EXPECT_FALSE(peers.Look().stopped);
  peers.Of(1).stopped = true;
  peers.Say(1);
  EXPECT_TRUE(peers.Look().stopped);
  peers.desired_.settings.halt = false;
  peers.desired_.settings.generation = 0;
  peers.Want();
  EXPECT_FALSE(peers.Look().stopped);
}

TEST(Coordinator, WhoStoppedInAnEarlierViewOrInNoneHasNotStoppedInThisOne) {
  for (const bool installed : {true, false}) {
    ScriptedPeers peers = RunningPeers(2);
    peers.desired_.min_workers = 2;
    Halt(peers);
    peers.Of(0).stopped = peers.Of(1).stopped = true;
    if (installed) {
      peers.Of(1).installed->number = MakeViewNumber(0, 1);
    } else {
      peers.Of(1).installed.reset();
    }
    peers.Say({0, 1});
    EXPECT_FALSE(peers.Look().stopped) << installed;
  }
}

TEST(Coordinator, WhoHasEndedNeedNotStop) {
  ScriptedPeers peers = RunningPeers(2);
  peers.desired_.min_workers = 2;
  Halt(peers);
  peers.Of(0).stopped = true;
  peers.Say(0);
  peers.Terminate(1);
  EXPECT_TRUE(peers.Look().stopped);
}

TEST(Coordinator, WhereAllHaveEndedAHaltIsDoneThoughTheirPodsAreStillListed) {
  ScriptedPeers peers = RunningPeers(2);
  Halt(peers);
  peers.Terminate(0);
  EXPECT_FALSE(peers.Look().stopped);
  peers.Terminate(1);
  EXPECT_TRUE(peers.Look().stopped) << "nobody is left who could save anything";
}

TEST(Coordinator, AMemberThatWasNeverHeardHasNotStopped) {
  ScriptedPeers peers(1, /*incarnation=*/2, MakeViewNumber(1, 1));
  peers.desired_.pods.push_back({"uid1", "w1", "worker", 1, "127.0.0.9", PodState::kLive});
  peers.desired_.min_workers = 2;
  Halt(peers);
  peers.Hold(0, ScriptedPeers::PeerView(MakeViewNumber(1, 1), {0, 1}));
  peers.Of(0).stopped = true;
  peers.Say(0);
  EXPECT_FALSE(peers.Look().stopped);
}

TEST(Coordinator, WhereTheWholeViewHasEndedAHaltIsDoneUnlessAStrayHoldsAState) {
  for (const bool stray : {false, true}) {
    ScriptedPeers peers(2);
    peers.desired_.workers = 1;
    peers.Want();
    peers.Say(0);
    peers.Run({0});
    Halt(peers);
    peers.coordinator_.OnConnected("uid1", peers.now_);  // nothing is known of it yet
    EXPECT_FALSE(peers.Look().stopped);
    if (stray) peers.Of(1).state = {MakeViewNumber(1, 1), 1};
    peers.Say(1);
    peers.desired_.pods.erase(peers.desired_.pods.begin());
    peers.Want();
    EXPECT_EQ(peers.Look().stopped, !stray);
  }
}

}  // namespace
}  // namespace starling::membership
