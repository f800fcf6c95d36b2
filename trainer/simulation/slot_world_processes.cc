// SPDX-License-Identifier: Apache-2.0
// Servers and clients: what stands between the machines and the made-up world.
#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "trainer/simulation/slot_world.h"

namespace starling::simulation {

void SlotWorld::StartServer(const std::string& uid, std::int64_t start) {
  const MemberId id{uid, start};
  Process& process = processes_[id];
  process.id = id;
  process.server = true;
  if (options_.planned) Live(id);
  Server& server = servers_[id];
  for (std::size_t slot = 0; slot < pushes_.size(); ++slot) {
    ps::ChainServer::Options options;
    options.id = id;
    options.slot = SlotOfAll();
    options.observer = [this, id, slot](const ps::Entry& entry, ps::Outcome outcome) {
      const ps::ChainServer& machine = *servers_.at(id).slots[slot];
      invariants_.OnAppended(slot, machine.installed()->group.epoch, entry, outcome);
      if (portions_ > 0) invariants_.OnAppendedInStep(slot, *machine.state(), entry, outcome);
      if (outcome == ps::Outcome::kSkipped) ++outcome_.skipped;
      if (entry.parts.size() > 1) ++outcome_.aggregates;
    };
    server.slots.push_back(std::make_unique<ps::ChainServer>(std::move(options)));
    server.seen.emplace_back();
    server.based.push_back(0);
    server.loading.push_back(0);
  }
}

void SlotWorld::StartClient(const std::string& uid, std::int64_t start) {
  const MemberId id{uid, start};
  processes_[id].id = id;
  clients_[id].machine = std::make_unique<ps::SlotClient>(id, pushes_.size(), options_.rules);
  Retry(id);
  if (options_.fanout > 1) LosePatience(id);
  if (options_.planned) Live(id);
}

void SlotWorld::Install(Process& process, const View& view) {
  if (view.number <= process.view) return;
  process.view = view.number;
  if (process.server) {
    for (std::size_t slot = 0; slot < view.slots.size(); ++slot) {
      std::optional<membership::CheckpointOffer> offer;
      if (!disk_[slot].empty()) offer = {disk_[slot].rbegin()->first, {}};
      SendFrom(process.id, slot,
               servers_.at(process.id).slots[slot]->OnView(view.slots[slot], offer));
      LoadIfWanted(process.id, slot);
    }
  } else {
    ps::ClientView mine;
    mine.number = view.number;
    for (const ps::SlotView& slot : view.slots) {
      mine.slots.push_back({slot.group.members.front(), slot.group.members.back()});
    }
    for (const ps::Client& client : view.slots[0].clients) {
      if (client.id == process.id) mine.joined = client.joined;
    }
    mine.group = GroupOf(view, process.id);
    mine.reductions.assign(pushes_.size(), ps::ReductionOf(SlotOfAll()));
    SendFrom(process.id, clients_.at(process.id).machine->OnView(mine));
    OnClientEvents(process.id);
  }
  // What came early for this view or, if it was never installed here, for one before it.
  while (!process.parked.empty() && process.parked.begin()->first <= process.view) {
    const auto arrived = process.parked.extract(process.parked.begin());
    for (const Event& event : arrived.mapped()) event();
  }
}

// As parameter_server::GroupOf makes those of a tree.
std::vector<MemberId> SlotWorld::GroupOf(const View& view, const MemberId& id) const {
  const std::vector<ps::Client>& clients = view.slots[0].clients;
  const auto fanout = static_cast<std::size_t>(options_.fanout);
  std::vector<MemberId> group;
  for (std::size_t begin = 0; fanout > 1 && begin < clients.size(); begin += fanout) {
    group.clear();
    for (std::size_t i = begin; i < std::min(begin + fanout, clients.size()); ++i) {
      group.push_back(clients[i].id);
    }
    if (std::find(group.begin(), group.end(), id) != group.end()) return group;
  }
  return {};
}

// Of who sums up and of who is summed up, as shells do.
void SlotWorld::LosePatience(const MemberId& id) {
  Deliver(id, Random(2'000, 20'000), [this, id](Process&) {
    ps::SlotClient& machine = *clients_.at(id).machine;
    SendFrom(id, machine.FlushGathered());
    if (machine.entrusted() != 0 && Chance(0.2)) SendFrom(id, machine.PushSingly(1));
    if (Chance(0.05)) SendFrom(id, machine.StandDown());
    LosePatience(id);
  });
}

void SlotWorld::SendFrom(const MemberId& server, std::size_t slot, const ps::Sends& sends) {
  for (const ps::Send& send : sends) {
    if (std::holds_alternative<ps::Singly>(send.message)) ++outcome_.singly;
    if (const auto* copy = std::get_if<ps::CopyReply>(&send.message)) {
      ++outcome_.copies;
      if (!copy->snapshot) ++outcome_.short_copies;
    }
    Post(server, send.to, slot, send.message);
  }
}

void SlotWorld::LoadIfWanted(const MemberId& id, std::size_t slot) {
  Server& server = servers_.at(id);
  const ps::ChainServer& machine = *server.slots[slot];
  const std::optional<StateId> wanted = machine.WantsCheckpoint();
  const ViewNumber view = machine.fence();
  if (!wanted || server.loading[slot] == view) return;
  server.loading[slot] = view;
  ++outcome_.restores;
  const auto loaded = [this, id, slot, view, bytes = disk_[slot].at(*wanted)](Process&) {
    SendFrom(id, slot, servers_.at(id).slots[slot]->OnLoaded(view, bytes));
  };
  // The machine may have gone on to another view meanwhile.
  Deliver(id, Chance(0.2) ? Random(1'000, 100'000) : Random(50, 3'000), loaded);
  if (!Late() && Chance(0.1)) Deliver(id, Random(20'000, 300'000), loaded);
}

void SlotWorld::SendFrom(const MemberId& client, const ps::ClientSends& sends) {
  for (const ps::ClientSend& send : sends) {
    Post(client, send.send.to, send.slot, send.send.message);
  }
}

void SlotWorld::OnClientEvents(const MemberId& id) {
  for (const ps::ClientEvent& event : clients_.at(id).machine->TakeEvents()) {
    std::visit([&](const auto& one) { On(id, one); }, event);
  }
}

void SlotWorld::On(const MemberId& id, const ps::StartedOver&) {
  Client& client = clients_.at(id);
  client.computing = false;
  client.reading.clear();
  client.units.clear();
  client.missing.clear();
  client.portions.clear();
  client.refused.clear();
  client.singly.clear();
  client.listed.clear();
  client.done.clear();
  client.returned.clear();
}

void SlotWorld::On(const MemberId& id, const ps::Ready& event) {
  clients_.at(id).clock = event.start;
  Trace(absl::StrCat(id.pod_uid, " starts at clock ", event.start));
  portions_ > 0 ? BeginPortions(id) : StartReading(id);
}

void SlotWorld::On(const MemberId& id, const ps::Acknowledged& event) {
  Client& client = clients_.at(id);
  const auto unit = client.units.find({event.slot, event.sequence});
  if (unit == client.units.end()) return;  // it only told where this client starts
  ++outcome_.acknowledged;
  for (const std::size_t one : unit->second) {
    if (event.outcome == ps::Outcome::kRefused) {
      client.refused.insert(one);
    } else {
      invariants_.OnAcknowledged(event.slot, client.machine->view(), one);
    }
    const auto missing = client.missing.find(one);
    if (missing == client.missing.end()) continue;
    missing->second.erase(event.slot);
    if (!missing->second.empty()) continue;
    client.missing.erase(missing);
    if (client.refused.erase(one) == 0) {
      LeaseDone(one, client.machine->self());
    } else {
      ++outcome_.refused;
      client.singly.insert(one);
      leases_[one].holder.reset();
    }
  }
  client.units.erase(unit);
}

void SlotWorld::On(const MemberId& /*id*/, const ps::Rejected& event) {
  invariants_.OnStuck(absl::StrCat("a good push was rejected: ", event.why.ToString()));
}

void SlotWorld::On(const MemberId& id, const ps::ReadDone& event) {
  Client& client = clients_.at(id);
  const auto reading = client.reading.find({event.slot, event.request});
  if (reading == client.reading.end()) return;
  ++outcome_.reads;
  std::vector<float> values(event.values->size() / sizeof(float));
  std::memcpy(values.data(), event.values->data(), event.values->size());
  const View& view = views_.at(client.machine->view());
  Trace(absl::StrCat(id.pod_uid, " reads slot ", event.slot, " at clock ", reading->second));
  if (staleness_) {
    invariants_.OnRead(event.slot, view.slots[event.slot], reading->second - *staleness_, values,
                       pushes_[event.slot]);
  }
  if (portions_ > 0) {
    invariants_.OnReadInStep(event.slot, portions_, reading->second, leases_.size(), values);
  }
  client.reading.erase(reading);
  client.version = event.version;
  if (!client.reading.empty()) return;
  client.computing = true;
  const Micros length = Chance(0.1) ? Random(1'000, 80'000) : Random(500, 5'000);
  Deliver(id, length, [this, id, self = client.machine->self()](Process&) {
    Client& one = clients_.at(id);
    if (one.computing && one.machine->self() == self) Compute(id);
  });
}

void SlotWorld::StartReading(const MemberId& id) {
  Client& client = clients_.at(id);
  for (std::size_t slot = 0; slot < pushes_.size(); ++slot) {
    ps::Read read;
    read.clock = client.clock;
    read.rows = table_->rows;
    std::int64_t request = 0;
    const ps::ClientSends sends = client.machine->Read(slot, read, request);
    client.reading[{slot, request}] = client.clock;
    SendFrom(id, sends);
  }
}

// One clock's pushes: a lease if there is one, now and then something else, now and then two.
void SlotWorld::Compute(const MemberId& id) {
  Client& client = clients_.at(id);
  client.computing = false;
  if (portions_ > 0) return PushPortions(id);
  const int pushes = Chance(0.4) ? 2 : 1;
  for (int i = 0; i < pushes; ++i) {
    std::optional<std::size_t> lease;
    if (Chance(0.8) || Late()) lease = TakeLease(client.machine->self());
    PushUnit(id, lease, /*completes=*/i == pushes - 1);
  }
  ++client.clock;
  if (Chance(0.1)) {
    RestAWhile(id);
  } else {
    StartReading(id);
  }
}

// As a client does that has no work; Ready tells it where to go on.
void SlotWorld::RestAWhile(const MemberId& id) {
  Client& client = clients_.at(id);
  Trace(absl::StrCat(id.pod_uid, " rests"));
  ++outcome_.rests;
  SendFrom(id, client.machine->Rest());
  Deliver(id, Random(500, 40'000), [this, id, self = client.machine->self()](Process&) {
    Client& one = clients_.at(id);
    if (one.machine->self() == self) SendFrom(id, one.machine->Wake());
  });
}

// Without a lease, and with nothing else to do, an empty push that only moves the clock.
void SlotWorld::PushUnit(const MemberId& id, std::optional<std::size_t> lease, bool completes) {
  Client& client = clients_.at(id);
  std::optional<std::size_t> unit = lease;
  if (!unit && !Late() && next_unit_ < table_->rows) unit = next_unit_++;
  const std::vector<float> one = {1};
  ps::Update update;
  update.first = unit.value_or(0);
  update.rows = unit ? 1 : 0;
  if (unit) update.values = one;
  ps::Entry entry;
  entry.lease = lease ? *lease + 1 : 0;
  entry.clock = client.clock;
  entry.completes = completes;
  entry.read = client.version;
  entry.update = ps::Encode(update);
  if (lease) {
    for (std::size_t slot = 0; slot < pushes_.size(); ++slot) client.missing[*lease].insert(slot);
  }
  PushToAll(id, entry, unit ? std::vector<std::size_t>{*unit} : std::vector<std::size_t>());
}

void SlotWorld::PushToAll(const MemberId& id, const ps::Entry& entry,
                          const std::vector<std::size_t>& units) {
  Client& client = clients_.at(id);
  for (std::size_t slot = 0; slot < pushes_.size(); ++slot) {
    for (const std::size_t unit : units) {
      pushes_[slot].push_back({client.machine->self(), entry.clock, unit});
    }
    ps::Sequence sequence = 0;
    const ps::ClientSends sends = client.machine->Push(slot, entry, sequence);
    if (!units.empty()) client.units[{slot, sequence}] = units;
    for (const std::size_t unit : units) {
      Trace(absl::StrCat(id.pod_uid, " pushes unit ", unit, " to slot ", slot, " as ", sequence,
                         " of clock ", entry.clock));
    }
    SendFrom(id, sends);
  }
}

void SlotWorld::Retry(const MemberId& id) {
  Deliver(id, Random(20'000, 60'000), [this, id](Process&) {
    SendFrom(id, clients_.at(id).machine->Resend());
    if (portions_ > 0) GiveUpForLower(id);
    Retry(id);
  });
}

void SlotWorld::Prefetch() {
  for (const auto& [id, server] : servers_) {
    const Process& process = processes_.at(id);
    if (!process.alive || process.paused || !Chance(0.3)) continue;
    for (std::size_t slot = 0; slot < server.slots.size(); ++slot) {
      SendFrom(id, slot, server.slots[slot]->Prefetch());
    }
  }
}

// Any replica, at any moment: every slot by itself.
void SlotWorld::Snapshot() {
  for (const auto& [id, server] : servers_) {
    const Process& process = processes_.at(id);
    if (!process.alive || process.paused || !Chance(0.5)) continue;
    for (std::size_t slot = 0; slot < server.slots.size(); ++slot) {
      const ps::ChainServer& machine = *server.slots[slot];
      if (machine.phase() != ps::ServerPhase::kRun || !Chance(0.5)) continue;
      disk_[slot][*machine.state_id()] = machine.state()->Save();
    }
  }
}

}  // namespace starling::simulation
