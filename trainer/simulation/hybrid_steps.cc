// SPDX-License-Identifier: Apache-2.0
// What a worker's loop does: leases, steps, and the end.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "trainer/simulation/hybrid_job.h"

namespace starling::simulation {

using membership::Phase;

void HybridJob::Entered(Peer& peer, const membership::View& view) {
  Client& client = clients_.at(peer.id);
  client.entered = view.number;
  client.doing = Doing::kNothing;
  ++client.turn;
  client.reading.clear();
  client.over = false;
  // What was begun and not pushed is to be begun again.
  std::erase_if(client.begun, [&](ps::Lease lease) {
    return std::ranges::none_of(client.flights,
                                [&](const auto& one) { return one.second.lease == lease; });
  });
  ps::ClientView mine = ps::ClientViewOf(view, peer.id);
  mine.reductions.assign(shards_, ps::ReductionOf(servers_.shard()));
  SendFrom(peer.id, client.machine->OnView(mine));
  OnClientEvents(peer);
}

// Who enters waits until the servers know it, or the view has ended.
bool HybridJob::MayGoOn(const Peer& peer) const {
  const Client& client = clients_.at(peer.id);
  return client.ready || !peer.opened.contains(client.entered);
}

void HybridJob::Work(Peer& peer) {
  Client& client = clients_.at(peer.id);
  const bool free = peer.alive && !peer.paused && !peer.busy && peer.todo.empty() && client.ready &&
                    client.doing == Doing::kNothing;
  const membership::View* view = peer.machine->view();
  if (!free || view == nullptr || view->number != client.entered ||
      !peer.opened.contains(client.entered)) {
    return;
  }
  const Phase phase = peer.machine->phase();
  if (phase != Phase::kRun && phase != Phase::kDone) return;
  if (const std::optional<ps::Lease> lease = NextLease(client);
      lease && (phase == Phase::kRun || client.over)) {
    BeginLease(peer, *lease);
  } else if (phase == Phase::kDone) {
    Idle(peer);
  } else if (client.told == client.entered && client.first_values) {
    BeginStep(peer);
  }
}

// Who rests wakes first; Ready tells when.
bool HybridJob::Awake(Peer& peer) {
  Client& client = clients_.at(peer.id);
  if (!client.machine->rests()) return true;
  client.ready = false;
  SendFrom(peer.id, client.machine->Wake());
  OnClientEvents(peer);
  return false;
}

void HybridJob::BeginLease(Peer& peer, ps::Lease lease) {
  if (!Awake(peer)) return;
  Client& client = clients_.at(peer.id);
  client.begun.insert(lease);
  world_.Trace(absl::StrCat(peer.id.pod_uid, " begins lease ", lease));
  if (lease == ps::kFirstValues) {
    Push(peer, lease);
    return Work(peer);
  }
  world_.Count("catch-ups");
  const std::int64_t portion = ps::PortionOfLease(lease, hybrid_.portions);
  client.step = {.lease = lease, .next = portion, .end = portion + 1};
  Read(peer, ps::StepOfLease(lease, hybrid_.portions));
}

void HybridJob::BeginStep(Peer& peer) {
  if (!Awake(peer)) return;
  Client& client = clients_.at(peer.id);
  const membership::ReplicaGroup& group = *peer.machine->view()->GroupOf(peer.id);
  const auto size = static_cast<std::int64_t>(group.members.size());
  const std::int64_t rank = group.RankOf(peer.id);
  client.step = {.from = *peer.machine->state(), .word = peer.machine->NextControlWord()};
  client.step.validates = ValidationIsDue(peer);
  Expect(peer, client.entered);
  if (MakesNothing(peer)) {
    if (!client.step.validates) return Await(peer);
  } else {
    client.step.next = rank * hybrid_.portions / size;
    client.step.end = (rank + 1) * hybrid_.portions / size;
  }
  Read(peer, client.step.from.step);
}

bool HybridJob::ValidationIsDue(const Peer& peer) const {
  if (peer.settle_only) return false;
  const auto last = validated_.find(peer.content.hash());
  const std::int64_t step = peer.content.step() / hybrid_.validate_every * hybrid_.validate_every;
  return step > (last == validated_.end() ? 0 : last->second);
}

void HybridJob::Read(Peer& peer, ps::Clock clock) {
  Client& client = clients_.at(peer.id);
  client.doing = Doing::kReading;
  client.reading.clear();
  ++client.turn;
  for (std::size_t shard = 0; shard < shards_; ++shard) {
    ps::Read read;
    read.clock = clock;
    read.rows = Leases();
    std::int64_t request = 0;
    const ps::ClientSends sends = client.machine->Read(shard, read, request);
    client.reading.emplace(shard, request);
    SendFrom(peer.id, sends);
  }
}

// Another lease comes before a step, and a lower one before a lease.
bool HybridJob::ReadIsWanted(const Client& client) const {
  const std::optional<ps::Lease> next = NextLease(client);
  if (client.over && client.step.lease == 0) return true;
  if (client.step.lease == 0) return !next;
  return Lists(client, client.step.lease) && (!next || *next > client.step.lease);
}

void HybridJob::HasRead(Peer& peer) {
  Client& client = clients_.at(peer.id);
  if (client.over && client.step.lease == 0) return Conclude(peer);
  if (client.step.ahead) world_.Count("reads ahead");
  ComputeNext(peer);
}

void HybridJob::ComputeNext(Peer& peer) {
  Client& client = clients_.at(peer.id);
  if (client.step.next >= client.step.end) {
    client.doing = Doing::kNothing;
    return client.step.lease == 0 ? Await(peer) : GoOn(peer);
  }
  client.doing = Doing::kComputing;
  const Micros length =
      world_.Chance(0.1) ? world_.Random(1'000, 60'000) : world_.Random(500, 10'000);
  ToLoop(peer.id, length, [this, turn = client.turn](Peer& computing) {
    Client& one = clients_.at(computing.id);
    if (one.turn != turn || one.doing != Doing::kComputing) return;
    const std::int64_t portion = one.step.next++;
    Push(computing, one.step.lease != 0
                        ? one.step.lease
                        : ps::LeaseOf(one.step.from.step, portion, hybrid_.portions));
    world_.Hit(Point::kExchange, computing);
    if (computing.alive) ComputeNext(computing);
  });
}

// Which samples a lease stands for.
std::size_t HybridJob::UnitOf(const Peer& peer, ps::Lease lease) const {
  if (hybrid_.lease_is_portion || lease == ps::kFirstValues) return lease - 1;
  const membership::ReplicaGroup& group = *peer.machine->view()->GroupOf(peer.id);
  const auto workers = static_cast<std::int64_t>(group.members.size());
  const std::int64_t portion = ps::PortionOfLease(lease, hybrid_.portions);
  const std::int64_t step = ps::StepOfLease(lease, hybrid_.portions);
  return ps::LeaseOf(step, (portion + workers) % hybrid_.portions, hybrid_.portions) - 1;
}

void HybridJob::Push(Peer& peer, ps::Lease lease) {
  Client& client = clients_.at(peer.id);
  const std::size_t unit = UnitOf(peer, lease);
  const std::vector<float> one = {1};
  ps::Update update;
  update.first = unit;
  update.rows = 1;
  update.values = one;
  ps::Entry entry;
  entry.lease = lease;
  if (lease == ps::kFirstValues) entry.kind = ps::EntryKind::kAssign;
  if (lease != ps::kFirstValues) entry.clock = ps::StepOfLease(lease, hybrid_.portions);
  entry.update = ps::Encode(update);
  const std::int64_t flight = client.next_flight++;
  client.flights[flight] = {.lease = lease, .unit = unit, .open = shards_};
  world_.Trace(absl::StrCat(peer.id.pod_uid, " pushes lease ", lease));
  for (std::size_t shard = 0; shard < shards_; ++shard) {
    ps::Sequence sequence = 0;
    const ps::ClientSends sends = client.machine->Push(shard, entry, sequence);
    client.sent[{shard, sequence}] = flight;
    SendFrom(peer.id, sends);
  }
}

// Rule H3: the word waits for everything that is on its way.
void HybridJob::Await(Peer& peer) {
  Client& client = clients_.at(peer.id);
  client.doing = Doing::kAwaiting;
  if (!client.flights.empty() && hybrid_.acknowledged_before_word) return;
  client.doing = Doing::kSumming;
  Contribute(peer, client.step.from);
}

PeerJob::Contribution HybridJob::ContributionOf(const Peer& peer) const {
  const Step& step = clients_.at(peer.id).step;
  Contribution mine = PeerJob::ContributionOf(peer);
  mine.word = step.word;
  mine.of_state_before = !step.ahead || !hybrid_.validates_state_before;
  if (step.validates) mine.validated = step.exact;
  return mine;
}

void HybridJob::Made(Peer& peer, const Reduced& reduced, const Content& before) {
  Client& client = clients_.at(peer.id);
  client.doing = Doing::kNothing;
  const std::int64_t step = before.step();
  if (reduced.validated) invariants_.OnValidated(step + 1, *reduced.validated);
  if (reduced.validated) world_.Count("validations");
  if (client.step.validates && !reduced.validated) world_.Count("validations put off");
  if (reduced.reduction.empty) return;
  validated_[peer.content.hash()] = reduced.validated ? step : validated_[before.hash()];
  for (std::size_t shard = 0; shard < shards_; ++shard) {
    shard_invariants_.OnStepApplied(shard, reduced.reduction.view, hybrid_.portions, step);
  }
}

// What a worker copies to others: all of its parameters, if those of servers were its own too.
std::uint64_t HybridJob::BytesOf(const Peer& peer) const {
  std::uint64_t bytes = PeerJob::BytesOf(peer);
  if (hybrid_.one_owner) return bytes;
  for (const std::uint64_t held : clients_.at(peer.id).held) bytes = Mix(bytes, held);
  return bytes;
}

void HybridJob::Over(Peer& peer) {
  clients_.at(peer.id).over = !peer.settle_only && peer.machine->state()->step >= hybrid_.steps;
  world_.Report(peer);
}

// When the last step is settled, nobody waits for who has no lease; and one reads what servers hold
// when the coordinator says so (H5).
void HybridJob::Idle(Peer& peer) {
  Client& client = clients_.at(peer.id);
  if (!client.over) return;
  if (!client.machine->rests()) {
    SendFrom(peer.id, client.machine->Rest());
    OnClientEvents(peer);
  }
  const bool ordered = client.told == client.entered && client.conclude;
  if (!ordered || client.concluded || !client.flights.empty()) return;
  client.step = {};
  Read(peer, consistency::kAtRest);
}

void HybridJob::Conclude(Peer& peer) {
  Client& client = clients_.at(peer.id);
  client.doing = Doing::kNothing;
  client.concluded = true;
  peer.machine->SetTraining({"done", true, ""});
  world_.Report(peer);
}

}  // namespace starling::simulation
