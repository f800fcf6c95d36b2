// SPDX-License-Identifier: Apache-2.0
// Who is there, who is silent, who has ended: what a coordinator knows of its members' processes.
#include "trainer/membership/failure_detector.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace starling::membership {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using Heard = FailureDetector::Heard;

const MemberId kA{"a", 0};
const MemberId kLater{"a", 1};
const absl::Time kStart = absl::FromUnixSeconds(1000);

Pod PodOf(const std::string& uid, const std::string& role = "worker") {
  return {uid, "pod-" + uid, role, 0, "127.0.0.9", PodState::kLive};
}

Grant GrantOf(std::uint64_t incarnation, const std::vector<Pod>& roster) {
  return {incarnation, "boot", roster, 0};
}

Report ReportOf(const MemberId& id, std::uint64_t incarnation = 3) {
  Report report;
  report.id = id;
  report.highest_incarnation = incarnation;
  return report;
}

CoordinatorOptions OptionsOf() {
  CoordinatorOptions options;
  options.boot_id = "boot";
  options.heartbeat_timeout = absl::Seconds(1);
  options.takeover_timeout = absl::Seconds(30);
  options.takeover_timeout_with_witness = absl::Seconds(2);
  options.max_incidents = 3;
  return options;
}

// One that is granted incarnation 3 and knows the pods a and b.
class FailureDetectorTest : public testing::Test {
 protected:
  FailureDetectorTest() {
    detector_.OnTime(now_);
    EXPECT_TRUE(detector_.OnGrant(GrantOf(3, {PodOf("a"), PodOf("b")}), now_));
  }
  Heard Hear(const Report& report) { return detector_.OnReport(report.id.pod_uid, report, now_); }
  // Ticks come often.
  void Wait(absl::Duration duration) {
    for (absl::Duration gone; gone < duration; gone += absl::Milliseconds(100)) {
      now_ += absl::Milliseconds(100);
      detector_.OnTime(now_);
    }
  }
  Liveness LivenessOf(const MemberId& id, bool taken_over = true) const {
    return detector_.LivenessOf(id, taken_over, now_);
  }
  void Want(const std::vector<Pod>& pods) {
    desired_.pods = pods;
    ++desired_.sequence;
    EXPECT_TRUE(detector_.OnDesired(desired_));
  }
  bool HeardRoster(bool witness, const std::set<std::string>& in_a_view = {}) {
    waiting_.clear();
    return detector_.HeardRoster(
        witness, [&](const std::string& uid) { return in_a_view.contains(uid); }, "at risk", now_,
        waiting_);
  }

  absl::Time now_ = kStart;
  FailureDetector detector_{OptionsOf(), {"worker"}};
  Desired desired_;
  std::string waiting_;
};

TEST_F(FailureDetectorTest, AGrantCountsOnceAndIfItIsForThisProcess) {
  FailureDetector fresh(OptionsOf(), {"worker"});
  Grant other = GrantOf(3, {});
  other.boot_id = "another";
  EXPECT_FALSE(fresh.OnGrant(other, now_));
  EXPECT_FALSE(fresh.OnGrant(GrantOf(0, {}), now_));
  EXPECT_EQ(fresh.incarnation(), 0u);
  EXPECT_FALSE(fresh.OnDesired({})) << "before any grant";
  EXPECT_EQ(fresh.OnReport("a", ReportOf(kA), now_), Heard::kNothing);
  EXPECT_TRUE(fresh.PodsToDial().empty());
  EXPECT_TRUE(fresh.OnGrant(GrantOf(4, {PodOf("a"), PodOf("s", "parameter-server")}), now_));
  EXPECT_FALSE(fresh.OnGrant(GrantOf(5, {}), now_));
  EXPECT_EQ(fresh.incarnation(), 4u);
  EXPECT_EQ(fresh.FindPod("s"), nullptr) << "of another role";
  EXPECT_NE(fresh.FindPod("a"), nullptr);
}

