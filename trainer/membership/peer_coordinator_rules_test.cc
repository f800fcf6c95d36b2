// SPDX-License-Identifier: Apache-2.0
// The rules of a job of peers one at a time, at their boundaries: when a view is due, who is in it,
// and what is told of it. Members are reports that the test writes; for real ones see
// peer_coordinator_test.cc.
#include <functional>
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

ViewNumber V(std::uint64_t epoch) { return MakeViewNumber(1, epoch); }

void Abort(ScriptedPeers& peers, int pod, const std::vector<int>& unreachable) {
  peers.Of(pod).phase = Phase::kAborted;
  peers.Of(pod).unreachable.clear();
  for (const int other : unreachable) {
    peers.Of(pod).unreachable.push_back(peers.Of(other).id);
  }
  peers.Say(pod);
}

// C0: the first view. -----------------------------------------------------------------------------

TEST(PeerRules, AJobThatIsHaltedOrWantsNobodyWaitsForNobody) {
  ScriptedPeers peers(1);
  peers.desired_.settings.halt = true;
  peers.Want();
  peers.Say(0);
  EXPECT_EQ(peers.Number(), 0U);
  EXPECT_EQ(peers.Look().waiting, "");
  peers.desired_.settings.halt = false;
  peers.desired_.workers = 0;
  peers.Want();
  peers.Pass(absl::Seconds(2));
  EXPECT_EQ(peers.Number(), 0U);
  EXPECT_EQ(peers.Look().waiting, "");
  peers.desired_.workers = 1;
  peers.Want();
  EXPECT_EQ(peers.Number(), V(1));
}

TEST(PeerRules, TheFirstViewHoldsNoMoreThanAreWanted) {
  ScriptedPeers peers(3);
  peers.desired_.workers = 0;
  peers.Want();
  peers.Say({0, 1, 2});
  peers.desired_.workers = 2;
  peers.Want();
  EXPECT_THAT(peers.Members(), ElementsAre(0, 1));
}

TEST(PeerRules, MembersStandInTheOrderOfTheirIndices) {
  ScriptedPeers peers(2);
  peers.PodOf(0).index = 5;
  peers.Want();
  peers.Say({0, 1});
  EXPECT_THAT(peers.Members(), ElementsAre(1, 0));
}

TEST(PeerRules, AViewThatIsPublishedIsToldToTheMembers) {
  ScriptedPeers peers(1);
  const std::uint64_t before = peers.coordinator_.directives_version();
  peers.Say(0);
  ASSERT_EQ(peers.Number(), V(1));
  EXPECT_EQ(peers.coordinator_.directives_version(), before + 1);
}

TEST(PeerRules, WhoLeavesOrLingersIsNotInTheFirstView) {
  ScriptedPeers peers(3);
  peers.Of(0).phase = Phase::kLinger;
  peers.Of(1).leaving = true;
  peers.Say({0, 1, 2});
  EXPECT_EQ(peers.Look().waiting, "waits a moment for more workers: 1 of 3 are there");
  peers.Pass(absl::Seconds(1));
  EXPECT_THAT(peers.Members(), ElementsAre(2));
}

TEST(PeerRules, TheFirstViewWaitsExactlyTheGraceForTheRest) {
  ScriptedPeers peers(2);
  peers.Say(0);
  peers.Pass(absl::Milliseconds(999));
  EXPECT_EQ(peers.Number(), 0U);
  peers.Pass(absl::Milliseconds(1));
  EXPECT_THAT(peers.Members(), ElementsAre(0));
}

TEST(PeerRules, TheGraceBeginsAnewWhenThereWereTooFewBetween) {
  ScriptedPeers peers(3);
  peers.desired_.min_workers = 2;
  peers.Want();
  peers.Say({0, 1});
  peers.Pass(absl::Milliseconds(900));
  peers.Refuse(1);
  EXPECT_EQ(peers.Look().waiting, "waits for workers: 1 of at least 2 are there");
  peers.Say(1);
  peers.Pass(absl::Milliseconds(999));
  EXPECT_EQ(peers.Number(), 0U);
  peers.Pass(absl::Milliseconds(1));
  EXPECT_EQ(peers.Number(), V(1));
}

TEST(PeerRules, TheFirstViewDoesNotWaitForPodsThatGoOrForMoreThanAreWanted) {
  ScriptedPeers peers(2);
  peers.PodOf(1).state = PodState::kDraining;
  peers.Want();
  peers.Say(0);
  EXPECT_THAT(peers.Members(), ElementsAre(0));
}

TEST(PeerRules, WhereTheWholeViewHasEndedTheGraceBeginsAnew) {
  ScriptedPeers peers(2);
  peers.Say(0);
  peers.Pass(absl::Seconds(1));
  peers.Run({0});
  for (int i = 1; i <= 2; ++i) {
    ASSERT_EQ(peers.Number(), V(static_cast<std::uint64_t>(i)));
    peers.Restart(0);
    EXPECT_THAT(peers.Look().waiting, HasSubstr("waits a moment for more workers: 1 of 2"));
    peers.Pass(absl::Milliseconds(999));
    EXPECT_EQ(peers.Number(), V(static_cast<std::uint64_t>(i)));
    peers.Pass(absl::Milliseconds(1));
    peers.Run({0});
  }
}

TEST(PeerRules, WhoIsInAViewHasJoinedWithTheFirstThatItIsIn) {
  ScriptedPeers peers(3);
  peers.desired_.workers = 2;
  peers.Want();
  peers.Say({0, 1});
  peers.Run({0, 1});
  EXPECT_EQ(peers.Newest().members[1].joined, V(1));
  EXPECT_EQ(peers.Newest().groups[0].epoch, V(1));
  peers.desired_.workers = 3;
  peers.Want();
  peers.Say(2);
  ASSERT_THAT(peers.Members(), ElementsAre(0, 1, 2));
  EXPECT_EQ(peers.Newest().members[0].joined, V(1));
  EXPECT_EQ(peers.Newest().members[2].joined, V(2));
  EXPECT_EQ(peers.Newest().members[2].pod, "w2");
  EXPECT_EQ(peers.Newest().members[2].address, "127.0.0.9:7072");
}

TEST(PeerRules, AViewSaysOnWhichNodesItsMembersRun) {
  ScriptedPeers peers(1);
  peers.PodOf(0).node = "node-7";
  peers.Want();
  peers.Say(0);
  EXPECT_EQ(peers.Newest().members[0].node, "node-7");
}

// C1: what breaks a view. -------------------------------------------------------------------------

TEST(PeerRules, AMemberThatAbortedIsWaitedForExactlyAQuarterOfASecond) {
  ScriptedPeers peers = RunningPeers(2);
  Abort(peers, 0, {1});
  peers.Pass(absl::Milliseconds(249));
  EXPECT_EQ(peers.Number(), V(1));
  peers.Pass(absl::Milliseconds(1));
  EXPECT_EQ(peers.Number(), V(2));
}

TEST(PeerRules, WhoeverHasDoneItsWorkIsNotAskedWhoIsGone) {
  ScriptedPeers peers = RunningPeers(2);
  peers.Of(1).phase = Phase::kDone;
  peers.Say(1);
  EXPECT_EQ(peers.Number(), V(1));
  Abort(peers, 0, {1});
  EXPECT_EQ(peers.Number(), V(2));
}

TEST(PeerRules, AMemberWhoseConnectionHasJustBegunMaySayWhoIsGone) {
  ScriptedPeers peers = RunningPeers(2);
  peers.coordinator_.OnConnected("uid1", peers.now_);
  Abort(peers, 0, {1});
  EXPECT_EQ(peers.Number(), V(1));
}

