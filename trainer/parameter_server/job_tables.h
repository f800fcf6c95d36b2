// SPDX-License-Identifier: Apache-2.0
// The tables of a job, from its spec and from what its workers know of model and data. A pure
// function: coordinator, servers and workers call it with the same arguments and have the same
// tables, rules and shards, in the same order, without telling one another.
//
//   parameters  the flat buffer of the workload (workload.h), cut into exchange.
//               parameterServer.shards shards; its rule is spec.optimizer, or with update.hogwild,
//               whose workers push changes instead of gradients, plain addition
//   course      a key-value shard, the last one: how training fares (validations, the best
//               parameters so far), so that this outlives every worker; nobody waits for anybody in
//               it, and it has no leases
//
// Leases are units of work: 1 is the first values of all parameters, and 2 + t * k + j is portion j
// of the k into which step t, a batch of SamplesPerStep() samples, is cut; steps are counted over
// all epochs. To add a table (of sparse rows, of embeddings):
// its TableSpec here.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "trainer/parameter_server/shard_map.h"
#include "trainer/parameter_server/shard_state.h"

namespace starling::v1alpha1 {
class TrainingJobSpec;
}  // namespace starling::v1alpha1

namespace starling::parameter_server {

// What workers know of model and data, and everybody else is told.
struct Layout {
  std::int64_t parameters = 0;  // floats in the flat buffer
  std::int64_t samples = 0;     // in the training set
  std::string fingerprint;      // of the tensors' names and shapes, and of the data
  // The parameters are rows of which each sample uses few, and which are zero before they are
  // pushed; false: a dense array.
  bool sparse = false;
  // Of the flat buffer, what lies on servers: in order and disjoint. Empty: all of it; else the
  // workers hold the rest (spec.exchange.parameterServer.tensors).
  std::vector<RowRange> held = {};
  bool operator==(const Layout&) const = default;
};

inline constexpr Lease kFirstValues = 1;
// Its step, from 0, and which portion of that it is.
inline constexpr std::int64_t StepOfLease(Lease lease, std::int64_t portions) {
  return static_cast<std::int64_t>(lease - consistency::kFirstPortion) / portions;
}
inline constexpr Lease LeaseOf(std::int64_t step, std::int64_t portion, std::int64_t portions) {
  return consistency::kFirstPortion + static_cast<Lease>(step * portions + portion);
}
inline constexpr std::int64_t PortionOfLease(Lease lease, std::int64_t portions) {
  return static_cast<std::int64_t>(lease - consistency::kFirstPortion) % portions;
}

// Shards below this many floats are not cut further.
inline constexpr std::int64_t kSmallestShard = 4096;

struct JobTables {
  std::vector<ShardId> ids;          // of `shards`, in the same order
  std::vector<ShardOptions> shards;  // those of the parameters, then the course's
  // The shards whose ledgers say whether a lease is done.
  std::size_t parameter_shards = 0;
  std::size_t course_shard() const { return parameter_shards; }
  // By which a unit of work's changes travel, and the weights that it reads.
  compression::CodecNumber codec = compression::kIdentity;
  compression::CodecNumber codec_of_reads = compression::kIdentity;
};

// `spec` is resolved and valid, its exchange is parameterServer. INVALID_ARGUMENT when layout and
// spec do not fit (no parameters, more shards than a view can name), or the layout is no layout: it
// may have come from the network.
absl::StatusOr<JobTables> TablesOf(const v1alpha1::TrainingJobSpec& spec, const Layout& layout);

// How large the shards are, beside their mean: what placement counts. Those whose rows come to life
// weigh as much as the mean; texts, next to nothing.
std::map<ShardId, double> WeightsOf(const JobTables& tables);

// Of a bulk-synchronous step dataset.globalBatchSize, whoever works it off. Else a step is one
// push, so that it is applied once or not at all: spec.exchange.parameterServer.samplesPerPush, or
// what stands in for it, times localSgd.pushEvery.
std::int64_t SamplesPerStep(const v1alpha1::TrainingJobSpec& spec);

// Leases of a step: 1, but of a bulk-synchronous one globalBatchSize / samplesPerPush, by default
// 16 (or one a sample). It must not follow from how many workers there are: that may change, and a
// lease is to mean the same samples for the job's whole life.
std::int64_t PortionsOf(const v1alpha1::TrainingJobSpec& spec);

// How the job file's consistency is called by the machines.
consistency::Options ConsistencyOf(const v1alpha1::TrainingJobSpec& spec);

// Whether workers name the rows that they read and push (filters.h): of sparse tables only.
bool NamesRows(const v1alpha1::TrainingJobSpec& spec, bool sparse);
// With the KKT filter: the L1 penalty that a gradient must exceed to change a weight that is 0.
std::optional<double> KktPenaltyOf(const v1alpha1::TrainingJobSpec& spec, bool sparse);

}  // namespace starling::parameter_server
