// SPDX-License-Identifier: Apache-2.0
// The shortest known history for each rule of the protocol in which its absence does harm. Each is
// played twice: with all rules nothing is violated, without the one rule something is. Histories
// that need luck are played here by hand; simulation_test.cc finds others by itself.
#include <algorithm>
#include <memory>

#include "gtest/gtest.h"
#include "trainer/membership/member.h"
#include "trainer/simulation/content.h"
#include "trainer/simulation/invariants.h"
#include "trainer/testing/peer_cluster.h"

namespace starling::simulation {
namespace {

using membership::Actions;
using membership::Directive;
using membership::MemberId;
using membership::Phase;
using membership::Reduction;
using membership::Rules;
using membership::StateId;
using membership::View;
using membership::ViewNumber;

const MemberId kA{"a", 0};
const MemberId kB{"b", 0};
const MemberId kC{"c", 0};

constexpr ViewNumber V(std::uint64_t incarnation, std::uint64_t epoch) {
  return incarnation << 32 | epoch;
}

struct Past {
  ViewNumber number;
  std::vector<MemberId> members;
};

View ViewOf(ViewNumber number, const std::vector<MemberId>& members,
            const std::vector<Past>& since = {}) {
  std::vector<membership::ViewMember> all;
  for (const MemberId& id : members) all.push_back({id, "", 0, ""});
  View view = membership::ViewOfPeers(number, all);
  for (const Past& past : since) view.groups[0].since.push_back({past.number, past.members});
  return view;
}

// Real members whose every message the script delivers. Copies, loads and checkpoints succeed at
// once; there is one store.
class Script {
 public:
  explicit Script(const Rules& rules)
      : rules_(rules),
        invariants_(
            [this](std::int64_t step, std::uint64_t hash) {
              return std::any_of(actors_.begin(), actors_.end(), [&](const auto& actor) {
                return actor.second.content.Holds(step, hash);
              });
            },
            /*all_older=*/true) {
    for (const MemberId& id : {kA, kB, kC}) {
      actors_[id].member = std::make_unique<membership::Member>(
          membership::Member::Options{id, "", std::nullopt, rules});
    }
  }

  membership::Member& operator[](const MemberId& id) { return *actors_.at(id).member; }
  const std::string& violation() const { return invariants_.violation(); }

  void Hear(const MemberId& id, std::uint64_t incarnation, std::int64_t turn = 0) {
    Directive directive;
    directive.incarnation = incarnation;
    directive.checkpoint_turn = turn;
    Do(id, actors_.at(id).member->OnDirective(directive));
  }
  void Tell(const std::vector<MemberId>& ids, const View& view) {
    invariants_.OnPublished(view);
    Directive directive;
    directive.incarnation = membership::IncarnationOf(view.number);
    directive.view = view;
    for (const MemberId& id : ids) Do(id, actors_.at(id).member->OnDirective(directive));
  }
  // What the members that run in this view put into its next reduction.
  struct Parts {
    Reduction reduction;
    std::uint64_t update = 0;
  };
  Parts Contribute(const std::vector<MemberId>& ids) {
    Parts parts;
    const StateId from = *actors_.at(ids.front()).member->state();
    parts.reduction.view = from.view;
    parts.reduction.step = from.step + 1;
    parts.update = Mix(from.view, static_cast<std::uint64_t>(from.step + 1));
    bool first = true;
    for (const MemberId& id : ids) {
      Actor& actor = actors_.at(id);
      const membership::ControlWord word = actor.member->NextControlWord();
      invariants_.OnContribution(from.view, from.step + 1, actor.content.hash());
      parts.update = Mix(parts.update, actor.content.hash());
      const auto fold = [&](auto field) {
        Reduction& all = parts.reduction;
        all.min.*field = first ? word.*field : std::min(all.min.*field, word.*field);
        all.max.*field = first ? word.*field : std::max(all.max.*field, word.*field);
      };
      fold(&membership::ControlWord::candidate);
      fold(&membership::ControlWord::checkpoint_turn);
      first = false;
    }
    return parts;
  }
  // The whole of it reaches these members.
  void Complete(const std::vector<MemberId>& ids, const Parts& parts) {
    for (const MemberId& id : ids) {
      Actor& actor = actors_.at(id);
      const auto before = actor.member->state();
      const std::uint64_t hash = actor.content.hash();
      const Actions actions = actor.member->OnReduced(parts.reduction);
      if (actions.empty()) continue;
      actor.content.Apply(parts.update);
      invariants_.OnSettled(parts.reduction.view, before->step, hash);
      Do(id, actions);
    }
  }
  void Step(const std::vector<MemberId>& ids) { Complete(ids, Contribute(ids)); }