TEST(PeerRules, AnAbortThatIsOfAnEarlierViewBreaksNothing) {
  ScriptedPeers peers = RunningPeers(2);
  Abort(peers, 0, {1});
  Abort(peers, 1, {0});
  ASSERT_EQ(peers.Number(), V(2));
  peers.Pass(absl::Seconds(1));
  EXPECT_EQ(peers.Number(), V(2)) << "they have not installed it yet";
}

TEST(PeerRules, AMemberThatLostItsStateOrWillNeverInstallTheViewBreaksIt) {
  const std::map<std::string, std::function<void(Report&)>> broken = {
      {"lost", [](Report& report) { report.phase = Phase::kLost; }},
      {"fenced", [](Report& report) { report.fence = V(1) + 1; }},
  };
  for (const auto& [name, breaks] : broken) {
    ScriptedPeers peers = RunningPeers(2);
    breaks(peers.Of(1));
    peers.Say(1);
    EXPECT_EQ(peers.Number(), V(2)) << name;
    EXPECT_THAT(peers.Members(), ElementsAre(0, 1)) << name;
  }
}

TEST(PeerRules, WhoLostTheStateOfAnEarlierViewBreaksNoLaterOne) {
  ScriptedPeers peers = RunningPeers(2);
  peers.Of(1).phase = Phase::kLost;
  peers.Say(1);
  ASSERT_EQ(peers.Number(), V(2));
  peers.Say(1);
  EXPECT_EQ(peers.Number(), V(2));
}

TEST(PeerRules, AMemberThatHasInstalledNothingBreaksNothingByAnAbort) {
  ScriptedPeers peers(2);
  peers.Say({0, 1});
  Abort(peers, 0, {});
  Abort(peers, 1, {});
  peers.Pass(absl::Seconds(1));
  EXPECT_EQ(peers.Number(), V(1));
}

// The members 0 and 1 of the old view, and the view that their old coordinator prepared in it.
struct Prepared {
  View old = ScriptedPeers::PeerView(V(1), {0, 1});
  View next = ScriptedPeers::PeerView(V(2), {0, 1});
  Prepared() {
    next.at_boundary = true;
    next.from = V(1);
    next.groups[0].since = {{V(1), old.groups[0].members}};
  }
};

TEST(PeerRules, ASuccessorRepairsAPreparedViewThatAMemberWillRefuse) {
  const std::map<std::string, std::pair<bool, std::function<void(Report&, const View&)>>> cases = {
      {"has it prepared", {false, [](Report& r, const View& next) { r.candidate = next; }}},
      {"has not got it", {true, [](Report&, const View&) {}}},
      {"has another",
       {true,
        [](Report& r, const View&) {
          r.candidate = ScriptedPeers::PeerView(V(1), {0, 1});
        }}},
      {"does not run",
       {true,
        [](Report& r, const View& next) {
          r.candidate = next;
          r.phase = Phase::kSync;
        }}},
  };
  for (const auto& [name, one] : cases) {
    const Prepared views;
    ScriptedPeers peers(2, /*incarnation=*/2, V(2));
    peers.Hold(0, views.next);
    peers.Hold(1, views.old);
    one.second(peers.Of(1), views.next);
    peers.Say({0, 1});
    EXPECT_EQ(peers.Number(), one.first ? MakeViewNumber(2, 1) : V(2)) << name;
  }
}

TEST(PeerRules, AMemberThatAbortsBeforeTheBoundaryOfTheViewInEffectBreaksIt) {
  const Prepared views;
  ScriptedPeers peers(2, /*incarnation=*/2, V(2));
  peers.Hold(0, views.next);
  peers.Hold(1, views.old);
  peers.Of(1).candidate = views.next;
  peers.Say({0, 1});
  ASSERT_EQ(peers.Number(), V(2));
  peers.Of(0).phase = Phase::kAborted;
  peers.Of(1).phase = Phase::kAborted;
  peers.Of(1).fence = V(2);
  peers.Say({0, 1});
  EXPECT_EQ(peers.Number(), MakeViewNumber(2, 1));
}

// C1: who goes on. --------------------------------------------------------------------------------

TEST(PeerRules, BelowTheMinimumARepairWaitsAndSaysForHowMany) {
  ScriptedPeers peers = RunningPeers(2);
  peers.desired_.min_workers = 2;
  peers.Want();
  peers.Refuse(1);
  EXPECT_EQ(peers.Number(), V(1));
  EXPECT_EQ(peers.Look().waiting, "waits for workers: 1 of at least 2 are there");
  peers.Restart(1);
  EXPECT_THAT(peers.Members(), ElementsAre(0, 1));
  EXPECT_EQ(peers.Look().incidents[0].message, "its process ended; 2 workers go on");
}

TEST(PeerRules, WhereTheWholeViewHasEndedNothingBeginsWhileTheJobIsHaltedOrWantsNobody) {
  for (const bool halt : {true, false}) {
    ScriptedPeers peers = RunningPeers(1);
    peers.desired_.settings.halt = halt;
    peers.desired_.workers = halt ? 1 : 0;
    peers.Want();
    peers.Restart(0);
    peers.Pass(absl::Seconds(2));
    EXPECT_EQ(peers.Number(), V(1));
    EXPECT_EQ(peers.Look().waiting, "");
    peers.desired_.settings.halt = false;
    peers.desired_.workers = 1;
    peers.Want();
    EXPECT_EQ(peers.Number(), V(2));
  }
}

TEST(PeerRules, TheFirstViewWhoseMembersAreLostIsNotRepeatedUntilSomethingIsKnownMore) {
  ScriptedPeers peers(2);
  peers.Say({0, 1});
  for (const int pod : {0, 1}) {
    peers.Of(pod).installed = peers.Newest();
    peers.Of(pod).fence = V(1);
    peers.Of(pod).phase = Phase::kLost;
  }
  peers.Say({0, 1});
  EXPECT_EQ(peers.Number(), V(1));
  EXPECT_EQ(peers.Look().waiting,
            "waits for a worker that knows the last steps, or for proof that all have ended");
  peers.Of(1).state = {V(1), 3};
  peers.Say(1);
  EXPECT_EQ(peers.Number(), V(2)) << "it need not restore any more";
}

TEST(PeerRules, AFirstViewThatIsLostIsRepeatedByThoseWhoAreLeftOfIt) {
  ScriptedPeers peers(2);
  peers.Say({0, 1});
  for (const int pod : {0, 1}) {
    peers.Of(pod).installed = peers.Newest();
    peers.Of(pod).phase = Phase::kLost;
  }
  peers.Say({0, 1});
  ASSERT_EQ(peers.Number(), V(1));
  peers.Refuse(1);
  EXPECT_EQ(peers.Number(), V(2));
  EXPECT_THAT(peers.Members(), ElementsAre(0));
}

// Pods 0 and 1 go on without pod 2, which was silent for a while; two are wanted. Pod 1 is not yet
// synced, so that nobody is released.
ScriptedPeers PeersWithAStray() {
  ScriptedPeers peers = RunningPeers(3);
  peers.desired_.workers = 2;
  peers.Refuse(2);
  peers.Want();
  peers.Run({0}, 2);
  return peers;
}

TEST(PeerRules, ARepairTakesAStrayWithAStateUnlessItLingers) {
  for (const bool lingers : {false, true}) {
    ScriptedPeers peers = PeersWithAStray();
    ASSERT_THAT(peers.Members(), ElementsAre(0, 1));
    if (lingers) peers.Of(2).phase = Phase::kLinger;
    peers.Say(2);
    ASSERT_THAT(peers.Members(), ElementsAre(0, 1));
    peers.Refuse(1);
    EXPECT_EQ(peers.Members(), lingers ? std::vector<int>({0}) : std::vector<int>({0, 2}));
  }
}

