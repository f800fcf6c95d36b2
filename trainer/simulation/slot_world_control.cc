// SPDX-License-Identifier: Apache-2.0
// The coordinator, which sees what the real one is told, and what goes wrong.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "trainer/simulation/slot_world.h"

namespace starling::simulation {
namespace {

constexpr std::int64_t kTick = 10'000;

bool Contains(const std::vector<MemberId>& ids, const MemberId& id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

}  // namespace

bool SlotWorld::Terminated(const MemberId& id) const { return !processes_.at(id).alive; }

void SlotWorld::CoordinatorTick() {
  if (NeedsView()) Publish();
  ReissueLeases();
  if (Chance(0.1)) Snapshot();
  if (Chance(0.1)) Prefetch();
  At(kTick, [this] { CoordinatorTick(); });
}

bool SlotWorld::NeedsView() {
  if (views_.empty() || std::exchange(replan_, false)) return true;
  const View& newest = views_.rbegin()->second;
  const auto bad = [&](const MemberId& id) {
    const Process& process = processes_.at(id);
    return !process.alive || process.suspected;
  };
  std::size_t able = 0;
  for (const auto& [id, server] : servers_) able += bad(id) ? 0 : 1;
  const std::size_t wanted = std::min(able, static_cast<std::size_t>(options_.replication));
  for (std::size_t slot = 0; slot < newest.slots.size(); ++slot) {
    const auto& chain = newest.slots[slot].group.members;
    for (const MemberId& member : chain) {
      const ps::ChainServer& machine = *servers_.at(member).slots[slot];
      const bool failed =
          machine.fence() == newest.number && (machine.phase() == ps::ServerPhase::kAborted ||
                                               machine.phase() == ps::ServerPhase::kLost);
      if (bad(member) || failed) return Chance(0.5);
    }
    if (chain.size() < wanted) return Chance(0.1);
  }
  for (const auto& [id, client] : clients_) {
    const auto& in = newest.slots[0].clients;
    const bool there = std::any_of(in.begin(), in.end(),
                                   [&id = id](const ps::Client& one) { return one.id == id; });
    if (there == bad(id)) return Chance(0.3);
  }
  return false;
}

// Who serves a slot: of those that were in its last chain and can, in some order; then others up to
// the replication; and whoever is needed as a witness.
std::vector<MemberId> SlotWorld::ChainFor(std::size_t slot, std::set<std::size_t>& restored,
                                          std::vector<ViewNumber>& waived) {
  std::vector<MemberId> chain, others;
  for (const auto& [id, server] : servers_) {
    const Process& process = processes_.at(id);
    if (!process.alive || process.suspected) continue;
    const bool before =
        !views_.empty() && views_.rbegin()->second.slots[slot].group.Has(id) && !Chance(0.05);
    (before ? chain : others).push_back(id);
  }
  for (std::size_t i = others.size(); i > 1; --i) std::swap(others[i - 1], others[random_() % i]);
  const auto wanted = static_cast<std::size_t>(options_.replication);
  while (chain.size() < wanted && !others.empty()) {
    chain.push_back(others.back());
    others.pop_back();
  }
  if (Chance(0.3)) std::reverse(chain.begin(), chain.end());
  if (!options_.rules.sync.witness) return chain;
  ViewNumber synced = 0;
  for (const MemberId& id : chain) {
    const auto state = servers_.at(id).slots[slot]->state_id();
    if (state) synced = std::max(synced, state->view);
  }
  for (const auto& [number, view] : views_) {
    const auto& members = view.slots[slot].group.members;
    if (number <= synced || std::any_of(members.begin(), members.end(), [&](const auto& member) {
          return Contains(chain, member);
        })) {
      continue;
    }
    const auto living = std::find_if(members.begin(), members.end(),
                                     [&](const auto& member) { return !Terminated(member); });
    if (living != members.end()) {
      if (!Chance(0.1)) chain.insert(chain.begin(), *living);
    } else {
      waived.push_back(number);
      restored.insert(slot);
    }
  }
  return chain;
}

void SlotWorld::Publish() {
  if (Chance(0.1)) ++incarnation_;
  View view;
  view.number = membership::MakeViewNumber(incarnation_, ++epoch_);
  for (std::size_t slot = 0; slot < pushes_.size(); ++slot) {
    ps::SlotView& mine = view.slots.emplace_back();
    mine.group.epoch = view.number;
    for (const MemberId& id : ChainFor(slot, view.restored, mine.group.waived)) {
      if (!mine.group.Has(id)) mine.group.members.push_back(id);
    }
    if (mine.group.members.empty()) return;  // nobody is there: later
    for (const auto& [number, past] : views_) {
      membership::PastView& known = mine.group.since.emplace_back();
      known.number = number;
      known.members = past.slots[slot].group.members;
    }
    mine.group.restore = view.restored.contains(slot);
  }
  std::vector<ps::Client> clients;
  for (const auto& [id, client] : clients_) {
    const Process& process = processes_.at(id);
    if (!process.alive || process.suspected) continue;
    ViewNumber joined = view.number;
    if (!views_.empty() && view.restored.empty()) {
      for (const ps::Client& before : views_.rbegin()->second.slots[0].clients) {
        if (before.id == id) joined = before.joined;
      }
    }
    clients.push_back({id, joined});
  }
  for (ps::SlotView& slot : view.slots) slot.clients = clients;
  for (const std::size_t slot : view.restored) {
    restored_[slot].insert(view.number);
    // What was acknowledged may be gone: the ledgers will say.
    for (Lease& lease : leases_) lease.done = false;
  }
  ++outcome_.views;
  const View& published = views_.emplace(view.number, std::move(view)).first->second;
  Trace(absl::StrCat("view ", published.number, ": ", clients.size(), " clients"));
  for (std::size_t slot = 0; slot < published.slots.size(); ++slot) {
    std::string line = absl::StrCat("  slot ", slot, ":");
    for (const auto& member : published.slots[slot].group.members) {
      absl::StrAppend(&line, " ", member.pod_uid, "/", member.start);
    }
    Trace(published.restored.contains(slot) ? line + " restore" : line);
  }
  for (const auto& [id, process] : processes_) {
    const Micros delay = Chance(0.2) ? Random(1'000, 150'000) : Random(100, 5'000);
    Deliver(id, delay,
            [this, number = published.number](Process& one) { Install(one, views_.at(number)); });
  }
}

const SlotWorld::View* SlotWorld::NewestView() const {
  if (leaders_.empty()) return views_.empty() ? nullptr : &views_.rbegin()->second;
  const membership::View* newest = Newest()->view();
  return newest == nullptr ? nullptr : &views_.at(newest->number);
}

// Of the newest view's chain, the open tail's.
const ps::SlotState* SlotWorld::NewestState(std::size_t slot) {
  const ps::SlotView& view = NewestView()->slots[slot];
  const ps::ChainServer& tail = *servers_.at(view.group.members.back()).slots[slot];
  const bool serves =
      !Terminated(view.group.members.back()) && tail.fence() == view.group.epoch && tail.open();
  return serves ? tail.state() : nullptr;
}

bool SlotWorld::DoneEverywhere(std::size_t lease) {
  for (std::size_t slot = 0; slot < pushes_.size(); ++slot) {
    const ps::SlotState* state = NewestState(slot);
    if (state == nullptr || !state->ledger().Has(lease + 1)) return false;
  }
  return true;
}

// As if some slot had refused it: also where all have taken it, which whoever does it again is not
// to do twice.
bool SlotWorld::GivesBack(Client& client, ps::Lease lease, double probability) {
  constexpr int kMostReturns = 40;
  if (!options_.returns || outcome_.returns >= kMostReturns || !Chance(probability)) return false;
  client.returned[lease] = now_ + Random(50'000, 500'000);
  ++outcome_.returns;
  return true;
}

std::optional<std::size_t> SlotWorld::TakeLease(const ps::Client& client) {
  if (!leaders_.empty()) {
    Client& one = clients_.at(client.id);
    for (const ps::Lease lease : one.listed) {
      if (one.missing.contains(lease - 1) || one.done.contains(lease)) continue;
      if (std::ranges::find(one.portions, lease - 1) != one.portions.end()) continue;
      if (one.returned.contains(lease) && now_ < one.returned[lease]) continue;
      one.returned.erase(lease);
      if (!GivesBack(one, lease, 0.05)) return lease - 1;
    }
    return std::nullopt;
  }
  const bool first_alone = portions_ > 0 && options_.first_values_first && !leases_[0].done;
  const std::size_t end = first_alone ? 1 : leases_.size();
  for (std::size_t lease = 0; lease < end; ++lease) {
    if (leases_[lease].done || leases_[lease].holder) continue;
    leases_[lease].holder = client;
    return lease;
  }
  return std::nullopt;
}

// Only a client of the newest view is believed: another may not have heard yet that a slot was
// restored without what it was told there.
void SlotWorld::LeaseDone(std::size_t lease, const ps::Client& client) {
  if (!leaders_.empty()) {
    Client& one = clients_.at(client.id);
    if (!GivesBack(one, lease + 1, 0.1)) one.done.insert(lease + 1);
    return;
  }
  const auto& clients = views_.rbegin()->second.slots[0].clients;
  if (std::find(clients.begin(), clients.end(), client) != clients.end())
    leases_[lease].done = true;
}

bool SlotWorld::AllLeasesDone() const {
  if (!leaders_.empty()) return Newest()->AllDone();
  return std::all_of(leases_.begin(), leases_.end(), [](const Lease& lease) { return lease.done; });
}

// A lease whose holder is out of the view, or has started over, is somebody else's to do.
void SlotWorld::ReissueLeases() {
  if (views_.empty()) return;
  const auto& clients = views_.rbegin()->second.slots[0].clients;
  for (std::size_t i = 0; i < leases_.size(); ++i) {
    Lease& lease = leases_[i];
    if (lease.done || !lease.holder) continue;
    if (std::find(clients.begin(), clients.end(), *lease.holder) != clients.end()) continue;
    lease.holder.reset();
    if (options_.rules.one_object && DoneEverywhere(i)) lease.done = true;
  }
}

void SlotWorld::PlanFaults() {
  faults_end_ = now_ + (options_.faults == 0 ? 0 : Random(400'000, 1'500'000));
  for (int i = 0; i < options_.faults; ++i) {
    At(Random(0, faults_end_ - now_), [this] { RandomFault(); });
  }
  At(faults_end_ - now_, [this] {
    Trace("faults stop");
    for (auto& [id, process] : processes_) process.suspected = false;
  });
}

SlotWorld::Process* SlotWorld::RandomProcess(bool server) {
  std::vector<Process*> living;
  for (auto& [id, process] : processes_) {
    if (process.alive && process.server == server) living.push_back(&process);
  }
  return living.empty() ? nullptr : living[random_() % living.size()];
}

void SlotWorld::Kill(Process& process) {
  Trace(absl::StrCat("kill ", process.id.pod_uid, "/", process.id.start));
  process.alive = false;
  ++(process.server ? outcome_.server_kills : outcome_.client_kills);
  const MemberId id = process.id;
  // In its pod, or in another one in the place of that.
  const bool replaced = options_.planned && Chance(0.3);
  At(Random(1'000, 300'000), [this, id, replaced, server = process.server] {
    const std::string uid = replaced ? ReplacePod(id.pod_uid) : id.pod_uid;
    const std::int64_t start = replaced ? 0 : id.start + 1;
    server ? StartServer(uid, start) : StartClient(uid, start);
  });
}

void SlotWorld::Pause(Process& process, Micros length) {
  if (process.paused) return;
  Trace(absl::StrCat("pause ", process.id.pod_uid, "/", process.id.start));
  process.paused = true;
  ++outcome_.pauses;
  if (Chance(0.7)) process.suspected = true;
  At(length, [this, id = process.id] {
    Process& woken = processes_.at(id);
    woken.paused = false;
    for (const Event& event : std::exchange(woken.inbox, {})) event();
    At(Random(0, 100'000), [this, id] { processes_.at(id).suspected = false; });
  });
}

void SlotWorld::NoticeBreak(const MemberId& at, ViewNumber view) {
  Deliver(at, Random(1'000, 50'000), [this, view, id = at](Process&) {
    for (const auto& machine : servers_.at(id).slots) machine->OnBroken(view);
  });
}

// What is on its way is lost, and both ends notice, in their own time.
void SlotWorld::BreakLink(const MemberId& a, const MemberId& b) {
  const ViewNumber view = views_.rbegin()->first;
  ++outcome_.broken_links;
  Trace(absl::StrCat("cut ", a.pod_uid, " ", b.pod_uid));
  for (const auto& [from, to] : {std::pair(a, b), std::pair(b, a)}) {
    cut_.insert({from, to, view});
    NoticeBreak(from, view);
  }
}

void SlotWorld::RandomFault() {
  const std::int64_t kind = Random(0, 9);
  Process* server = RandomProcess(true);
  Process* client = RandomProcess(false);
  if (kind <= 2 && server != nullptr) {
    Kill(*server);
    // Now and then its neighbour as well: all copies may be gone.
    Process* next = RandomProcess(true);
    if (Chance(0.25) && next != nullptr) Kill(*next);
  } else if (kind == 3 && client != nullptr) {
    Kill(*client);
  } else if (kind == 4 && server != nullptr) {
    Pause(*server, Random(20'000, 400'000));
  } else if (kind == 5 && client != nullptr) {
    Pause(*client, Random(20'000, 400'000));
  } else if (kind == 6 && server != nullptr) {
    server->suspected = true;
    At(Random(20'000, 300'000), [this, id = server->id] { processes_.at(id).suspected = false; });
  } else if (kind == 7 && client != nullptr) {
    client->suspected = true;
    At(Random(20'000, 300'000), [this, id = client->id] { processes_.at(id).suspected = false; });
  } else if (kind == 8 && server != nullptr && !views_.empty()) {
    const Process* other = RandomProcess(true);
    if (other != server) BreakLink(server->id, other->id);
  } else if (options_.planned) {
    TakeOver();
  } else {
    replan_ = true;
  }
}

}  // namespace starling::simulation
