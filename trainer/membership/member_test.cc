// SPDX-License-Identifier: Apache-2.0
#include "trainer/membership/member.h"

#include <algorithm>
#include <tuple>

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
  std::vector<ViewMember> all;
  for (const MemberId& id : members) all.push_back({id, "", number, ""});
  return ViewOfPeers(number, all);
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

Directive SettingsOf(std::int64_t generation, bool halt) {
  Directive directive;
  directive.incarnation = 1;
  directive.settings.generation = generation;
  directive.settings.halt = halt;
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
    for (const MemberId& id : ids) {
      told_[id] = NewsOf(members_.emplace(id, Make(id, rules)).first->second);
    }
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
    const auto news = NewsOf(members_.at(id));
    if (std::exchange(told_[id], news) != news) {
      EXPECT_NE(Find<SendReport>(actions), nullptr) << "what has changed is told at once";
    }
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
  // What a coordinator waits for.
  using News = std::tuple<Phase, std::uint64_t, ViewNumber, ViewNumber, ViewNumber, bool, bool,
                          std::int64_t>;
  static News NewsOf(const Member& member) {
    const Report report = member.MakeReport();
    return {report.phase,
            report.highest_incarnation,
            report.fence,
            report.candidate ? report.candidate->number : 0,
            report.state ? report.state->view : 0,
            report.leaving,
            report.stopped,
            report.checkpoint_turn};
  }

  std::map<MemberId, Member> members_;
  std::map<MemberId, Actions> done_;
  std::map<MemberId, News> told_;
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
  const Actions actions = group[kA].OnReduced(good);
  EXPECT_NE(Find<Apply>(actions), nullptr);
  ASSERT_NE(Find<Settled>(actions), nullptr) << "everybody had the one before";
  EXPECT_EQ(Find<Settled>(actions)->id, (StateId{V(1, 2), 0}));
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
  EXPECT_EQ(Find<ServeState>(actions), nullptr);
  const Actions served = group.Take(kA);
  ASSERT_NE(Find<ServeState>(served), nullptr);
  EXPECT_EQ(Find<ServeState>(served)->copiers, (std::vector<MemberId>{kB}));
  EXPECT_EQ(group[kB].state(), group[kA].state());
  group.Tell(Tell(ViewOf(V(1, 3), {kA, kB})));
  EXPECT_EQ(Find<ServeState>(group.Take(kA)), nullptr) << "nobody needs it";
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

TEST(Member, WhereMembersKnowDifferentCandidatesOrSettingsNothingChanges) {
  Group group({kA, kB});
  group.Tell(Tell(ViewOf(V(1, 1), {kA, kB})));
  group.Tell(Tell(Prepared(V(1, 2), V(1, 1), {kA, kB})));
  group.Do(kB, group[kB].OnDirective(Tell(Prepared(V(1, 3), V(1, 1), {kA, kB}))));
  group.Tell(SettingsOf(3, false));
  group.Do(kB, group[kB].OnDirective(SettingsOf(4, false)));
  group.Reduce({kA, kB});
  for (const MemberId& id : {kA, kB}) {
    EXPECT_EQ(group[id].view()->number, V(1, 1));
    EXPECT_EQ(group[id].agreed().settings.generation, 0);
  }
}

// One that knows only the later view leaves the old one for a view that it has never heard of, and
// the others follow it nowhere.
TEST(Member, WithoutTheMinEqualsMaxRuleMembersActOnWhatNotAllOfThemKnow) {
  Rules rules;
  rules.min_equals_max = false;
  Group group({kA, kB}, rules);
  group.Tell(Tell(ViewOf(V(1, 1), {kA, kB})));
  group.Reduce({kA, kB});
  EXPECT_EQ(group[kB].phase(), Phase::kRun) << "nobody knows of another view";
  group.Do(kA, group[kA].OnDirective(Tell(Prepared(V(1, 2), V(1, 1), {kA, kB}))));
  group.Do(kB, group[kB].OnDirective(Tell(Prepared(V(1, 3), V(1, 1), {kA, kB}))));
  const Reduction reduction = group.Words({kA, kB});
  group.Do(kA, group[kA].OnReduced(reduction));
  EXPECT_EQ(group[kA].view()->number, V(1, 2));
  EXPECT_NE(Find<Apply>(group[kB].OnReduced(reduction)), nullptr);
  EXPECT_EQ(group[kB].phase(), Phase::kLinger);
  EXPECT_EQ(group[kB].fence(), V(1, 2));
  EXPECT_EQ(group[kB].view()->number, V(1, 1));
}

TEST(Member, ActsOnTheViewThatAllContributedEvenIfItKnowsALaterOneByNow) {
  Group group({kA, kB});
  group.Tell(Tell(ViewOf(V(1, 1), {kA, kB})));
  group.Tell(Tell(Prepared(V(1, 2), V(1, 1), {kA, kB})));
  const Reduction in_flight = group.Words({kA, kB});
  group.Do(kA, group[kA].OnDirective(Tell(Prepared(V(1, 3), V(1, 1), {kA, kB}))));
  group.Do(kA, group[kA].OnReduced(in_flight));
  EXPECT_EQ(group[kA].view()->number, V(1, 2));
  EXPECT_FALSE(group[kA].MakeReport().candidate) << "that one was prepared in a view that is over";
  EXPECT_EQ(group[kA].NextControlWord().candidate, 0);
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

TEST(Member, WithoutTheSettledRuleASnapshotIsCommittedThoughItsStepMayYetBeLost) {
  Rules rules;
  rules.checkpoint_only_settled = false;
  Group group({kA}, rules);
  group.Tell(Tell(ViewOf(V(1, 1), {kA})));
  Directive turn;
  turn.incarnation = 1;
  turn.checkpoint_turn = 5;
  group.Tell(turn);
  group.Reduce({kA});
  group.Do(kA, group[kA].OnCheckpointWritten({V(1, 1), 1}));
  EXPECT_NE(Find<CommitCheckpoint>(group.Take(kA)), nullptr);
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
  EXPECT_EQ(group[kA].MakeReport().settings_generation, 3);
  EXPECT_EQ(Find<Exit>(group.Take(kA)), nullptr) << "nobody has asked it to leave";
  EXPECT_TRUE(group[kA].OnCheckpointCommitted(last).empty());

  // In another view it has stopped when it has saved the state there.
  group.Tell(Tell(ViewOf(V(1, 2), {kA, kB})));
  EXPECT_FALSE(group[kA].MakeReport().stopped);
  group.Reduce({kA, kB}, /*empty=*/true);
  ASSERT_EQ(group[kA].phase(), Phase::kDone);
  EXPECT_FALSE(group[kA].MakeReport().stopped);
  const StateId again = *group[kA].state();
  group.Do(kA, group[kA].OnCheckpointWritten(again));
  group.Do(kA, group[kA].OnCheckpointCommitted(again));
  EXPECT_TRUE(group[kA].MakeReport().stopped);
  EXPECT_NE(Find<Exit>(group[kA].OnTerminate()), nullptr) << "all is saved";
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
  view.groups.front().restore = true;
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
  view.groups.front().restore = true;
  member.OnDirective(Tell(view));
  const Actions actions = member.OnCheckpointFound(V(1, 1), CheckpointOffer{{V(2, 3), 30}, {}});
  EXPECT_EQ(Find<AbortView>(actions)->view, V(1, 1));
  EXPECT_NE(Find<SendReport>(actions), nullptr);
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
  member.OnDirective(Tell(ViewOf(V(1, 40), {kA})));
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

TEST(Member, NothingThatAnOlderCoordinatorSaysCounts) {
  Group group({kA});
  Directive newer;
  newer.incarnation = 2;
  group.Tell(newer);
  group.Tell(Tell(ViewOf(V(2, 1), {kA})));
  Directive older = SettingsOf(7, true);
  older.checkpoint_turn = 9;
  EXPECT_TRUE(group[kA].OnDirective(older).empty());
  EXPECT_EQ(group[kA].NextControlWord(), ControlWord{});
  older.finished = true;
  EXPECT_TRUE(group[kA].OnDirective(older).empty());
}

TEST(Member, WhoHoldsNothingTakesNoReduction) {
  EXPECT_TRUE(Make(kA).OnReduced({V(1, 1), 1, {}, {}, false}).empty());
}

TEST(Member, ThatAllWereAskedToLeaveIsForgottenInTheNextView) {
  Group group({kA, kB});
  group.Tell(Tell(ViewOf(V(1, 1), {kA, kB})));
  group.Do(kA, group[kA].OnTerminate());
  group.Do(kB, group[kB].OnTerminate());
  group.Take(kA);
  group.Reduce({kA, kB});
  ASSERT_TRUE(Find<membership::Run>(group.Take(kA))->settle_only);
  group.Tell(Tell(ViewOf(V(1, 2), {kA, kB})));
  EXPECT_FALSE(Find<membership::Run>(group.Take(kA))->settle_only) << "others may have joined";
}

TEST(Member, WhoLeavesWithAllOthersHasNotStoppedByTheSettings) {
  Group group({kA});
  group.Tell(Tell(ViewOf(V(1, 1), {kA})));
  group.Do(kA, group[kA].OnTerminate());
  group.Reduce({kA});
  const StateId last = *group[kA].state();
  group.Do(kA, group[kA].OnCheckpointWritten(last));
  group.Reduce({kA}, /*empty=*/true);
  group.Do(kA, group[kA].OnCheckpointCommitted(last));
  EXPECT_NE(Find<Exit>(group.Take(kA)), nullptr);
  EXPECT_FALSE(group[kA].MakeReport().stopped);
}

TEST(Member, AJoinerContributesWhatIsAgreedOnAndNotWhatItHeardBefore) {
  Group group({kA, kB});
  group.Do(kB, group[kB].OnDirective(SettingsOf(3, false)));
  group.Tell(Tell(ViewOf(V(1, 1), {kA})));
  group.Do(kA, group[kA].OnDirective(SettingsOf(4, false)));
  group.Reduce({kA});
  group.Tell(Tell(ViewOf(V(1, 2), {kA, kB})));
  EXPECT_EQ(group[kB].agreed().settings.generation, 4);
  EXPECT_EQ(group[kB].NextControlWord().settings_generation, 4);
}

TEST(Member, EndsForEachReasonThatADirectiveCanGive) {
  for (bool Directive::*reason : {&Directive::finished, &Directive::superseded}) {
    Member member = Make(kA);
    Directive directive;
    directive.incarnation = 1;
    directive.*reason = true;
    directive.view = ViewOf(V(1, 1), {kA});
    const Actions actions = member.OnDirective(directive);
    ASSERT_NE(Find<Exit>(actions), nullptr);
    EXPECT_EQ(Find<Exit>(actions)->reason, reason == &Directive::finished
                                               ? "training has finished"
                                               : "a newer process of this pod has reported");
    EXPECT_EQ(member.view(), nullptr) << "nothing else of it counts";
  }
  const Actions actions = Make(kA).OnGraceOver();
  ASSERT_NE(Find<Exit>(actions), nullptr);
  EXPECT_EQ(Find<Exit>(actions)->reason, "the grace period is over");
}

TEST(Member, AViewIsInstalledOnceAndALowerOneNever) {
  Group group({kA});
  group.Tell(Tell(ViewOf(V(1, 5), {kA})));
  group.Reduce({kA});
  EXPECT_TRUE(group[kA].OnDirective(Tell(ViewOf(V(1, 5), {kA}))).empty());
  EXPECT_TRUE(group[kA].OnDirective(Tell(ViewOf(V(1, 4), {kA, kB}))).empty());
  EXPECT_TRUE(group[kA].OnDirective(Tell(Prepared(V(1, 5), V(1, 5), {kA}))).empty());
  EXPECT_EQ(group[kA].state(), (StateId{V(1, 5), 1}));
}

// A successor may tell of a view that the one before it has published.
TEST(Member, AViewOfAnOlderCoordinatorIsNotTakenFromANewerOneEither) {
  Member member = Make(kA);
  Directive directive = Tell(ViewOf(V(1, 7), {kA}));
  directive.incarnation = 2;
  member.OnDirective(directive);
  EXPECT_EQ(member.view(), nullptr);
  EXPECT_EQ(member.highest_incarnation(), 2U);
}

TEST(Member, APreparedViewIsACandidateOnlyInTheViewInWhichItWasPreparedAndWhileThatGoesOn) {
  const Directive planned = Tell(Prepared(V(1, 4), V(1, 2), {kA, kB}));
  Group elsewhere({kA, kB});
  elsewhere.Tell(Tell(ViewOf(V(1, 1), {kA})));
  elsewhere.Do(kA, elsewhere[kA].OnDirective(planned));
  EXPECT_EQ(elsewhere[kA].view()->number, V(1, 4)) << "it joins, as who is in no view does";

  Group broken({kA, kB});
  broken.Tell(Tell(ViewOf(V(1, 2), {kA, kB})));
  broken.Do(kA, broken[kA].OnBroken(V(1, 2), {}));
  broken.Do(kA, broken[kA].OnDirective(planned));
  EXPECT_FALSE(broken[kA].MakeReport().candidate);
  EXPECT_EQ(broken[kA].view()->number, V(1, 2));

  Group syncing({kA, kB});
  syncing.Do(kA, syncing[kA].OnDirective(Tell(ViewOf(V(1, 2), {kA, kB}))));
  ASSERT_EQ(syncing[kA].phase(), Phase::kSync);
  syncing.Do(kA, syncing[kA].OnDirective(planned));
  EXPECT_EQ(syncing[kA].MakeReport().candidate->number, V(1, 4));
  EXPECT_EQ(Find<SendReport>(syncing[kA].OnDirective(planned)), nullptr) << "that is no news";
}

TEST(Member, APreparedViewWithoutMeIsNothingToMe) {
  Member member = Make(kC);
  member.OnDirective(Tell(Prepared(V(1, 4), V(1, 2), {kA, kB})));
  EXPECT_EQ(member.view(), nullptr);
  EXPECT_EQ(member.phase(), Phase::kOut);
}

TEST(Member, WhoCopiesTakesCandidatesToo) {
  Member member = Make(kB);
  member.OnDirective(Tell(ViewOf(V(1, 2), {kA, kB})));
  SyncId far{V(1, 2), kA, StateId{V(1, 1), 5}, {}, {}};
  const Actions actions = member.OnSyncId(far);
  ASSERT_NE(Find<CopyState>(actions), nullptr);
  EXPECT_NE(Find<SendReport>(actions), nullptr);
  member.OnDirective(Tell(Prepared(V(1, 3), V(1, 2), {kA, kB})));
  EXPECT_TRUE(member.MakeReport().candidate);
  EXPECT_EQ(member.NextControlWord().candidate, static_cast<std::int64_t>(V(1, 3)));

  EXPECT_TRUE(member.OnCopied(V(1, 1)).empty()) << "that copy was for another view";
  EXPECT_TRUE(member.OnLoaded(V(1, 2)).empty()) << "nobody has asked for that";
  EXPECT_EQ(Find<AdoptCopy>(member.OnCopied(V(1, 2)))->id, (StateId{V(1, 2), 5}));
  EXPECT_TRUE(member.OnCopied(V(1, 2)).empty());
}

TEST(Member, ACheckpointIsOfferedAndLoadedForTheViewThatAskedForItOnly) {
  Member member = Make(kA);
  View view = ViewOf(V(2, 2), {kA});
  view.groups.front().restore = true;
  member.OnDirective(Tell(view));
  const CheckpointOffer offer{{V(1, 4), 30}, {}};
  EXPECT_TRUE(member.OnCheckpointFound(V(2, 1), offer).empty());
  const Actions actions = member.OnCheckpointFound(V(2, 2), offer);
  ASSERT_NE(Find<LoadCheckpoint>(actions), nullptr);
  EXPECT_EQ(Find<LoadCheckpoint>(actions)->name, (StateId{V(1, 4), 30}));
  EXPECT_NE(Find<SendReport>(actions), nullptr);
  EXPECT_EQ(member.phase(), Phase::kCopy);
  EXPECT_TRUE(member.OnCheckpointFound(V(2, 2), offer).empty());
  EXPECT_TRUE(member.OnLoaded(V(2, 1)).empty());
  EXPECT_TRUE(member.OnCopied(V(2, 2)).empty());
  EXPECT_EQ(Find<AdoptCopy>(member.OnLoaded(V(2, 2)))->id, (StateId{V(2, 2), 30}));
  EXPECT_TRUE(member.OnLoaded(V(2, 2)).empty());
  EXPECT_EQ(member.MakeReport().settled_step, 30) << "only what is settled is in a checkpoint";
}

TEST(Member, WithoutAWitnessItIsLostAndSaysSo) {
  Member member = Make(kA);
  View view = ViewOf(V(1, 3), {kA});
  view.groups.front().since = {{V(1, 2), {kB}}};
  const Actions actions = member.OnDirective(Tell(view));
  EXPECT_EQ(member.phase(), Phase::kLost);
  EXPECT_TRUE(std::holds_alternative<SendReport>(actions.back()));
  EXPECT_TRUE(member.OnBroken(V(1, 3), {}).empty());
}

TEST(Member, WhatBelongedToAViewIsForgottenInTheNext) {
  Group group({kA, kB});
  group.Tell(Tell(ViewOf(V(1, 1), {kA, kB})));
  group.Reduce({kA, kB});
  group.Do(kA, group[kA].OnBroken(V(1, 1), {kB}));
  group.Do(kA, group[kA].OnDirective(Tell(ViewOf(V(1, 2), {kA, kB}))));
  const Report report = group[kA].MakeReport();
  EXPECT_TRUE(report.unreachable.empty());
  EXPECT_EQ(report.base_step, -1);
  EXPECT_FALSE(report.stepped);
  EXPECT_EQ(report.fence, V(1, 2));
}

TEST(Member, WhoLingersGoesOnLingeringInViewsWithoutIt) {
  Group group({kA, kB});
  group.Tell(Tell(ViewOf(V(1, 1), {kA, kB})));
  group.Tell(Tell(Prepared(V(1, 2), V(1, 1), {kA})));
  group.Reduce({kA, kB});
  ASSERT_EQ(group[kB].phase(), Phase::kLinger);
  EXPECT_EQ(Find<Pause>(group.Take(kB))->phase, Phase::kLinger);
  group.Do(kB, group[kB].OnDirective(Tell(ViewOf(V(1, 3), {kA}))));
  EXPECT_EQ(group[kB].phase(), Phase::kLinger);
  EXPECT_NE(Find<Pause>(group.Take(kB)), nullptr);
}

TEST(Member, ItContributesTheNewestOfWhatItKnows) {
  Group group({kA});
  group.Tell(Tell(ViewOf(V(1, 1), {kA})));
  EXPECT_EQ(group[kA].NextControlWord(), ControlWord{});
  Directive directive = SettingsOf(4, false);
  directive.checkpoint_turn = 7;
  group.Tell(directive);
  directive = SettingsOf(3, false);
  directive.checkpoint_turn = 6;  // late
  group.Tell(directive);
  ControlWord word = group[kA].NextControlWord();
  EXPECT_EQ(word.settings_generation, 4);
  EXPECT_EQ(word.checkpoint_turn, 7);
  EXPECT_EQ(word.stop, 0);
  group.Reduce({kA});
  word = group[kA].NextControlWord();
  EXPECT_EQ(word.settings_generation, 4) << "agreed on";
  EXPECT_EQ(word.checkpoint_turn, 7);
  group.Do(kA, group[kA].OnTerminate());
  EXPECT_EQ(group[kA].NextControlWord().stop, 1);
}

TEST(Member, ATurnIsTakenOnceAndANewOneTakesThePlaceOfOneThatIsNotCommitted) {
  Group group({kA});
  group.Tell(Tell(ViewOf(V(1, 1), {kA})));
  Directive turn;
  turn.incarnation = 1;
  turn.checkpoint_turn = 5;
  group.Tell(turn);
  group.Reduce({kA});
  group.Take(kA);
  group.Reduce({kA});
  EXPECT_EQ(Find<TakeCheckpoint>(group.Take(kA)), nullptr) << "the same turn";
  turn.checkpoint_turn = 6;
  group.Tell(turn);
  group.Reduce({kA});
  Actions actions = group.Take(kA);
  EXPECT_EQ(Find<DropCheckpoint>(actions)->id, (StateId{V(1, 1), 1}));
  EXPECT_EQ(Find<TakeCheckpoint>(actions)->id, (StateId{V(1, 1), 3}));
  EXPECT_EQ(Find<TakeCheckpoint>(actions)->agreed.checkpoint_turn, 6);
  EXPECT_FALSE(Find<TakeCheckpoint>(actions)->last);

  // The answer of the one that was dropped says nothing of this one.
  group.Do(kA, group[kA].OnCheckpointWritten({V(1, 1), 1}));
  group.Reduce({kA});
  EXPECT_EQ(Find<CommitCheckpoint>(group.Take(kA)), nullptr);
  group.Do(kA, group[kA].OnCheckpointWritten({V(1, 1), 3}));
  EXPECT_EQ(Find<CommitCheckpoint>(group.Take(kA))->id, (StateId{V(1, 1), 3}));
  EXPECT_TRUE(group[kA].OnCheckpointWritten({V(1, 1), 3}).empty()) << "it is being committed";
  EXPECT_TRUE(group[kA].OnCheckpointCommitted({V(1, 1), 1}).empty());

  // One that is being committed is not dropped.
  turn.checkpoint_turn = 8;
  group.Tell(turn);
  group.Reduce({kA});
  actions = group.Take(kA);
  EXPECT_EQ(Find<DropCheckpoint>(actions), nullptr);
  EXPECT_NE(Find<TakeCheckpoint>(actions), nullptr);
  EXPECT_TRUE(group[kA].OnCheckpointCommitted({V(1, 1), 5}).empty()) << "not asked for yet";
}

// Training is over, and a turn comes with the reduction that settles its last step.
TEST(Member, ATurnThatComesWithAnEmptyReductionIsSettledAlready) {
  Group group({kA});
  group.Tell(Tell(ViewOf(V(1, 1), {kA})));
  group.Reduce({kA});
  Directive turn;
  turn.incarnation = 1;
  turn.checkpoint_turn = 5;
  group.Tell(turn);
  group.Reduce({kA}, /*empty=*/true);
  EXPECT_EQ(group[kA].phase(), Phase::kDone);
  group.Take(kA);
  group.Do(kA, group[kA].OnCheckpointWritten({V(1, 1), 1}));
  EXPECT_NE(Find<CommitCheckpoint>(group.Take(kA)), nullptr);
}

TEST(Member, ASettledSnapshotOutlivesItsView) {
  Group group({kA});
  group.Tell(Tell(ViewOf(V(1, 1), {kA})));
  Directive turn;
  turn.incarnation = 1;
  turn.checkpoint_turn = 5;
  group.Tell(turn);
  group.Reduce({kA});
  group.Reduce({kA});
  group.Tell(Tell(ViewOf(V(1, 2), {kA})));
  EXPECT_EQ(Find<DropCheckpoint>(group.Take(kA)), nullptr);
  group.Do(kA, group[kA].OnCheckpointWritten({V(1, 1), 1}));
  EXPECT_NE(Find<CommitCheckpoint>(group.Take(kA)), nullptr);
}

TEST(Member, ABreakOfAnotherViewOrAfterTheEndIsNoNews) {
  Group group({kA, kB});
  group.Tell(Tell(ViewOf(V(1, 2), {kA, kB})));
  EXPECT_TRUE(group[kA].OnBroken(V(1, 1), {kB}).empty());
  group.Reduce({kA, kB}, /*empty=*/true);
  ASSERT_EQ(group[kA].phase(), Phase::kDone);
  EXPECT_NE(Find<Pause>(group.Take(kA)), nullptr);
  EXPECT_TRUE(group[kA].OnBroken(V(1, 2), {kB}).empty());
  EXPECT_EQ(group[kA].phase(), Phase::kDone);
}

TEST(Member, ABreakInTheSyncRoundOrACopyAbortsToo) {
  Member syncing = Make(kB);
  syncing.OnDirective(Tell(ViewOf(V(1, 2), {kA, kB})));
  const Actions actions = syncing.OnBroken(V(1, 2), {kA});
  EXPECT_EQ(Find<AbortView>(actions)->view, V(1, 2));
  EXPECT_EQ(syncing.phase(), Phase::kAborted);

  Member copying = Make(kB);
  copying.OnDirective(Tell(ViewOf(V(1, 2), {kA, kB})));
  copying.OnSyncId({V(1, 2), kA, StateId{V(1, 1), 5}, {}, {}});
  ASSERT_EQ(copying.phase(), Phase::kCopy);
  copying.OnBroken(V(1, 2), {kA});
  EXPECT_EQ(copying.phase(), Phase::kAborted);
  EXPECT_TRUE(copying.OnCopied(V(1, 2)).empty());
}

TEST(Member, WhoIsAskedToLeaveGoesAtOnceIfNobodyNeedsIt) {
  Member idle = Make(kA);
  EXPECT_NE(Find<Exit>(idle.OnTerminate()), nullptr);
  EXPECT_TRUE(idle.OnTerminate().empty()) << "it knows";
  Member syncing = Make(kA);
  syncing.OnDirective(Tell(ViewOf(V(1, 1), {kA, kB})));
  EXPECT_EQ(Find<Exit>(syncing.OnTerminate()), nullptr) << "a view waits for it";

  Group group({kA, kB});
  group.Tell(Tell(ViewOf(V(1, 1), {kA, kB})));
  const Actions running = group[kA].OnTerminate();
  EXPECT_EQ(Find<Exit>(running), nullptr);
  EXPECT_NE(Find<SendReport>(running), nullptr);
  EXPECT_TRUE(group[kA].MakeReport().leaving);
  group.Reduce({kA, kB}, /*empty=*/true);
  EXPECT_NE(Find<Exit>(group[kB].OnTerminate()), nullptr) << "training is over";

  Group evicted({kA, kB});
  evicted.Tell(Tell(ViewOf(V(1, 1), {kA, kB})));
  evicted.Tell(Tell(ViewOf(V(1, 2), {kA})));
  ASSERT_EQ(evicted[kB].phase(), Phase::kOut);
  EXPECT_EQ(Find<Exit>(evicted[kB].OnTerminate()), nullptr) << "it holds a state";
}

TEST(Member, WhoIsAskedToLeaveAHaltedJobGoesWhenItsStateIsSaved) {
  Group group({kA});
  group.Tell(Tell(ViewOf(V(1, 1), {kA})));
  group.Tell(SettingsOf(3, true));
  group.Reduce({kA});
  group.Reduce({kA}, /*empty=*/true);
  ASSERT_EQ(group[kA].phase(), Phase::kDone);
  const StateId last = *group[kA].state();
  group.Do(kA, group[kA].OnCheckpointWritten(last));
  group.Take(kA);
  group.Do(kA, group[kA].OnTerminate());
  EXPECT_EQ(Find<Exit>(group.Take(kA)), nullptr);
  group.Do(kA, group[kA].OnCheckpointCommitted(last));
  EXPECT_NE(Find<Exit>(group.Take(kA)), nullptr);
}

TEST(Member, WhoIsAskedToLeaveStaysAfterACheckpointWhileTheOthersGoOn) {
  Group group({kA, kB});
  group.Tell(Tell(ViewOf(V(1, 1), {kA, kB})));
  Directive turn;
  turn.incarnation = 1;
  turn.checkpoint_turn = 5;
  group.Tell(turn);
  group.Do(kA, group[kA].OnTerminate());
  group.Reduce({kA, kB});
  group.Do(kA, group[kA].OnCheckpointWritten({V(1, 1), 1}));
  group.Reduce({kA, kB});
  group.Do(kA, group[kA].OnCheckpointCommitted({V(1, 1), 1}));
  EXPECT_EQ(group[kA].MakeReport().checkpoint_turn, 5);
  EXPECT_EQ(Find<Exit>(group.Take(kA)), nullptr) << "they need it until a view has drained it";
}

TEST(Member, AViewThatStartsHaltedSavesItsStateAgainUnderItsName) {
  Group group({kA});
  group.Tell(Tell(ViewOf(V(1, 1), {kA})));
  group.Tell(SettingsOf(3, true));
  group.Reduce({kA});
  group.Take(kA);
  group.Tell(Tell(ViewOf(V(1, 2), {kA})));
  const Actions actions = group.Take(kA);
  ASSERT_NE(Find<TakeCheckpoint>(actions), nullptr);
  EXPECT_EQ(Find<TakeCheckpoint>(actions)->id, (StateId{V(1, 2), 1}));
  EXPECT_TRUE(Find<TakeCheckpoint>(actions)->last);
  EXPECT_TRUE(Find<membership::Run>(actions)->settle_only);
}

TEST(Member, AHaltThatIsTakenBackBeforeItWasSettledGoesOnInTheSameView) {
  Group group({kA});
  group.Tell(Tell(ViewOf(V(1, 1), {kA})));
  group.Tell(SettingsOf(3, true));
  group.Reduce({kA});
  group.Take(kA);
  group.Tell(SettingsOf(4, false));
  group.Reduce({kA}, /*empty=*/true);
  EXPECT_EQ(group[kA].phase(), Phase::kRun);
  const Actions actions = group.Take(kA);
  ASSERT_NE(Find<membership::Run>(actions), nullptr);
  EXPECT_FALSE(Find<membership::Run>(actions)->settle_only);
  EXPECT_EQ(Find<membership::Run>(actions)->settings.generation, 4);
}

TEST(Member, ItsReportHoldsAllThatItKnows) {
  Member member({kA, "haswell", LastExit{1, 9, "tail", 5}, {}});
  EXPECT_EQ(member.MakeReport().settled_step, -1);
  member.OnDirective(Tell(ViewOf(V(3, 1), {kA})));
  member.SetTraining({"bytes", true, "why"});
  const Report report = member.MakeReport();
  EXPECT_EQ(report.id, kA);
  EXPECT_EQ(report.highest_incarnation, 3U);
  EXPECT_EQ(report.installed->number, V(3, 1));
  EXPECT_EQ(report.state, (StateId{V(3, 1), 0}));
  EXPECT_EQ(report.phase, Phase::kRun);
  EXPECT_EQ(report.last_exit, (LastExit{1, 9, "tail", 5}));
  EXPECT_EQ(report.numeric_identity, "haswell");
  EXPECT_EQ(report.training, (Training{"bytes", true, "why"}));
  EXPECT_EQ(report.base_step, 0);
  EXPECT_FALSE(report.stopped);
}

TEST(Member, TheFirstStepOfAViewIsToldAtOnceAndLaterOnesWithTheRest) {
  Group group({kA});
  group.Tell(Tell(ViewOf(V(1, 1), {kA})));
  group.Take(kA);
  group.Reduce({kA});
  EXPECT_NE(Find<SendReport>(group.Take(kA)), nullptr);
  group.Reduce({kA});
  EXPECT_EQ(Find<SendReport>(group.Take(kA)), nullptr);
}

// Its last step is settled in the old view only if the others have it.
TEST(Member, AStepThatTheOthersMakeAnewIsNotSettledAnyMore) {
  Group group({kA, kB});
  group.Tell(Tell(ViewOf(V(1, 1), {kA})));
  group.Reduce({kA});
  group.Reduce({kA});
  EXPECT_EQ(group[kA].MakeReport().settled_step, 1);
  View other = ViewOf(V(1, 2), {kB});
  group.Do(kB, group[kB].OnDirective(Tell(other)));
  View both = ViewOf(V(1, 3), {kA, kB});
  group.Tell(Tell(both));
  EXPECT_EQ(group[kA].state(), (StateId{V(1, 3), 0}));
  EXPECT_EQ(group[kA].MakeReport().settled_step, 0);
}

// Clients of parameter servers: in the view, and in none of its groups.
// -----------------------------

View ServedView(ViewNumber number, const std::vector<MemberId>& clients) {
  View view = ViewOf(number, clients);
  view.groups.front().members = {kC};
  view.members.insert(view.members.begin(), {kC, "", number, "", "", Role::kServer});
  return view;
}

// It runs in the view V(1, 2).
Member RunningClient() {
  Member member = Make(kA);
  member.OnDirective(Tell(ServedView(V(1, 2), {kA})));
  member.OnEntered(V(1, 2));
  EXPECT_EQ(member.phase(), Phase::kRun);
  return member;
}

TEST(MemberClient, EntersAViewWithoutASyncRoundAndRunsWhenItsServersHaveWelcomedIt) {
  Member member = Make(kA);
  Actions actions = member.OnDirective(Tell(ServedView(V(1, 2), {kA})));
  EXPECT_NE(Find<Fence>(actions), nullptr);
  ASSERT_NE(Find<OpenMesh>(actions), nullptr);
  EXPECT_EQ(Find<OpenMesh>(actions)->view.number, V(1, 2));
  EXPECT_EQ(Find<SendSyncId>(actions), nullptr);
  EXPECT_EQ(member.phase(), Phase::kSync);

  EXPECT_TRUE(member.OnEntered(V(1, 1)).empty()) << "it has left that view";
  EXPECT_EQ(member.phase(), Phase::kSync);
  actions = member.OnEntered(V(1, 2));
  EXPECT_EQ(member.phase(), Phase::kRun);
  ASSERT_NE(Find<membership::Run>(actions), nullptr);
  EXPECT_EQ(Find<membership::Run>(actions)->id, (StateId{V(1, 2), 0}));
  EXPECT_FALSE(Find<membership::Run>(actions)->settle_only);
  EXPECT_NE(Find<SendReport>(actions), nullptr);
  EXPECT_TRUE(member.OnEntered(V(1, 2)).empty()) << "it runs already";
}

TEST(MemberClient, HoldsNothingThatItCouldOfferOrCopy) {
  Member member = Make(kA);
  View view = ServedView(V(1, 2), {kA});
  view.groups.front().restore = true;
  const Actions actions = member.OnDirective(Tell(view));
  EXPECT_EQ(Find<FindCheckpoint>(actions), nullptr) << "its servers restore";
  EXPECT_TRUE(member.OnCheckpointFound(V(1, 2), std::nullopt).empty());
  EXPECT_TRUE(member.OnSyncId(Stateless(V(1, 2), kC)).empty());
  EXPECT_EQ(member.phase(), Phase::kSync);
  EXPECT_FALSE(member.state());
}

TEST(MemberClient, WhoHoldsAStateDoesNotRunBecauseServersHaveWelcomedIt) {
  Member member = Make(kA);
  EXPECT_TRUE(member.OnEntered(V(1, 1)).empty()) << "it is in no view";
  member.OnDirective(Tell(ViewOf(V(1, 1), {kA, kB})));
  EXPECT_TRUE(member.OnEntered(V(1, 1)).empty());
  EXPECT_EQ(member.phase(), Phase::kSync) << "what it holds is not known to be the newest";
}

TEST(MemberClient, ObeysNewSettingsAtOnceAndEachOnlyOnce) {
  Member member = RunningClient();
  Actions actions = member.OnDirective(SettingsOf(4, false));
  ASSERT_NE(Find<ApplySettings>(actions), nullptr);
  EXPECT_EQ(Find<ApplySettings>(actions)->settings.generation, 4);
  EXPECT_EQ(member.MakeReport().settings_generation, 4);
  EXPECT_EQ(Find<ApplySettings>(member.OnDirective(SettingsOf(4, false))), nullptr);
  EXPECT_EQ(Find<ApplySettings>(member.OnDirective(SettingsOf(3, false))), nullptr) << "late";
  EXPECT_EQ(member.MakeReport().settings_generation, 4);
}

TEST(MemberClient, RunsByTheSettingsThatItHeardBeforeItsServersWelcomedIt) {
  Member member = Make(kA);
  member.OnDirective(Tell(ServedView(V(1, 2), {kA})));
  EXPECT_EQ(Find<ApplySettings>(member.OnDirective(SettingsOf(4, false))), nullptr)
      << "there is no step that they could act on";
  const Actions actions = member.OnEntered(V(1, 2));
  ASSERT_NE(Find<membership::Run>(actions), nullptr);
  EXPECT_EQ(Find<membership::Run>(actions)->settings.generation, 4);
  EXPECT_EQ(Find<ApplySettings>(actions), nullptr);
}

TEST(MemberClient, HasNothingToCommitAndSaysSoOfEveryTurn) {
  Member member = RunningClient();
  Directive turn;
  turn.incarnation = 1;
  turn.checkpoint_turn = 5;
  EXPECT_EQ(Find<TakeCheckpoint>(member.OnDirective(turn)), nullptr);
  EXPECT_EQ(member.MakeReport().checkpoint_turn, 5);
}

TEST(MemberClient, WhoIsInNoViewObeysNothing) {
  Member member = RunningClient();
  member.OnDirective(Tell(ServedView(V(1, 3), {kB})));
  ASSERT_EQ(member.phase(), Phase::kOut);
  Directive directive = SettingsOf(4, false);
  directive.checkpoint_turn = 5;
  EXPECT_TRUE(member.OnDirective(directive).empty());
  EXPECT_EQ(member.MakeReport().settings_generation, 0);
  EXPECT_EQ(member.MakeReport().checkpoint_turn, 0);
}

}  // namespace
}  // namespace starling::membership