TEST(PeerRules, AStrayWithoutAStateIsTakenIfItWasInAView) {
  ScriptedPeers peers(3);
  peers.Say({0, 1, 2});
  peers.desired_.workers = 2;
  peers.Want();
  peers.Refuse(2);
  ASSERT_THAT(peers.Members(), ElementsAre(0, 1));
  peers.Say(2);
  peers.Refuse(1);
  EXPECT_THAT(peers.Members(), ElementsAre(0, 2)) << "it may have been a witness";
}

TEST(PeerRules, WhereNobodyOfTheViewIsLeftAStrayThatLingersGoesOn) {
  ScriptedPeers peers = PeersWithAStray();
  peers.Of(2).phase = Phase::kLinger;
  peers.desired_.workers = 1;
  peers.Want();
  peers.Refuse(0);
  peers.Refuse(1);
  peers.Terminate(0);
  peers.Terminate(1);
  peers.Say(2);
  EXPECT_THAT(peers.Members(), ElementsAre(2));
  EXPECT_TRUE(peers.Newest().groups[0].restore) << "a waived view was above what it has";
}

// Pod 1 was drained by a view in which pod 0 alone was to go on, and lingers with the last steps.
// Before pod 0 got there it took in pod 2, which has come back with an older state.
ScriptedPeers PeersWhoDrainedTheLastHolder() {
  ScriptedPeers peers = PeersWithAStray();
  for (const int pod : {0, 1, 2}) peers.Of(pod).numeric_identity = "avx2";
  peers.Run({0, 1}, 2);
  peers.desired_.workers = 1;
  peers.Want();
  const View drained = peers.Newest();
  EXPECT_TRUE(drained.at_boundary);
  EXPECT_THAT(peers.Members(), ElementsAre(0));
  peers.Of(0).candidate = drained;
  peers.Of(1).installed = drained;
  peers.Of(1).fence = drained.number;
  peers.Of(1).phase = Phase::kLinger;
  peers.Say({0, 1, 2});
  Abort(peers, 0, {});
  peers.Pass(absl::Milliseconds(300));
  EXPECT_THAT(peers.Members(), ElementsAre(0, 2));
  return peers;
}

TEST(PeerRules, WhoWasDrainedIsAWitnessOnceThoseWhoWentOnHaveEnded) {
  ScriptedPeers peers = PeersWhoDrainedTheLastHolder();
  peers.Restart(0);
  EXPECT_THAT(peers.Members(), ElementsAre(1, 2)) << "pod 2 has not copied from pod 0";
  EXPECT_EQ(peers.Look().waiting, "");
}

TEST(PeerRules, WhoWasDrainedIsNoWitnessWhereItIsGoneOrComputesOtherwise) {
  for (const bool gone : {false, true}) {
    ScriptedPeers peers = PeersWhoDrainedTheLastHolder();
    peers.Of(1).numeric_identity = "avx512";
    gone ? peers.Refuse(1) : peers.Say(1);
    peers.Restart(0);
    EXPECT_THAT(peers.Members(), ElementsAre(0, 2));
    EXPECT_THAT(peers.Look().waiting, HasSubstr("view 1-2"));
  }
}

TEST(PeerRules, ARepairTakesNewWorkersOnlyUpToTheMinimum) {
  for (const int least : {0, 1, 2, 3}) {
    ScriptedPeers peers(4);
    peers.desired_.workers = 2;
    peers.Want();
    peers.Say({0, 1});
    peers.Run({0});  // not all are synced, so that nobody is released
    peers.Of(3).leaving = least == 3;
    peers.desired_.min_workers = least;
    peers.Say({2, 3});
    peers.Want();
    peers.Refuse(1);
    if (least <= 1) {
      EXPECT_THAT(peers.Members(), ElementsAre(0));
    } else if (least == 2) {
      EXPECT_THAT(peers.Members(), ElementsAre(0, 2));
    } else {
      EXPECT_EQ(peers.Number(), V(1)) << "who leaves does not help";
    }
  }
}

TEST(PeerRules, WhereNobodyOfTheViewIsLeftAsManyNewWorkersBeginAsAreWanted) {
  ScriptedPeers peers(5);
  peers.desired_.workers = 2;
  peers.Want();
  peers.Say({0, 1});
  peers.Run({0, 1});
  peers.Of(2).phase = Phase::kSync;
  peers.Say({2, 3, 4});
  peers.desired_.pods[0].state = PodState::kTerminated;
  peers.Terminate(1);
  EXPECT_THAT(peers.Members(), ElementsAre(2, 3));
  EXPECT_TRUE(peers.Newest().groups[0].restore);
  EXPECT_THAT(peers.Newest().groups[0].waived, ElementsAre(V(1)));
  EXPECT_EQ(peers.Newest().members[0].joined, V(2));
}

TEST(PeerRules, AViewIsListedUntilALaterOneIsSyncedByAll) {
  ScriptedPeers peers = RunningPeers(3);
  peers.Refuse(2);
  ASSERT_THAT(peers.Newest().groups[0].since, SizeIs(1));
  peers.desired_.pods.pop_back();
  peers.desired_.workers = 2;
  peers.Want();
  peers.Run({0, 1});
  Abort(peers, 0, {});
  Abort(peers, 1, {});
  ASSERT_EQ(peers.Number(), V(3));
  ASSERT_THAT(peers.Newest().groups[0].since, SizeIs(1));
  EXPECT_EQ(peers.Newest().groups[0].since[0].number, V(2));
  EXPECT_FALSE(peers.Newest().groups[0].restore);
}

// C5: missing witnesses. --------------------------------------------------------------------------

// Nothing is known of pod 0, which alone was in the newest view; pod 1 has just come.
ScriptedPeers PeersWithoutAWitness() {
  ScriptedPeers peers(2);
  peers.desired_.workers = 1;
  peers.Want();
  peers.Say(0);
  peers.Run({0});
  peers.now_ += absl::Milliseconds(70);  // in which nothing was missing
  peers.Refuse(0);
  peers.Say(1);
  return peers;
}

TEST(PeerRules, SilentHoldersCountAsEndedAfterExactlyTheTakeoverTimeout) {
  ScriptedPeers peers = PeersWithoutAWitness();
  EXPECT_EQ(peers.Look().waiting,
            "the last steps may be known only to workers that do not answer (view 1-1); waits for "
            "them, or for proof that they have ended");
  peers.Pass(absl::Milliseconds(29999));
  EXPECT_THAT(peers.coordinator_.assumed_terminated(), IsEmpty());
  EXPECT_EQ(peers.Number(), V(1));
  peers.Pass(absl::Milliseconds(1));
  EXPECT_THAT(peers.coordinator_.assumed_terminated(), ElementsAre("uid0"));
  EXPECT_EQ(peers.Look().incidents.back().reason, "StepsAtRisk");
  EXPECT_EQ(peers.Look().incidents.back().message,
            "w0 did not answer in time and counts as ended; steps after step 1 that only it knows "
            "are lost if it comes back");
  peers.Pass(absl::Milliseconds(1));
  EXPECT_THAT(peers.Members(), ElementsAre(1));
}

TEST(PeerRules, AFreezeIsNoTimeInWhichTheSilentCouldHaveAnswered) {
  ScriptedPeers peers = PeersWithoutAWitness();
  peers.Freeze(absl::Seconds(40));
  peers.coordinator_.OnTick(peers.now_);
  peers.Pass(absl::Milliseconds(29900));
  EXPECT_THAT(peers.coordinator_.assumed_terminated(), IsEmpty());
  peers.Pass(absl::Milliseconds(100));
  EXPECT_THAT(peers.coordinator_.assumed_terminated(), ElementsAre("uid0"));
}