TEST_F(FailureDetectorTest, WhatIsWantedIsWholeAndTheNewestWins) {
  Want({PodOf("a"), PodOf("b")});
  detector_.OnConnected("b");
  Want({PodOf("a")});
  EXPECT_EQ(detector_.FindPod("b"), nullptr);
  EXPECT_EQ(detector_.FindProcess("b"), nullptr);
  Desired older = desired_;
  --older.sequence;
  EXPECT_FALSE(detector_.OnDesired(older));
  EXPECT_TRUE(detector_.OnDesired(desired_)) << "the same once more is no harm";
  Desired next = desired_;
  next.lease_transition = 1;
  next.sequence = 0;
  EXPECT_TRUE(detector_.OnDesired(next)) << "of another controller, which counts anew";
}

TEST_F(FailureDetectorTest, OnlyWhoIsConnectedAndOfUsIsHeard) {
  EXPECT_EQ(Hear(ReportOf(kA)), Heard::kNothing) << "not connected";
  EXPECT_EQ(LivenessOf(kA), Liveness::kSilent);
  EXPECT_EQ(LivenessOf(kA, /*taken_over=*/false), Liveness::kUnclear);
  detector_.OnConnected("a");
  EXPECT_EQ(detector_.OnReport("a", ReportOf({"b", 0}), now_), Heard::kNothing) << "of another pod";
  detector_.OnConnected("x");
  EXPECT_EQ(Hear(ReportOf({"x", 0})), Heard::kNothing) << "of no pod of ours";
  EXPECT_EQ(Hear(ReportOf(kA)), Heard::kReport);
  EXPECT_EQ(LivenessOf(kA), Liveness::kReporting);
  EXPECT_EQ(detector_.ReportOf(kA)->id, kA);
  EXPECT_EQ(detector_.ReportOf(kLater), nullptr);
}

TEST_F(FailureDetectorTest, WhoHasNotHeardOfThisIncarnationIsASignOfLifeOnly) {
  detector_.OnConnected("a");
  EXPECT_EQ(Hear(ReportOf(kA, 2)), Heard::kSignOfLife);
  EXPECT_EQ(detector_.ReportOf(kA), nullptr);
  EXPECT_EQ(Hear(ReportOf(kA, 3)), Heard::kReport);
  EXPECT_FALSE(detector_.superseded());
  EXPECT_FALSE(detector_.PodsToDial().empty());
  Hear(ReportOf(kA, 4));
  EXPECT_TRUE(detector_.superseded());
  EXPECT_TRUE(detector_.PodsToDial().empty());
}

TEST_F(FailureDetectorTest, WithoutTheIncarnationRuleItLeadsOnThoughAnotherHasTakenOver) {
  CoordinatorOptions options = OptionsOf();
  options.rules.refuse_lower_incarnation = false;
  FailureDetector gullible(options, {"worker"});
  gullible.OnGrant(GrantOf(3, {PodOf("a")}), now_);
  gullible.OnConnected("a");
  EXPECT_EQ(gullible.OnReport("a", ReportOf(kA, 4), now_), Heard::kReport);
  EXPECT_FALSE(gullible.superseded());
}

TEST_F(FailureDetectorTest, ALaterProcessOfAPodProvesThatTheOneBeforeHasEnded) {
  detector_.OnConnected("a");
  Hear(ReportOf(kA));
  detector_.processes().at("a").held_until = now_ + absl::Seconds(5);
  EXPECT_FALSE(detector_.Terminated(kA));
  EXPECT_EQ(Hear(ReportOf(kLater, 2)), Heard::kSignOfLife);
  EXPECT_EQ(LivenessOf(kA), Liveness::kUnclear) << "it does not speak for the one before";
  EXPECT_EQ(Hear(ReportOf(kLater)), Heard::kNewProcess);
  EXPECT_TRUE(detector_.Terminated(kA));
  EXPECT_FALSE(detector_.Terminated(kLater));
  EXPECT_EQ(detector_.processes().at("a").held_until, absl::InfinitePast());
  EXPECT_EQ(Hear(ReportOf(kA)), Heard::kSignOfLife) << "a process of the past";
  EXPECT_TRUE(detector_.FindProcess("a")->outdated);
  detector_.OnConnected("a");
  EXPECT_EQ(Hear(ReportOf(kA, 2)), Heard::kSignOfLife);
  EXPECT_EQ(LivenessOf(kLater), Liveness::kReporting) << "of its pod, whatever it has heard of";
  EXPECT_NE(detector_.ReportOf(kLater), nullptr);
  EXPECT_EQ(Hear(ReportOf(kLater)), Heard::kReport);
  EXPECT_FALSE(detector_.FindProcess("a")->outdated);
}

