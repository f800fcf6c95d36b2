// SPDX-License-Identifier: Apache-2.0
// The coordinator's rules for jobs with parameter servers (C0 to C5 of docs/design/protocol.md, for
// every slot by itself), as a pure machine: it is told who answers and what each server holds, and
// says which view to publish, whose cache is to be filled ahead, and who may go.
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

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "trainer/parameter_server/balance.h"
#include "trainer/parameter_server/chain_server.h"
#include "trainer/parameter_server/shard_map.h"
#include "trainer/parameter_server/slot_client.h"

namespace starling::parameter_server {

// One slot in a view: its chain, head first, with the history that the witness rule needs.
struct SlotPart {
  std::vector<MemberId> chain;
  std::vector<membership::PastView> since;
  std::vector<ViewNumber> waived;
  bool restore = false;
  // A server that was too busy gave it up: the slot stays where it was put while its servers do.
  bool by_load = false;
  bool operator==(const SlotPart&) const = default;
};

// A view of a job with parameter servers; it takes effect at once.
struct JobView {
  ViewNumber number = 0;
  std::vector<membership::ViewMember> servers;  // all that can be reached, in chains or not
  std::vector<membership::ViewMember> clients;
  std::vector<SlotPart> slots;  // in the map's order

  bool HasServer(const MemberId& id) const;
  bool HasClient(const Client& client) const;
  bool operator==(const JobView&) const = default;
};

// What the machines of one slot, and of one client, are told of it.
SlotView SlotViewOf(const JobView& view, std::size_t slot);
ClientView ClientViewOf(const JobView& view, const MemberId& client);
// Ranks of the view's mesh: the servers, then the clients.
std::vector<MemberId> RanksOf(const JobView& view);

enum class Presence {
  kReporting,
  kUnclear,  // not heard yet, by a coordinator that has just begun
  kSilent,   // does not answer; it may live
};

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
  Presence presence = Presence::kUnclear;
  ViewNumber fence = 0;  // the view that it has installed
  bool broken = false;   // and whose links have ended
  std::vector<SlotReport> slots;
};

// Everybody who is not known to have ended: who is not in it has.
struct Census {
  std::vector<Participant> participants;
  std::int64_t servers = 0;  // wanted
  std::int64_t clients = 0;
  std::int64_t min_servers = 1;
  std::int64_t min_clients = 1;
};

// Every safety rule as a switch, on in programs.
struct PlanRules {
  membership::Rules sync;       // among them that a successor hears everyone first (C4)
  bool prune_synced = true;     // a view is forgotten only once a later one is synced by all
  bool waive_ended = true;      // a view is waived only if all its members have ended
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
  void Learn(const JobView& view);
  // The next view, if there is to be one. Call it on every change and every 50 ms or so.
  std::optional<JobView> Plan(const Census& census, absl::Time now);

  const JobView& newest() const { return newest_; }
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
  using Chain = std::vector<MemberId>;
  enum class Trouble { kNone, kBroken, kLost, kGone };

  const Participant* Find(const MemberId& id) const;
  const Participant* Reporting(const MemberId& id) const;
  const SlotReport* ReportOf(const MemberId& server, std::size_t slot) const;
  bool Ended(const MemberId& id) const;
  bool AllEnded(const Chain& chain) const;
  void Fold();
  void Prune(std::size_t slot);
  bool SyncedByAll(std::size_t slot, ViewNumber view, const Chain& chain) const;
  bool HeardAll();
  bool IsRunning() const;
  Trouble TroubleIn(absl::Time now);
  std::vector<const Participant*> Staying(bool servers) const;
  std::optional<JobView> Compose(bool planned, absl::Time now);
  bool Ready(std::size_t slot, const MemberId& server) const;
  std::size_t ChainLength(std::size_t servers) const;
  Chain PlacedByLoad(std::size_t slot, const Chain& servers) const;
  std::vector<Chain> Targets(const Chain& servers) const;
  void Relieve(const Chain& servers, absl::Time now);
  Chain ChainFor(std::size_t slot, const Chain& target, bool move) const;
  bool Witness(std::size_t slot, SlotPart& part);
  void NameClients(JobView& view) const;
  bool Changes(const JobView& view) const;

  const Options options_;
  Census census_;
  std::map<MemberId, const Participant*> known_;  // into census_
  JobView newest_;
  // Per slot: the chains of views published and not overtaken, and what each server has synced.
  std::vector<std::map<ViewNumber, Chain>> past_;
  std::vector<std::map<MemberId, ViewNumber>> synced_;
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
