// SPDX-License-Identifier: Apache-2.0
// Which view is next: the coordinator's rules for views (docs/design/protocol.md) as a pure
// machine. It is told who is there and what everybody says of the replica groups (Roster), and says
// which view to publish. What makes a group safe is in GroupHistory, one a group; where groups lie
// is the Placements'; here is when a view is due, and what it carries.
//
//   C0 first view       MayBegin(): enough are there, and the rest had a moment to come too
//   C1 repair           TroubleIn(), Placement::Repair()
//   C2 planned change   AllRun(), Placement::Plan(); of a lockstep group at a step's boundary
//   C5 waive, restore   Form(), from GroupHistory
//   G6 own incarnation  TroubleIn(): whoever lacks another coordinator's view will refuse it
//
// Members check witnesses and waivers themselves before they start; only views are composed that
// will pass, so a report that is late costs time, never a step or an update.
//
// To add a rule: a private method that Next() calls, a test, and if it guards safety a switch in
// rules.h with a negative control in trainer/simulation.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "trainer/membership/group_history.h"
#include "trainer/membership/placement.h"
#include "trainer/membership/roster.h"
#include "trainer/membership/types.h"

namespace starling::membership {

// Thread-compatible. A copy shares the placements.
class ViewPlan {
 public:
  struct Options {
    Rules rules;
    std::uint64_t incarnation = 0;
    // How long one member whose links ended waits for the others to say so too: they will name who
    // is gone.
    absl::Duration abort_wait = absl::Milliseconds(250);
    // The first view waits so long for the rest once enough are there.
    absl::Duration first_view_grace = absl::Seconds(1);
  };

  // The groups of a view are those of the first placement, then those of the second, and so on.
  ViewPlan(Options options, std::vector<std::shared_ptr<Placement>> placements);

  // A view that some member has installed or prepared.
  void Learn(const View& view);
  // The roster was heard, and Learn() called; `seen` is the newest view of which the controller
  // knows.
  void OnTakenOver(ViewNumber seen);
  // The coordinator was frozen: nobody could have reported.
  void OnGap(absl::Duration gap);
  // The next view, if there is to be one. Call it on every change and every 50 ms or so.
  std::optional<View> Next(const Roster& roster, absl::Time now);

  // The newest view that was published; null: there is none.
  const View* Newest() const { return views_.empty() ? nullptr : &views_.rbegin()->second; }
  // The newest that took effect. A prepared one does when a member of the view in which it was
  // prepared has installed it (joiners install it at once, which means nothing).
  const View* Current() const;
  // The newest view, if it is prepared in the current one and can still take effect.
  const View* Pending(const Roster& roster) const;
  const std::vector<GroupHistory>& groups() const { return groups_; }
  // By the last Next(): all of the current view have synced all of their groups; and they all run
  // in it, and nothing broke.
  bool synced() const { return synced_; }
  bool running() const { return running_; }
  // The current view broke though nobody is known to be gone: its members cannot reach each other.
  bool blamed() const { return blamed_; }
  bool IsBlamed(const Roster& roster, absl::Time now) const;
  // No view is published, since what was settled last may be known only to who does not answer.
  bool unwitnessed() const { return unwitnessed_; }
  // The group that lacks a witness; none: it may be any.
  std::optional<std::size_t> unwitnessed_group() const { return unwitnessed_group_; }
  // Why no view is published, for people; empty: nothing is missing.
  const std::string& waiting() const { return waiting_; }

 private:
  enum class Trouble { kNone, kBroken, kLost, kGone };
  struct Headcount {
    const char* who;
    std::size_t there;
    const Roster::Wanted& wanted;
  };

  void Fold(const Roster& roster);
  bool SyncedByAll(const View& view) const;
  Trouble TroubleIn(const View& view, const Roster& roster, absl::Time now);
  bool AllRun(const View& view, const Roster& roster) const;
  const Placement& PlacementOf(std::size_t group) const;
  std::vector<ReplicaGroup> Place(const Roster& roster, absl::Time now);
  bool MayBegin(const std::vector<ReplicaGroup>& placed, const Roster& roster, absl::Time now);
  std::optional<View> Compose(std::vector<ReplicaGroup> placed, const Roster& roster);
  bool Form(std::size_t group, ReplicaGroup& placed, const Roster& roster);
  void NameMembers(const Roster& roster, View& view) const;
  bool Changes(const View& view, const Roster& roster) const;
  bool MayHelp(const View& view);
  void Publish(View& view);

  Options options_;
  std::vector<std::shared_ptr<Placement>> placements_;
  std::vector<GroupHistory> groups_;
  // Those of the histories, as far as they are known.
  std::map<ViewNumber, View> views_;
  std::set<ViewNumber> acted_;   // prepared ones that a member of `from` has installed
  ViewNumber seen_ = 0;          // by the controller
  bool newest_unknown_ = false;  // that one has no member left that could tell
  absl::Time enough_since_ = absl::InfiniteFuture();
  absl::Time broken_since_ = absl::InfiniteFuture();
  bool synced_ = false;
  bool running_ = false;
  bool blamed_ = false;
  bool unwitnessed_ = false;
  std::optional<std::size_t> unwitnessed_group_;
  std::optional<std::size_t> lost_;  // a group of which somebody lacks a witness
  std::uint64_t next_epoch_ = 1;
  std::string waiting_;
};

}  // namespace starling::membership
