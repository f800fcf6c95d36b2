// SPDX-License-Identifier: Apache-2.0
// The vocabulary of the membership protocol (docs/design/protocol.md) as plain values: who a member
// is, what a view holds, what members and coordinator tell each other. They exist beside the
// messages of membership.proto so that the decisions stay free of any wire format; convert.h goes
// from one to the other and is the only place to change when a field is added to both.
#pragma once

#include <algorithm>
#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/time/time.h"

namespace starling::membership {

// Incarnation of the coordinator process in the high half, view epoch in the low half; 0 is no
// view. Published once, never reused, compared as one number.
using ViewNumber = std::uint64_t;

inline ViewNumber MakeViewNumber(std::uint64_t incarnation, std::uint64_t epoch) {
  return incarnation << 32 | epoch;
}
inline std::uint64_t IncarnationOf(ViewNumber view) { return view >> 32; }
inline std::uint64_t EpochOf(ViewNumber view) { return view & 0xffffffffU; }

// One process: its pod, and how many processes the pod's supervisor had started before. A report of
// a higher start proves that every lower one has ended.
struct MemberId {
  std::string pod_uid;
  std::int64_t start = 0;
  auto operator<=>(const MemberId&) const = default;  // NOLINT(modernize-use-nullptr)
};

using Members = std::vector<MemberId>;

inline bool Contains(const Members& members, const MemberId& id) {
  return std::find(members.begin(), members.end(), id) != members.end();
}

// A coordinator hears or ticks many times in this; if nothing came, it was its own process that
// stood still.
inline constexpr absl::Duration kOwnGap = absl::Milliseconds(300);

// Names the bytes of a replicated state: the view whose sync round its holder completed last, and
// the steps it has applied. Equal ids mean equal bytes; the higher one wins.
struct StateId {
  ViewNumber view = 0;
  std::int64_t step = 0;
  auto operator<=>(const StateId&) const = default;  // NOLINT(modernize-use-nullptr)
};

enum class Role { kWorker = 0, kServer = 1 };

struct ViewMember {
  MemberId id;
  std::string address;    // of the data plane, host:port
  ViewNumber joined = 0;  // since which view it has been in every view
  std::string pod;        // its name, for messages to people
  std::string node{};     // that it runs on; empty: not known
  Role role = Role::kWorker;
  bool operator==(const ViewMember&) const = default;
};

struct PastView {
  ViewNumber number = 0;
  std::vector<MemberId> members;
  bool operator==(const PastView&) const = default;
};

// Who holds one replicated state in a view, and the history that the witness rule needs. The
// members of a group hold copies of the same state and start the group with a sync round of their
// own (sync_round.h); which groups stand in a view's place is decided by group_history.h.
struct ReplicaGroup {
  // The view whose sync round its members complete; it stands in their state ids. Every view
  // restarts all of its groups today, so it is the number of the view that the group stands in.
  ViewNumber epoch = 0;
  std::vector<MemberId> members;   // an ordered list: by rank among peers, a chain head first
  std::vector<PastView> since;     // published and not known to be overtaken by a synced one
  std::vector<ViewNumber> waived;  // of those, the ones whose members have all ended
  bool restore = false;            // members offer their checkpoints as states
  // A shard that a server was too busy for: it stays where it was put while its servers do.
  bool by_load = false;

  // Place of `id` in the list, or -1.
  int RankOf(const MemberId& id) const;
  bool Has(const MemberId& id) const { return RankOf(id) >= 0; }
  bool operator==(const ReplicaGroup&) const = default;
};

// Who trains together: all processes that reach each other, and which of them hold what. In an
// all-reduce job there is one group, of all workers. With parameter servers there is one for each
// shard, and the workers are clients: they are in no group and hold nothing.
struct View {
  ViewNumber number = 0;
  bool at_boundary = false;  // takes effect by the control word of `from`; else immediately
  ViewNumber from = 0;
  // In the order of their ranks in the view's mesh; all servers stand before all workers.
  std::vector<ViewMember> members;
  std::vector<ReplicaGroup> groups;

