// SPDX-License-Identifier: Apache-2.0
#include "trainer/membership/member.h"

#include <algorithm>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace starling::membership {
namespace {

const MemberId kA{"a", 0};
const MemberId kB{"b", 0};
const MemberId kC{"c", 0};

constexpr ViewNumber V(std::uint64_t incarnation, std::uint64_t epoch) {
  return incarnation << 32 | epoch;
}

View ViewOf(ViewNumber number, const std::vector<MemberId>& members) {
  View view;
  view.number = number;
  for (const MemberId& id : members) view.members.push_back({id, "", number, ""});
  return view;
}

View Prepared(ViewNumber number, ViewNumber from, const std::vector<MemberId>& members) {
  View view = ViewOf(number, members);
  view.at_boundary = true;
  view.from = from;
  return view;
}

Directive Tell(const View& view) {
  Directive directive;
  directive.incarnation = IncarnationOf(view.number);
  directive.view = view;
  return directive;
}

template <typename Kind>
const Kind* Find(const Actions& actions) {
  for (const Action& action : actions) {
    if (const auto* found = std::get_if<Kind>(&action)) return found;
  }
  return nullptr;
}

Member Make(const MemberId& id, const Rules& rules = {}) {
  return Member({id, "", std::nullopt, rules});
}

// Members that hear each other at once, as far as a test lets them.
class Group {
 public:
  explicit Group(const std::vector<MemberId>& ids, const Rules& rules = {}) {
    for (const MemberId& id : ids) members_.emplace(id, Make(id, rules));
  }
  Member& operator[](const MemberId& id) { return members_.at(id); }

  void Tell(const Directive& directive) {
    for (auto& [id, member] : members_) Do(id, member.OnDirective(directive));
  }
  // One reduction in which every member of `ids` takes part.
  void Reduce(const std::vector<MemberId>& ids, bool empty = false) {
    Reduction reduction = Words(ids);
    reduction.empty = empty;
    for (const MemberId& id : ids) Do(id, members_.at(id).OnReduced(reduction));
  }
  Reduction Words(const std::vector<MemberId>& ids) {
    Reduction reduction;
    reduction.view = members_.at(ids.front()).view()->number;
    reduction.step = members_.at(ids.front()).state()->step + 1;
    bool first = true;
    for (const MemberId& id : ids) {
      const ControlWord word = members_.at(id).NextControlWord();
      const auto fold = [&](auto field) {
        reduction.min.*field = first ? word.*field : std::min(reduction.min.*field, word.*field);
        reduction.max.*field = first ? word.*field : std::max(reduction.max.*field, word.*field);
      };
      fold(&ControlWord::candidate);
      fold(&ControlWord::checkpoint_turn);
      fold(&ControlWord::settings_generation);
      fold(&ControlWord::stop);
      first = false;
    }
    return reduction;
  }
  void Do(const MemberId& id, const Actions& actions) {
    for (const Action& action : actions) {
      done_[id].push_back(action);
      if (const auto* send = std::get_if<SendSyncId>(&action)) {
        for (auto& [peer, member] : members_) {
          if (peer != id) Do(peer, member.OnSyncId(send->sync_id));
        }
      } else if (const auto* copy = std::get_if<CopyState>(&action)) {
        Do(id, members_.at(id).OnCopied(copy->view));
      } else if (const auto* load = std::get_if<LoadCheckpoint>(&action)) {
        Do(id, members_.at(id).OnLoaded(load->view));
      }
    }
  }
  Actions Take(const MemberId& id) { return std::exchange(done_[id], {}); }

