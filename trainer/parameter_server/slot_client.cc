// SPDX-License-Identifier: Apache-2.0
#include "trainer/parameter_server/slot_client.h"

#include <algorithm>
#include <utility>

namespace starling::parameter_server {

SlotClient::SlotClient(MemberId id, std::size_t slots, Rules rules)
    : id_(std::move(id)), rules_(rules), slots_(slots) {}

ClientSends SlotClient::OnView(const ClientView& view) {
  ClientSends sends;
  if (view.number <= view_.number) return sends;
  view_ = view;
  entrusted_.clear();
  singly_ = 0;
  aggregator_.OnView({id_, view.joined}, view.group, view.reductions);
  for (Slot& slot : slots_) slot.welcomed = false;
  if (view.joined == 0) {
    ready_ = false;
    return sends;
  }
  if (view.joined != joined_ && (rules_.start_over || joined_ == 0)) {
    for (Slot& slot : slots_) slot = Slot();
    fresh_ = true;
    ready_ = rests_ = waking_ = false;
    events_.emplace_back(StartedOver{});
  }
  joined_ = view.joined;
  for (std::size_t slot = 0; slot < slots_.size(); ++slot) SendAll(slot, sends);
  return sends;
}

ClientSends SlotClient::OnMessage(std::size_t slot, const Message& message) {
  ClientSends sends;
  std::visit([&](const auto& one) { On(slot, one, sends); }, message);
  return sends;
}

bool SlotClient::Believes(ViewNumber view, const Client& client) const {
  if (!rules_.acknowledged_in_view) return client.id == id_;
  return view == view_.number && client == self() && view_.joined != 0;
}

void SlotClient::On(std::size_t slot, const Acknowledgement& acknowledgement, ClientSends& sends) {
  if (!Believes(acknowledgement.view, acknowledgement.client)) return;
  Settle(slot, acknowledgement.sequence, acknowledgement.outcome, acknowledgement.start, sends);
}

void SlotClient::On(std::size_t slot, const Rejection& rejection, ClientSends& /*sends*/) {
  if (!Believes(rejection.view, rejection.client)) return;
  events_.emplace_back(Rejected{slot, rejection.sequence, rejection.why});
}

void SlotClient::On(std::size_t slot, const ReadReply& reply, ClientSends& /*sends*/) {
  if (!Believes(reply.view, reply.client) || slots_[slot].reads.erase(reply.request) == 0) return;
  events_.emplace_back(ReadDone{slot, reply.request, reply.version, reply.status, reply.values});
}

void SlotClient::On(std::size_t slot, const Welcome& welcome, ClientSends& sends) {
  if (!Believes(welcome.view, welcome.client) || slots_[slot].welcomed) return;
  Slot& at = slots_[slot];
  at.welcomed = true;
  at.start = welcome.start;
  while (!at.unacknowledged.empty() && at.unacknowledged.begin()->first <= welcome.last) {
    const Sequence sequence = at.unacknowledged.begin()->first;
    const auto not_taken = welcome.not_taken.find(sequence);
    Settle(slot, sequence,
           not_taken == welcome.not_taken.end() ? Outcome::kTaken : not_taken->second,
           welcome.start, sends);
  }
  SendAll(slot, sends);
  BeginIfWelcome(sends);
}

void SlotClient::Settle(std::size_t slot, Sequence sequence, Outcome outcome, Clock start,
                        ClientSends& sends) {
  Slot& at = slots_[slot];
  if (at.unacknowledged.erase(sequence) == 0) return;
  entrusted_.erase({slot, sequence});
  events_.emplace_back(Acknowledged{slot, sequence, outcome, start});
  if (at.woken != sequence) return;
  at.woken = 0;
  at.start = start;
  GoOnIfAllSaid(sends);
}

void SlotClient::BeginIfWelcome(ClientSends& sends) {
  const bool all =
      std::all_of(slots_.begin(), slots_.end(), [](const Slot& slot) { return slot.welcomed; });
  if (!all || !fresh_) return;
  fresh_ = false;
  ready_ = true;
  Begin(sends);
}

void SlotClient::GoOnIfAllSaid(ClientSends& sends) {
  const bool all =
      std::all_of(slots_.begin(), slots_.end(), [](const Slot& slot) { return slot.woken == 0; });
  if (!all || !waking_) return;
  waking_ = false;
  Begin(sends);
}

// At the highest of the slots' clocks, and says so where it stands lower.
void SlotClient::Begin(ClientSends& sends) {
  Clock start = 0;
  for (const Slot& slot : slots_) start = std::max(start, slot.start);
  for (std::size_t slot = 0; slot < slots_.size(); ++slot) {
    if (slots_[slot].start == start) continue;
    Entry entry;
    entry.kind = EntryKind::kStart;
    entry.clock = start;
    Sequence sequence = 0;
    for (ClientSend& send : Push(slot, entry, sequence)) sends.push_back(std::move(send));
  }
  events_.emplace_back(Ready{start});
}

ClientSends SlotClient::Rest() {
  ClientSends sends;
  if (std::exchange(rests_, true)) return sends;
  Entry entry;
  entry.kind = EntryKind::kRest;
  for (std::size_t slot = 0; slot < slots_.size(); ++slot) {
    Sequence sequence = 0;
    for (ClientSend& send : Push(slot, entry, sequence)) sends.push_back(std::move(send));
  }
  SayAbsent(/*withdraws=*/false, sends);
  return sends;
}

ClientSends SlotClient::Wake() {
  ClientSends sends;
  if (!std::exchange(rests_, false)) return sends;
  waking_ = true;
  Entry entry;
  entry.kind = EntryKind::kWake;
  for (std::size_t slot = 0; slot < slots_.size(); ++slot) {
    for (ClientSend& send : Push(slot, entry, slots_[slot].woken)) sends.push_back(std::move(send));
  }
  return sends;
}

ClientSends SlotClient::Push(std::size_t slot, Entry entry, Sequence& sequence) {
  Slot& at = slots_[slot];
  entry.client = self();
  entry.sequence = sequence = at.next++;
  at.unacknowledged[sequence] = entry;
  if (!at.welcomed) return {};
  if (!Entrusts(slot, entry)) return {SendOf(slot, entry)};
  if (sums_up()) return SendAllOf(aggregator_.Add(slot, entry));
  entrusted_.insert({slot, sequence});
  return {{slot, {view_.group.front(), parameter_server::Push{view_.number, entry}}}};
}

// Pushing through the group.

bool SlotClient::Entrusts(std::size_t slot, const Entry& entry) {
  if (view_.group.empty() || entry.kind != EntryKind::kPush) return false;
  if (slot >= view_.reductions.size() || !view_.reductions[slot]) return false;
  if (singly_ == 0) return true;
  --singly_;
  return false;
}

void SlotClient::On(std::size_t slot, const parameter_server::Push& push, ClientSends& sends) {
  if (push.view != view_.number || view_.joined == 0 || !sums_up()) return;
  if (push.entry.kind != EntryKind::kPush) return;
  for (ClientSend& send : SendAllOf(aggregator_.Add(slot, push.entry))) {
    sends.push_back(std::move(send));
  }
}

void SlotClient::On(std::size_t /*slot*/, const Absent& absent, ClientSends& sends) {
  if (absent.view != view_.number || view_.joined == 0 || view_.group.empty()) return;
  ClientSends more;
  if (sums_up()) {
    more = SendAllOf(aggregator_.Leave(absent.client.id, absent.withdraws));
  } else if (absent.client.id == view_.group.front()) {
    more = PushSingly();
  }
  for (ClientSend& send : more) sends.push_back(std::move(send));
}

void SlotClient::On(std::size_t slot, const Singly& singly, ClientSends& sends) {
  if (!Believes(singly.view, singly.client)) return;
  entrusted_.erase({slot, singly.sequence});
  const auto& open = slots_[slot].unacknowledged;
  const auto entry = open.find(singly.sequence);
  if (entry != open.end()) sends.push_back(SendOf(slot, entry->second));
}

// What a filter has left out (filters.h): the same push or read again, under its number.
void SlotClient::On(std::size_t slot, const KeysUnknown& unknown, ClientSends& sends) {
  if (!Believes(unknown.view, unknown.client)) return;
  const Slot& at = slots_[slot];
  const auto entry = at.unacknowledged.find(unknown.sequence);
  if (entry != at.unacknowledged.end()) sends.push_back(SendOf(slot, entry->second));
  const auto read = at.reads.find(unknown.request);
  if (read != at.reads.end()) sends.push_back(SendOf(slot, read->second));
}

std::uint64_t SlotClient::entrusted() const {
  if (entrusted_.empty()) return 0;
  const auto& [slot, sequence] = *entrusted_.begin();
  return static_cast<std::uint64_t>(sequence) * slots_.size() + slot;  // sequences begin with 1
}

ClientSends SlotClient::PushSingly(std::size_t clocks) {
  ClientSends sends;
  if (view_.group.empty() || sums_up()) return sends;
  for (const auto& [slot, sequence] : std::exchange(entrusted_, {})) {
    const auto entry = slots_[slot].unacknowledged.find(sequence);
    if (entry != slots_[slot].unacknowledged.end()) sends.push_back(SendOf(slot, entry->second));
  }
  SayAbsent(/*withdraws=*/true, sends);
  singly_ = clocks * slots_.size();
  return sends;
}

ClientSends SlotClient::StandDown() {
  ClientSends sends;
  if (!sums_up()) return sends;
  sends = FlushGathered();
  for (const MemberId& member : view_.group) {
    if (member != id_) sends.push_back({0, {member, Absent{view_.number, self(), false}}});
  }
  return sends;
}

void SlotClient::SayAbsent(bool withdraws, ClientSends& sends) {
  if (view_.group.empty() || view_.joined == 0) return;
  if (!sums_up()) {
    sends.push_back({0, {view_.group.front(), Absent{view_.number, self(), withdraws}}});
    return;
  }
  for (ClientSend& send : SendAllOf(aggregator_.Leave(id_, withdraws))) {
    sends.push_back(std::move(send));
  }
}

ClientSends SlotClient::SendAllOf(std::vector<Gathered> gathered) const {
  ClientSends sends;
  for (Gathered& one : gathered) {
    parameter_server::Push push{view_.number, std::move(one.entry)};
    sends.push_back({one.slot, {view_.slots[one.slot].head, std::move(push)}});
  }
  return sends;
}

ClientSends SlotClient::Read(std::size_t slot, parameter_server::Read read, std::int64_t& request) {
  Slot& at = slots_[slot];
  read.request = request = next_request_++;
  read.sequence = at.next - 1;
  at.reads[request] = read;
  if (!at.welcomed) return {};
  return {SendOf(slot, std::move(read))};
}

ClientSends SlotClient::Resend() const {
  ClientSends sends;
  if (view_.joined == 0) return sends;
  for (std::size_t slot = 0; slot < slots_.size(); ++slot) SendAll(slot, sends);
  return sends;
}

// A greeting until it is answered; then all that is open.
void SlotClient::SendAll(std::size_t slot, ClientSends& sends) const {
  const Slot& at = slots_[slot];
  if (!at.welcomed) {
    sends.push_back({slot, {view_.slots[slot].tail, Hello{view_.number, self()}}});
    return;
  }
  for (const auto& [sequence, entry] : at.unacknowledged) sends.push_back(SendOf(slot, entry));
  for (const auto& [request, read] : at.reads) sends.push_back(SendOf(slot, read));
}

ClientSend SlotClient::SendOf(std::size_t slot, const Entry& entry) const {
  parameter_server::Push push{view_.number, entry};
  push.entry.client = self();
  return {slot, {view_.slots[slot].head, std::move(push)}};
}

ClientSend SlotClient::SendOf(std::size_t slot, parameter_server::Read read) const {
  read.view = view_.number;
  read.client = self();
  const ClientView::Ends& ends = view_.slots[slot];
  return {slot, {rules_.tail_only ? ends.tail : ends.head, std::move(read)}};
}

}  // namespace starling::parameter_server