TEST_F(FailureDetectorTest, SilenceBeginsAfterTheHeartbeatTimeoutAndARefusalIsSilenceAtOnce) {
  detector_.OnConnected("a");
  Hear(ReportOf(kA));
  Wait(absl::Seconds(1));
  EXPECT_EQ(LivenessOf(kA), Liveness::kReporting);
  Wait(absl::Milliseconds(100));
  EXPECT_EQ(LivenessOf(kA), Liveness::kSilent);
  Hear(ReportOf(kA));
  EXPECT_FALSE(detector_.OnRefused("a")) << "it is connected";
  EXPECT_TRUE(detector_.OnDisconnected("a", now_));
  EXPECT_EQ(LivenessOf(kA), Liveness::kUnclear);
  EXPECT_TRUE(detector_.OnRefused("a"));
  EXPECT_EQ(LivenessOf(kA), Liveness::kSilent);
  detector_.OnConnected("a");
  EXPECT_EQ(LivenessOf(kA), Liveness::kSilent) << "who is it?";
  Hear(ReportOf(kA));
  EXPECT_EQ(LivenessOf(kA), Liveness::kReporting);
}

TEST_F(FailureDetectorTest, ANewConnectionSaysNothingBeforeItsFirstReport) {
  detector_.OnConnected("a");
  Hear(ReportOf(kA));
  detector_.OnConnected("a");
  EXPECT_EQ(LivenessOf(kA), Liveness::kUnclear);
}

TEST_F(FailureDetectorTest, NothingIsKnownOfPodsThatNobodyHasMet) {
  EXPECT_FALSE(detector_.OnDisconnected("a", now_));
  EXPECT_FALSE(detector_.OnRefused("a"));
  EXPECT_EQ(detector_.FindProcess("a"), nullptr);
}

TEST_F(FailureDetectorTest, ItsOwnFreezeIsNobodysSilence) {
  detector_.OnConnected("a");
  Report aborted = ReportOf(kA);
  aborted.phase = Phase::kAborted;
  Hear(aborted);
  now_ += absl::Milliseconds(300);
  EXPECT_EQ(detector_.OnTime(now_), absl::ZeroDuration());
  now_ += absl::Seconds(20);
  EXPECT_EQ(detector_.OnTime(now_), absl::Seconds(20));
  EXPECT_EQ(LivenessOf(kA), Liveness::kReporting);
  EXPECT_FALSE(HeardRoster(/*witness=*/true)) << "the time of the takeover stood still, too";
  Wait(absl::Seconds(2));
  EXPECT_TRUE(HeardRoster(/*witness=*/true));
}

TEST_F(FailureDetectorTest, PodsThatHaveEndedOrAreGoneAreTerminatedAndNotDialled) {
  std::vector<Pod> pods = {PodOf("a"), PodOf("b"), PodOf("c")};
  pods[1].state = PodState::kTerminated;
  pods[2].ip.clear();
  Want(pods);
  EXPECT_FALSE(detector_.Terminated(kA));
  EXPECT_TRUE(detector_.Terminated({"b", 0}));
  EXPECT_EQ(LivenessOf({"b", 0}), Liveness::kGone);
  EXPECT_TRUE(detector_.Terminated({"gone", 0}));
  const auto dial = detector_.PodsToDial();
  ASSERT_THAT(dial, SizeIs(1));
  EXPECT_EQ(dial.at("a").ip, "127.0.0.9");
  EXPECT_EQ(dial.at("a").role, "worker");
}