TEST(PeerRules, TheSilentHaveTheWholeTimeAnewOnceAViewWasWitnessed) {
  ScriptedPeers peers = PeersWithoutAWitness();
  peers.Pass(absl::Seconds(20));
  peers.Restart(0);
  ASSERT_EQ(peers.Number(), V(2));
  peers.Run({0});
  peers.Refuse(0);
  peers.Pass(absl::Seconds(20));
  EXPECT_THAT(peers.coordinator_.assumed_terminated(), IsEmpty());
}

TEST(PeerRules, WhereTheControllerSawAViewOfWhichNobodyTellsMembersRestore) {
  for (const ViewNumber seen : {V(1), V(2)}) {
    ScriptedPeers peers(2, /*incarnation=*/2, seen);
    peers.Hold(0, ScriptedPeers::PeerView(V(1), {0, 1}));
    peers.Hold(1, ScriptedPeers::PeerView(V(1), {0, 1}));
    peers.Of(0).phase = peers.Of(1).phase = Phase::kAborted;
    peers.Say({0, 1});
    ASSERT_EQ(peers.Number(), MakeViewNumber(2, 1));
    EXPECT_EQ(peers.Newest().groups[0].restore, seen == V(2));
    peers.Run({0, 1});
    Abort(peers, 0, {});
    Abort(peers, 1, {});
    ASSERT_EQ(peers.Number(), MakeViewNumber(2, 2));
    EXPECT_FALSE(peers.Newest().groups[0].restore) << "they have restored what there was";
  }
}

// C6: blame. --------------------------------------------------------------------------------------

// A view of three of which the one before broke by blame alone.
ScriptedPeers PeersThatBlamedOnce() {
  ScriptedPeers peers = RunningPeers(3);
  Abort(peers, 0, {});
  Abort(peers, 1, {});
  Abort(peers, 2, {});
  peers.Run({0, 1, 2});
  EXPECT_EQ(peers.Number(), V(2));
  return peers;
}

TEST(PeerRules, OfEquallyBlamedTheHigherIndexGoesAndStaysOutForExactlyTheHold) {
  ScriptedPeers peers = PeersThatBlamedOnce();
  const absl::Time now = peers.now_;
  Abort(peers, 1, {});
  Abort(peers, 2, {});
  Abort(peers, 0, {1, 2});
  ASSERT_THAT(peers.Members(), ElementsAre(0, 1));
  ASSERT_THAT(peers.Look().incidents, SizeIs(1));
  const IncidentRecord incident = peers.Look().incidents[0];
  EXPECT_EQ(incident.pod, "w2");
  EXPECT_EQ(incident.reason, "WorkerUnreachable");
  EXPECT_EQ(incident.time, now);
  EXPECT_EQ(incident.message,
            "it answers the coordinator, but 1 other members cannot reach it; it stays out for 5s; "
            "2 workers go on");
  peers.Run({0, 1});
  EXPECT_EQ(peers.Look().members[2].refused,
            "other members could not reach it; it is tried again soon");
  EXPECT_EQ(peers.Look().members[0].refused, "");
  peers.Pass(absl::Milliseconds(4999));
  EXPECT_EQ(peers.Number(), V(3));
  peers.Pass(absl::Milliseconds(1));
  EXPECT_THAT(peers.Members(), ElementsAre(0, 1, 2));
  EXPECT_EQ(peers.Look().members[2].refused, "");
}

TEST(PeerRules, TheMostBlamedGoesBeforeTheOneWithTheHigherIndex) {
  ScriptedPeers peers = PeersThatBlamedOnce();
  Abort(peers, 0, {1, 2});
  Abort(peers, 1, {});
  Abort(peers, 2, {1});
  EXPECT_THAT(peers.Members(), ElementsAre(0, 2));
  EXPECT_THAT(peers.Look().incidents[0].message, HasSubstr("but 2 other members cannot reach it"));
}

TEST(PeerRules, NobodyIsEvictedWhereTooFewWouldBeLeft) {
  for (const int least : {2, 3}) {
    ScriptedPeers peers = PeersThatBlamedOnce();
    peers.desired_.min_workers = least;
    peers.Want();
    Abort(peers, 1, {2});
    Abort(peers, 2, {});
    Abort(peers, 0, {2});
    if (least == 2) {
      EXPECT_THAT(peers.Members(), ElementsAre(0, 1));
    } else {
      EXPECT_THAT(peers.Members(), ElementsAre(0, 1, 2));
      EXPECT_THAT(peers.Look().incidents, IsEmpty());
    }
  }
}

TEST(PeerRules, NobodyIsEvictedWhereTheViewBrokeByALoss) {
  ScriptedPeers peers = PeersThatBlamedOnce();
  Abort(peers, 0, {1});
  peers.Refuse(2);
  EXPECT_THAT(peers.Members(), ElementsAre(0, 1));
  ASSERT_THAT(peers.Look().incidents, SizeIs(1));
  EXPECT_EQ(peers.Look().incidents[0].reason, "WorkerLost");
}

TEST(PeerRules, WhoeverHasNotReportedOnItsNewConnectionIsNotEvicted) {
  ScriptedPeers peers = PeersThatBlamedOnce();
  peers.coordinator_.OnConnected("uid2", peers.now_);
  Abort(peers, 0, {2});
  Abort(peers, 1, {2});
  peers.Pass(absl::Milliseconds(300), /*mute=*/{2});
  EXPECT_EQ(peers.Number(), V(3));
  EXPECT_THAT(peers.Look().incidents, IsEmpty());
}

TEST(PeerRules, HowAnEvictedProcessEndedIsToldWithItsEviction) {
  ScriptedPeers peers = PeersThatBlamedOnce();
  Abort(peers, 1, {});
  Abort(peers, 2, {});
  Abort(peers, 0, {2});
  ASSERT_THAT(peers.Members(), ElementsAre(0, 1));
  peers.Of(2).id.start = 1;
  peers.Of(2).last_exit = LastExit{1, 0, "no route", 5};
  peers.Say(2);
  ASSERT_TRUE(peers.Look().incidents[0].exit);
  EXPECT_EQ(peers.Look().incidents[0].exit->log_tail, "no route");
}

TEST(PeerRules, OnlyMembersThatAbortedBlameAndOnlyMembersAreBlamed) {
  ScriptedPeers peers = PeersThatBlamedOnce();
  peers.Of(1).phase = Phase::kDone;
  peers.Of(1).unreachable = {peers.Of(2).id};
  peers.Say(1);
  peers.Of(2).phase = Phase::kDone;
  peers.Say(2);
  peers.Of(0).phase = Phase::kAborted;
  peers.Of(0).unreachable = {{"uid1", 7}, {"uid9", 0}};
  peers.Say(0);
  EXPECT_EQ(peers.Number(), V(3));
  EXPECT_THAT(peers.Members(), ElementsAre(0, 1, 2));
  EXPECT_THAT(peers.Look().incidents, IsEmpty());
}

TEST(PeerRules, WhoIsInNoViewIsNotEvictedWhoeverBlamesIt) {
  ScriptedPeers peers(4);
  peers.desired_.workers = 3;
  peers.Want();
  peers.Say({0, 1, 2});
  peers.Run({0, 1, 2});
  peers.Say(3);
  for (int i = 0; i < 2; ++i) {
    for (const int pod : {0, 1, 2}) Abort(peers, pod, {3});
    peers.Run({0, 1, 2});
  }
  EXPECT_EQ(peers.Number(), V(3));
  EXPECT_THAT(peers.Look().incidents, IsEmpty());
}

