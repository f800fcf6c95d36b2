// SPDX-License-Identifier: Apache-2.0
// A job whose dense layers are reduced by a lockstep group of workers while its embedding lies on
// shards, as a small model: is every sample counted once in the dense state and once in every
// shard, whoever ends and whatever is restored? Replication inside the group and inside a shard is
// the business of groups.h; here the group's sync round and a shard's chain are one event each.
//
// A step's batch is cut into portions. A worker pushes its portions' gradients to every shard, gets
// acknowledgements, then contributes to the reduction of the step. A push may arrive at any time
// after it was sent, also after its sender's end. Shards take snapshots by themselves, and so does
// the group of a settled step; a shard whose copies are all lost is restored from its own, the
// group likewise if all workers end.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <type_traits>

#include "trainer/model/search.h"

namespace starling::model {

struct DenseSparseRules {
  bool lease_is_portion = true;          // H1: a lease names (step, portion), never a rank
  bool ledger_skips = true;              // H2: what is in a shard's ledger is not applied again
  bool ledger_in_state = true;           // H2: the ledger is saved and restored with the shard
  bool acknowledged_before_word = true;  // H3: contribute when all shards have one's portions
  bool catch_up = true;                  // H4: what a restored shard lacks is computed for it again
  bool ends_when_whole = true;           // H5: the job ends when all ledgers are whole
};

struct DenseSparseOptions {
  int workers = 3;  // processes; the first two begin, others join later
  int steps = 2;
  int portions = 2;
  int shards = 2;
  int crashes = 1;    // of workers
  int evictions = 0;  // of workers that live
  int restores = 1;   // of shards
  DenseSparseRules rules;
};

constexpr int kMostWorkers = 4;
constexpr int kMostShards = 2;
constexpr int kMostLeases = 4;  // steps times portions

struct Worker {
  std::uint8_t alive;
  std::uint8_t epoch, members;  // of the group, as this worker knows it; 0: it holds no state
  std::uint8_t step;            // steps that its dense state holds
  std::uint8_t contributed;     // to this step's reduction, in this epoch
  std::uint8_t acknowledged;    // shards that have all its portions of the next step, bit mask
  std::uint8_t settled;         // the last step is settled
  std::uint8_t unused;
};

struct Shard {
  std::uint8_t ledger, saved_ledger;  // leases, bit mask
  std::uint8_t sent, answered;        // pushes and acknowledgements on their way, bit mask
  std::uint8_t restored;
  std::array<std::uint8_t, 3> unused;
  std::array<std::uint8_t, kMostLeases> counts, saved_counts;  // of each portion's samples
  std::array<std::uint8_t, kMostLeases> samples;  // portions in the push of a lease, bit mask
  std::array<std::uint8_t, 4> unused2;
};

struct DenseSparseState {
  std::array<Worker, kMostWorkers> workers;
  std::array<Shard, kMostShards> shards;
  std::uint8_t epoch, members;  // of the group
  std::uint8_t saved;           // step of the group's checkpoint
  std::uint8_t ended;
  std::uint8_t crashes, evictions, restores;
  std::uint8_t unused;
};
static_assert(std::has_unique_object_representations_v<DenseSparseState>);

class DenseSparseModel {
 public:
  using State = DenseSparseState;

  explicit DenseSparseModel(DenseSparseOptions options) : options_(options) {}

  State Initial() const;
  void Next(const State& state, Successors<State>& next) const;
  std::string Violation(const State& state) const;
  std::string Stuck(const State& state) const;

 private:
  int LeaseOf(int step, int portion) const { return step * options_.portions + portion; }
  std::uint8_t LeasesBefore(int step) const;
  int RankOf(std::uint8_t members, int worker) const;
  std::uint8_t PortionsOf(const Worker& worker, int index) const;
  std::uint8_t LeasesOf(const Worker& worker, int index) const;
  std::uint8_t WorkersAlive(const State& state) const;

  bool Push(State& state, int worker, int shard) const;
  bool CatchUp(State& state, int worker, int shard) const;
  bool Apply(State& state, int shard, int lease) const;
  bool HearAcknowledged(State& state, int worker, int shard) const;
  bool Contribute(State& state, int worker) const;
  bool Complete(State& state, int worker, bool checkpoint) const;
  bool Regroup(State& state, std::uint8_t members) const;
  bool Restore(State& state, int shard) const;
  bool End(State& state) const;

  const DenseSparseOptions options_;
};

}  // namespace starling::model