 private:
  std::map<MemberId, Member> members_;
  std::map<MemberId, Actions> done_;
};

TEST(Member, AFreshViewRunsFromStepZero) {
  Group group({kA, kB});
  group.Tell(Tell(ViewOf(V(1, 1), {kA, kB})));
  EXPECT_EQ(group[kA].phase(), Phase::kRun);
  EXPECT_EQ(group[kB].state(), (StateId{V(1, 1), 0}));
  EXPECT_NE(Find<StartFresh>(group.Take(kA)), nullptr);

  group.Reduce({kA, kB});
  EXPECT_EQ(group[kA].state(), (StateId{V(1, 1), 1}));
  EXPECT_EQ(group[kA].MakeReport().settled_step, 0);
}

TEST(Member, FencesBeforeItSaysAnythingInANewView) {
  Member member = Make(kA);
  const Actions actions = member.OnDirective(Tell(ViewOf(V(1, 1), {kA, kB})));
  std::size_t fence = 99;
  std::size_t said = 99;
  for (std::size_t i = 0; i < actions.size(); ++i) {
    if (std::holds_alternative<Fence>(actions[i])) fence = i;
    if (std::holds_alternative<SendSyncId>(actions[i])) said = i;
  }
  EXPECT_LT(fence, said);
}

TEST(Member, RefusesACoordinatorThatIsOlderThanOneItHasSeen) {
  Member member = Make(kA);
  Directive newer;
  newer.incarnation = 2;
  member.OnDirective(newer);
  EXPECT_TRUE(member.OnDirective(Tell(ViewOf(V(1, 9), {kA}))).empty());
  EXPECT_EQ(member.view(), nullptr);

  Rules without;
  without.refuse_lower_incarnation = false;
  Member gullible = Make(kA, without);
  gullible.OnDirective(newer);
  gullible.OnDirective(Tell(ViewOf(V(1, 9), {kA})));
  EXPECT_NE(gullible.view(), nullptr);
}

TEST(Member, AnOldReductionThatArrivesInANewViewChangesNothing) {
  for (const bool halt_first : {true, false}) {
    Rules rules;
    rules.halt_first = halt_first;
    Group group({kA, kB}, rules);
    group.Tell(Tell(ViewOf(V(1, 1), {kA, kB})));
    const Reduction old = group.Words({kA, kB});
    group.Do(kA, group[kA].OnDirective(Tell(ViewOf(V(1, 2), {kA, kB}))));
    group.Take(kA);
    group.Do(kA, group[kA].OnReduced(old));
    EXPECT_EQ(Find<Apply>(group.Take(kA)) == nullptr, halt_first);
  }
}

// What a shell may deliver late: it need not check by itself.
TEST(Member, AReductionCountsOnceAndInItsOwnViewAndStepOnly) {
  Group group({kA, kB});
  group.Tell(Tell(ViewOf(V(1, 1), {kA, kB})));
  const Reduction of_view_before = group.Words({kA, kB});
  group.Tell(Tell(ViewOf(V(1, 2), {kA, kB})));
  ASSERT_EQ(group[kA].phase(), Phase::kRun);
  const Reduction good = group.Words({kA, kB});
  ASSERT_EQ(of_view_before.step, good.step);

  Reduction of_step_before = good;
  --of_step_before.step;
  Reduction of_step_after = good;
  ++of_step_after.step;
  for (const Reduction& other : {of_view_before, of_step_before, of_step_after}) {
    EXPECT_TRUE(group[kA].OnReduced(other).empty());
    EXPECT_EQ(group[kA].state(), (StateId{V(1, 2), 0}));
  }
  EXPECT_NE(Find<Apply>(group[kA].OnReduced(good)), nullptr);
  EXPECT_TRUE(group[kA].OnReduced(good).empty()) << "it comes twice";
  EXPECT_EQ(group[kA].state(), (StateId{V(1, 2), 1}));
}

TEST(Member, AReductionOfAViewThatIsBrokenChangesNothing) {
  Group group({kA, kB});
  group.Tell(Tell(ViewOf(V(1, 1), {kA, kB})));
  const Reduction late = group.Words({kA, kB});
  group.Do(kA, group[kA].OnBroken(V(1, 1), {}));
  EXPECT_TRUE(group[kA].OnReduced(late).empty());
}

TEST(Member, ALaggardCopiesAndAdoptsOnlyWhatIsWhole) {
  Group group({kA, kB});
  group.Tell(Tell(ViewOf(V(1, 1), {kA})));
  group.Reduce({kA});
  group.Reduce({kA});
  group.Tell(Tell(ViewOf(V(1, 2), {kA, kB})));
  const Actions actions = group.Take(kB);
  ASSERT_NE(Find<CopyState>(actions), nullptr);
  EXPECT_EQ(Find<CopyState>(actions)->holders, (std::vector<MemberId>{kA}));
  EXPECT_EQ(Find<AdoptCopy>(actions)->id, (StateId{V(1, 2), 2}));
  EXPECT_NE(Find<ServeState>(group.Take(kA)), nullptr);
  EXPECT_EQ(group[kB].state(), group[kA].state());
}

TEST(Member, APreparedViewTakesEffectAtTheBoundaryWhereAllKnowIt) {
  Group group({kA, kB, kC});
  group.Tell(Tell(ViewOf(V(1, 1), {kA, kB})));
  const Directive planned = Tell(Prepared(V(1, 2), V(1, 1), {kA, kB, kC}));
  group.Do(kC, group[kC].OnDirective(planned));
  EXPECT_EQ(group[kC].phase(), Phase::kSync);

  group.Do(kA, group[kA].OnDirective(planned));
  group.Reduce({kA, kB});
  EXPECT_EQ(group[kA].view()->number, V(1, 1)) << "b does not know the view yet";

  group.Do(kB, group[kB].OnDirective(planned));
  group.Reduce({kA, kB});
  EXPECT_EQ(group[kA].phase(), Phase::kRun);
  EXPECT_EQ(group[kC].state(), (StateId{V(1, 2), 2}));
  EXPECT_EQ(group[kA].state(), group[kC].state());
}

TEST(Member, ActsOnTheViewThatAllContributedEvenIfItKnowsALaterOneByNow) {
  Group group({kA, kB});
  group.Tell(Tell(ViewOf(V(1, 1), {kA, kB})));
  group.Tell(Tell(Prepared(V(1, 2), V(1, 1), {kA, kB})));
  const Reduction in_flight = group.Words({kA, kB});
  group.Do(kA, group[kA].OnDirective(Tell(Prepared(V(1, 3), V(1, 1), {kA, kB}))));
  group.Do(kA, group[kA].OnReduced(in_flight));
  EXPECT_EQ(group[kA].view()->number, V(1, 2));
}

TEST(Member, AStepThatEndsAViewIsNotTheFirstOfTheNext) {
  Group group({kA, kB});
  group.Tell(Tell(ViewOf(V(1, 1), {kA})));
  group.Do(kA, group[kA].OnDirective(Tell(Prepared(V(1, 2), V(1, 1), {kA, kB}))));
  group.Reduce({kA});
  EXPECT_EQ(group[kA].phase(), Phase::kSync);
  EXPECT_FALSE(group[kA].MakeReport().stepped);
  group.Do(kB, group[kB].OnDirective(Tell(Prepared(V(1, 2), V(1, 1), {kA, kB}))));
  EXPECT_EQ(group[kA].MakeReport().base_step, 1);
  group.Reduce({kA, kB});
  EXPECT_TRUE(group[kA].MakeReport().stepped);
}

TEST(Member, WhoIsDrainedLingersUntilItIsReleased) {
  Group group({kA, kB});
  group.Tell(Tell(ViewOf(V(1, 1), {kA, kB})));
  group.Tell(Tell(Prepared(V(1, 2), V(1, 1), {kA})));
  group.Reduce({kA, kB});
  EXPECT_EQ(group[kB].phase(), Phase::kLinger);
  EXPECT_EQ(group[kA].state(), (StateId{V(1, 2), 1}));
  EXPECT_EQ(Find<Exit>(group.Take(kB)), nullptr);

  Directive release;
  release.incarnation = 1;
  release.released = true;
  EXPECT_NE(Find<Exit>(group[kB].OnDirective(release)), nullptr);
}

TEST(Member, ABrokenLinkAbortsAndKeepsTheState) {
  Group group({kA, kB});
  group.Tell(Tell(ViewOf(V(1, 1), {kA, kB})));
  group.Reduce({kA, kB});
  group.Do(kA, group[kA].OnBroken(V(1, 1), {kB}));
  EXPECT_EQ(group[kA].phase(), Phase::kAborted);
  EXPECT_EQ(group[kA].MakeReport().unreachable, (std::vector<MemberId>{kB}));
  EXPECT_EQ(group[kA].state(), (StateId{V(1, 1), 1}));
  EXPECT_TRUE(group[kA].OnBroken(V(1, 1), {kB}).empty());
}

TEST(Member, ASnapshotIsCommittedOnceItIsWrittenAndItsStepIsSettled) {
  Group group({kA});
  group.Tell(Tell(ViewOf(V(1, 1), {kA})));
  Directive turn;
  turn.incarnation = 1;
  turn.checkpoint_turn = 5;
  group.Tell(turn);
  group.Reduce({kA});
  const Actions taken = group.Take(kA);
  ASSERT_NE(Find<TakeCheckpoint>(taken), nullptr);
  EXPECT_EQ(Find<TakeCheckpoint>(taken)->id, (StateId{V(1, 1), 1}));

  group.Do(kA, group[kA].OnCheckpointWritten({V(1, 1), 1}));
  EXPECT_EQ(Find<CommitCheckpoint>(group.Take(kA)), nullptr);
  group.Reduce({kA});
  EXPECT_NE(Find<CommitCheckpoint>(group.Take(kA)), nullptr);
  EXPECT_EQ(group[kA].MakeReport().checkpoint_turn, 0);
  group.Do(kA, group[kA].OnCheckpointCommitted({V(1, 1), 1}));
  EXPECT_EQ(group[kA].MakeReport().checkpoint_turn, 5);
}

TEST(Member, ASnapshotThatIsNotSettledEndsWithItsView) {
  Group group({kA});
  group.Tell(Tell(ViewOf(V(1, 1), {kA})));
  Directive turn;
  turn.incarnation = 1;
  turn.checkpoint_turn = 5;
  group.Tell(turn);
  group.Reduce({kA});
  group.Do(kA, group[kA].OnCheckpointWritten({V(1, 1), 1}));
  group.Take(kA);
  group.Tell(Tell(ViewOf(V(1, 2), {kA})));
  group.Reduce({kA});
  const Actions actions = group.Take(kA);
  EXPECT_NE(Find<DropCheckpoint>(actions), nullptr);
  EXPECT_EQ(Find<CommitCheckpoint>(actions), nullptr);
}

Directive SettingsOf(std::int64_t generation, bool halt) {
  Directive directive;
  directive.incarnation = 1;
  directive.settings.generation = generation;
  directive.settings.halt = halt;
  return directive;
}

TEST(Member, SettingsActWhereAllKnowThem) {
  Group group({kA, kB});
  group.Tell(Tell(ViewOf(V(1, 1), {kA, kB})));
  group.Do(kA, group[kA].OnDirective(SettingsOf(3, false)));
  group.Reduce({kA, kB});
  EXPECT_EQ(group[kA].agreed().settings.generation, 0);
  group.Do(kB, group[kB].OnDirective(SettingsOf(3, false)));
  group.Reduce({kA, kB});
  EXPECT_NE(Find<ApplySettings>(group.Take(kA)), nullptr);
  EXPECT_EQ(group[kB].agreed().settings.generation, 3);
}

TEST(Member, AHaltSavesTheStateAndSettlesItBeforeItCounts) {
  Group group({kA, kB});
  group.Tell(Tell(ViewOf(V(1, 1), {kA, kB})));
  group.Tell(SettingsOf(3, true));
  group.Take(kA);
  group.Reduce({kA, kB});
  const Actions actions = group.Take(kA);
  ASSERT_NE(Find<TakeCheckpoint>(actions), nullptr);
  EXPECT_TRUE(Find<membership::Run>(actions)->settle_only);
  const StateId last = Find<TakeCheckpoint>(actions)->id;
  group.Do(kA, group[kA].OnCheckpointWritten(last));

  group.Reduce({kA, kB}, /*empty=*/true);
  EXPECT_EQ(group[kA].phase(), Phase::kDone);
  EXPECT_EQ(group[kA].state(), (StateId{V(1, 1), 1}));
  EXPECT_NE(Find<CommitCheckpoint>(group.Take(kA)), nullptr);
  EXPECT_FALSE(group[kA].MakeReport().stopped);
  group.Do(kA, group[kA].OnCheckpointCommitted(last));
  EXPECT_TRUE(group[kA].MakeReport().stopped);
  EXPECT_FALSE(group[kB].MakeReport().stopped);
}

// A checkpoint is being committed when the last step ends and the job is halted in the same moment:
// what it holds is not the state that the job stops with.
TEST(Member, ACheckpointOfAnEarlierStateIsNotTheOneOfTheHalt) {
  Group group({kA});
  group.Tell(Tell(ViewOf(V(1, 1), {kA})));
  Directive turn;
  turn.incarnation = 1;
  turn.checkpoint_turn = 5;
  group.Tell(turn);
  group.Reduce({kA});
  group.Do(kA, group[kA].OnCheckpointWritten({V(1, 1), 1}));
  group.Reduce({kA});
  const Actions actions = group.Take(kA);
  ASSERT_NE(Find<CommitCheckpoint>(actions), nullptr);
  EXPECT_EQ(Find<CommitCheckpoint>(actions)->id, (StateId{V(1, 1), 1}));

  group.Tell(SettingsOf(3, true));
  group.Reduce({kA}, /*empty=*/true);
  ASSERT_EQ(group[kA].phase(), Phase::kDone);
  ASSERT_EQ(group[kA].state(), (StateId{V(1, 1), 2}));
  group.Do(kA, group[kA].OnCheckpointCommitted({V(1, 1), 1}));
  EXPECT_EQ(group[kA].MakeReport().checkpoint_turn, 5);
  EXPECT_FALSE(group[kA].MakeReport().stopped);
}

TEST(Member, AHaltedViewGoesOnWhenNewSettingsSaySo) {
  Group group({kA});
  group.Tell(Tell(ViewOf(V(1, 1), {kA})));
  group.Tell(SettingsOf(3, true));
  group.Reduce({kA});
  group.Reduce({kA}, /*empty=*/true);
  ASSERT_EQ(group[kA].phase(), Phase::kDone);
  group.Tell(SettingsOf(4, false));
  group.Tell(Tell(ViewOf(V(1, 2), {kA})));
  group.Reduce({kA}, /*empty=*/true);
  EXPECT_EQ(group[kA].phase(), Phase::kRun);
  group.Reduce({kA});
  EXPECT_EQ(group[kA].state(), (StateId{V(1, 2), 2}));
}

TEST(Member, AJoinerLearnsTheAgreedSettingsWithTheState) {
  Group group({kA, kB});
  group.Tell(Tell(ViewOf(V(1, 1), {kA})));
  group.Do(kA, group[kA].OnDirective(SettingsOf(3, false)));
  group.Reduce({kA});
  group.Tell(Tell(ViewOf(V(1, 2), {kA, kB})));
  EXPECT_EQ(group[kB].agreed(), group[kA].agreed());
}

TEST(Member, WhenAllAreAskedToLeaveTheySaveTheStateAndGo) {
  Group group({kA, kB});
  group.Tell(Tell(ViewOf(V(1, 1), {kA, kB})));
  group.Do(kA, group[kA].OnTerminate());
  group.Reduce({kA, kB});
  EXPECT_EQ(Find<TakeCheckpoint>(group.Take(kA)), nullptr) << "b stays";
  group.Do(kB, group[kB].OnTerminate());
  group.Reduce({kA, kB});
  const Actions actions = group.Take(kA);
  ASSERT_NE(Find<TakeCheckpoint>(actions), nullptr);
  const StateId last = Find<TakeCheckpoint>(actions)->id;
  group.Reduce({kA, kB}, /*empty=*/true);
  group.Do(kA, group[kA].OnCheckpointWritten(last));
  EXPECT_EQ(Find<Exit>(group.Take(kA)), nullptr);
  group.Do(kA, group[kA].OnCheckpointCommitted(last));
  EXPECT_NE(Find<Exit>(group.Take(kA)), nullptr);
}

TEST(Member, ARestoreViewStartsFromTheNewestCheckpointAndItsAgreement) {
  Group group({kA, kB});
  View view = ViewOf(V(2, 1), {kA, kB});
  view.restore = true;
  group.Tell(Tell(view));
  ASSERT_NE(Find<FindCheckpoint>(group.Take(kA)), nullptr);
  Agreed agreed;
  agreed.checkpoint_turn = 7;
  group.Do(kA, group[kA].OnCheckpointFound(V(2, 1), CheckpointOffer{{V(1, 4), 30}, agreed}));
  group.Do(kB, group[kB].OnCheckpointFound(V(2, 1), std::nullopt));
  EXPECT_EQ(group[kA].state(), (StateId{V(2, 1), 30}));
  EXPECT_EQ(group[kB].state(), (StateId{V(2, 1), 30}));
  EXPECT_EQ(group[kB].agreed().checkpoint_turn, 7);
  EXPECT_NE(Find<LoadCheckpoint>(group.Take(kA)), nullptr);
}

TEST(Member, ACheckpointOfAHigherIncarnationHaltsTheOldSide) {
  Member member = Make(kA);
  View view = ViewOf(V(1, 1), {kA});
  view.restore = true;
  member.OnDirective(Tell(view));
  member.OnCheckpointFound(V(1, 1), CheckpointOffer{{V(2, 3), 30}, {}});
  EXPECT_EQ(member.phase(), Phase::kOut);
  EXPECT_EQ(member.highest_incarnation(), 2U);
}

TEST(Member, SyncIdsThatComeBeforeTheViewAreKept) {
  Group group({kA, kB});
  const Directive directive = Tell(ViewOf(V(1, 1), {kA, kB}));
  group.Do(kA, group[kA].OnDirective(directive));
  EXPECT_EQ(group[kA].phase(), Phase::kSync);
  group.Do(kB, group[kB].OnDirective(directive));
  EXPECT_EQ(group[kB].phase(), Phase::kRun);
  EXPECT_EQ(group[kA].phase(), Phase::kRun);
}

SyncId Stateless(ViewNumber view, const MemberId& member) {
  SyncId sync_id;
  sync_id.view = view;
  sync_id.member = member;
  return sync_id;
}

// As many are kept as a member far behind needs, and none of a view that is over takes a place.
TEST(Member, SyncIdsOfViewsThatAreOverTakeNobodysPlace) {
  Member member = Make(kA);
  member.OnDirective(Tell(ViewOf(V(1, 50), {kA, kB})));
  for (std::uint64_t epoch = 1; epoch < 20; ++epoch) member.OnSyncId(Stateless(V(1, epoch), kB));
  for (std::uint64_t epoch = 51; epoch < 70; ++epoch) member.OnSyncId(Stateless(V(1, epoch), kB));
  EXPECT_EQ(member.phase(), Phase::kSync) << "those were of other views";
  member.OnSyncId(Stateless(V(1, 50), kB));
  EXPECT_EQ(member.phase(), Phase::kRun);
  // The newest was kept.
  member.OnDirective(Tell(ViewOf(V(1, 69), {kA, kB})));
  EXPECT_EQ(member.phase(), Phase::kRun);
}

TEST(Member, EvictedAliveItHoldsItsStateAndIsOut) {
  Group group({kA, kB});
  group.Tell(Tell(ViewOf(V(1, 1), {kA, kB})));
  group.Reduce({kA, kB});
  group.Tell(Tell(ViewOf(V(1, 2), {kA})));
  EXPECT_EQ(group[kB].phase(), Phase::kOut);
  EXPECT_EQ(group[kB].state(), (StateId{V(1, 1), 1}));
  EXPECT_EQ(group[kB].fence(), V(1, 2));
}

}  // namespace
}  // namespace starling::membership
