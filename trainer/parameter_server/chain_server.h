// SPDX-License-Identifier: Apache-2.0
// One server's side of one shard's replication (rules S1 to S6 and S9 to S11 of
// docs/design/parameter-server.md), as a pure machine: views and messages go in, messages come out.
//
// The servers of a shard form a chain. Pushes enter at the head, which orders them; each server
// applies what the one before it sends; the tail answers, so that whatever was answered is
// everywhere. Every view begins with the sync round of trainer/membership: the highest state id is
// the base, the others copy it, and until all have it no reply of any kind leaves the shard.
//
// A shell holds one ChainServer a shard under a mutex of its own, feeds it and sends what it
// returns, in order. To add a rule: a switch in rules.h, the place that obeys it, a history in
// trainer/simulation that shows what it prevents.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "trainer/membership/sync_round.h"
#include "trainer/parameter_server/messages.h"

namespace starling::parameter_server {

// One shard's part of a view: its replica chain, head first, and the clients.
struct ShardView {
  membership::ReplicaGroup group;
  std::vector<Client> clients;
};

// The newest snapshot of a shard that a server has read and verified; nothing, if none is there. An
// error: there may be one, and it cannot be read now.
using ReadableSnapshot = absl::StatusOr<std::optional<membership::CheckpointOffer>>;

enum class ServerPhase { kOut, kSync, kCopy, kRun, kAborted, kLost };

// Thread-compatible.
class ChainServer {
 public:
  struct Options {
    MemberId id;
    ShardOptions shard;
    // Told of every entry that this server appends, for audits; may be empty.
    std::function<void(const Entry& entry, Outcome outcome)> observer;
  };

  explicit ChainServer(Options options);

  // A view. In a restore view `snapshot` is what this server has to offer. One that it cannot read
  // now must not be left out, for the chain would begin before it: the server halts, and the next
  // view asks again. Views at or below the fence are ignored.
  Sends OnView(const ShardView& view, const ReadableSnapshot& snapshot = std::nullopt);
  // WantsCheckpoint() was read: its bytes.
  Sends OnLoaded(ViewNumber view, std::string_view snapshot);
  Sends OnMessage(const Message& message);
  // Out of the chain: asks it for a copy to keep, so that joining it later costs only what has come
  // since. Nothing if this server is in the chain or the chain is empty.
  Sends Prefetch() const;
  // A link of this view broke: halt, keep the state, wait for the next view.
  void OnBroken(ViewNumber view);

  // The snapshot to load, if the sync round has chosen one that this server holds.
  std::optional<StateId> WantsCheckpoint() const { return wants_checkpoint_; }

  ServerPhase phase() const { return phase_; }
  ViewNumber fence() const { return fence_; }
  const std::optional<ShardView>& installed() const { return installed_; }
  bool open() const { return open_; }
  // Something was fetched ahead.
  bool cached() const { return cache_ != nullptr; }
  // Nothing until the first sync round.
  std::optional<StateId> state_id() const;
  const ShardState* state() const { return state_.get(); }
  // Why this server halted in the installed view: a peer's message, or storage.
  const absl::Status& refused() const { return refused_; }

 private:
  const membership::ReplicaGroup& group() const { return installed_->group; }
  bool IsHead() const { return group().members.front() == options_.id; }
  bool IsTail() const { return group().members.back() == options_.id; }
  bool Runs(ViewNumber view) const { return phase_ == ServerPhase::kRun && group().epoch == view; }

  void On(const SyncMessage& message, Sends& sends);
  void On(const CopyRequest& request, Sends& sends);
  void On(const CopyReply& reply, Sends& sends);
  void On(const PrefetchRequest& request, Sends& sends);
  void On(const PrefetchReply& reply, Sends& sends);
  void On(const Synced& synced, Sends& sends);
  void On(const Forward& forward, Sends& sends);
  void On(const Push& push, Sends& sends);
  void On(const Read& read, Sends& sends);
  void On(const Hello& hello, Sends& sends);
  // A server gets no answers.
  void On(const Acknowledgement&, Sends&) {}
  void On(const Rejection&, Sends&) {}
  void On(const ReadReply&, Sends&) {}
  void On(const Welcome&, Sends&) {}
  void On(const Individually&, Sends&) {}
  void On(const KeysUnknown&, Sends&) {}
  // Nor what clients tell one another.
  void On(const Absent&, Sends&) {}

  void Decide(Sends& sends);
  // What a member can start a copy from: its state or its cache, whichever is later.
  static std::optional<StateId> HaveOf(const SyncMessage& message);
  // From `have` to the base, as far as this server's log knows; nothing if it does not.
  std::optional<std::vector<LogRecord>> RecordsSince(const std::optional<StateId>& have) const;
  void KeepForCopiers();
  void SendCopy(const MemberId& to, Sends& sends) const;
  bool Replay(const CopyReply& reply);
  void Log(LogRecord record);
  void ClearLog();
  void Run(Sends& sends);
  void OpenIfAllSynced(Sends& sends);
  void Order(const Entry& entry, Sends& sends);
  void OrderWhole(const Entry& aggregate, Sends& sends);
  void OrderWaiting(const Client& client, Sends& sends);
  void PassDown(const Forward& forward, Outcome outcome, Sends& sends);
  // What a peer says was appended. A head has checked it, but it came over the network: what is no
  // update of this shard is refused, and whoever sent it is no longer followed in this view.
  absl::StatusOr<Outcome> AppendAsReplica(const Entry& entry);
  // What Append of the state made of it.
  Outcome Appended(const Entry& entry, Outcome outcome);
  Outcome OutcomeOf(const Client& client, Sequence sequence) const;
  void Acknowledge(const Entry& entry, Outcome outcome, Sends& sends);
  void ServeWaiting(Sends& sends);
  void Answer(const Read& read, Sends& sends);
  bool MayAnswer() const { return phase_ == ServerPhase::kRun && (open_ || !rules_.open); }

  const Options options_;
  const Rules rules_;
  ServerPhase phase_ = ServerPhase::kOut;
  ViewNumber fence_ = 0;
  std::optional<ShardView> installed_;
  std::unique_ptr<ShardState> state_;
  ViewNumber synced_view_ = 0;  // of the state id
  std::deque<LogRecord> log_;   // what led to the state, from log_begin_ on; bounded
  StateId log_begin_;
  std::size_t log_bytes_ = 0;
  std::unique_ptr<ShardState> cache_;  // fetched ahead
  StateId cache_id_;

  // Of the installed view.
  std::map<MemberId, SyncMessage> sync_messages_;
  membership::SyncDecision decision_;
  std::optional<StateId> wants_checkpoint_;
  std::map<MemberId, CopyReply> copies_;  // ready for each copier
  std::vector<MemberId> copiers_waiting_;
  std::set<MemberId> synced_;  // at the tail
  bool open_ = false;
  absl::Status refused_;
  std::vector<Forward> parked_;                        // came before I had the base
  std::map<Client, std::map<Sequence, Entry>> gaps_;   // at the head
  std::vector<Read> reads_;                            // at the tail, not yet allowed
  std::vector<Hello> hellos_;                          // before the shard is open
  std::vector<std::pair<Entry, Outcome>> unanswered_;  // the same
};

}  // namespace starling::parameter_server
