// SPDX-License-Identifier: Apache-2.0
#include "trainer/membership/peer_coordinator.h"

#include <numeric>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/membership/member.h"

namespace starling::membership {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

// A coordinator and real members that hear each other at once; the test decides who lives and when
// steps are made.
class Fleet {
 public:
  explicit Fleet(int workers, const Rules& rules = {}) : rules_(rules) {
    for (int i = 0; i < workers; ++i) AddPod();
    desired_.workers = workers;
    NewCoordinator();
  }

  void NewCoordinator() {
    PeerCoordinator::Options options;
    options.boot_id = "boot" + std::to_string(incarnation_ + 1);
    options.rules = rules_;
    coordinator_ = std::make_unique<PeerCoordinator>(options);
    ++incarnation_;
    connected_.clear();
    Grant grant;
    grant.incarnation = incarnation_;
    grant.boot_id = options.boot_id;
    grant.roster = pods_;
    grant.newest_view = seen_;
    coordinator_->OnGrant(grant, now_);
    Want();
  }
  void AddPod() {
    const std::string uid = "uid" + std::to_string(pods_.size());
    pods_.push_back({uid, "w" + std::to_string(pods_.size()), "worker",
                     static_cast<std::int64_t>(pods_.size()), "127.0.0.9", PodState::kLive});
  }
  void Want() {
    desired_.pods = pods_;
    ++desired_.sequence;
    coordinator_->OnDesired(desired_, now_);
  }
  // A process of this pod starts and is connected.
  void Start(int pod, std::optional<LastExit> last_exit = {}, const std::string& identity = "") {
    const std::string& uid = pods_[static_cast<std::size_t>(pod)].uid;
    const std::int64_t start = starts_[pod]++;
    members_.insert_or_assign(pod, Member({{uid, start}, identity, std::move(last_exit), rules_}));
    Connect(pod);
  }
  void Connect(int pod) {
    coordinator_->OnConnected(Uid(pod), now_);
    connected_.insert(pod);
    Settle();
  }
  void Kill(int pod) {
    members_.erase(pod);
    connected_.erase(pod);
    coordinator_->OnDisconnected(Uid(pod), now_);
    coordinator_->OnRefused(Uid(pod), now_);
    Settle();
  }
  void Abort(int pod, const std::vector<int>& unreachable) {
    std::vector<MemberId> ids;
    ids.reserve(unreachable.size());
    for (const int other : unreachable) ids.push_back(members_.at(other).MakeReport().id);
    Do(pod, members_.at(pod).OnBroken(members_.at(pod).view()->number, ids));
    Report(pod);
  }
  // All members of `pods` make a step.
  void Step(const std::vector<int>& pods) {
    Reduction reduction;
    bool first = true;
    for (const int pod : pods) {
      const Member& member = members_.at(pod);
      const ControlWord word = members_.at(pod).NextControlWord();
      reduction.view = member.view()->number;
      reduction.step = member.state()->step + 1;
      const auto fold = [&](auto field) {
        reduction.min.*field = first ? word.*field : std::min(reduction.min.*field, word.*field);
        reduction.max.*field = first ? word.*field : std::max(reduction.max.*field, word.*field);
      };
      fold(&ControlWord::candidate);
      fold(&ControlWord::checkpoint_turn);
      fold(&ControlWord::settings_generation);
      first = false;
    }
    for (const int pod : pods) Do(pod, members_.at(pod).OnReduced(reduction));
    Settle();
  }
  void Advance(absl::Duration by, const std::set<int>& mute = {}) {
    for (absl::Duration gone; gone < by; gone += absl::Milliseconds(100)) {
      now_ += absl::Milliseconds(100);
      for (const auto& [pod, member] : members_) {
        if (!mute.contains(pod) && connected_.contains(pod)) Report(pod);
      }
      coordinator_->OnTick(now_);
    }
    Settle(mute);
  }
  void Report(int pod) { coordinator_->OnReport(Uid(pod), members_.at(pod).MakeReport(), now_); }
  // Directives and reports flow until nothing changes.
  void Settle(const std::set<int>& mute = {}) {
    for (int round = 0; round < 8; ++round) {
      for (auto& [pod, member] : members_) {
        if (mute.contains(pod) || !connected_.contains(pod)) continue;
        Do(pod, member.OnDirective(coordinator_->DirectiveFor(Uid(pod))));
      }
      for (auto& [pod, member] : members_) {
        if (!mute.contains(pod) && connected_.contains(pod)) Report(pod);
      }
    }
    seen_ = Look().newest_view;
  }
  Summary Look() const { return coordinator_->MakeSummary(now_); }
  std::vector<int> Running() const {
    std::vector<int> running;
    for (const auto& [pod, member] : members_) {
      if (member.phase() == Phase::kRun) running.push_back(pod);
    }
    return running;
  }
  std::string Uid(int pod) const { return pods_[static_cast<std::size_t>(pod)].uid; }