TEST_F(FailureDetectorTest, WhoIsDrainedGoneOrAskedToLeaveIsLeaving) {
  std::vector<Pod> pods = {PodOf("a"), PodOf("b")};
  pods[1].state = PodState::kDraining;
  Want(pods);
  EXPECT_FALSE(detector_.IsLeaving(kA));
  EXPECT_TRUE(detector_.IsLeaving({"b", 0}));
  EXPECT_TRUE(detector_.IsLeaving({"gone", 0}));
  detector_.OnConnected("a");
  Hear(ReportOf(kA));
  EXPECT_FALSE(detector_.IsLeaving(kA));
  Report leaving = ReportOf(kA);
  leaving.leaving = true;
  Hear(leaving);
  EXPECT_TRUE(detector_.IsLeaving(kA));
}

TEST_F(FailureDetectorTest, AllAreGoneWhenTheJobIsFinishedAndNobodyAnswers) {
  std::vector<Pod> pods = {PodOf("a"), PodOf("b"), PodOf("c")};
  pods[1].state = PodState::kTerminated;
  pods[2].ip.clear();
  Want(pods);
  EXPECT_FALSE(detector_.AllGone());
  desired_.finished = true;
  Want(pods);
  EXPECT_TRUE(detector_.finished());
  EXPECT_FALSE(detector_.AllGone()) << "nobody knows of a";
  detector_.OnConnected("a");
  Hear(ReportOf(kA));
  EXPECT_FALSE(detector_.AllGone());
  detector_.OnDisconnected("a", now_);
  EXPECT_FALSE(detector_.AllGone());
  detector_.OnRefused("a");
  EXPECT_TRUE(detector_.AllGone());
}

TEST_F(FailureDetectorTest, TheRosterIsHeardWhenEveryoneHasReportedOrEnded) {
  EXPECT_FALSE(HeardRoster(/*witness=*/true));
  EXPECT_THAT(waiting_, HasSubstr("pod-a, pod-b"));
  detector_.OnConnected("a");
  Hear(ReportOf(kA));
  EXPECT_FALSE(HeardRoster(/*witness=*/true));
  EXPECT_THAT(waiting_, HasSubstr("waits for pod-b to report"));
  std::vector<Pod> pods = {PodOf("a"), PodOf("b")};
  pods[1].state = PodState::kTerminated;
  Want(pods);
  EXPECT_TRUE(HeardRoster(/*witness=*/true));
  EXPECT_THAT(waiting_, IsEmpty());
  EXPECT_THAT(detector_.assumed_terminated(), IsEmpty());
}

TEST_F(FailureDetectorTest, TheFirstCoordinatorOfAJobWaitsForNobody) {
  FailureDetector first(OptionsOf(), {"worker"});
  first.OnTime(now_);
  first.OnGrant(GrantOf(1, {PodOf("a")}), now_);
  EXPECT_TRUE(first.HeardRoster(
      false, [](const std::string&) { return true; }, "", now_, waiting_));
  EXPECT_THAT(first.assumed_terminated(), IsEmpty());
  FailureDetector second(OptionsOf(), {"worker"});
  second.OnTime(now_);
  second.OnGrant(GrantOf(2, {PodOf("a")}), now_);
  EXPECT_FALSE(second.HeardRoster(
      false, [](const std::string&) { return true; }, "", now_, waiting_));
}

TEST_F(FailureDetectorTest, WithoutAWitnessItWaitsLongerAndThenTellsWhatIsAtRisk) {
  Wait(absl::Seconds(29.9));
  EXPECT_FALSE(HeardRoster(/*witness=*/false));
  Wait(absl::Milliseconds(100));
  EXPECT_TRUE(HeardRoster(/*witness=*/false));
  EXPECT_THAT(detector_.assumed_terminated(), ElementsAre("a", "b"));
  EXPECT_TRUE(detector_.Terminated(kA));
  ASSERT_THAT(detector_.incidents(), SizeIs(1));
  const IncidentRecord& risk = detector_.incidents()[0].record;
  EXPECT_EQ(risk.reason, "StepsAtRisk");
  EXPECT_EQ(risk.pod, "pod-a");
  EXPECT_EQ(risk.time, now_);
  EXPECT_EQ(risk.recovery, absl::ZeroDuration());
  EXPECT_EQ(risk.message, "pod-a, pod-b did not answer in time and counts as ended; at risk");
  // Until they report and the owner lets them.
  detector_.OnConnected("a");
  Hear(ReportOf(kA));
  EXPECT_TRUE(detector_.Terminated(kA));
  detector_.TakeBack("a");
  EXPECT_FALSE(detector_.Terminated(kA));
}