TEST(PeerRules, AViewThatMadeAStepClearsTheBlameOfThoseBefore) {
  for (const bool stepped : {true, false}) {
    ScriptedPeers peers = PeersThatBlamedOnce();
    peers.Of(0).stepped = stepped;
    peers.Say(0);
    Abort(peers, 1, {2});
    Abort(peers, 2, {});
    Abort(peers, 0, {2});
    EXPECT_THAT(peers.Members(), SizeIs(stepped ? 3 : 2));
  }
}

TEST(PeerRules, AStepOfAnEarlierViewClearsNoBlame) {
  ScriptedPeers peers = RunningPeers(3);
  peers.Of(0).stepped = true;
  Abort(peers, 0, {});
  Abort(peers, 1, {});
  Abort(peers, 2, {});
  peers.Say(0);
  peers.Of(0).stepped = false;
  peers.Run({0, 1, 2});
  Abort(peers, 1, {2});
  Abort(peers, 2, {});
  Abort(peers, 0, {2});
  EXPECT_THAT(peers.Members(), ElementsAre(0, 1));
}

// Halted and wanted again. ------------------------------------------------------------------------

// All have stopped at settings 2, and settings 3 are wanted.
ScriptedPeers StoppedPeers() {
  ScriptedPeers peers = RunningPeers(2);
  peers.desired_.settings.generation = 2;
  peers.desired_.settings.halt = true;
  peers.Want();
  for (const int pod : {0, 1}) {
    peers.Of(pod).stopped = true;
    peers.Of(pod).settings_generation = 2;
  }
  return peers;
}

void WantAgain(ScriptedPeers& peers) {
  peers.desired_.settings.generation = 3;
  peers.desired_.settings.halt = false;
  peers.Want();
}

TEST(PeerRules, AJobThatStoppedGoesOnAtOnceInAViewOfTheSameMembers) {
  ScriptedPeers peers = StoppedPeers();
  peers.Say({0, 1});
  EXPECT_EQ(peers.Number(), V(1)) << "it is still halted";
  WantAgain(peers);
  EXPECT_EQ(peers.Number(), V(2));
  EXPECT_FALSE(peers.Newest().at_boundary);
  EXPECT_THAT(peers.Members(), ElementsAre(0, 1));
}

TEST(PeerRules, AJobDoesNotGoOnBeforeAllHaveStoppedAtTheSettingsBeforeThese) {
  const std::map<std::string, std::function<void(ScriptedPeers&)>> hindrances = {
      {"not stopped", [](auto& peers) { peers.Of(1).stopped = false; }},
      {"stopped at these", [](auto& peers) { peers.Of(1).settings_generation = 3; }},
      {"elsewhere", [](auto& peers) { peers.Of(1).installed->number = MakeViewNumber(0, 1); }},
  };
  for (const auto& [name, hinder] : hindrances) {
    ScriptedPeers peers = StoppedPeers();
    hinder(peers);
    peers.Say({0, 1});
    WantAgain(peers);
    EXPECT_EQ(peers.Number(), V(1)) << name;
  }
}

TEST(PeerRules, AJobDoesNotGoOnWithAMemberThatIsNotHeard) {
  ScriptedPeers peers = StoppedPeers();
  peers.Say({0, 1});
  peers.coordinator_.OnConnected("uid1", peers.now_);
  WantAgain(peers);
  EXPECT_EQ(peers.Number(), V(1));
  peers.Say(1);
  EXPECT_EQ(peers.Number(), V(2));
}

// C2: planned changes. ----------------------------------------------------------------------------

// Pods 0 and 1 run, pod 2 is not there yet; three are wanted.
ScriptedPeers PeersThatWantOneMore() {
  ScriptedPeers peers(3);
  peers.desired_.workers = 2;
  peers.Want();
  peers.Say({0, 1});
  peers.Run({0, 1});
  peers.desired_.workers = 3;
  peers.Want();
  return peers;
}

TEST(PeerRules, NothingIsPlannedBeforeAllMembersRunInTheViewItself) {
  const std::map<std::string, std::function<void(ScriptedPeers&)>> hindrances = {
      {"copies", [](auto& peers) { peers.Of(1).phase = Phase::kCopy; }},
      {"has no state", [](auto& peers) { peers.Of(1).state.reset(); }},
      {"has an old state", [](auto& peers) { peers.Of(1).state->view = MakeViewNumber(0, 1); }},
      {"has no view", [](auto& peers) { peers.Of(1).installed.reset(); }},
      {"is in an old view",
       [](auto& peers) { peers.Of(1).installed->number = MakeViewNumber(0, 1); }},
  };
  for (const auto& [name, hinder] : hindrances) {
    ScriptedPeers peers = PeersThatWantOneMore();
    hinder(peers);
    peers.Say(1);
    peers.Say(2);
    EXPECT_EQ(peers.Number(), V(1)) << name;
    peers.Run({1});
    EXPECT_EQ(peers.Number(), V(2)) << name;
  }
}

TEST(PeerRules, NothingIsPlannedWhileAMemberIsNotHeard) {
  ScriptedPeers peers = PeersThatWantOneMore();
  peers.coordinator_.OnConnected("uid1", peers.now_);
  peers.Say(2);
  EXPECT_EQ(peers.Number(), V(1));
}

TEST(PeerRules, NothingIsPlannedWhileTheJobIsHaltedOrWantsNobody) {
  ScriptedPeers peers = PeersThatWantOneMore();
  peers.desired_.settings.halt = true;
  peers.Want();
  peers.Say(2);
  EXPECT_EQ(peers.Number(), V(1));
  peers.desired_.settings.halt = false;
  peers.desired_.workers = 0;
  peers.Want();
  EXPECT_EQ(peers.Number(), V(1));
}

TEST(PeerRules, APlannedViewComesAtABoundaryOfTheOneThatRuns) {
  ScriptedPeers peers = PeersThatWantOneMore();
  peers.Say(2);
  EXPECT_EQ(peers.Number(), V(2));
  EXPECT_TRUE(peers.Newest().at_boundary);
  EXPECT_EQ(peers.Newest().from, V(1));
  EXPECT_THAT(peers.Look().incidents, IsEmpty());
}

TEST(PeerRules, NoMoreJoinThanThereIsRoomFor) {
  ScriptedPeers peers(5);
  peers.desired_.workers = 2;
  peers.Want();
  peers.Say({0, 1});
  peers.Run({0, 1});
  peers.Say({2, 3, 4});
  EXPECT_EQ(peers.Number(), V(1));
  peers.desired_.workers = 4;
  peers.Want();
  EXPECT_THAT(peers.Members(), ElementsAre(0, 1, 2, 3));
}

TEST(PeerRules, WhoLeavesOrLingersDoesNotJoin) {
  for (const bool lingers : {true, false}) {
    ScriptedPeers peers = PeersThatWantOneMore();
    peers.Of(2).leaving = !lingers;
    if (lingers) peers.Of(2).phase = Phase::kLinger;
    peers.Say(2);
    EXPECT_EQ(peers.Number(), V(1));
  }
}

TEST(PeerRules, OfTooManyTheLowestIndicesStayWhateverTheirRanks) {
  ScriptedPeers peers(3);
  peers.desired_.workers = 2;
  peers.Want();
  peers.Say({1, 2});
  peers.Run({1, 2});
  peers.desired_.workers = 3;
  peers.Want();
  peers.Say(0);
  ASSERT_THAT(peers.Members(), ElementsAre(1, 2, 0));
  peers.Run({1, 2, 0});
  peers.desired_.workers = 2;
  peers.Want();
  EXPECT_THAT(peers.Members(), ElementsAre(0, 1));
}

TEST(PeerRules, MembersLeaveOnlyIfTheMinimumStays) {
  for (const int least : {1, 2, 3}) {
    ScriptedPeers peers = RunningPeers(3);
    peers.desired_.min_workers = least;
    peers.PodOf(1).state = PodState::kDraining;
    peers.Want();
    if (least <= 2) {
      EXPECT_THAT(peers.Members(), ElementsAre(0, 2));
    } else {
      EXPECT_EQ(peers.Number(), V(1));
    }
  }
}

