// SPDX-License-Identifier: Apache-2.0
// What must hold after every event of a simulated run, whatever went wrong in it: the invariants of
// docs/design/protocol.md, told of what happens by the simulator. Invariants is of all kinds of
// jobs, PeerInvariants of workers that hold the whole state; those of parameter servers are in
// shard_invariants.h.
//
// To add one: a method that is told the facts it needs, called where they arise, and a negative
// control in simulation_test.cc that makes it fail.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "trainer/membership/types.h"
#include "trainer/simulation/content.h"

namespace starling::simulation {

// As "2-7": the second incarnation's seventh view.
std::string Name(membership::ViewNumber view);

// Thread-compatible.
class Invariants {
 public:
  // Empty while all hold; then the first violation.
  const std::string& violation() const { return violation_; }

  // 1: one content per view number.
  void OnPublished(const membership::View& view);
  // 4's price: a coordinator counts a pod that may live as ended, and says so (StepsAtRisk). What
  // views with a member of that pod settled may be lost from now on.
  void OnGivenUp(const std::string& pod_uid) { given_up_.insert(pod_uid); }
  // What others found that look at the same history.
  void Take(const Invariants& others) {
    if (!others.violation_.empty()) Fail(others.violation_);
  }
  // 8: the run ended without a result.
  void OnStuck(const std::string& why) { Fail("8: " + why); }

 protected:
  void Fail(const std::string& what);

  std::map<membership::ViewNumber, membership::View> views_;
  std::set<std::string> given_up_;

 private:
  std::string violation_;
};

// Of the workers' group, which is the last of a view. Thread-compatible.
class PeerInvariants : public Invariants {
 public:
  // Whether a living process holds, or descends from, the state with this hash after so many steps.
  using Held = std::function<bool(std::int64_t step, std::uint64_t hash)>;

  // `all_older`: every lower view counts as an ancestor, whether a view lists it or not. That is
  // stricter than the protocol where two coordinators lead, and right where only one evicts.
  explicit PeerInvariants(Held held, bool all_older = false)
      : held_(std::move(held)), all_older_(all_older) {}

  // 1 and 3: one content per state id; a state of step k holds steps 1 to k once each. Of every
  // living member, after every event.
  void OnState(const membership::MemberId& id, const membership::StateId& state,
               const Content& content);
  // 2: contributions to one (view, step) start from one state.
  void OnContribution(membership::ViewNumber view, std::int64_t step, std::uint64_t from);
  // 2: a reduction of this view and step was applied, and made the state `id`.
  void OnApplied(const membership::MemberId& member, const membership::StateId& id,
                 membership::ViewNumber view, std::int64_t step);
  // 2: members of one view are at most one step apart.
  void OnSpread(membership::ViewNumber view, std::int64_t lowest, std::int64_t highest);
  // 4: a member started in `view` from `base`: all that its ancestors settled is in it, unless it
  // was waived or died with the last process that held it.
  void OnBase(membership::ViewNumber view, const Content& base);
  // 1: a member sends its state to who copies it in `view`, as bytes of this hash: all that are
  // sent there are the same.
  void OnServed(membership::ViewNumber view, std::uint64_t bytes);
  // 4: a member adopts what it has staged, which is whole for the sync round of `whole`.
  void OnAdopted(const membership::MemberId& member, membership::ViewNumber view,
                 membership::ViewNumber whole);
  // 4: a member says that it has completed the sync round of this view.
  void OnSynced(const membership::MemberId& member, membership::ViewNumber view);
  // 4: a coordinator lets this member go: what it holds, all members of a later view hold, or it
  // has stopped, and a checkpoint holds it.
  void OnReleased(const membership::MemberId& member);
  // 4: the state of step `step` was settled in `view`.
  void OnSettled(membership::ViewNumber view, std::int64_t step, std::uint64_t hash);
  // 5: a checkpoint of that name was committed: whoever comes after `view` must descend from it.
  void OnCommitted(const membership::StateId& name, std::uint64_t hash);
  // 5: what is committed was written.
  void OnCommitting(const membership::StateId& name, bool written);
  // 10: a validation counts after this step. `well`: all shares of it were of the state before, on
  // servers too.
  void OnValidated(std::int64_t step, bool well);
  // 5: a member says that it has stopped: this state, its last, is saved.
  void OnStopped(const membership::MemberId& member, const membership::StateId& state);

 private:
  struct Fact {
    membership::ViewNumber view = 0;
    std::int64_t step = 0;
    std::uint64_t hash = 0;
    const char* what = "";
    auto operator<=>(const Fact&) const = default;  // NOLINT(modernize-use-nullptr)
  };

  void AddFact(const Fact& fact);
  void Check(membership::ViewNumber view, const Content& base, const Fact& fact);
  // The views whose settled steps `view` must start from: those of its `since` and theirs, unless
  // one on the way waives them.
  const std::set<membership::ViewNumber>& Ancestors(membership::ViewNumber view);
  bool Binds(membership::ViewNumber older, membership::ViewNumber view);
  const std::set<membership::ViewNumber>& Waived(membership::ViewNumber view);

  const Held held_;
  const bool all_older_;
  std::map<membership::StateId, std::uint64_t> states_;
  std::map<membership::ViewNumber, std::uint64_t> served_;
  std::map<membership::MemberId, membership::ViewNumber> synced_;  // the newest, ever
  std::set<membership::StateId> committed_;
  std::set<membership::MemberId> stopped_;  // and have applied nothing since
  std::map<std::pair<membership::ViewNumber, std::int64_t>, std::uint64_t> contributions_;
  std::map<membership::ViewNumber, Content> bases_;
  std::set<Fact> facts_;
  std::map<membership::ViewNumber, std::set<membership::ViewNumber>> ancestors_;
  std::map<membership::ViewNumber, std::set<membership::ViewNumber>> waived_;
};

}  // namespace starling::simulation