TEST_F(FailureDetectorTest, WithAWitnessOnlyMembersOfViewsAreARiskAndOthersOnceTheyHoldAState) {
  Wait(absl::Seconds(2));
  EXPECT_TRUE(HeardRoster(/*witness=*/true, {"a"}));
  EXPECT_THAT(detector_.assumed_terminated(), ElementsAre("a", "b"));
  ASSERT_THAT(detector_.incidents(), SizeIs(1));
  EXPECT_EQ(detector_.incidents()[0].record.pod, "pod-a");
  const absl::Time since = now_;
  Wait(absl::Seconds(1));
  detector_.SettleDoubt("a", true);
  EXPECT_THAT(detector_.incidents(), SizeIs(1)) << "there was no doubt about it";
  detector_.SettleDoubt("b", true);
  ASSERT_THAT(detector_.incidents(), SizeIs(2));
  EXPECT_EQ(detector_.incidents()[1].record.pod, "pod-b");
  EXPECT_EQ(detector_.incidents()[1].record.time, since);
  detector_.SettleDoubt("b", true);
  EXPECT_THAT(detector_.incidents(), SizeIs(2));
}

TEST_F(FailureDetectorTest, ADoubtIsGoneWithAReportWithoutAStateOrToldAfterTheLongTimeout) {
  Wait(absl::Seconds(2));
  HeardRoster(/*witness=*/true);
  detector_.SettleDoubt("a", /*holds_state=*/false);
  Wait(absl::Seconds(27.9));
  EXPECT_THAT(detector_.incidents(), IsEmpty());
  Wait(absl::Milliseconds(100));
  ASSERT_THAT(detector_.incidents(), SizeIs(1));
  EXPECT_EQ(detector_.incidents()[0].record.pod, "pod-b");
  Wait(absl::Seconds(1));
  EXPECT_THAT(detector_.incidents(), SizeIs(1)) << "once";
}

TEST_F(FailureDetectorTest, WhoHasEndedOrHasNoAddressYetLeavesNoDoubt) {
  std::vector<Pod> pods = {PodOf("a"), PodOf("b")};
  pods[1].ip.clear();
  Want(pods);
  Wait(absl::Seconds(2));
  HeardRoster(/*witness=*/true);
  Want({PodOf("b")});
  Wait(absl::Seconds(40));
  EXPECT_THAT(detector_.incidents(), IsEmpty());
}

TEST_F(FailureDetectorTest, ALossIsNotedOnceUntilTheMemberIsBack) {
  detector_.OnConnected("a");
  Hear(ReportOf(kA));
  Wait(absl::Seconds(2));
  EXPECT_EQ(detector_.NoteLoss(kA, "pod-a", "Worker", Liveness::kUnclear, now_), nullptr);
  const Incident* silent = detector_.NoteLoss(kA, "pod-a", "Worker", Liveness::kSilent, now_);
  ASSERT_NE(silent, nullptr);
  EXPECT_EQ(silent->id, kA);
  EXPECT_EQ(silent->record.reason, "WorkerSilent");
  EXPECT_EQ(silent->record.message, "it stopped answering");
  EXPECT_EQ(silent->record.pod, "pod-a");
  EXPECT_EQ(silent->record.time, now_);
  EXPECT_EQ(silent->record.silence, absl::Seconds(2));
  EXPECT_EQ(silent->record.detection, absl::Seconds(2));
  EXPECT_EQ(detector_.NoteLoss(kA, "pod-a", "Worker", Liveness::kSilent, now_), nullptr);
  EXPECT_EQ(detector_.NoteLoss(kA, "pod-a", "Worker", Liveness::kReporting, now_), nullptr);
  EXPECT_NE(detector_.NoteLoss(kA, "pod-a", "Worker", Liveness::kSilent, now_), nullptr);
}