 private:
  struct Actor {
    std::unique_ptr<membership::Member> member;
    Content content;
  };

  void Do(const MemberId& id, const Actions& actions) {
    Actor& actor = actors_.at(id);
    for (const membership::Action& action : actions) {
      if (const auto* send = std::get_if<membership::SendSyncId>(&action)) {
        for (auto& [peer, other] : actors_) {
          if (peer != id) Do(peer, other.member->OnSyncId(send->sync_id));
        }
      } else if (std::get_if<membership::StartFresh>(&action) != nullptr) {
        actor.content = {};
      } else if (const auto* copy = std::get_if<membership::CopyState>(&action)) {
        staged_ = known_.at(copy->base);
        Do(id, actor.member->OnCopied(copy->view));
      } else if (const auto* load = std::get_if<membership::LoadCheckpoint>(&action)) {
        staged_ = store_.at(load->name);
        Do(id, actor.member->OnLoaded(load->view));
      } else if (const auto* find = std::get_if<membership::FindCheckpoint>(&action)) {
        std::optional<membership::CheckpointOffer> offer;
        if (!store_.empty()) offer = membership::CheckpointOffer{store_.rbegin()->first, {}};
        Do(id, actor.member->OnCheckpointFound(find->view, offer));
      } else if (std::get_if<membership::AdoptCopy>(&action) != nullptr) {
        actor.content = staged_;
      } else if (const auto* run = std::get_if<membership::Run>(&action)) {
        invariants_.OnBase(run->id.view, actor.content);
      } else if (const auto* take = std::get_if<membership::TakeCheckpoint>(&action)) {
        snapshots_[take->id] = actor.content;
        Do(id, actor.member->OnCheckpointWritten(take->id));
      } else if (const auto* commit = std::get_if<membership::CommitCheckpoint>(&action)) {
        store_[commit->id] = snapshots_.at(commit->id);
        invariants_.OnCommitted(commit->id, store_[commit->id].hash());
        Do(id, actor.member->OnCheckpointCommitted(commit->id));
      }
    }
    if (!actor.member->state()) return;
    known_[*actor.member->state()] = actor.content;
    invariants_.OnState(id, *actor.member->state(), actor.content);
  }

