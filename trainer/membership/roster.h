// SPDX-License-Identifier: Apache-2.0
// Everybody whom the coordinator knows to be there, as the rules for views want to know it: plain
// values, made anew from the failure detector and the newest reports whenever a view may be due.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "trainer/membership/failure_detector.h"
#include "trainer/membership/types.h"

namespace starling::membership {

// What a process says of one replica group.
struct GroupReport {
  std::optional<StateId> state;
  bool cached = false;  // it has fetched the state ahead, so that it can be put into the group
  bool lost = false;    // in the view that it has installed, a witness is missing
  // Bytes a second that the group costs it.
  std::int64_t load = 0;
  bool operator==(const GroupReport&) const = default;
};

struct Participant {
  MemberId id;
  std::string pod;
  std::string node;
  std::string address;
  std::int64_t index = 0;
  Role role = Role::kWorker;
  Liveness liveness = Liveness::kUnclear;  // never kGone: who has ended is in no roster
  bool leaving = false;
  bool admitted = true;      // may be in a view
  ViewNumber fence = 0;      // it refuses all below
  ViewNumber installed = 0;  // the view that it is in
  ViewNumber prepared = 0;   // to which it goes at a boundary
  Phase phase = Phase::kRun;
  std::vector<GroupReport> groups;  // in the order of the views' groups
};

struct Roster {
  // How many of a role there are to be.
  struct Wanted {
    std::int64_t most = 0;
    std::int64_t least = 1;
    std::int64_t expected = 0;  // so many have pods that are to stay
  };

  // Everybody who is not known to have ended: who is not in it has.
  std::map<MemberId, Participant> participants;
  Wanted workers;
  Wanted servers;
  // The job is halted, or nobody is wanted: nothing begins, and no step's boundary is used.
  bool idle = false;
  // The newest view is to be replaced even if nothing broke.
  bool renew = false;
  // So many were given up, report, and are taken back once the others have synced without them.
  std::int64_t returning = 0;

  const Participant* Find(const MemberId& id) const;
  // If it reports.
  const Participant* Reporting(const MemberId& id) const;
  // Of one that reports.
  const GroupReport* ReportOf(const MemberId& id, std::size_t group) const;
  bool Ended(const MemberId& id) const;
  // All of a role that report and may be in a view, those with low indices first.
  std::vector<const Participant*> Eligible(Role role) const;
  // Of those, who is to be in the next view: not leaving, and not more than are wanted.
  std::vector<const Participant*> Staying(Role role) const;
  const Wanted& WantedOf(Role role) const { return role == Role::kServer ? servers : workers; }
};

// Whether the rules could tell the difference in what a process says: a state that has grown makes
// none.
bool SameShape(const Participant& a, const Participant& b);

// As many are in the view as must be, if as many are wanted.
bool EnoughIn(const View& view, const Roster& roster);

}  // namespace starling::membership