TEST_F(FailureDetectorTest, ALossIsDetectedFromTheEndOfTheConnectionAndToldByTheNextProcess) {
  detector_.OnConnected("a");
  Hear(ReportOf(kA));
  Wait(absl::Milliseconds(500));
  detector_.OnDisconnected("a", now_);
  Wait(absl::Milliseconds(300));
  detector_.OnDisconnected("a", now_);  // a connection that had not spoken
  detector_.OnRefused("a");
  const Incident* lost = detector_.NoteLoss(kA, "pod-a", "Server", Liveness::kSilent, now_);
  ASSERT_NE(lost, nullptr);
  EXPECT_EQ(lost->record.reason, "ServerLost");
  EXPECT_EQ(lost->record.message, "its process ended");
  EXPECT_EQ(lost->record.silence, absl::Milliseconds(800));
  EXPECT_EQ(lost->record.detection, absl::Milliseconds(300));
  EXPECT_FALSE(lost->record.exit);

  Report next = ReportOf(kLater);
  next.last_exit = LastExit{0, 9, "words", 1};
  detector_.OnConnected("a");
  Hear(next);
  EXPECT_EQ(detector_.incidents()[0].record.exit->signal, 9);
  next.last_exit = LastExit{0, 11, "others", 1};
  Hear(next);
  EXPECT_EQ(detector_.incidents()[0].record.exit->signal, 9) << "it says so once";
}

TEST_F(FailureDetectorTest, WhoIsReplacedBeforeItWasMissedIsLostWithItsExit) {
  detector_.OnConnected("a");
  Hear(ReportOf(kA));
  Report next = ReportOf(kLater);
  next.last_exit = LastExit{3, 0, "words", 1};
  Hear(next);
  Wait(absl::Milliseconds(100));
  const Incident* lost = detector_.NoteLoss(kA, "pod-a", "Worker", Liveness::kGone, now_);
  ASSERT_NE(lost, nullptr);
  EXPECT_EQ(lost->record.reason, "WorkerLost");
  EXPECT_EQ(lost->record.exit->exit_code, 3);
  EXPECT_EQ(lost->record.detection, absl::ZeroDuration());
}

TEST_F(FailureDetectorTest, AnExitIsToldOnceAndOnlyWithALossOfAnEarlierProcess) {
  detector_.OnConnected("a");
  Hear(ReportOf(kA));
  for (int i = 0; i < 2; ++i) {  // lost, back, and lost again
    detector_.NoteLoss(kA, "pod-a", "Worker", Liveness::kReporting, now_);
    ASSERT_NE(detector_.NoteLoss(kA, "pod-a", "Worker", Liveness::kSilent, now_), nullptr);
  }
  Report next = ReportOf(kLater);
  next.last_exit = LastExit{0, 9, "words", 1};
  Hear(next);
  Hear(next);
  EXPECT_TRUE(detector_.incidents()[1].record.exit);
  EXPECT_FALSE(detector_.incidents()[0].record.exit) << "then it was only silent";
}

// A successor knows of it from the view that others tell of.
TEST_F(FailureDetectorTest, WhoWasLostBeforeItWasEverHeardIsToldOfByItsSuccessorAndNotByItself) {
  for (const MemberId& lost : {kA, kLater}) {
    FailureDetector detector(OptionsOf(), {"worker"});
    detector.OnGrant(GrantOf(3, {PodOf("a")}), now_);
    ASSERT_NE(detector.NoteLoss(lost, "pod-a", "Worker", Liveness::kSilent, now_), nullptr);
    Report report = ReportOf(kLater);
    report.last_exit = LastExit{0, 9, "words", 1};
    detector.OnConnected("a");
    detector.OnReport("a", report, now_);
    EXPECT_EQ(detector.incidents()[0].record.exit.has_value(), lost == kA);
  }
}

