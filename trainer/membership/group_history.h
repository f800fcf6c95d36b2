// SPDX-License-Identifier: Apache-2.0
// What a coordinator knows of one replica group over all of its views, and the safety rules that
// follow from it (docs/design/protocol.md). There is one for all workers of an all-reduce job and
// one for each shard of a job with parameter servers; the rules are the same. Pure: it is told what
// members report, and asked what the group of the next view must carry.
//
//   since           past_: every view of the group that was published, by any coordinator, and that
//                   may hold something which later ones lack. Learn() adds, Prune() removes.
//   synced by all   synced_ and SyncedByAll(): the view is behind everyone (guards C2 and C3).
//   witness rule    Form(): each listed view above what the members have synced needs one of its
//                   members here. It asks the function by which the members decide themselves.
//   late return     MayReturn(): whoever was given up waits until the newest view is synced.
//   C5, waivers     Form(): a view of which nobody is left is waived; the group restores where a
//                   waived view is above what anyone has synced, or nobody has a state.
//
// If a rule here were too weak, a group could start without something that was acknowledged or
// settled before; the members would notice only what the witness rule covers. To add a rule: a
// method here, a switch in rules.h, and a negative control in trainer/simulation.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "trainer/membership/rules.h"
#include "trainer/membership/types.h"

namespace starling::membership {

// Thread-compatible.
class GroupHistory {
 public:
  // What the failure detector and the newest reports say of processes, for one group.
  struct Evidence {
    // It has ended, or counts as ended.
    std::function<bool(const MemberId&)> ended;
    // The state of this group that it holds.
    std::function<std::optional<StateId>(const MemberId&)> state;
    // It reports, and may be added to the group as a witness; empty: nobody may.
    std::function<bool(const MemberId&)> witness{};
    // A view was published of which nobody is left to tell: whoever can offers a checkpoint.
    bool newest_unknown = false;
  };

  explicit GroupHistory(const Rules& rules = {}) : rules_(rules) {}

  // The group as some member has it installed or prepared, or as it is published now.
  void Learn(const ReplicaGroup& group);
  // A member says which of this group's states it holds.
  void LearnState(const MemberId& member, const StateId& state);
  // Drops views below the newest one that all of its members have synced: that one holds whatever
  // lower ones settled. It is kept itself: should all of its members end, the next view must know
  // that it was there. And so is a lower one with a member that is neither in that view nor has
  // ended: should the others die, that member would hold what is left.
  void Prune(const std::function<bool(const MemberId&)>& ended);

  // Whether a process that counted as ended may be taken back; `known` is the highest view of which
  // it can tell. Either a living member has synced the newest view, and that is not older than
  // `known`: then its state is later than all that the other can have made meanwhile, on its own or
  // under another coordinator. Or nobody of any view is left. Otherwise the state of the one that
  // was given up could win, and what the others have settled would be lost.
  bool MayReturn(ViewNumber known, const std::function<bool(const MemberId&)>& ended) const;

  bool SyncedByAll(const ReplicaGroup& group) const {
    return SyncedByAll(group.epoch, group.members);
  }
  // Gives the next group, of these members, the history that they need; its epoch is not yet given.
  // Witnesses that live are put in front where they are missing. Answers the lowest listed view for
  // which a witness or a waiver is still missing, so that the members could not start; 0: none is.
  ViewNumber Form(ReplicaGroup& group, const Evidence& evidence) const;

  // By epoch. Of a view in it, the members.
  const std::map<ViewNumber, Members>& past() const { return past_; }

 private:
  bool SyncedByAll(ViewNumber epoch, const Members& members) const;

  Rules rules_;
  std::map<ViewNumber, Members> past_;
  std::map<MemberId, ViewNumber> synced_;  // the highest view that a process has synced
};

// Why no view is published, for people: `what` ("the last steps") may be known only to those of
// `who` ("workers") that do not answer.
std::string MissingWitnessText(absl::string_view what, absl::string_view who, ViewNumber missing);

}  // namespace starling::membership