  // Rank of `id`, or -1.
  int RankOf(const MemberId& id) const;
  const ViewMember* Find(const MemberId& id) const;
  bool Has(const MemberId& id) const { return RankOf(id) >= 0; }
  // The first group that `id` is in; null: it is in none, as a client of parameter servers.
  const ReplicaGroup* GroupOf(const MemberId& id) const;
  std::span<const ViewMember> servers() const;
  std::span<const ViewMember> workers() const;
  // Some group of this role starts from what its members can restore.
  bool Restores(Role role) const;
  bool operator==(const View&) const = default;
};

// The view of an all-reduce job: these members are its one group, in the order of their ranks.
View ViewOfPeers(ViewNumber number, std::vector<ViewMember> members);

// The mutable settings; `values` is a serialized v1alpha1.Settings that the machines do not read.
struct Settings {
  std::int64_t generation = 0;
  bool halt = false;
  std::string values;
  bool operator==(const Settings&) const = default;
};

// What the members have agreed on by control words. It is part of the replicated state: it travels
// in SyncIds, and checkpoints carry it (EncodeAgreed), so equal state ids mean equal Agreed.
struct Agreed {
  Settings settings;
  std::int64_t checkpoint_turn = 0;
  bool operator==(const Agreed&) const = default;
};

// A checkpoint that a member can read and has verified.
struct CheckpointOffer {
  StateId name;
  Agreed agreed;
  bool operator==(const CheckpointOffer&) const = default;
};

// Member to member, first thing in a view: what I hold.
struct SyncId {
  ViewNumber view = 0;
  MemberId member;
  std::optional<StateId> state;
  Agreed agreed;  // of `state`
  std::optional<CheckpointOffer> checkpoint;
  bool operator==(const SyncId&) const = default;
};

// Rides on every reduction, each number reduced by min and by max: acted on where both are equal
// and the number is new. Never mixed into a float sum.
struct ControlWord {
  std::int64_t candidate = 0;  // prepared view
  std::int64_t checkpoint_turn = 0;
  std::int64_t settings_generation = 0;
  std::int64_t stop = 0;                                 // 1: I am leaving
  auto operator<=>(const ControlWord&) const = default;  // NOLINT(modernize-use-nullptr)
};

enum class Phase {
  kOut = 0,
  kSync = 1,
  kCopy = 2,
  kRun = 3,
  kAborted = 4,
  kLost = 5,
  kLinger = 6,
  kDone = 7,
};
const char* PhaseName(Phase phase);

struct LastExit {
  std::int64_t exit_code = 0;
  std::int64_t signal = 0;
  std::string log_tail;
  std::int64_t unix_nanos = 0;
  bool operator==(const LastExit&) const = default;
};

// What the trainer itself has to say; `bytes` is a serialized v1alpha1.TrainingReport.
struct Training {
  std::string bytes;
  bool has_result = false;
  std::string failure;
  bool operator==(const Training&) const = default;
};

// What the thread that works is doing, as another thread of its process sees it (pulse.h).
struct Standing {
  enum class Kind {
    kWaits = 0,      // for others, or for work
    kWorks = 1,      // and whoever waits for it is to get something
    kAnnounced = 2,  // something that may take long: a validation, a copy, a checkpoint
  };
  Kind kind = Kind::kWaits;
  std::string where;           // in its work, for people: "compute"; empty: it is not told
  absl::Duration since{};      // so long already, as far as the process itself ran
  absl::Duration usual{};      // the 99th percentile of its own stretches of work
  std::int64_t stretches = 0;  // of work, since the view's work began
  std::int64_t thread = 0;     // as the kernel numbers it in the process's own name space
  bool operator==(const Standing&) const = default;
};

// Member to coordinator: the whole of what the member knows, every 100 ms and on change.
struct Report {
  MemberId id;
  std::uint64_t highest_incarnation = 0;
  ViewNumber fence = 0;
  std::optional<View> installed;
  std::optional<View> candidate;
  std::optional<StateId> state;
  Phase phase = Phase::kOut;
  std::int64_t settled_step = -1;  // -1: none
  std::vector<MemberId> unreachable;
  bool leaving = false;
  std::optional<LastExit> last_exit;
  std::string numeric_identity;  // empty: bits need not agree
  Training training;
  std::int64_t settings_generation = 0;  // agreed
  std::int64_t checkpoint_turn = 0;      // the last one that this member has committed
  bool stopped = false;                  // halted by the settings, checkpoint committed
  std::int64_t base_step = -1;           // where the installed view's sync round ended; -1: not yet
  bool stepped = false;                  // has completed a reduction in the installed view
  // In jobs with parameter servers a serialized v1alpha1.ParameterServerReport, which the machines
  // of this folder do not read.
  std::string parameter_server;
  Standing standing{};
  bool operator==(const Report&) const = default;
};

// Coordinator to member: the whole of what the member is to know.
struct Directive {
  std::uint64_t incarnation = 0;
  std::optional<View> view;
  bool released = false;
  bool superseded = false;
  Settings settings;
  std::int64_t checkpoint_turn = 0;
  bool finished = false;
  // In jobs with parameter servers a serialized v1alpha1.ParameterServerDirective.
  std::string parameter_server;
  // This process has stopped working and is out of the view: it says where it stands, and ends.
  std::optional<MemberId> hung{};
  bool operator==(const Directive&) const = default;
};

enum class PodState { kLive = 0, kDraining = 1, kTerminated = 2 };

struct Pod {
  std::string uid;
  std::string name;
  std::string role;
  std::int64_t index = 0;
  std::string ip;
  PodState state = PodState::kLive;
  std::string node{};  // that it runs on
  bool operator==(const Pod&) const = default;
};

// Controller to coordinator, once for a boot id, and again where it is to lead under a higher
// incarnation or, as a standby, to follow another coordinator.
struct Grant {
  std::uint64_t incarnation = 0;
  std::string boot_id;
  std::vector<Pod> roster;  // pods of the job that are not known to be terminated
  ViewNumber newest_view = 0;
  std::int64_t settled_step = 0;  // the newest that the controller has heard of
  // Not 0: ahead of time, to a standby that follows the coordinator of this incarnation.
  std::uint64_t follows = 0;
  // Of a standby that takes over: nobody was told of a later view than this one (none: of none).
  bool knows_all = false;
  std::optional<View> view{};
};

// Who takes over from a coordinator without the controller (standby.h).
struct StandbyPod {
  std::uint64_t incarnation = 0;
  std::string uid;
  std::string ip;
  bool operator==(const StandbyPod&) const = default;
};

// Controller to coordinator: the whole of what is wanted; the highest (transition, sequence) wins.
struct Desired {
  std::int64_t lease_transition = 0;
  std::int64_t sequence = 0;
  std::int64_t workers = 0;
  std::int64_t min_workers = 1;
  std::int64_t servers = 0;
  std::int64_t min_servers = 1;
  std::vector<Pod> pods;
  Settings settings;
  std::int64_t checkpoint_interval_ms = 0;  // from the settings; 0: no turns
  std::string checkpoint_request{};         // for one more: see CheckpointRounds; empty: none
  std::string trace_request{};              // for the shell, which records it; empty: none
  bool finished = false;
  // Who keeps ready to take over. Once a coordinator was told of one it has that one to its end.
  std::optional<StandbyPod> standby{};
  bool operator==(const Desired&) const = default;
};

// Coordinator to its standby, on change and every 100 ms: the whole of what it takes to lead.
struct Shadow {
  std::uint64_t incarnation = 0;  // of the coordinator
  std::uint64_t standby = 0;      // of the standby that it is for
  ViewNumber newest_view = 0;     // that it has published, or that the controller had seen
  std::optional<View> view;       // the newest that it has published
  std::int64_t settled_step = 0;  // the newest that it has heard of
  Desired desired;                // without transition and sequence: whatever comes is newer
  bool operator==(const Shadow&) const = default;
};

// Back: what the standby knows.
struct ShadowReply {
  std::uint64_t standby = 0;      // its incarnation
  std::uint64_t incarnation = 0;  // of the coordinator that it answers
  ViewNumber view = 0;            // the newest that it knows, and so acknowledges
  bool leads = false;             // it has taken over
};

}  // namespace starling::membership