TEST_F(FailureDetectorTest, TheLastIncidentsAreKeptAndARepairIsToldToThoseThatLackOne) {
  for (int i = 0; i < 4; ++i) {
    detector_.NoteLoss({"a", i}, "pod-a", "Worker", Liveness::kGone, now_);
  }
  ASSERT_THAT(detector_.incidents(), SizeIs(3));
  EXPECT_EQ(detector_.incidents()[0].id.start, 1);
  detector_.incidents()[0].record.recovery = absl::Seconds(1);
  detector_.NoteRepair(7, "two go on");
  detector_.NoteRepair(8, "one goes on");
  EXPECT_EQ(detector_.incidents()[0].repaired_by, 0u);
  EXPECT_EQ(detector_.incidents()[1].repaired_by, 7u);
  EXPECT_EQ(detector_.incidents()[1].record.message, "its process ended; two go on");
  detector_.NoteLoss({"b", 0}, "pod-b", "Worker", Liveness::kGone, now_);
  detector_.NoteRepair(9, "");
  EXPECT_EQ(detector_.incidents()[2].repaired_by, 9u);
  EXPECT_EQ(detector_.incidents()[2].record.message, "its process ended");
}

TEST_F(FailureDetectorTest, TheSummaryTellsOfEveryoneWhoHasReported) {
  detector_.OnConnected("a");
  Report report = ReportOf(kA);
  report.phase = Phase::kRun;
  report.settled_step = 12;
  Hear(report);
  detector_.OnConnected("b");  // has not reported
  detector_.processes().at("a").not_admitted = "why not";
  Wait(absl::Milliseconds(300));
  detector_.NoteLoss({"b", 0}, "pod-b", "Worker", Liveness::kGone, now_);
  Summary summary;
  detector_.FillSummary(
      summary, {"a"}, [](const MemberId& id) { return id == kA; }, now_);
  EXPECT_THAT(summary.incidents, SizeIs(1));
  EXPECT_FALSE(summary.superseded);
  ASSERT_THAT(summary.members, SizeIs(1));
  const MemberState& member = summary.members[0];
  EXPECT_EQ(member.id, kA);
  EXPECT_EQ(member.pod, "pod-a");
  EXPECT_EQ(member.phase, Phase::kRun);
  EXPECT_TRUE(member.connected);
  EXPECT_EQ(member.silent, absl::Milliseconds(300));
  EXPECT_EQ(member.settled_step, 12);
  EXPECT_TRUE(member.in_view);
  EXPECT_TRUE(member.drained);
  EXPECT_EQ(member.refused, "why not");

  detector_.OnConnected("a");
  Summary later;
  detector_.FillSummary(
      later, {}, [](const MemberId&) { return false; }, now_);
  EXPECT_FALSE(later.members[0].connected);
  EXPECT_FALSE(later.members[0].in_view);
  EXPECT_FALSE(later.members[0].drained);

  const Summary news = NewsOf(summary);
  EXPECT_EQ(news.members[0].silent, absl::ZeroDuration());
  EXPECT_EQ(news.members[0].settled_step, 0);
}

// A and b are in a view, and report ten times a second what each is doing.
class HangTest : public FailureDetectorTest {
 protected:
  HangTest() {
    for (Report& report : reports_) detector_.OnConnected(report.id.pod_uid);
    Says(0, Standing::Kind::kWorks);
    Says(1, Standing::Kind::kWaits);
  }
  void Says(std::size_t who, Standing::Kind kind) {
    reports_[who].standing = {
        .kind = kind, .where = "compute", .usual = absl::Milliseconds(50), .stretches = 100};
  }
  // Whether one was found to hang meanwhile.
  bool Pass(absl::Duration time, bool b_speaks = true) {
    bool found = false;
    for (absl::Duration gone; gone < time; gone += absl::Milliseconds(100)) {
      Wait(absl::Milliseconds(100));
      for (Report& report : reports_) {
        report.standing.since += absl::Milliseconds(100);
        if (report.id.pod_uid == "b" && !b_speaks) continue;
        Hear(report);
      }
      found = detector_.NoticeHang(view_, now_) || found;
    }
    return found;
  }

  std::vector<Report> reports_ = {ReportOf(kA), ReportOf({"b", 0})};
  View view_ =
      ViewOfPeers(MakeViewNumber(3, 1), {{kA, "", 0, "pod-a"}, {{"b", 0}, "", 0, "pod-b"}});
};

