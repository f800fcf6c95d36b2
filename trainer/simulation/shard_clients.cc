// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "trainer/parameter_server/job_tables.h"
#include "trainer/simulation/shard_job.h"

namespace starling::simulation {

void ShardJob::StartClient(const MemberId& id) {
  Client& client = clients_[id];
  membership::Session::Options options;
  options.id = id;
  options.rules = options_.shard_rules.sync;
  client.session = std::make_unique<membership::Session>(std::move(options));
  client.machine = std::make_unique<ps::ShardClient>(id, shards_, options_.shard_rules);
  Retry(id);
  if (options_.fanout > 1) LosePatience(id);
}

void ShardJob::EnterAsClient(Process& process, const membership::View& view) {
  const MemberId& id = process.id;
  world_.Hit(Point::kSync, process);
  if (!process.alive) return;
  process.barred = view.number;
  process.opened.clear();
  const ps::Topology topology{
      options_.fanout > 1 ? ps::Topology::Kind::kTree : ps::Topology::Kind::kFlat, options_.fanout};
  ps::ClientView mine = ps::ClientViewOf(view, id);
  mine.group = ps::GroupOf(view, topology, id);
  mine.reductions.assign(shards_, ps::ReductionOf(servers_.shard()));
  SendFrom(id, clients_.at(id).machine->OnView(mine));
  OnClientEvents(id);
  world_.Open(process, view);
}

void ShardJob::HearLeases(const MemberId& id, const std::vector<ps::Lease>& leases) {
  Client& client = clients_.at(id);
  client.listed = leases;
  if (!options_.first_values_first && leases.empty()) client.listed = {ps::kFirstValues + 1};
  const auto unlisted = [&](ps::Lease lease) {
    return std::ranges::find(client.listed, lease) == client.listed.end();
  };
  std::erase_if(client.done, unlisted);
  std::erase_if(client.returned, [&](const auto& one) { return unlisted(one.first); });
}

// As if some shard had refused it: also where all have taken it, which whoever does it again is not
// to do twice.
bool ShardJob::GivesBack(Client& client, ps::Lease lease, double probability) {
  constexpr int kMostReturns = 40;
  if (!options_.returns || returns_ >= kMostReturns || !world_.Chance(probability)) return false;
  client.returned[lease] = world_.now() + world_.Random(50'000, 500'000);
  ++returns_;
  world_.Count("returns");
  return true;
}

// The first that is listed and not begun.
std::optional<std::size_t> ShardJob::TakeLease(Client& client) {
  for (const ps::Lease lease : client.listed) {
    const std::size_t unit = lease - 1;
    if (client.missing.contains(unit) || client.done.contains(lease)) continue;
    if (std::ranges::find(client.portions, unit) != client.portions.end()) continue;
    if (client.returned.contains(lease) && world_.now() < client.returned[lease]) continue;
    client.returned.erase(lease);
    if (!GivesBack(client, lease, 0.05)) return unit;
  }
  return std::nullopt;
}

// Of who sums up and of who is summed up, as shells do.
void ShardJob::LosePatience(const MemberId& id) {
  world_.ToProcess(id, world_.Random(2'000, 20'000), [this, id](Process&) {
    ps::ShardClient& machine = *clients_.at(id).machine;
    SendFrom(id, machine.FlushGathered());
    if (machine.delegated() != 0 && world_.Chance(0.2)) SendFrom(id, machine.PushIndividually(1));
    if (world_.Chance(0.05)) SendFrom(id, machine.StandDown());
    LosePatience(id);
  });
}

void ShardJob::SendFrom(const MemberId& client, const ps::ClientSends& sends) {
  for (const ps::ClientSend& send : sends) {
    servers_.Post(client, send.send.to, send.shard, send.send.message);
  }
}

void ShardJob::OnClientEvents(const MemberId& id) {
  for (const ps::ClientEvent& event : clients_.at(id).machine->TakeEvents()) {
    std::visit([&](const auto& one) { On(id, one); }, event);
  }
}

void ShardJob::On(const MemberId& id, const ps::StartedOver&) {
  Client& client = clients_.at(id);
  client.computing = false;
  client.reading.clear();
  client.units.clear();
  client.missing.clear();
  client.portions.clear();
  client.refused.clear();
  client.individually.clear();
  client.listed.clear();
  client.done.clear();
  client.returned.clear();
}

void ShardJob::On(const MemberId& id, const ps::Ready& event) {
  clients_.at(id).clock = event.start;
  world_.Trace(absl::StrCat(id.pod_uid, " starts at clock ", event.start));
  portions_ > 0 ? BeginPortions(id) : StartReading(id);
}

void ShardJob::On(const MemberId& id, const ps::Acknowledged& event) {
  Client& client = clients_.at(id);
  const auto unit = client.units.find({event.shard, event.sequence});
  if (unit == client.units.end()) return;  // it only told where this client starts
  world_.Count("acknowledged");
  for (const std::size_t one : unit->second) {
    if (event.outcome == ps::Outcome::kRefused) {
      client.refused.insert(one);
    } else {
      invariants_.OnAcknowledged(event.shard, client.machine->view(), one);
    }
    const auto missing = client.missing.find(one);
    if (missing == client.missing.end()) continue;
    missing->second.erase(event.shard);
    if (!missing->second.empty()) continue;
    client.missing.erase(missing);
    if (client.refused.erase(one) > 0) {
      world_.Count("refused");
      client.individually.insert(one);
    } else if (!GivesBack(client, one + 1, 0.1)) {
      client.done.insert(one + 1);
    }
  }
  client.units.erase(unit);
}

void ShardJob::On(const MemberId& /*id*/, const ps::Rejected& event) {
  invariants_.OnStuck(absl::StrCat("a good push was rejected: ", event.why.ToString()));
}

void ShardJob::On(const MemberId& id, const ps::ReadDone& event) {
  Client& client = clients_.at(id);
  const auto reading = client.reading.find({event.shard, event.request});
  if (reading == client.reading.end()) return;
  world_.Count("reads");
  std::vector<float> values(event.values->size() / sizeof(float));
  std::memcpy(values.data(), event.values->data(), event.values->size());
  world_.Trace(
      absl::StrCat(id.pod_uid, " reads shard ", event.shard, " at clock ", reading->second));
  if (staleness_) {
    invariants_.OnRead(event.shard, servers_.ViewOf(client.machine->view(), event.shard),
                       reading->second - *staleness_, values, pushes_[event.shard]);
  }
  if (portions_ > 0) {
    invariants_.OnReadInStep(event.shard, portions_, reading->second,
                             static_cast<std::size_t>(options_.leases), values);
  }
  client.reading.erase(reading);
  client.version = event.version;
  if (!client.reading.empty()) return;
  client.computing = true;
  const Micros length =
      world_.Chance(0.1) ? world_.Random(1'000, 80'000) : world_.Random(500, 5'000);
  world_.ToProcess(id, length, [this, id, self = client.machine->self()](Process&) {
    Client& one = clients_.at(id);
    if (one.computing && one.machine->self() == self) Compute(id);
  });
}

void ShardJob::StartReading(const MemberId& id) {
  Client& client = clients_.at(id);
  for (std::size_t shard = 0; shard < shards_; ++shard) {
    ps::Read read;
    read.clock = client.clock;
    read.rows = servers_.shard().table->rows;
    std::int64_t request = 0;
    const ps::ClientSends sends = client.machine->Read(shard, read, request);
    client.reading[{shard, request}] = client.clock;
    SendFrom(id, sends);
  }
}

// One clock's pushes: a lease if there is one, now and then something else, now and then two.
void ShardJob::Compute(const MemberId& id) {
  Client& client = clients_.at(id);
  client.computing = false;
  if (portions_ > 0) return PushPortions(id);
  const int pushes = world_.Chance(0.4) ? 2 : 1;
  for (int i = 0; i < pushes; ++i) {
    std::optional<std::size_t> unit;
    if (world_.Chance(0.8) || world_.Late()) unit = TakeLease(client);
    const bool leased = unit.has_value();
    if (!unit && !world_.Late() && next_unit_ < servers_.shard().table->rows) unit = next_unit_++;
    Push(id, unit ? std::vector{*unit} : std::vector<std::size_t>(), leased,
         /*completes=*/i == pushes - 1);
  }
  ++client.clock;
  if (world_.Chance(0.1)) {
    RestAWhile(id);
  } else {
    StartReading(id);
  }
}

// As a client does that has no work; Ready tells it where to go on.
void ShardJob::RestAWhile(const MemberId& id) {
  Client& client = clients_.at(id);
  world_.Trace(absl::StrCat(id.pod_uid, " rests"));
  world_.Count("rests");
  SendFrom(id, client.machine->Rest());
  world_.ToProcess(id, world_.Random(500, 40'000),
                   [this, id, self = client.machine->self()](Process&) {
                     Client& one = clients_.at(id);
                     if (one.machine->self() == self) SendFrom(id, one.machine->Wake());
                   });
}

// Units of leases that it holds, or one without a lease; none: an empty push that only moves the
// clock.
void ShardJob::Push(const MemberId& id, const std::vector<std::size_t>& units, bool leased,
                    bool completes) {
  Client& client = clients_.at(id);
  const std::vector<float> ones(units.size(), 1);
  ps::Update update;
  update.first = units.empty() ? 0 : units.front();
  update.rows = units.size();
  update.values = ones;
  ps::Entry entry;
  if (leased) entry.lease = units.front() + 1;
  if (leased) entry.leases = units.size();
  const bool first_values = portions_ > 0 && entry.lease == ps::kFirstValues;
  if (first_values) entry.kind = ps::EntryKind::kAssign;
  if (!first_values) entry.clock = client.clock;
  entry.completes = completes;
  entry.read = client.version;
  entry.update = ps::Encode(update);
  for (std::size_t shard = 0; shard < shards_; ++shard) {
    ps::Sequence sequence = 0;
    const ps::ClientSends sends = client.machine->Push(shard, entry, sequence);
    if (!units.empty()) client.units[{shard, sequence}] = units;
    for (const std::size_t unit : units) {
      if (leased) client.missing[unit].insert(shard);
      pushes_[shard].push_back({client.machine->self(), entry.clock, unit});
      world_.Trace(absl::StrCat(id.pod_uid, " pushes unit ", unit, " to shard ", shard, " as ",
                                sequence, " of clock ", entry.clock));
    }
    SendFrom(id, sends);
  }
}

void ShardJob::Retry(const MemberId& id) {
  world_.ToProcess(id, world_.Random(20'000, 60'000), [this, id](Process&) {
    SendFrom(id, clients_.at(id).machine->Resend());
    if (portions_ > 0) GiveUpForLower(id);
    Retry(id);
  });
}

// Unit u is lease u + 1.
ps::Clock ShardJob::StepOf(std::size_t unit) const { return ps::StepOfLease(unit + 1, portions_); }

// A lease, now and then with those that follow it in its step.
void ShardJob::TakePortions(Client& client) {
  client.portions.clear();
  const bool several = world_.Chance(0.6);
  while (const std::optional<std::size_t> unit = TakeLease(client)) {
    const std::vector<std::size_t>& taken = client.portions;
    const bool fits = taken.empty() || (taken.back() + 1 == *unit && taken.front() != 0 &&
                                        StepOf(*unit) == StepOf(taken.front()) &&
                                        !client.individually.contains(*unit));
    if (!fits) break;  // another time
    client.portions.push_back(*unit);
    if (!several || client.individually.contains(*unit)) break;
  }
}

void ShardJob::BeginPortions(const MemberId& id) {
  Client& client = clients_.at(id);
  TakePortions(client);
  if (client.portions.empty()) return RestAWhile(id);
  if (client.portions.front() + 1 == ps::kFirstValues) return PushPortions(id);
  client.clock = StepOf(client.portions.front());
  StartReading(id);
}

void ShardJob::PushPortions(const MemberId& id) {
  Push(id, std::exchange(clients_.at(id).portions, {}), /*leased=*/true, /*completes=*/true);
  BeginPortions(id);
}

// Its read waits for steps before; a lease of those that has become free is to be done first.
void ShardJob::GiveUpForLower(const MemberId& id) {
  Client& client = clients_.at(id);
  if (client.reading.empty() || client.portions.empty()) return;
  const std::vector<std::size_t> taken = std::exchange(client.portions, {});
  const std::optional<std::size_t> lowest = TakeLease(client);
  if (!lowest || *lowest >= taken.front()) {
    client.portions = taken;
    return;
  }
  world_.Trace(absl::StrCat(id.pod_uid, " leaves unit ", taken.front(), " for unit ", *lowest));
  client.reading.clear();
  BeginPortions(id);
}

}  // namespace starling::simulation