TEST(PeerRules, APreparedViewStandsWhileAllOfItAreThereAndIsReplacedWhenOneIsNot) {
  ScriptedPeers peers = PeersThatWantOneMore();
  peers.Say(2);
  ASSERT_EQ(peers.Number(), V(2));
  peers.Pass(absl::Milliseconds(300));
  EXPECT_EQ(peers.Number(), V(2));
  peers.Refuse(2);
  EXPECT_EQ(peers.Number(), V(3));
  EXPECT_THAT(peers.Members(), ElementsAre(0, 1));
}

TEST(PeerRules, AJoinerThatRestartsIsAnotherOne) {
  ScriptedPeers peers = PeersThatWantOneMore();
  peers.Say(2);
  ASSERT_EQ(peers.Number(), V(2));
  peers.Of(2).id.start = 1;
  peers.Say(2);
  EXPECT_EQ(peers.Number(), V(3));
  EXPECT_EQ(peers.Newest().members[2].id, (MemberId{"uid2", 1}));
  EXPECT_EQ(peers.Newest().members[2].joined, V(3));
}

TEST(PeerRules, APreparedViewTakesEffectWhenAMemberOfTheOldOneInstallsItNotAJoiner) {
  ScriptedPeers peers = PeersThatWantOneMore();
  peers.Say(2);
  peers.Of(2).installed = peers.Newest();
  peers.Say(2);
  EXPECT_FALSE(peers.Look().members[2].in_view);
  peers.Of(0).installed = peers.Newest();
  peers.Say(0);
  EXPECT_TRUE(peers.Look().members[2].in_view);
  EXPECT_FALSE(peers.Look().view_synced);
}

TEST(PeerRules, ASuccessorKeepsAPreparedViewOnlyIfAllMembersHaveIt) {
  View old = ScriptedPeers::PeerView(V(1), {0, 1});
  View next = ScriptedPeers::PeerView(V(2), {0, 1, 2});
  next.at_boundary = true;
  next.from = V(1);
  View other = next;
  other.number = other.groups[0].epoch = MakeViewNumber(0, 9);
  const std::map<std::string, std::optional<View>> candidates = {
      {"this", next}, {"none", {}}, {"another", other}};
  for (const auto& [name, candidate] : candidates) {
    ScriptedPeers peers(3, /*incarnation=*/2, V(1));
    peers.Hold(0, old);
    peers.Hold(1, old);
    peers.Of(0).candidate = next;
    peers.Of(1).candidate = candidate;
    peers.Say({0, 1, 2});
    EXPECT_EQ(peers.Number(), name == "this" ? V(2) : MakeViewNumber(2, 1)) << name;
    EXPECT_THAT(peers.Members(), ElementsAre(0, 1, 2)) << name;
  }
}

// `known`: the view in which it was prepared is listed. Whether both members have synced it.
std::vector<bool> MembersOfAPreparedView(bool known, bool synced) {
  View next = ScriptedPeers::PeerView(V(2), {0, 1});
  next.at_boundary = true;
  next.from = V(1);
  if (known) next.groups[0].since = {{V(1), {{"uid8", 0}}}};
  ScriptedPeers peers(2, /*incarnation=*/2, V(2));
  peers.desired_.settings.halt = true;  // so that nothing new is published
  peers.desired_.min_workers = 3;
  peers.Want();
  peers.Hold(0, next);
  peers.Hold(1, next);
  if (!synced) peers.Of(1).state->view = V(1);
  peers.Say({0, 1});
  return {peers.Look().members[0].in_view, peers.Look().members[1].in_view};
}

TEST(PeerRules, APreparedViewIsInEffectIfTheOneBeforeIsForgottenOrAllAreSynced) {
  EXPECT_THAT(MembersOfAPreparedView(/*known=*/false, /*synced=*/false), ElementsAre(true, true));
  EXPECT_THAT(MembersOfAPreparedView(/*known=*/true, /*synced=*/true), ElementsAre(true, true));
  EXPECT_THAT(MembersOfAPreparedView(/*known=*/true, /*synced=*/false), ElementsAre(false, false));
}

TEST(PeerRules, AViewOfAnotherKindOfJobTeachesNothing) {
  ScriptedPeers peers = RunningPeers(1);
  View other = ScriptedPeers::PeerView(V(9), {0});
  other.groups.push_back(other.groups[0]);
  peers.Of(0).candidate = other;
  peers.Say(0);
  EXPECT_EQ(peers.Look().newest_view, V(1));
}

TEST(PeerRules, ASuccessorLearnsOfAViewFromItsCandidatesAlone) {
  ScriptedPeers peers(1, /*incarnation=*/2);
  peers.Of(0).candidate = ScriptedPeers::PeerView(V(3), {0});
  peers.Say(0);
  EXPECT_GE(peers.Look().newest_view, V(3));
}

// Checkpoint rounds. ------------------------------------------------------------------------------

TEST(PeerRules, TheNextRoundComesOnceAllHaveCommittedTheLastOrAViewLater) {
  ScriptedPeers peers = RunningPeers(2);
  peers.desired_.checkpoint_interval_ms = 1000;
  peers.Want();
  peers.Pass(absl::Milliseconds(999));
  EXPECT_EQ(peers.Told(0).checkpoint_turn, 0);
  const std::uint64_t before = peers.coordinator_.directives_version();
  peers.Pass(absl::Milliseconds(1));
  const std::int64_t first = peers.Told(0).checkpoint_turn;
  EXPECT_EQ(first, static_cast<std::int64_t>(MakeViewNumber(1, 1)));
  EXPECT_EQ(peers.coordinator_.directives_version(), before + 1);

  peers.Of(0).checkpoint_turn = first;
  peers.Run({0, 1}, 2);
  peers.Pass(absl::Seconds(5));
  EXPECT_EQ(peers.Told(0).checkpoint_turn, first) << "pod 1 has not committed it";
  peers.Of(1).checkpoint_turn = first;
  peers.Say(1);
  EXPECT_EQ(peers.Told(0).checkpoint_turn, first + 1);

  peers.Refuse(1);
  peers.Run({0}, 3);
  peers.Pass(absl::Seconds(1));
  EXPECT_EQ(peers.Told(0).checkpoint_turn, first + 2) << "a view that is over is not waited for";
}

TEST(PeerRules, ARequestedRoundIsAnsweredOnceAllHaveCommittedItInOneView) {
  ScriptedPeers peers = RunningPeers(2);
  peers.desired_.checkpoint_request = "now";
  peers.Want();
  peers.Run({0, 1}, 2);
  const std::int64_t first = peers.Told(0).checkpoint_turn;
  EXPECT_GT(first, 0) << "without an interval, too";
  peers.Of(0).checkpoint_turn = first;
  peers.Run({0, 1}, 3);
  EXPECT_EQ(peers.Look().checkpoint_request, "") << "pod 1 has not committed it";

  peers.Refuse(1);
  peers.Run({0}, 4);
  const std::int64_t second = peers.Told(0).checkpoint_turn;
  EXPECT_EQ(second, first + 1) << "of a view that is over nobody knows what was dropped";
  EXPECT_EQ(peers.Look().checkpoint_request, "");
  const std::uint64_t before = peers.coordinator_.report_version();
  peers.Of(0).checkpoint_turn = second;
  peers.Run({0}, 5);
  EXPECT_EQ(peers.Look().checkpoint_request, "now");
  EXPECT_GE(peers.Look().checkpoint_request_step, 3);
  EXPECT_GT(peers.coordinator_.report_version(), before) << "the controller hears of it at once";
  EXPECT_EQ(peers.Told(0).checkpoint_turn, second) << "it is carried out once";
}