TEST_F(HangTest, WhoeverHangsCountsAsSilentUntilAnotherProcessOfItsPodHasCome) {
  EXPECT_FALSE(Pass(absl::Milliseconds(1900)));
  EXPECT_EQ(LivenessOf(kA), Liveness::kReporting);
  EXPECT_TRUE(Pass(absl::Milliseconds(100)));
  EXPECT_EQ(LivenessOf(kA), Liveness::kSilent);
  EXPECT_EQ(LivenessOf({"b", 0}), Liveness::kReporting);
  EXPECT_FALSE(Pass(absl::Seconds(10))) << "it is found once";
  EXPECT_EQ(LivenessOf(kA), Liveness::kSilent) << "whatever it says";
  Hear(ReportOf(kLater));
  EXPECT_EQ(LivenessOf(kLater), Liveness::kReporting);
}

TEST_F(HangTest, TellsHowLongItStoodAndWhere) {
  Pass(absl::Seconds(2));
  const Incident* told = detector_.NoteLoss(kA, "pod-a", "Worker", LivenessOf(kA), now_);
  ASSERT_NE(told, nullptr);
  EXPECT_EQ(told->record.reason, "WorkerHung");
  EXPECT_EQ(told->record.detection, absl::Seconds(2));
  EXPECT_EQ(told->record.message,
            "it answers, but has stood still for 2.00 s in \"compute\" (usually 0.05 s); it "
            "writes where its threads are to its log, and its process ends");
  EXPECT_EQ(detector_.NoteLoss(kA, "pod-a", "Worker", LivenessOf(kA), now_), nullptr);
  Hear([] {
    Report later = ReportOf(kLater);
    later.last_exit = LastExit{.exit_code = 200, .log_tail = "#0 in a loop"};
    return later;
  }());
  EXPECT_EQ(detector_.incidents().back().record.exit->log_tail, "#0 in a loop");
}

TEST_F(HangTest, AtMostOneIsFoundAtATime) {
  Pass(absl::Seconds(2));
  Says(1, Standing::Kind::kWorks);
  reports_[1].standing.since = absl::Minutes(1);
  EXPECT_FALSE(Pass(absl::Milliseconds(4900)));
  EXPECT_TRUE(Pass(absl::Milliseconds(100)));
  EXPECT_EQ(LivenessOf({"b", 0}), Liveness::kSilent);
}

TEST_F(HangTest, ItsOwnFreezeIsNobodysHang) {
  Pass(absl::Seconds(1));
  now_ += absl::Seconds(20);
  detector_.OnTime(now_);
  reports_[0].standing.since = absl::Seconds(3);  // said before, and read only now
  EXPECT_FALSE(Pass(absl::Milliseconds(900)));
  EXPECT_TRUE(Pass(absl::Milliseconds(200))) << "if it says so still";
}

TEST_F(HangTest, OldReportsProveNothing) {
  Pass(absl::Milliseconds(1400));
  EXPECT_FALSE(Pass(absl::Seconds(15), /*b_speaks=*/false)) << "nobody is its witness";
  EXPECT_TRUE(Pass(absl::Milliseconds(100)));
}

TEST_F(HangTest, WhoSaysNothingOfItselfIsNotJudged) {
  reports_[0].standing.where.clear();
  EXPECT_FALSE(Pass(absl::Minutes(1)));
  reports_[0].standing.where = "compute";
  reports_[1].standing.where.clear();
  reports_[0].standing.since = absl::ZeroDuration();
  EXPECT_FALSE(Pass(absl::Seconds(19))) << "nor is it a witness";
}

TEST_F(HangTest, WhoHangsAndStaysIsToldAsSilent) {
  Pass(absl::Seconds(2));
  const auto told = [&] {
    Summary summary;
    detector_.FillSummary(
        summary, {}, [](const MemberId&) { return true; }, now_);
    return summary.members.front();
  };
  EXPECT_TRUE(told().connected);
  Pass(absl::Milliseconds(5100));
  EXPECT_FALSE(told().connected);
  EXPECT_GT(told().silent, absl::Seconds(5));
}

}  // namespace
}  // namespace starling::membership
