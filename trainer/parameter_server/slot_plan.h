// SPDX-License-Identifier: Apache-2.0
// The coordinator's rules for views of jobs with parameter servers (docs/design/protocol.md), as a
// pure machine: it is told who answers and what each server holds, and says which view to publish,
// whose cache is to be filled ahead, and who may go. What makes a chain safe (its history, the
// witness rule, waivers, restores) is in membership::GroupHistory, one a slot; here is where chains
// are to lie, and when a view is due.
//
//   C0 first view      Plan(), until enough servers are there
//   C1 repair          TroubleIn(), Compose(planned = false)
//   C2 planned change  IsRunning(), Compose(planned = true): join first, drain after
//   C3 release         Released()
//   C4 take-over       HeardAll()
//
// Workers are clients: they come and go by any view and are never in a chain. Servers come in two
// views: the first lets them reach the others and fill their caches, the next puts them into the
// chains. A slot of a server that is too busy moves in the same way, one at a time. They leave in
// two as well: out of the chains, then out of the view. What a server itself must check before it
// starts (witnesses, waivers) it checks itself; the planner only composes views that will pass, so
// a report that is late costs time, never an update.
//
// To add a rule: a private method that Plan() calls, a test in slot_plan_test.cc, and if it guards
// safety a switch in PlanRules with a negative control in trainer/simulation.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "trainer/membership/failure_detector.h"
#include "trainer/membership/group_history.h"
#include "trainer/parameter_server/balance.h"
#include "trainer/parameter_server/chain_server.h"
#include "trainer/parameter_server/shard_map.h"
#include "trainer/parameter_server/slot_client.h"

namespace starling::parameter_server {

using membership::Liveness;
using membership::ReplicaGroup;
using membership::View;

// In a view of a job with parameter servers the groups are the slots' replica chains, in the map's
// order.
bool HasClient(const View& view, const Client& client);
// What the machines of one slot, and of one client, are told of it.
SlotView SlotViewOf(const View& view, std::size_t slot);
ClientView ClientViewOf(const View& view, const MemberId& client);
// Ranks of the view's mesh: the servers, then the clients.
std::vector<MemberId> RanksOf(const View& view);

// What a server says of one slot.
struct SlotReport {
  std::optional<StateId> state;
  bool cached = false;  // it has fetched something ahead
  bool lost = false;    // in its view a witness is missing
  // Bytes a second, of updates and of values read, on this server.
  std::int64_t load = 0;
  bool operator==(const SlotReport&) const = default;
};

// A process, as the coordinator knows it.
struct Participant {
  MemberId id;
  std::string pod;
  std::string node;
  std::string address;
  std::int64_t index = 0;
  bool server = false;
  bool leaving = false;
  Liveness liveness = Liveness::kUnclear;  // never kGone: who has ended is in no census
  ViewNumber fence = 0;                    // the view that it has installed
  bool broken = false;                     // and whose links have ended
  std::vector<SlotReport> slots;
};

// Everybody who is not known to have ended: who is not in it has.
struct Census {
  std::vector<Participant> participants;
  std::int64_t servers = 0;  // wanted
  std::int64_t clients = 0;
  std::int64_t min_servers = 1;
  std::int64_t min_clients = 1;
  // The newest view is to be replaced even if nothing broke.
  bool renew = false;
};

// As many as must be there, if as many are wanted.
bool EnoughIn(const View& view, const Census& census);

// Every safety rule as a switch, on in programs.
struct PlanRules {
  membership::Rules sync;       // among them that a successor hears everyone first (C4)
  bool restart_clients = true;  // where a slot is restored all clients start over (S7)
};

// Thread-compatible.
class SlotPlan {
 public:
  struct Options {
    std::vector<SlotId> slots;
    std::map<SlotId, double> weights;
    Placement placement;
    std::uint64_t incarnation = 0;
    // The newest view of which whoever made this coordinator has heard.
    ViewNumber newest_view = 0;
    // How long one member whose links ended waits for the others to say so too.
    absl::Duration abort_wait = absl::Milliseconds(250);
    // How long chains wait for the last cache to be filled; then those that are ready move.
    absl::Duration ahead_patience = absl::Seconds(10);
    Balance balance;
    PlanRules rules;
  };

  explicit SlotPlan(Options options);

  // A view that some member has installed.
  void Learn(const View& view);
  // The next view, if there is to be one. Call it on every change and every 50 ms or so.
  std::optional<View> Plan(const Census& census, absl::Time now);

  const View& newest() const { return newest_; }
  // Whether this holds for the history of each slot.
  bool EveryGroup(const std::function<bool(const membership::GroupHistory&)>& holds) const {
    return std::all_of(groups_.begin(), groups_.end(), holds);
  }
  // Whether all servers of the newest view have synced all of their slots, and nothing broke.
  bool running() const { return running_; }
  // The slots of which a server is to fetch a copy ahead.
  std::vector<std::size_t> FetchAhead(const MemberId& server) const;
  // Whoever is leaving may go: the view that goes on without it is synced.
  bool Released(const MemberId& id) const;
  // Why no view is published, for people; empty: nothing is missing.
  const std::string& waiting() const { return waiting_; }
  // The newest view broke though nobody is known to be gone: its members cannot reach each other.
  bool blamed() const { return blamed_; }
  // No view is published, since the last updates may be known only to servers that do not answer.
  bool unwitnessed() const { return unwitnessed_; }

 private:
  using Chain = membership::Members;
  enum class Trouble { kNone, kBroken, kLost, kGone };

  const Participant* Find(const MemberId& id) const;
  const Participant* Reporting(const MemberId& id) const;
  const SlotReport* ReportOf(const MemberId& server, std::size_t slot) const;
  bool Ended(const MemberId& id) const;
  void Fold();
  bool HeardAll();
  bool IsRunning() const;
  Trouble TroubleIn(absl::Time now);
  std::vector<const Participant*> Staying(bool servers) const;
  std::optional<View> Compose(bool planned, absl::Time now);
  bool Ready(std::size_t slot, const MemberId& server) const;
  std::size_t ChainLength(std::size_t servers) const;
  Chain PlacedByLoad(std::size_t slot, const Chain& servers) const;
  std::vector<Chain> Targets(const Chain& servers) const;
  void Relieve(const Chain& servers, absl::Time now);
  Chain ChainFor(std::size_t slot, const Chain& target, bool move) const;
  std::optional<ReplicaGroup> Form(std::size_t slot, Chain chain);
  void NameMembers(const Chain& servers, View& view) const;
  bool Changes(const View& view) const;

  const Options options_;
  Census census_;
  std::map<MemberId, const Participant*> known_;  // into census_
  View newest_;
  std::vector<membership::GroupHistory> groups_;  // one a slot
  std::map<MemberId, std::vector<std::size_t>> ahead_;
  absl::Time ahead_since_ = absl::InfiniteFuture();
  absl::Time broken_since_ = absl::InfiniteFuture();
  absl::Time uneven_since_ = absl::InfiniteFuture();
  std::optional<Move> move_;  // under way
  bool heard_all_ = false;
  bool newest_unknown_ = false;  // a view was published of which nobody is left to tell
  bool running_ = false;
  bool blamed_ = false;
  bool unwitnessed_ = false;
  std::uint64_t next_epoch_ = 1;
  std::string waiting_;
};

}  // namespace starling::parameter_server