TEST(PeerRules, NoRoundComesBeforeAStepIsSettled) {
  ScriptedPeers peers = RunningPeers(1);
  peers.Of(0).settled_step = -1;
  peers.Say(0);
  peers.desired_.checkpoint_interval_ms = 1000;
  peers.Want();
  peers.Pass(absl::Seconds(3));
  EXPECT_EQ(peers.Told(0).checkpoint_turn, 0);
  peers.Of(0).settled_step = 0;
  peers.Pass(absl::Milliseconds(200));
  EXPECT_GT(peers.Told(0).checkpoint_turn, 0);
}

// C3: release. ------------------------------------------------------------------------------------

TEST(PeerRules, WhoLingersIsReleasedOnceThoseInTheViewAreSynced) {
  ScriptedPeers peers = RunningPeers(3);
  peers.desired_.workers = 2;
  peers.Want();
  ASSERT_THAT(peers.Members(), ElementsAre(0, 1));
  peers.Run({0});
  peers.Of(2).phase = Phase::kLinger;
  peers.Say(2);
  EXPECT_FALSE(peers.Told(2).released);
  const std::uint64_t before = peers.coordinator_.directives_version();
  peers.Run({1});
  EXPECT_TRUE(peers.Told(2).released);
  EXPECT_TRUE(peers.Look().members[2].drained);
  EXPECT_FALSE(peers.Told(0).released);
  EXPECT_EQ(peers.coordinator_.directives_version(), before + 1);
  peers.Say(2);
  EXPECT_EQ(peers.coordinator_.directives_version(), before + 1) << "once is enough";
}

TEST(PeerRules, WhoIsReleasedStaysReleasedAndDoesNotComeBackButItsSuccessorMay) {
  ScriptedPeers peers = RunningPeers(2);
  peers.desired_.workers = 1;
  peers.Want();
  peers.Of(1).phase = Phase::kLinger;
  peers.Say(1);
  peers.Run({0});
  ASSERT_TRUE(peers.Told(1).released);
  peers.Of(1).phase = Phase::kOut;
  peers.desired_.workers = 2;
  peers.Want();
  peers.Say(1);
  EXPECT_TRUE(peers.Told(1).released);
  EXPECT_THAT(peers.Members(), ElementsAre(0));
  peers.Restart(1);
  EXPECT_FALSE(peers.Told(1).released);
  EXPECT_THAT(peers.Members(), ElementsAre(0, 1));
}

TEST(PeerRules, WhoIsFreeStaysUnlessItLeaves) {
  for (const bool leaving : {false, true}) {
    ScriptedPeers peers(2);
    peers.desired_.workers = 1;
    peers.Want();
    peers.Say(0);
    peers.Run({0});
    peers.Of(1).leaving = leaving;
    peers.Say(1);
    EXPECT_EQ(peers.Told(1).released, leaving);
  }
}

TEST(PeerRules, WhoIsInAPreparedViewIsNotReleased) {
  ScriptedPeers peers = PeersThatWantOneMore();
  peers.Say(2);
  ASSERT_THAT(peers.Members(), ElementsAre(0, 1, 2));
  peers.Of(2).leaving = true;
  peers.Say(2);
  EXPECT_FALSE(peers.Told(2).released);
}

TEST(PeerRules, WhoIsNotInThePreparedViewDoesNotWaitForIt) {
  ScriptedPeers peers(4);
  peers.desired_.workers = 2;
  peers.Want();
  peers.Say({0, 1});
  peers.Run({0, 1});
  peers.desired_.workers = 3;
  peers.Want();
  peers.Say(2);
  ASSERT_THAT(peers.Members(), ElementsAre(0, 1, 2));
  peers.Of(3).leaving = true;
  peers.Say(3);
  EXPECT_TRUE(peers.Told(3).released);
}

TEST(PeerRules, WhereNoViewIsKnownWhoHoldsAStateIsNotReleased) {
  for (const bool holds : {true, false}) {
    ScriptedPeers peers(2);
    peers.desired_.min_workers = 2;  // so that there is no view
    peers.Want();
    peers.Of(0).leaving = true;
    if (holds) peers.Of(0).state = {V(1), 4};
    peers.Say(0);
    EXPECT_EQ(peers.Told(0).released, !holds);
  }
}

// Arithmetic. -------------------------------------------------------------------------------------

TEST(PeerRules, TheArithmeticOfTheViewCountsNotThatOfTheLowestIndex) {
  ScriptedPeers peers(3);
  peers.desired_.workers = 2;
  peers.Want();
  peers.Of(0).numeric_identity = "old";
  peers.Of(1).numeric_identity = "new";
  peers.Of(2).numeric_identity = "new";
  peers.Say({1, 2});
  peers.Run({1, 2});
  peers.desired_.workers = 3;
  peers.Want();
  peers.Say(0);
  EXPECT_THAT(peers.Members(), ElementsAre(1, 2));
  EXPECT_EQ(
      peers.Look().members[0].refused,
      "its arithmetic differs from that of the others, so results could not be reproduced: "
      "it has \"old\", they have \"new\"; run it on the same kind of machine, with the same data "
      "(data=) and the same program");
  EXPECT_EQ(peers.Look().members[1].refused, "");
}

TEST(PeerRules, OfTheViewTheLowestIndexSaysWhichArithmeticCounts) {
  ScriptedPeers peers = RunningPeers(2);
  peers.Of(0).numeric_identity = "a";
  peers.Of(1).numeric_identity = "b";
  peers.Say({0, 1});
  EXPECT_EQ(peers.Look().members[0].refused, "");
  EXPECT_THAT(peers.Look().members[1].refused, HasSubstr("it has \"b\", they have \"a\""));
}

TEST(PeerRules, WhoseBitsNeedNotAgreeMayJoinAnyArithmetic) {
  ScriptedPeers peers = PeersThatWantOneMore();
  peers.Of(1).numeric_identity = "a";
  peers.Say(1);
  peers.Say(2);
  EXPECT_THAT(peers.Members(), ElementsAre(0, 1, 2));
}

TEST(PeerRules, WhoDoesNotSpeakForItselfJoinsNoView) {
  ScriptedPeers peers = RunningPeers(2);
  peers.desired_.pods.push_back({"uid2", "w2", "worker", 2, "127.0.0.9", PodState::kLive});
  peers.Want();
  Report report;
  report.id = {"uid2", 1};
  report.highest_incarnation = 1;
  peers.coordinator_.OnConnected("uid2", peers.now_);
  peers.coordinator_.OnReport("uid2", report, peers.now_);
  ASSERT_EQ(peers.Number(), V(1));
  report.id.start = 0;
  peers.coordinator_.OnReport("uid2", report, peers.now_);
  peers.desired_.workers = 3;
  peers.Want();
  EXPECT_EQ(peers.Number(), V(1)) << "what answers there is a process of the past";
  report.id.start = 1;
  peers.coordinator_.OnReport("uid2", report, peers.now_);
  EXPECT_EQ(peers.Number(), V(2));
}

TEST(PeerRules, AProcessOfThePastOrAnEndedOneIsInNoView) {
  ScriptedPeers peers = PeersThatWantOneMore();
  peers.Of(2).id.start = 1;
  peers.Of(2).leaving = true;
  peers.Say(2);
  peers.Of(2).id.start = 0;
  peers.Of(2).leaving = false;
  peers.Say(2);
  EXPECT_EQ(peers.Number(), V(1));
  peers.PodOf(2).state = PodState::kTerminated;
  peers.Want();
  peers.Of(2).id.start = 2;
  peers.Say(2);
  EXPECT_EQ(peers.Number(), V(1));
}

