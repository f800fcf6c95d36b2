// SPDX-License-Identifier: Apache-2.0
#include "trainer/parameter_server/shard_client.h"

#include <algorithm>
#include <utility>

namespace starling::parameter_server {

ShardClient::ShardClient(MemberId id, std::size_t shards, Rules rules)
    : id_(std::move(id)), rules_(rules), shards_(shards) {}

ClientSends ShardClient::OnView(const ClientView& view) {
  ClientSends sends;
  if (view.number <= view_.number) return sends;
  view_ = view;
  delegated_.clear();
  individual_ = 0;
  aggregator_.OnView({id_, view.joined}, view.group, view.reductions);
  for (Shard& shard : shards_) shard.welcomed = false;
  if (view.joined == 0) {
    ready_ = false;
    return sends;
  }
  if (view.joined != joined_ && (rules_.start_over || joined_ == 0)) {
    for (Shard& shard : shards_) shard = Shard();
    fresh_ = true;
    ready_ = rests_ = waking_ = false;
    events_.emplace_back(StartedOver{});
  }
  joined_ = view.joined;
  for (std::size_t shard = 0; shard < shards_.size(); ++shard) SendAll(shard, sends);
  return sends;
}

ClientSends ShardClient::OnMessage(std::size_t shard, const Message& message) {
  ClientSends sends;
  std::visit([&](const auto& one) { On(shard, one, sends); }, message);
  return sends;
}

bool ShardClient::Believes(ViewNumber view, const Client& client) const {
  if (!rules_.acknowledged_in_view) return client.id == id_;
  return view == view_.number && client == self() && view_.joined != 0;
}

void ShardClient::On(std::size_t shard, const Acknowledgement& acknowledgement,
                     ClientSends& sends) {
  if (!Believes(acknowledgement.view, acknowledgement.client)) return;
  Settle(shard, acknowledgement.sequence, acknowledgement.outcome, acknowledgement.start, sends);
}

void ShardClient::On(std::size_t shard, const Rejection& rejection, ClientSends& /*sends*/) {
  if (!Believes(rejection.view, rejection.client)) return;
  events_.emplace_back(Rejected{shard, rejection.sequence, rejection.why});
}

void ShardClient::On(std::size_t shard, const ReadReply& reply, ClientSends& /*sends*/) {
  if (!Believes(reply.view, reply.client) || shards_[shard].reads.erase(reply.request) == 0) return;
  events_.emplace_back(ReadDone{shard, reply.request, reply.version, reply.status, reply.values});
}

void ShardClient::On(std::size_t shard, const Welcome& welcome, ClientSends& sends) {
  if (!Believes(welcome.view, welcome.client) || shards_[shard].welcomed) return;
  Shard& at = shards_[shard];
  at.welcomed = true;
  at.start = welcome.start;
  while (!at.unacknowledged.empty() && at.unacknowledged.begin()->first <= welcome.last) {
    const Sequence sequence = at.unacknowledged.begin()->first;
    const auto not_taken = welcome.not_taken.find(sequence);
    Settle(shard, sequence,
           not_taken == welcome.not_taken.end() ? Outcome::kTaken : not_taken->second,
           welcome.start, sends);
  }
  SendAll(shard, sends);
  BeginIfWelcome(sends);
}

void ShardClient::Settle(std::size_t shard, Sequence sequence, Outcome outcome, Clock start,
                         ClientSends& sends) {
  Shard& at = shards_[shard];
  if (at.unacknowledged.erase(sequence) == 0) return;
  delegated_.erase({shard, sequence});
  events_.emplace_back(Acknowledged{shard, sequence, outcome, start});
  if (at.woken != sequence) return;
  at.woken = 0;
  at.start = start;
  GoOnIfAllSaid(sends);
}

void ShardClient::BeginIfWelcome(ClientSends& sends) {
  const bool all = std::all_of(shards_.begin(), shards_.end(),
                               [](const Shard& shard) { return shard.welcomed; });
  if (!all || !fresh_) return;
  fresh_ = false;
  ready_ = true;
  Begin(sends);
}

void ShardClient::GoOnIfAllSaid(ClientSends& sends) {
  const bool all = std::all_of(shards_.begin(), shards_.end(),
                               [](const Shard& shard) { return shard.woken == 0; });
  if (!all || !waking_) return;
  waking_ = false;
  Begin(sends);
}

// At the highest of the shards' clocks, and says so where it stands lower.
void ShardClient::Begin(ClientSends& sends) {
  Clock start = 0;
  for (const Shard& shard : shards_) start = std::max(start, shard.start);
  for (std::size_t shard = 0; shard < shards_.size(); ++shard) {
    if (shards_[shard].start == start) continue;
    Entry entry;
    entry.kind = EntryKind::kStart;
    entry.clock = start;
    Sequence sequence = 0;
    for (ClientSend& send : Push(shard, entry, sequence)) sends.push_back(std::move(send));
  }
  events_.emplace_back(Ready{start});
}

ClientSends ShardClient::Rest() {
  ClientSends sends;
  if (std::exchange(rests_, true)) return sends;
  Entry entry;
  entry.kind = EntryKind::kRest;
  for (std::size_t shard = 0; shard < shards_.size(); ++shard) {
    Sequence sequence = 0;
    for (ClientSend& send : Push(shard, entry, sequence)) sends.push_back(std::move(send));
  }
  SayAbsent(/*withdraws=*/false, sends);
  return sends;
}

ClientSends ShardClient::Wake() {
  ClientSends sends;
  if (!std::exchange(rests_, false)) return sends;
  waking_ = true;
  Entry entry;
  entry.kind = EntryKind::kWake;
  for (std::size_t shard = 0; shard < shards_.size(); ++shard) {
    for (ClientSend& send : Push(shard, entry, shards_[shard].woken))
      sends.push_back(std::move(send));
  }
  return sends;
}

ClientSends ShardClient::Push(std::size_t shard, Entry entry, Sequence& sequence) {
  Shard& at = shards_[shard];
  entry.client = self();
  entry.sequence = sequence = at.next++;
  at.unacknowledged[sequence] = entry;
  if (!at.welcomed) return {};
  if (!Delegates(shard, entry)) return {SendOf(shard, entry)};
  if (sums_up()) return SendAllOf(aggregator_.Add(shard, entry));
  delegated_.insert({shard, sequence});
  return {{shard, {view_.group.front(), parameter_server::Push{view_.number, entry}}}};
}

// Pushing through the group.

bool ShardClient::Delegates(std::size_t shard, const Entry& entry) {
  if (view_.group.empty() || entry.kind != EntryKind::kPush) return false;
  if (shard >= view_.reductions.size() || !view_.reductions[shard]) return false;
  if (individual_ == 0) return true;
  --individual_;
  return false;
}

void ShardClient::On(std::size_t shard, const parameter_server::Push& push, ClientSends& sends) {
  if (push.view != view_.number || view_.joined == 0 || !sums_up()) return;
  if (push.entry.kind != EntryKind::kPush) return;
  for (ClientSend& send : SendAllOf(aggregator_.Add(shard, push.entry))) {
    sends.push_back(std::move(send));
  }
}

void ShardClient::On(std::size_t /*shard*/, const Absent& absent, ClientSends& sends) {
  if (absent.view != view_.number || view_.joined == 0 || view_.group.empty()) return;
  ClientSends more;
  if (sums_up()) {
    more = SendAllOf(aggregator_.Leave(absent.client.id, absent.withdraws));
  } else if (absent.client.id == view_.group.front()) {
    more = PushIndividually();
  }
  for (ClientSend& send : more) sends.push_back(std::move(send));
}

void ShardClient::On(std::size_t shard, const Individually& individually, ClientSends& sends) {
  if (!Believes(individually.view, individually.client)) return;
  delegated_.erase({shard, individually.sequence});
  const auto& open = shards_[shard].unacknowledged;
  const auto entry = open.find(individually.sequence);
  if (entry != open.end()) sends.push_back(SendOf(shard, entry->second));
}

// What a filter has left out (filters.h): the same push or read again, under its number.
void ShardClient::On(std::size_t shard, const KeysUnknown& unknown, ClientSends& sends) {
  if (!Believes(unknown.view, unknown.client)) return;
  const Shard& at = shards_[shard];
  const auto entry = at.unacknowledged.find(unknown.sequence);
  if (entry != at.unacknowledged.end()) sends.push_back(SendOf(shard, entry->second));
  const auto read = at.reads.find(unknown.request);
  if (read != at.reads.end()) sends.push_back(SendOf(shard, read->second));
}

std::uint64_t ShardClient::delegated() const {
  if (delegated_.empty()) return 0;
  const auto& [shard, sequence] = *delegated_.begin();
  return static_cast<std::uint64_t>(sequence) * shards_.size() + shard;  // sequences begin with 1
}

ClientSends ShardClient::PushIndividually(std::size_t clocks) {
  ClientSends sends;
  if (view_.group.empty() || sums_up()) return sends;
  for (const auto& [shard, sequence] : std::exchange(delegated_, {})) {
    const auto entry = shards_[shard].unacknowledged.find(sequence);
    if (entry != shards_[shard].unacknowledged.end()) sends.push_back(SendOf(shard, entry->second));
  }
  SayAbsent(/*withdraws=*/true, sends);
  individual_ = clocks * shards_.size();
  return sends;
}

ClientSends ShardClient::StandDown() {
  ClientSends sends;
  if (!sums_up()) return sends;
  sends = FlushGathered();
  for (const MemberId& member : view_.group) {
    if (member != id_) sends.push_back({0, {member, Absent{view_.number, self(), false}}});
  }
  return sends;
}

void ShardClient::SayAbsent(bool withdraws, ClientSends& sends) {
  if (view_.group.empty() || view_.joined == 0) return;
  if (!sums_up()) {
    sends.push_back({0, {view_.group.front(), Absent{view_.number, self(), withdraws}}});
    return;
  }
  for (ClientSend& send : SendAllOf(aggregator_.Leave(id_, withdraws))) {
    sends.push_back(std::move(send));
  }
}

ClientSends ShardClient::SendAllOf(std::vector<Gathered> gathered) const {
  ClientSends sends;
  for (Gathered& one : gathered) {
    parameter_server::Push push{view_.number, std::move(one.entry)};
    sends.push_back({one.shard, {view_.shards[one.shard].head, std::move(push)}});
  }
  return sends;
}

ClientSends ShardClient::Read(std::size_t shard, parameter_server::Read read,
                              std::int64_t& request) {
  Shard& at = shards_[shard];
  read.request = request = next_request_++;
  read.sequence = at.next - 1;
  at.reads[request] = read;
  if (!at.welcomed) return {};
  return {SendOf(shard, std::move(read))};
}

ClientSends ShardClient::Resend() const {
  ClientSends sends;
  if (view_.joined == 0) return sends;
  for (std::size_t shard = 0; shard < shards_.size(); ++shard) SendAll(shard, sends);
  return sends;
}

// A greeting until it is answered; then all that is open.
void ShardClient::SendAll(std::size_t shard, ClientSends& sends) const {
  const Shard& at = shards_[shard];
  if (!at.welcomed) {
    sends.push_back({shard, {view_.shards[shard].tail, Hello{view_.number, self()}}});
    return;
  }
  for (const auto& [sequence, entry] : at.unacknowledged) sends.push_back(SendOf(shard, entry));
  for (const auto& [request, read] : at.reads) sends.push_back(SendOf(shard, read));
}

ClientSend ShardClient::SendOf(std::size_t shard, const Entry& entry) const {
  parameter_server::Push push{view_.number, entry};
  push.entry.client = self();
  return {shard, {view_.shards[shard].head, std::move(push)}};
}

ClientSend ShardClient::SendOf(std::size_t shard, parameter_server::Read read) const {
  read.view = view_.number;
  read.client = self();
  const ClientView::Ends& ends = view_.shards[shard];
  return {shard, {rules_.tail_only ? ends.tail : ends.head, std::move(read)}};
}

}  // namespace starling::parameter_server