  std::vector<Pod> pods_;
  std::map<int, Member> members_;
  std::unique_ptr<PeerCoordinator> coordinator_;
  Desired desired_;
  std::set<int> exited_;
  std::set<int> connected_;
  absl::Time now_ = absl::FromUnixSeconds(1000);
  std::uint64_t incarnation_ = 0;
  ViewNumber seen_ = 0;

 private:
  void Do(int pod, const Actions& actions) {
    for (const Action& action : actions) {
      if (const auto* send = std::get_if<SendSyncId>(&action)) {
        for (auto& [peer, member] : members_) {
          if (peer != pod) Do(peer, member.OnSyncId(send->sync_id));
        }
      } else if (const auto* copy = std::get_if<CopyState>(&action)) {
        Do(pod, members_.at(pod).OnCopied(copy->view));
      } else if (const auto* find = std::get_if<FindCheckpoint>(&action)) {
        Do(pod, members_.at(pod).OnCheckpointFound(find->view, std::nullopt));
      } else if (std::holds_alternative<Exit>(action)) {
        exited_.insert(pod);
      }
    }
  }

  const Rules rules_;
  std::map<int, std::int64_t> starts_;
};

Fleet Running(int workers) {
  Fleet fleet(workers);
  for (int i = 0; i < workers; ++i) fleet.Start(i);
  std::vector<int> all(static_cast<std::size_t>(workers));
  std::iota(all.begin(), all.end(), 0);
  fleet.Step(all);
  return fleet;
}

TEST(PeerCoordinator, TheFirstViewHoldsAllWorkersThatAreExpected) {
  Fleet fleet(3);
  fleet.Start(0);
  fleet.Start(1);
  EXPECT_EQ(fleet.Look().newest_view, 0U);
  EXPECT_THAT(fleet.Look().waiting, HasSubstr("2 of 3"));
  fleet.Start(2);
  EXPECT_THAT(fleet.Running(), ElementsAre(0, 1, 2));
  EXPECT_EQ(fleet.Look().newest_view, MakeViewNumber(1, 1));
  EXPECT_TRUE(fleet.Look().view_synced);
}

TEST(PeerCoordinator, PodsOfIPv6AreInTheViewWithAddressesThatCanBeDialled) {
  Fleet fleet(1);
  fleet.pods_[0].ip = "fd00::9";
  fleet.NewCoordinator();
  fleet.Start(0);
  ASSERT_NE(fleet.members_.at(0).view(), nullptr);
  EXPECT_EQ(fleet.members_.at(0).view()->members[0].address, "[fd00::9]:7072");
}

TEST(PeerCoordinator, ButItWaitsForNobodyForLongOnceThereAreEnough) {
  Fleet fleet(3);
  fleet.Start(0);
  fleet.Advance(absl::Seconds(1.5));
  EXPECT_THAT(fleet.Running(), ElementsAre(0));
}

TEST(PeerCoordinator, NothingStartsBelowTheMinimum) {
  Fleet fleet(3);
  fleet.desired_.min_workers = 2;
  fleet.Want();
  fleet.Start(0);
  fleet.Advance(absl::Seconds(10));
  EXPECT_THAT(fleet.Running(), ElementsAre());
  EXPECT_THAT(fleet.Look().waiting, HasSubstr("1 of at least 2"));
}

TEST(PeerCoordinator, AKilledWorkerIsLeftBehindAtOnce) {
  Fleet fleet = Running(3);
  fleet.Kill(1);
  EXPECT_THAT(fleet.Running(), ElementsAre(0, 2));
  ASSERT_THAT(fleet.Look().incidents, SizeIs(1));
  EXPECT_EQ(fleet.Look().incidents[0].reason, "WorkerLost");
  EXPECT_EQ(fleet.Look().incidents[0].pod, "w1");
  EXPECT_EQ(fleet.Look().incidents[0].message, "its process ended; 2 workers go on");
  EXPECT_FALSE(fleet.Look().incidents[0].recovery);

  fleet.now_ += absl::Milliseconds(30);
  fleet.Step({0, 2});
  EXPECT_EQ(fleet.Look().incidents[0].recovery, absl::Milliseconds(30));
  EXPECT_EQ(fleet.Look().incidents[0].repeated_steps, 1);
}

TEST(PeerCoordinator, DetectionCountsFromTheEndOfTheConnectionAndSilenceFromTheLastReport) {
  Fleet fleet = Running(2);
  fleet.now_ += absl::Milliseconds(80);
  fleet.members_.erase(1);
  fleet.coordinator_->OnDisconnected(fleet.Uid(1), fleet.now_);
  fleet.now_ += absl::Milliseconds(2);
  fleet.coordinator_->OnRefused(fleet.Uid(1), fleet.now_);
  ASSERT_THAT(fleet.Look().incidents, SizeIs(1));
  EXPECT_EQ(fleet.Look().incidents[0].detection, absl::Milliseconds(2));
  EXPECT_EQ(fleet.Look().incidents[0].silence, absl::Milliseconds(82));
}

TEST(PeerCoordinator, AnAddressThatAnswersAgainIsNotTheProcessThatWasThereBefore) {
  Fleet fleet = Running(3);
  fleet.Kill(1);
  fleet.coordinator_->OnConnected(fleet.Uid(1), fleet.now_);
  fleet.Step({0, 2});
  fleet.Step({0, 2});
  EXPECT_THAT(fleet.Running(), ElementsAre(0, 2));
  EXPECT_FALSE(fleet.Look().members[1].connected);
}

TEST(PeerCoordinator, TheReplacementJoinsWithoutAnInterruptionAndTellsHowTheOldOneEnded) {
  Fleet fleet = Running(3);
  fleet.Kill(1);
  fleet.Step({0, 2});
  fleet.Start(1, LastExit{0, 9, "last words", 5});
  EXPECT_THAT(fleet.Running(), ElementsAre(0, 2));
  fleet.Step({0, 2});
  EXPECT_THAT(fleet.Running(), ElementsAre(0, 1, 2));
  EXPECT_EQ(fleet.members_.at(1).state(), fleet.members_.at(0).state());
  ASSERT_THAT(fleet.Look().incidents, SizeIs(1));
  EXPECT_EQ(fleet.Look().incidents[0].exit->signal, 9);
  EXPECT_EQ(fleet.Look().incidents[0].exit->log_tail, "last words");
}

TEST(PeerCoordinator, ASilentWorkerIsLeftBehindAfterTheHeartbeatTimeoutAndReturnsAsALaggard) {
  Fleet fleet = Running(2);
  fleet.Advance(absl::Milliseconds(900), /*mute=*/{1});
  EXPECT_THAT(fleet.Look().incidents, SizeIs(0));
  fleet.Advance(absl::Milliseconds(300), /*mute=*/{1});
  ASSERT_THAT(fleet.Look().incidents, SizeIs(1));
  EXPECT_EQ(fleet.Look().incidents[0].reason, "WorkerSilent");
  fleet.Step({0});
  fleet.Settle();
  fleet.Step({0});
  EXPECT_THAT(fleet.Running(), ElementsAre(0, 1));
  EXPECT_EQ(fleet.members_.at(1).state(), fleet.members_.at(0).state());
}

TEST(PeerCoordinator, ItDoesNotTakeItsOwnFreezeForTheSilenceOfOthers) {
  Fleet fleet = Running(2);
  fleet.Advance(absl::Milliseconds(200));
  fleet.now_ += absl::Seconds(30);
  fleet.coordinator_->OnTick(fleet.now_);
  EXPECT_THAT(fleet.Look().incidents, SizeIs(0));
  fleet.Advance(absl::Milliseconds(1300), /*mute=*/{1});
  EXPECT_THAT(fleet.Look().incidents, SizeIs(1));
}

TEST(PeerCoordinator, ALoneWorkerThatRestartsIsWaivedAndRestores) {
  Fleet fleet = Running(1);
  fleet.Kill(0);
  EXPECT_THAT(fleet.Running(), ElementsAre());
  fleet.Start(0, LastExit{0, 9, "", 5});
  EXPECT_THAT(fleet.Running(), ElementsAre(0));
  EXPECT_TRUE(fleet.members_.at(0).view()->restore);
  EXPECT_THAT(fleet.members_.at(0).view()->waived, ElementsAre(MakeViewNumber(1, 1)));
}

TEST(PeerCoordinator, WithoutProofThatTheLastHoldersEndedItWaitsForThem) {
  Fleet fleet = Running(1);
  fleet.AddPod();
  fleet.Want();
  fleet.members_.erase(0);
  fleet.coordinator_->OnDisconnected(fleet.Uid(0), fleet.now_);
  fleet.coordinator_->OnRefused(fleet.Uid(0), fleet.now_);
  fleet.Start(1);
  fleet.Advance(absl::Seconds(3));
  EXPECT_THAT(fleet.Running(), ElementsAre());
  EXPECT_THAT(fleet.Look().waiting, HasSubstr("may be known only to workers that do not answer"));

  fleet.pods_[0].state = PodState::kTerminated;
  fleet.Want();
  fleet.Settle();
  EXPECT_THAT(fleet.Running(), ElementsAre(1));
}

TEST(PeerCoordinator, AWorkerMoreJoinsAtABoundary) {
  Fleet fleet = Running(2);
  fleet.AddPod();
  fleet.desired_.workers = 3;
  fleet.Want();
  fleet.Start(2);
  EXPECT_EQ(fleet.members_.at(0).view()->number, MakeViewNumber(1, 1));
  fleet.Step({0, 1});
  EXPECT_THAT(fleet.Running(), ElementsAre(0, 1, 2));
  EXPECT_EQ(fleet.members_.at(2).state()->step, 2);
  EXPECT_THAT(fleet.Look().incidents, SizeIs(0));
}

TEST(PeerCoordinator, AJoinerThatDiesBeforeTheBoundaryCostsNothing) {
  Fleet fleet = Running(2);
  fleet.AddPod();
  fleet.desired_.workers = 3;
  fleet.Want();
  fleet.Start(2);
  fleet.Kill(2);
  fleet.Step({0, 1});
  EXPECT_THAT(fleet.Running(), ElementsAre(0, 1));
  EXPECT_EQ(fleet.members_.at(0).state()->step, 2);
  EXPECT_THAT(fleet.Look().incidents, SizeIs(0));
}

TEST(PeerCoordinator, ADrainingWorkerLeavesAtABoundaryAndIsReleasedOnceTheRestIsSynced) {
  Fleet fleet = Running(3);
  fleet.pods_[1].state = PodState::kDraining;
  fleet.desired_.workers = 2;
  fleet.Want();
  fleet.Settle();
  EXPECT_THAT(fleet.Running(), ElementsAre(0, 1, 2));
  fleet.Step({0, 1, 2});
  EXPECT_THAT(fleet.Running(), ElementsAre(0, 2));
  EXPECT_TRUE(fleet.exited_.contains(1));
  EXPECT_TRUE(fleet.Look().members[1].drained);
  EXPECT_EQ(fleet.members_.at(0).state()->step, 2);
}

TEST(PeerCoordinator, ReplacementsJoinBeforeLeaversLeave) {
  Fleet fleet = Running(2);
  fleet.AddPod();
  fleet.Want();
  fleet.Start(2);
  fleet.pods_[0].state = PodState::kDraining;
  fleet.Want();
  fleet.Settle();
  fleet.Step({0, 1});
  EXPECT_THAT(fleet.Running(), ElementsAre(0, 1, 2));
  fleet.Settle();
  fleet.Step({0, 1, 2});
  EXPECT_THAT(fleet.Running(), ElementsAre(1, 2));
}

TEST(PeerCoordinator, ASuccessorThatHearsEveryoneAdoptsTheRunningView) {
  Fleet fleet = Running(2);
  fleet.NewCoordinator();
  fleet.Connect(0);
  EXPECT_THAT(fleet.Look().waiting, HasSubstr("w1"));
  fleet.Connect(1);
  EXPECT_THAT(fleet.Look().waiting, "");
  EXPECT_EQ(fleet.Look().newest_view, MakeViewNumber(1, 1));
  EXPECT_EQ(fleet.members_.at(0).view()->number, MakeViewNumber(1, 1));
  fleet.Step({0, 1});
  EXPECT_EQ(fleet.members_.at(0).state(), (StateId{MakeViewNumber(1, 1), 2}));
}

TEST(PeerCoordinator, ASuccessorPublishesNothingBeforeTheRosterHasReported) {
  for (const bool wait : {true, false}) {
    Rules rules;
    rules.roster_wait = wait;
    Fleet fleet(2, rules);
    fleet.Start(0);
    fleet.Start(1);
    fleet.Step({0, 1});
    fleet.Advance(absl::Seconds(1.5), /*mute=*/{1});  // 0 goes on without 1, and settles steps
    fleet.Step({0});
    fleet.Step({0});
    fleet.NewCoordinator();
    fleet.Connect(1);
    fleet.Advance(absl::Seconds(1.5));
    EXPECT_EQ(fleet.Look().newest_view > MakeViewNumber(2, 0), !wait);
  }
}

TEST(PeerCoordinator, AfterTheTakeoverTimeoutTheSilentCountAsEndedAndAnIncidentSaysWhatThatRisks) {
  Fleet fleet = Running(3);
  fleet.members_.erase(2);
  fleet.NewCoordinator();
  fleet.Connect(0);
  fleet.Connect(1);
  fleet.Advance(absl::Seconds(1.5));
  EXPECT_EQ(fleet.Look().newest_view, MakeViewNumber(1, 1));
  fleet.Advance(absl::Seconds(1));
  EXPECT_THAT(fleet.Running(), ElementsAre(0, 1));
  EXPECT_EQ(fleet.members_.at(0).view()->number, MakeViewNumber(2, 1));
  EXPECT_EQ(fleet.Look().incidents[0].reason, "StepsAtRisk");
}

TEST(PeerCoordinator, WhoHearsOfAHigherIncarnationPublishesNoMore) {
  Fleet fleet = Running(2);
  Directive newer;
  newer.incarnation = 7;
  fleet.members_.at(0).OnDirective(newer);
  fleet.Report(0);
  EXPECT_TRUE(fleet.Look().superseded);
  fleet.Kill(1);
  EXPECT_EQ(fleet.Look().newest_view, MakeViewNumber(1, 1));
  EXPECT_TRUE(fleet.coordinator_->PodsToDial().empty());
}

TEST(PeerCoordinator, AWorkerWhoseArithmeticDiffersIsNotAdmittedAndTheReasonIsTold) {
  Fleet fleet(2);
  fleet.Start(0, {}, "haswell/4.0");
  fleet.Start(1, {}, "skylake/4.0");
  fleet.Advance(absl::Seconds(1.5));
  EXPECT_THAT(fleet.Running(), ElementsAre(0));
  fleet.Step({0});
  fleet.Step({0});
  EXPECT_THAT(fleet.Running(), ElementsAre(0));
  EXPECT_THAT(fleet.Look().members[1].refused, HasSubstr("skylake/4.0"));
}

TEST(PeerCoordinator, AtTheSecondFailureByBlameAloneTheMostBlamedIsEvicted) {
  Fleet fleet = Running(3);
  fleet.Abort(0, {2});
  fleet.Abort(2, {0});
  fleet.Abort(1, {2});
  fleet.Settle();
  EXPECT_THAT(fleet.Running(), ElementsAre(0, 1, 2));
  fleet.Abort(0, {2});
  fleet.Abort(2, {0});
  fleet.Abort(1, {2});
  fleet.Settle();
  EXPECT_THAT(fleet.Running(), ElementsAre(0, 1));
  EXPECT_EQ(fleet.Look().incidents.back().reason, "WorkerUnreachable");
  EXPECT_EQ(fleet.Look().incidents.back().pod, "w2");
}

TEST(PeerCoordinator, OneAbortedMemberWaitsForTheOthersToSayWhoIsGone) {
  Fleet fleet = Running(3);
  fleet.Abort(0, {2});
  fleet.Settle();
  EXPECT_EQ(fleet.Look().newest_view, MakeViewNumber(1, 1));
  fleet.Advance(absl::Milliseconds(400));
  EXPECT_EQ(fleet.Look().newest_view, MakeViewNumber(1, 2));
}

TEST(PeerCoordinator, CheckpointTurnsComeWithTheIntervalWhileStepsAreMade) {
  Fleet fleet = Running(1);
  fleet.desired_.checkpoint_interval_ms = 1000;
  fleet.Want();
  fleet.Advance(absl::Seconds(0.5));
  EXPECT_EQ(fleet.coordinator_->DirectiveFor(fleet.Uid(0)).checkpoint_turn, 0);
  fleet.Advance(absl::Seconds(1));
  const std::int64_t turn = fleet.coordinator_->DirectiveFor(fleet.Uid(0)).checkpoint_turn;
  EXPECT_GT(turn, 0);
  fleet.Advance(absl::Seconds(5));
  EXPECT_EQ(fleet.coordinator_->DirectiveFor(fleet.Uid(0)).checkpoint_turn, turn)
      << "no step was made since";
}

TEST(PeerCoordinator, AHaltIsReportedOnceEveryMemberHasStopped) {
  Fleet fleet = Running(1);
  fleet.desired_.settings.generation = 2;
  fleet.desired_.settings.halt = true;
  fleet.Want();
  fleet.Settle();
  fleet.Step({0});
  EXPECT_FALSE(fleet.Look().stopped);
  Member& member = fleet.members_.at(0);
  member.OnReduced({member.view()->number, member.state()->step + 1, {}, {}, true});
  member.OnCheckpointWritten(member.agreed().checkpoint_turn);
  member.OnCheckpointCommitted(member.agreed().checkpoint_turn);
  fleet.Settle();
  EXPECT_TRUE(fleet.Look().stopped);

  fleet.desired_.settings.generation = 3;
  fleet.desired_.settings.halt = false;
  fleet.Want();
  fleet.Settle();
  EXPECT_FALSE(fleet.Look().stopped);
  EXPECT_THAT(fleet.Running(), ElementsAre(0));
}

TEST(PeerCoordinator, TheResultOfTheMembersReachesTheControllerAndItsAnswerThem) {
  Fleet fleet = Running(1);
  fleet.members_.at(0).SetTraining({"bytes", true, ""});
  fleet.Settle();
  EXPECT_EQ(fleet.Look().training.bytes, "bytes");
  fleet.desired_.finished = true;
  fleet.Want();
  fleet.Settle();
  EXPECT_TRUE(fleet.exited_.contains(0));
}

TEST(PeerCoordinator, AnOlderDesireIsIgnored) {
  Fleet fleet = Running(1);
  Desired older = fleet.desired_;
  older.sequence = 0;
  older.finished = true;
  fleet.coordinator_->OnDesired(older, fleet.now_);
  EXPECT_FALSE(fleet.coordinator_->DirectiveFor(fleet.Uid(0)).finished);
}

}  // namespace
}  // namespace starling::membership