// Recovery. ---------------------------------------------------------------------------------------

TEST(PeerRules, ALossDuringAStepRepeatsItAndOneBeforeTheFirstSyncDoesNot) {
  for (const bool synced : {true, false}) {
    ScriptedPeers peers(2);
    peers.Say({0, 1});
    peers.Run({0, 1}, 5);
    if (!synced) {
      Abort(peers, 0, {});
      Abort(peers, 1, {});
      peers.Of(0).installed = peers.Newest();
      peers.Of(0).fence = peers.Number();
      peers.Of(0).phase = Phase::kSync;
      peers.Say(0);
    }
    peers.Refuse(1);
    ASSERT_THAT(peers.Look().incidents, SizeIs(1));
    peers.now_ += absl::Milliseconds(70);
    peers.Of(0).base_step = 3;
    peers.Of(0).stepped = true;
    peers.Run({0}, 4);
    EXPECT_EQ(peers.Look().incidents[0].recovery, absl::Milliseconds(70));
    EXPECT_EQ(peers.Look().incidents[0].repeated_steps, synced ? 3 : 2);
  }
}

TEST(PeerRules, AStepOfTheViewThatBrokeIsNoRecovery) {
  ScriptedPeers peers = RunningPeers(2);
  peers.desired_.min_workers = 2;
  peers.Want();
  peers.Refuse(1);
  peers.Of(0).stepped = true;
  peers.Say(0);
  ASSERT_THAT(peers.Look().incidents, SizeIs(1));
  EXPECT_FALSE(peers.Look().incidents[0].recovery) << "nothing is repaired yet";
  peers.desired_.min_workers = 1;
  peers.Want();
  ASSERT_EQ(peers.Number(), V(2));
  peers.Say(0);
  EXPECT_FALSE(peers.Look().incidents[0].recovery) << "it is still in the view before";
  peers.Run({0}, 2);
  EXPECT_TRUE(peers.Look().incidents[0].recovery);
}

TEST(PeerRules, WhatWasReachedBeforeTheRepairIsRepeatedHoweverLateItIsSaid) {
  ScriptedPeers peers = RunningPeers(2);
  peers.Refuse(1);
  ASSERT_EQ(peers.Number(), V(2));
  peers.Of(0).state->step = 9;  // in the view before
  peers.Say(0);
  peers.Run({0}, 20);
  peers.Of(0).base_step = 3;
  peers.Of(0).stepped = true;
  peers.Say(0);
  EXPECT_EQ(peers.Look().incidents[0].repeated_steps, 7);
}

TEST(PeerRules, WhatIsReachedWhileARepairWaitsIsRepeatedToo) {
  ScriptedPeers peers = RunningPeers(2);
  peers.desired_.min_workers = 2;
  peers.Want();
  peers.Refuse(1);
  peers.Of(0).state->step = 9;  // in flight when the other was lost
  peers.Say(0);
  peers.desired_.min_workers = 1;
  peers.Want();
  ASSERT_EQ(peers.Number(), V(2));
  peers.Of(0).base_step = 3;
  peers.Of(0).stepped = true;
  peers.Run({0}, 4);
  EXPECT_EQ(peers.Look().incidents[0].repeated_steps, 7);
}

std::vector<IncidentRecord> LostSteps(const ScriptedPeers& peers) {
  std::vector<IncidentRecord> lost;
  for (const IncidentRecord& incident : peers.Look().incidents) {
    if (incident.reason == "StepsLost") lost.push_back(incident);
  }
  return lost;
}

// Both go on from this step.
void GoOnFrom(ScriptedPeers& peers, std::int64_t base) {
  for (const int peer : {0, 1}) {
    peers.Of(peer).base_step = base;
    peers.Of(peer).stepped = true;
  }
  peers.Run({0, 1}, base + 1);
  peers.Pass(absl::Milliseconds(500));
}

TEST(PeerRules, StepsThatNobodyHoldsAnyMoreAreAnIncidentOfTheirOwn) {
  ScriptedPeers peers = RunningPeers(2);
  peers.Run({0, 1}, 9);
  peers.Of(0).state->step = 10;
  peers.Say(0);
  peers.Restart(0);
  peers.Restart(1);
  GoOnFrom(peers, 3);
  const std::vector<IncidentRecord> lost = LostSteps(peers);
  ASSERT_THAT(lost, SizeIs(1));
  EXPECT_EQ(lost[0].resumed_step, 3);
  EXPECT_EQ(lost[0].repeated_steps, 7);
}

TEST(PeerRules, StepsThatTheControllerKnewOfAreLostWhereTheCoordinatorHasEndedToo) {
  for (const std::int64_t settled : {8, 3}) {
    ScriptedPeers peers(2, 2, V(1), settled);
    peers.Say({0, 1});
    GoOnFrom(peers, 3);
    std::vector<std::int64_t> repeated;
    for (const IncidentRecord& lost : LostSteps(peers)) repeated.push_back(lost.repeated_steps);
    EXPECT_EQ(repeated, settled == 8 ? std::vector<std::int64_t>{5} : std::vector<std::int64_t>());
  }
}

TEST(PeerRules, AViewThatIsAdoptedHasLostNothing) {
  ScriptedPeers peers(2, 2, V(1), 35);
  const View view = ScriptedPeers::PeerView(V(1), {0, 1});
  for (const int peer : {0, 1}) {
    peers.Hold(peer, view, 35);
    peers.Of(peer).base_step = 0;
    peers.Of(peer).stepped = true;
  }
  peers.Say({0, 1});
  peers.Pass(absl::Milliseconds(500));
  ASSERT_EQ(peers.Newest().number, V(1));
  EXPECT_THAT(LostSteps(peers), SizeIs(0));
}

TEST(PeerRules, WhoeverLivesHoldsAllThatIsSettled) {
  ScriptedPeers peers = RunningPeers(2);
  peers.Run({0, 1}, 9);
  peers.Refuse(1);
  peers.Of(0).base_step = 9;
  peers.Of(0).stepped = true;
  peers.Run({0}, 10);
  EXPECT_THAT(LostSteps(peers), SizeIs(0));
}

TEST(PeerRules, ARecoveryIsToldOfOnceAndNeverRepeatsFewerThanNoSteps) {
  ScriptedPeers peers = RunningPeers(2);
  peers.Refuse(1);
  peers.Of(0).base_step = 99;
  peers.Of(0).stepped = true;
  peers.Run({0}, 100);
  EXPECT_EQ(peers.Look().incidents[0].recovery, absl::ZeroDuration());
  EXPECT_EQ(peers.Look().incidents[0].repeated_steps, 0);
  peers.Pass(absl::Milliseconds(500));
  EXPECT_EQ(peers.Look().incidents[0].recovery, absl::ZeroDuration());
}

TEST(PeerRules, AnExitIsToldWithTheNewestLossOfItsPodAndOnlyOnce) {
  ScriptedPeers peers = RunningPeers(3);
  peers.Refuse(1);
  peers.Run({0, 2});
  peers.Refuse(2);
  peers.Run({0});
  ASSERT_THAT(peers.Look().incidents, SizeIs(2));
  peers.Of(1).id.start = 1;
  peers.Of(1).last_exit = LastExit{0, 9, "first", 5};
  peers.Say(1);
  EXPECT_FALSE(peers.Look().incidents[1].exit) << "it is of another pod";
  ASSERT_TRUE(peers.Look().incidents[0].exit);
  peers.Of(1).id.start = 2;
  peers.Of(1).last_exit = LastExit{0, 9, "second", 6};
  peers.Say(1);
  EXPECT_EQ(peers.Look().incidents[0].exit->log_tail, "first");
}

}  // namespace
}  // namespace starling::membership
