// SPDX-License-Identifier: Apache-2.0
// Over whom pushes reach the servers: who sums up whose, and whether a shard's pushes can be summed
// up at all. Pure functions of the view and of the job's settings, so that all workers know the
// same without a word; a view without an aggregator has other groups.
//
//   flat        everybody pushes to the servers
//   tree        the clients in the view's order, in groups of `fanout`
//   hostReduce  those of one node
//
// The first of a group sums up, and is a worker like the others. To add a topology: a kind, its
// case in GroupOf, its message in training_job.proto.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "trainer/parameter_server/shard_state.h"

namespace starling::v1alpha1 {
class TrainingJobSpec;
}  // namespace starling::v1alpha1

namespace starling::parameter_server {

using membership::MemberId;

struct Topology {
  enum class Kind { kFlat, kTree, kHostReduce };
  Kind kind = Kind::kFlat;
  std::int64_t fanout = 4;  // kTree
};

Topology TopologyOf(const v1alpha1::TrainingJobSpec& spec);

// The group of `self`, whoever sums up first; nobody if it pushes alone.
std::vector<MemberId> GroupOf(const membership::View& view, const Topology& topology,
                              const MemberId& self);

// How pushes of one shard become one.
struct Reduction {
  bool sum = false;        // else the mean by weight
  bool one_clock = false;  // only pushes of one clock
};

// Nothing where each push must be seen by itself: rules that remember reads, backup workers, early
// sending, tables whose updates are no ranges of rows.
std::optional<Reduction> ReductionOf(const ShardOptions& shard);

}  // namespace starling::parameter_server
