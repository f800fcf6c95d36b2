// SPDX-License-Identifier: Apache-2.0
// A worker's side of the shards (rules S5, S7, S8 and S11 of docs/design/parameter-server.md), as a
// pure machine: it numbers pushes, keeps them until they are acknowledged in its own view, sends
// them again after every view, and starts over where it missed one.
//
// In each view it first greets every shard's tail, whose welcome tells what has arrived and where
// the client was admitted; a new client starts at the highest of those clocks and says so where it
// was admitted lower. Then pushes go to heads and reads to tails. What happened is in events(),
// which the caller takes. Replies of other views are not believed.
//
// Where the view names a group (topology.h), pushes go to the group's first client, which sums them
// up (aggregator.h) and may be this one. Every one stays its owner's: what a head did not take as
// part of a sum, what the first client holds for too long (PushIndividually) and what an ended view
// left open goes to the head by itself, under the same number.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "trainer/parameter_server/aggregator.h"
#include "trainer/parameter_server/messages.h"

namespace starling::parameter_server {

// The shards' ends in a view, and this client in it.
struct ClientView {
  ViewNumber number = 0;
  ViewNumber joined = 0;  // 0: not in it
  struct Ends {
    MemberId head;
    MemberId tail;
  };
  std::vector<Ends> shards;
  // Those that push through the first of them, this client among them; empty: it pushes alone.
  std::vector<MemberId> group{};
  // One a shard: how pushes are summed up there; where there is none they are not.
  std::vector<std::optional<Reduction>> reductions{};
};

// Everything sent is void: no leases, no residual, no cache. kReady follows.
struct StartedOver {};
// The client may begin, or go on after a rest; it has completed `start` clocks.
struct Ready {
  Clock start = 0;
};
struct Acknowledged {
  std::size_t shard = 0;
  Sequence sequence = 0;
  Outcome outcome = Outcome::kTaken;
  Clock start = 0;  // of the running step, where refused
};
struct Rejected {  // a mistake of the caller's: the message says which
  std::size_t shard = 0;
  Sequence sequence = 0;
  absl::Status why;
};
struct ReadDone {
  std::size_t shard = 0;
  std::int64_t request = 0;
  Version version = 0;
  absl::Status status;
  std::shared_ptr<const std::string> values;
};
using ClientEvent = std::variant<StartedOver, Ready, Acknowledged, Rejected, ReadDone>;

struct ClientSend {
  std::size_t shard = 0;
  Send send;
};
using ClientSends = std::vector<ClientSend>;

// Thread-compatible.
class ShardClient {
 public:
  ShardClient(MemberId id, std::size_t shards, Rules rules = {});

  ClientSends OnView(const ClientView& view);
  ClientSends OnMessage(std::size_t shard, const Message& message);
  // Everything that has no answer yet, once more: after a reconnect, or when a timer says so.
  ClientSends Resend() const;

  // Pushes to a shard; the machine fills in the client and the sequence number, which it returns in
  // `sequence`. Sent at once if the shard has welcomed this client, else when it does.
  ClientSends Push(std::size_t shard, Entry entry, Sequence& sequence);
  // Reads at `clock`; sees all that this client has pushed. The request's number is its name.
  ClientSends Read(std::size_t shard, parameter_server::Read read, std::int64_t& request);

  // In every shard: this client has no work, nobody waits for it. What it has pushed stays pushed;
  // it may read. Who starts over rests no more.
  ClientSends Rest();
  // It has work again: Ready tells at which clock it goes on, when all shards have said where.
  ClientSends Wake();
  bool rests() const { return rests_; }

  // Pushing through the group. Numbers name what waits: 0, nothing; else another one whenever the
  // oldest of it is answered.
  bool sums_up() const { return !view_.group.empty() && view_.group.front() == id_; }
  // This client has parts of sums that are not complete: when patience ends, they go as they are.
  std::uint64_t gathering() const { return aggregator_.gathering(); }
  ClientSends FlushGathered() { return SendAllOf(aggregator_.Flush()); }
  // Pushes that another client was given to sum up, and that are not in yet. When patience ends,
  // they go to the heads, as do those of the next `clocks`, so that a slow client does not slow
  // others for long.
  std::uint64_t delegated() const;
  ClientSends PushIndividually(std::size_t clocks = 32);
  // This client will not answer for a while: the others are to push by themselves.
  ClientSends StandDown();

  std::vector<ClientEvent> TakeEvents() { return std::exchange(events_, {}); }
  bool ready() const { return ready_; }
  Client self() const { return {id_, joined_}; }
  ViewNumber view() const { return view_.number; }
  std::size_t shards() const { return shards_.size(); }
  std::size_t unacknowledged(std::size_t shard) const {
    return shards_[shard].unacknowledged.size();
  }

 private:
  struct Shard {
    bool welcomed = false;  // in this view
    Clock start = 0;
    Sequence next = 1;
    Sequence woken = 0;  // not 0: the push whose answer says where this client goes on
    std::map<Sequence, Entry> unacknowledged;
    std::map<std::int64_t, parameter_server::Read> reads;
  };

  bool Believes(ViewNumber view, const Client& client) const;
  void On(std::size_t shard, const Acknowledgement& acknowledgement, ClientSends& sends);
  void On(std::size_t shard, const Rejection& rejection, ClientSends& sends);
  void On(std::size_t shard, const ReadReply& reply, ClientSends& sends);
  void On(std::size_t shard, const Welcome& welcome, ClientSends& sends);
  void On(std::size_t shard, const parameter_server::Push& push, ClientSends& sends);
  void On(std::size_t shard, const Absent& absent, ClientSends& sends);
  void On(std::size_t shard, const Individually& individually, ClientSends& sends);
  void On(std::size_t shard, const KeysUnknown& unknown, ClientSends& sends);
  template <typename Other>
  void On(std::size_t /*shard*/, const Other& /*for servers*/, ClientSends& /*sends*/) {}
  void Settle(std::size_t shard, Sequence sequence, Outcome outcome, Clock start,
              ClientSends& sends);
  void BeginIfWelcome(ClientSends& sends);
  void GoOnIfAllSaid(ClientSends& sends);
  void Begin(ClientSends& sends);
  bool Delegates(std::size_t shard, const Entry& entry);
  void SayAbsent(bool withdraws, ClientSends& sends);
  ClientSends SendAllOf(std::vector<Gathered> gathered) const;
  void SendAll(std::size_t shard, ClientSends& sends) const;
  ClientSend SendOf(std::size_t shard, const Entry& entry) const;
  ClientSend SendOf(std::size_t shard, parameter_server::Read read) const;

  const MemberId id_;
  const Rules rules_;
  ClientView view_;
  ViewNumber joined_ = 0;
  bool fresh_ = true;  // has not begun since it started over
  bool ready_ = false;
  bool rests_ = false;
  bool waking_ = false;
  std::int64_t next_request_ = 1;
  std::vector<Shard> shards_;
  std::vector<ClientEvent> events_;
  Aggregator aggregator_;
  std::set<std::pair<std::size_t, Sequence>> delegated_;
  std::size_t individual_ = 0;  // so many of the next pushes go to the heads
};

}  // namespace starling::parameter_server