  const Rules rules_;
  PeerInvariants invariants_;
  std::map<MemberId, Actor> actors_;
  Content staged_;
  std::map<StateId, Content> known_;
  std::map<StateId, Content> snapshots_;
  std::map<StateId, Content> store_;
};

using History = void (*)(Script&);

// Plays it with all rules, and without one.
void ExpectTheRuleMatters(History history, bool Rules::*rule) {
  Script with{Rules{}};
  history(with);
  EXPECT_EQ(with.violation(), "");

  Rules rules;
  rules.*rule = false;
  Script without(rules);
  history(without);
  EXPECT_NE(without.violation(), "");
}

TEST(Counterexample, ViewInStateId) {
  ExpectTheRuleMatters(
      [](Script& script) {
        script.Tell({kA, kB, kC}, ViewOf(V(1, 1), {kA, kB, kC}));
        // a alone completes step 1 and is suspected; b and c make another step 1; a returns.
        script.Complete({kA}, script.Contribute({kA, kB, kC}));
        script.Tell({kB, kC}, ViewOf(V(1, 2), {kB, kC}, {{V(1, 1), {kA, kB, kC}}}));
        script.Step({kB, kC});
        script.Tell({kA, kB, kC}, ViewOf(V(1, 3), {kA, kB, kC}, {{V(1, 2), {kB, kC}}}));
      },
      &Rules::view_in_state_id);
}

TEST(Counterexample, HaltFirst) {
  ExpectTheRuleMatters(
      [](Script& script) {
        script.Tell({kA, kB}, ViewOf(V(1, 1), {kA, kB}));
        const auto step = script.Contribute({kA, kB});
        // b has said that it is at step 0 of view 1; then the rest of the old allgather arrives.
        script.Tell({kB}, ViewOf(V(1, 2), {kA, kB}, {{V(1, 1), {kA, kB}}}));
        script.Complete({kB}, step);
        script.Tell({kA}, ViewOf(V(1, 2), {kA, kB}, {{V(1, 1), {kA, kB}}}));
      },
      &Rules::halt_first);
}

TEST(Counterexample, MinEqualsMax) {
  for (const bool rule : {true, false}) {
    Rules rules;
    rules.min_equals_max = rule;
    Script script(rules);
    script.Tell({kA, kB}, ViewOf(V(1, 1), {kA, kB}));
    // Two coordinators prepare views; each member has heard of one.
    View old_one = ViewOf(V(1, 2), {kA, kB});
    old_one.at_boundary = true;
    old_one.from = V(1, 1);
    View new_one = old_one;
    new_one.number = new_one.groups[0].epoch = V(2, 1);
    script.Tell({kA}, old_one);
    script.Tell({kB}, new_one);
    script.Step({kA, kB});
    // Acting on the smaller one, b acts on a view that it has never seen, and is lost to both.
    EXPECT_EQ(script[kB].phase() == Phase::kRun, rule);
    EXPECT_EQ(script[kA].phase() == Phase::kRun, rule);
  }
}

TEST(Counterexample, RefuseLowerIncarnation) {
  ExpectTheRuleMatters(
      [](Script& script) {
        // Both have told the successor that they have nothing; then b follows the old coordinator.
        script.Hear(kA, 2);
        script.Hear(kB, 2);
        script.Tell({kB}, ViewOf(V(1, 1), {kB}));
        if (script[kB].phase() == Phase::kRun) {
          script.Step({kB});
          script.Step({kB});
        }
        script.Tell({kA}, ViewOf(V(2, 1), {kA}));
      },
      &Rules::refuse_lower_incarnation);
}

// What a successor that did not wait for its roster would publish; that the real one waits is the
// business of coordinator_test.cc.
TEST(Counterexample, RosterWait) {
  for (const bool rule : {true, false}) {
    Script script(Rules{});
    script.Tell({kA, kB}, ViewOf(V(1, 1), {kA, kB}));
    script.Step({kA, kB});
    // b is evicted alive; a settles more. b reports first to the successor.
    script.Tell({kA}, ViewOf(V(1, 2), {kA}, {{V(1, 1), {kA, kB}}}));
    script.Step({kA});
    script.Step({kA});
    std::vector<Past> since = {{V(1, 1), {kA, kB}}};
    if (rule) since.push_back({V(1, 2), {kA}});
    script.Tell({kB}, ViewOf(V(2, 1), {kB}, since));
    EXPECT_EQ(script.violation().empty(), rule);
    EXPECT_EQ(script[kB].phase(), rule ? Phase::kLost : Phase::kRun);
  }
}

TEST(Counterexample, Witness) {
  ExpectTheRuleMatters(
      [](Script& script) {
        script.Tell({kB}, ViewOf(V(1, 1), {kB}));
        script.Step({kB});
        script.Step({kB});
        script.Tell({kA}, ViewOf(V(1, 2), {kA}, {{V(1, 1), {kB}}}));
      },
      &Rules::witness);
}

TEST(Counterexample, CheckpointIsNoWitness) {
  ExpectTheRuleMatters(
      [](Script& script) {
        script.Tell({kB}, ViewOf(V(1, 2), {kB}));
        script.Hear(kB, 1, /*turn=*/1);
        script.Step({kB});
        script.Step({kB});  // step 1 is settled, its checkpoint committed
        View restored = ViewOf(V(1, 3), {kC}, {{V(1, 2), {kB}}});
        restored.groups[0].restore = true;
        script.Tell({kC}, restored);
        script.Step({kB});  // meanwhile view 2 settles step 2
      },
      &Rules::checkpoint_is_no_witness);
}

TEST(Counterexample, RefuseHigherCheckpoint) {
  ExpectTheRuleMatters(
      [](Script& script) {
        script.Tell({kA}, ViewOf(V(1, 1), {kA}));
        script.Step({kA});
        script.Step({kA});
        // The new side has given a up, starts from nothing and commits a checkpoint of step 1.
        View fresh = ViewOf(V(2, 1), {kB}, {{V(1, 1), {kA}}});
        fresh.groups[0].waived = {V(1, 1)};
        script.Tell({kB}, fresh);
        script.Hear(kB, 2, /*turn=*/1);
        script.Step({kB});
        script.Step({kB});
        // The old side takes it for newer than a's own state.
        View old_side = ViewOf(V(1, 2), {kA, kC}, {{V(1, 1), {kA}}});
        old_side.groups[0].restore = true;
        script.Tell({kC, kA}, old_side);
      },
      &Rules::refuse_higher_checkpoint);
}

TEST(Counterexample, CheckpointOnlySettled) {
  ExpectTheRuleMatters(
      [](Script& script) {
        script.Tell({kA, kB}, ViewOf(V(1, 1), {kA, kB}));
        script.Hear(kA, 1, /*turn=*/1);
        script.Hear(kB, 1, /*turn=*/1);
        // a alone completes step 1, writes it, and is evicted; b makes another step 1.
        script.Complete({kA}, script.Contribute({kA, kB}));
        script.Tell({kB}, ViewOf(V(1, 2), {kB}, {{V(1, 1), {kA, kB}}}));
      },
      &Rules::checkpoint_only_settled);
}

TEST(Counterexample, IncarnationInViewNumber) {
  Script script(Rules{});
  script.Tell({kA, kB}, ViewOf(V(0, 2), {kA, kB}));
  EXPECT_EQ(script.violation(), "");
  script.Tell({kC}, ViewOf(V(0, 2), {kC}));
  EXPECT_NE(script.violation(), "");
}

// Real coordinators too: the first does not see `holders` any more, who have settled step 2, gives
// them up and starts 1 from nothing. Its successor hears them, and gives up 1.
membership::Cluster TwoSides(const Rules& rules, const std::vector<int>& holders) {
  membership::Cluster cluster(static_cast<int>(holders.size()) + 1, rules);
  for (const int pod : holders) cluster.Start(pod);
  cluster.Advance(absl::Seconds(1.5));
  for (int step = 0; step < 3; ++step) cluster.Step(holders);
  const ViewNumber seen = cluster.seen_;
  cluster.connected_.clear();
  for (const int pod : holders)
    cluster.coordinator_->OnDisconnected(cluster.Uid(pod), cluster.now_);
  cluster.Start(1);
  cluster.Advance(absl::Seconds(40));
  EXPECT_EQ(cluster.members_.at(1).state(), (StateId{V(1, 2), 0}));
  cluster.seen_ = seen;
  cluster.NewCoordinator();
  for (const int pod : holders) cluster.Connect(pod);
  cluster.Advance(absl::Seconds(2.5));
  EXPECT_EQ(cluster.members_.at(0).state(), (StateId{V(1, 1), 3}));
  EXPECT_TRUE(cluster.coordinator_->assumed_terminated().contains(cluster.Uid(1)));
  return cluster;
}

// 1 returns before anybody has heard of the successor's own first view, of which another member
// ends: the next view has both.
TEST(Counterexample, ReturnWhenSynced) {
  for (const bool rule : {true, false}) {
    Rules rules;
    rules.return_when_synced = rule;
    membership::Cluster cluster = TwoSides(rules, {0, 2, 3});
    const auto end = [&](int pod) {
      cluster.members_.erase(pod);
      cluster.connected_.erase(pod);
      cluster.coordinator_->OnDisconnected(cluster.Uid(pod), cluster.now_);
      cluster.coordinator_->OnRefused(cluster.Uid(pod), cluster.now_);
    };
    end(3);
    EXPECT_EQ(cluster.Look().newest_view, V(2, 1));
    cluster.coordinator_->OnConnected(cluster.Uid(1), cluster.now_);
    cluster.members_.at(1).OnDirective(cluster.coordinator_->DirectiveFor(cluster.Uid(1)));
    cluster.Report(1);
    end(2);
    EXPECT_EQ(cluster.Look().newest_view, V(2, 2));
    cluster.connected_.insert(1);
    cluster.Settle();
    EXPECT_EQ(cluster.members_.at(0).state()->step, rule ? 3 : 0);
    cluster.Step(cluster.Running());
    cluster.Advance(absl::Seconds(1));
    EXPECT_EQ(cluster.Running(), (std::vector<int>{0, 1}));
    EXPECT_EQ(cluster.members_.at(0).state(), cluster.members_.at(1).state());
  }
}

// The successor has published nothing, and the view that it has adopted runs: what 1 knows of is
// newer.
TEST(Counterexample, ReturnToAnAdoptedView) {
  for (const bool rule : {true, false}) {
    Rules rules;
    rules.return_when_synced = rule;
    membership::Cluster cluster = TwoSides(rules, {0});
    cluster.Connect(1);
    cluster.Step(cluster.Running());
    cluster.Advance(absl::Seconds(1));
    EXPECT_EQ(cluster.Running(), (std::vector<int>{0, 1}));
    EXPECT_EQ(cluster.members_.at(0).state()->step, rule ? 4 : 1);
    EXPECT_EQ(cluster.members_.at(0).state(), cluster.members_.at(1).state());
  }
}

}  // namespace
}  // namespace starling::simulation
