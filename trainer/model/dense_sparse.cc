// SPDX-License-Identifier: Apache-2.0
#include "trainer/model/dense_sparse.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "trainer/model/bits.h"

namespace starling::model {
DenseSparseState DenseSparseModel::Initial() const {
  State state{};
  state.epoch = 1;
  for (int worker = 0; worker < options_.workers; ++worker) {
    state.workers[worker].alive = 1;
    if (worker < 2) state.members |= Bit(worker);
  }
  for (int worker = 0; worker < 2; ++worker) {
    state.workers[worker].epoch = 1;
    state.workers[worker].members = state.members;
  }
  state.crashes = static_cast<std::uint8_t>(options_.crashes);
  state.evictions = static_cast<std::uint8_t>(options_.evictions);
  state.restores = static_cast<std::uint8_t>(options_.restores);
  return state;
}

std::uint8_t DenseSparseModel::LeasesBefore(int step) const {
  return static_cast<std::uint8_t>((1 << (step * options_.portions)) - 1);
}

int DenseSparseModel::RankOf(std::uint8_t members, int worker) const {
  return __builtin_popcount(members & (Bit(worker) - 1));
}

// A step's portions are dealt over the members of the epoch.
std::uint8_t DenseSparseModel::PortionsOf(const Worker& worker, int index) const {
  const int size = __builtin_popcount(worker.members);
  std::uint8_t portions = 0;
  for (int portion = 0; portion < options_.portions && size > 0; ++portion) {
    if (portion % size == RankOf(worker.members, index)) portions |= Bit(portion);
  }
  return portions;
}

// The leases of a worker's push for its next step.
std::uint8_t DenseSparseModel::LeasesOf(const Worker& worker, int index) const {
  if (!options_.rules.lease_is_portion) {
    return PortionsOf(worker, index) == 0
               ? std::uint8_t{0}
               : Bit(LeaseOf(worker.step, RankOf(worker.members, index)));
  }
  std::uint8_t leases = 0;
  for (int portion = 0; portion < options_.portions; ++portion) {
    if (Has(PortionsOf(worker, index), portion)) leases |= Bit(LeaseOf(worker.step, portion));
  }
  return leases;
}

std::uint8_t DenseSparseModel::WorkersAlive(const State& state) const {
  std::uint8_t alive = 0;
  for (int worker = 0; worker < options_.workers; ++worker) {
    if (state.workers[worker].alive != 0) alive |= Bit(worker);
  }
  return alive;
}

bool DenseSparseModel::Push(State& state, int worker, int shard) const {
  const Worker& one = state.workers[worker];
  Shard& to = state.shards[shard];
  if (one.alive == 0 || one.epoch == 0 || one.step >= options_.steps) return false;
  const std::uint8_t leases = LeasesOf(one, worker);
  if (Covers(to.sent, leases)) return false;
  to.sent |= leases;
  for (int portion = 0; portion < options_.portions; ++portion) {
    if (!Has(PortionsOf(one, worker), portion)) continue;
    const int name = options_.rules.lease_is_portion ? portion : RankOf(one.members, worker);
    to.samples[LeaseOf(one.step, name)] |= Bit(portion);
  }
  return true;
}

// Of the steps that the dense state holds, a shard lacks some: they are computed for it alone.
bool DenseSparseModel::CatchUp(State& state, int worker, int shard) const {
  const Worker& one = state.workers[worker];
  Shard& to = state.shards[shard];
  if (!options_.rules.catch_up || one.alive == 0 || one.epoch != state.epoch) return false;
  const int missing = LeasesBefore(one.step) & ~to.ledger & ~to.sent;
  if (missing == 0) return false;
  const int lease = __builtin_ctz(static_cast<unsigned>(missing));
  to.sent |= Bit(lease);
  to.samples[lease] = Bit(lease % options_.portions);
  return true;
}

bool DenseSparseModel::Apply(State& state, int shard, int lease) const {
  Shard& to = state.shards[shard];
  if (!Has(to.sent, lease)) return false;
  const bool skips = Has(to.ledger, lease) && options_.rules.ledger_skips;
  if (skips && Has(to.answered, lease)) return false;
  to.answered |= Bit(lease);
  to.ledger |= Bit(lease);
  for (int portion = 0; portion < options_.portions && !skips; ++portion) {
    if (!Has(to.samples[lease], portion)) continue;
    std::uint8_t& count = to.counts[LeaseOf(lease / options_.portions, portion)];
    count = std::min<std::uint8_t>(2, static_cast<std::uint8_t>(count + 1));
  }
  return true;
}

bool DenseSparseModel::HearAcknowledged(State& state, int worker, int shard) const {
  Worker& one = state.workers[worker];
  if (one.alive == 0 || one.epoch == 0 || one.step >= options_.steps) return false;
  if (Has(one.acknowledged, shard)) return false;
  if (!Covers(state.shards[shard].answered, LeasesOf(one, worker))) return false;
  one.acknowledged |= Bit(shard);
  return true;
}

bool DenseSparseModel::Contribute(State& state, int worker) const {
  Worker& one = state.workers[worker];
  if (one.alive == 0 || one.epoch == 0 || one.contributed > one.step || one.settled != 0) {
    return false;
  }
  const bool whole = __builtin_popcount(one.acknowledged) == options_.shards;
  const bool last = one.step == options_.steps;
  if (options_.rules.acknowledged_before_word && !whole && !last) return false;
  one.contributed = static_cast<std::uint8_t>(one.step + 1);
  return true;
}

bool DenseSparseModel::Complete(State& state, int worker, bool checkpoint) const {
  Worker& one = state.workers[worker];
  if (one.alive == 0 || one.epoch == 0 || one.contributed <= one.step || one.settled != 0) {
    return false;
  }
  for (int other = 0; other < options_.workers; ++other) {
    const Worker& peer = state.workers[other];
    if (!Has(one.members, other)) continue;
    if (peer.epoch != one.epoch || peer.contributed <= one.step) return false;
  }
  if (checkpoint && state.saved >= one.step) return false;
  if (checkpoint) state.saved = one.step;  // it is settled now
  if (one.step == options_.steps) {
    one.settled = 1;
  } else {
    ++one.step;
    one.acknowledged = 0;
  }
  return true;
}

// A new epoch of the group: the latest state of its members is the base; if none has any, the
// group's checkpoint is.
bool DenseSparseModel::Regroup(State& state, std::uint8_t members) const {
  if (members == 0 || state.epoch >= 6) return false;
  std::pair<int, int> base = {0, state.saved};
  for (int worker = 0; worker < options_.workers; ++worker) {
    const Worker& one = state.workers[worker];
    if (Has(members, worker) && one.epoch != 0) {
      base = std::max(base, std::pair<int, int>(one.epoch, one.step));
    }
  }
  ++state.epoch;
  state.members = members;
  for (int worker = 0; worker < options_.workers; ++worker) {
    if (!Has(members, worker)) continue;
    state.workers[worker] = {};
    state.workers[worker].alive = 1;
    state.workers[worker].epoch = state.epoch;
    state.workers[worker].members = members;
    state.workers[worker].step = static_cast<std::uint8_t>(base.second);
  }
  return true;
}

// All copies of a shard are lost. Pushes and answers of before name an older epoch.
bool DenseSparseModel::Restore(State& state, int shard) const {
  Shard& one = state.shards[shard];
  if (options_.rules.ledger_in_state) one.ledger = one.saved_ledger;
  one.counts = one.saved_counts;
  one.sent = one.answered = 0;
  one.samples = {};
  one.restored = 1;
  for (Worker& worker : state.workers)
    worker.acknowledged &= static_cast<std::uint8_t>(~Bit(shard));
  return true;
}

bool DenseSparseModel::End(State& state) const {
  for (int worker = 0; worker < options_.workers; ++worker) {
    const Worker& one = state.workers[worker];
    if (!Has(state.members, worker)) continue;
    if (one.alive == 0 || one.epoch != state.epoch || one.settled == 0) return false;
  }
  for (int shard = 0; shard < options_.shards; ++shard) {
    const bool whole = Covers(state.shards[shard].ledger, LeasesBefore(options_.steps));
    if (!whole && options_.rules.ends_when_whole) return false;
  }
  state.ended = 1;
  return true;
}

void DenseSparseModel::Next(const State& state, Successors<State>& next) const {
  if (state.ended != 0) return;
  State after = state;
  const auto attempt = [&](bool done, auto&& words) {
    if (!done) return;
    next.Add(after, words);
    after = state;
  };
  const std::uint8_t alive = WorkersAlive(state);
  for (int worker = 0; worker < options_.workers; ++worker) {
    const std::string name = absl::StrCat("worker ", worker);
    const int step = state.workers[worker].step + 1;
    for (int shard = 0; shard < options_.shards; ++shard) {
      attempt(Push(after, worker, shard), [&] {
        return absl::StrCat(name, " pushes its portions of step ", step, " to shard ", shard);
      });
      attempt(CatchUp(after, worker, shard), [&] {
        return absl::StrCat(name, " computes for shard ", shard, " again what it lacks");
      });
      attempt(HearAcknowledged(after, worker, shard), [&] {
        return absl::StrCat(name, " hears that shard ", shard, " has its portions of step ", step);
      });
    }
    attempt(Contribute(after, worker),
            [&] { return absl::StrCat(name, " contributes to the reduction of step ", step); });
    for (const bool checkpoint : {false, true}) {
      attempt(Complete(after, worker, checkpoint), [&] {
        return absl::StrCat(name, " completes the reduction of step ", step,
                            checkpoint ? " and saves the step before" : "");
      });
    }
    if (state.crashes != 0 && Has(alive, worker) && state.workers[worker].epoch != 0) {
      --after.crashes;
      after.workers[worker] = {};
      attempt(true, [&] { return absl::StrCat(name, " ends"); });
    }
    if (state.evictions != 0 && Has(alive & state.members, worker)) {
      --after.evictions;
      attempt(Regroup(after, alive & static_cast<std::uint8_t>(~Bit(worker))),
              [&] { return absl::StrCat("the group goes on without ", name, ", which lives"); });
      after = state;
    }
  }
  for (int shard = 0; shard < options_.shards; ++shard) {
    for (int lease = 0; lease < kMostLeases; ++lease) {
      attempt(Apply(after, shard, lease), [&] {
        return absl::StrCat("shard ", shard, " gets lease ", lease % options_.portions, " of step ",
                            lease / options_.portions + 1);
      });
    }
    Shard& one = after.shards[shard];
    if (state.restores != 0 && one.saved_ledger != one.ledger) {
      one.saved_ledger = one.ledger;
      one.saved_counts = one.counts;
      attempt(true, [&] { return absl::StrCat("shard ", shard, " is saved"); });
    }
    if (state.restores != 0) {
      --after.restores;
      attempt(Restore(after, shard), [&] {
        return absl::StrCat("shard ", shard, " is lost and restored as it was saved");
      });
    }
  }
  if (alive != state.members) {
    attempt(Regroup(after, alive), [&] { return std::string("the group gets a new epoch"); });
  }
  attempt(End(after), [] { return std::string("the job ends"); });
}

std::string DenseSparseModel::Violation(const State& state) const {
  int most = 0;
  for (const Worker& worker : state.workers) most = std::max<int>(most, worker.step);
  for (int shard = 0; shard < options_.shards; ++shard) {
    const Shard& one = state.shards[shard];
    for (int lease = 0; lease < options_.steps * options_.portions; ++lease) {
      const auto sample = [&](const char* what) {
        return absl::StrCat("shard ", shard, " has portion ", lease % options_.portions,
                            " of step ", lease / options_.portions + 1, " ", what);
      };
      if (one.counts[lease] > 1) return sample("twice");
      if (one.counts[lease] == 1) continue;
      if (state.ended != 0) return sample("not at all, and the job has ended");
      const bool held = lease < most * options_.portions;
      if (held && one.restored == 0) return sample("not at all, and the dense state has it");
    }
  }
  return "";
}

std::string DenseSparseModel::Stuck(const State& state) const {
  State end = state;
  for (int round = 0; round < 200 && end.ended == 0; ++round) {
    const std::uint8_t alive = WorkersAlive(end);
    if (alive == 0) return "";
    if (alive != end.members) Regroup(end, alive);
    for (int worker = 0; worker < options_.workers; ++worker) {
      for (int shard = 0; shard < options_.shards; ++shard) {
        Push(end, worker, shard);
        CatchUp(end, worker, shard);
        for (int lease = 0; lease < kMostLeases; ++lease) {
          if (options_.rules.ledger_skips) Apply(end, shard, lease);
        }
        HearAcknowledged(end, worker, shard);
      }
      Contribute(end, worker);
    }
    for (int worker = 0; worker < options_.workers; ++worker) Complete(end, worker, false);
    End(end);
  }
  if (end.ended != 0 || end.epoch >= 6) return Violation(end);
  return "the job does not end, although nothing fails any more";
}

}  // namespace starling::model
