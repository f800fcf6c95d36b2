// SPDX-License-Identifier: Apache-2.0
// Workers and a parameter server in one thread and made-up time: the REAL machines of
// trainer/parameter_server (the shard's object with its table, its rule and its consistency model)
// with real gradients, but how long a worker computes is a function of the check's. So a straggler
// costs nothing to wait for, eight workers need no eight cores, and one seed gives one history.
//
// A worker is given leases (so many samples each) by the coordinator's real LeaseSource, reads when
// the model lets it, computes for as long as `compute` says, pushes, and goes on. A lease whose
// push is refused goes back to the source. Every push is also fed to a second model of the same
// kind, which is asked which contributions became one update.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <vector>

#include "tests/techniques/problem.h"
#include "trainer/consistency/consistency.h"
#include "trainer/parameter_server/shard_state.h"

namespace starling::techniques {

inline constexpr double kForever = std::numeric_limits<double>::infinity();

using consistency::Client;
using consistency::Clock;

inline Client ClientOf(int worker, membership::ViewNumber joined = 1) {
  return {{"worker-" + std::to_string(worker), 0}, joined};
}

// One shard with the parameters of a problem.
struct TableOptions {
  std::size_t parameters = 0;
  std::shared_ptr<const optimizer::Optimizer> rule;
  std::function<double(std::int64_t)> rate = [](std::int64_t) { return 1.0; };
  parameter_server::Combine combine = parameter_server::Combine::kMean;
  float initial_scale = 0;
  std::uint64_t seed = 1;
  consistency::Options model;
  consistency::Rules clocks;
};
parameter_server::ShardOptions ShardOf(const TableOptions& options);
std::shared_ptr<const optimizer::Optimizer> Sgd(double momentum = 0);

// What is pushed is added up, without a rate.
TableOptions Sums(std::size_t parameters, const consistency::Options& model);

parameter_server::UpdatePtr Encoded(std::span<const float> values);
// Of all rows.
parameter_server::Entry PushOf(std::span<const float> values, Clock clock,
                               parameter_server::Lease lease = 0);
std::vector<float> ValuesOf(const parameter_server::ShardState& shard, std::size_t parameters);
// A shard that nobody has entered gets the problem's first values, if it has any.
void AssignFirst(const Problem& problem, std::uint64_t seed, parameter_server::ShardState& shard);
// A tensor of the shard's snapshot, such as "state.squares".
std::vector<float> TensorOf(const parameter_server::ShardState& shard, const std::string& name);

struct ClusterOptions {
  std::shared_ptr<const Problem> problem;
  TableOptions table;  // parameters are filled in
  int workers = 4;
  std::int64_t batch = 16;
  std::uint64_t seed = 1;
  std::int64_t leases = 1000;       // the run ends when so many are taken
  double seconds = kForever;        // or then
  double target = 2;                // or when the accuracy is reached
  std::int64_t evaluate_every = 0;  // leases; 0: never
  double latency = 0;               // of a push, and of a read
  std::function<double(int worker, std::int64_t round, double now)> compute =
      [](int, std::int64_t, double) { return 0.01; };
  std::int64_t warm_start = 0;  // so many leases are worker 0's alone
  // The samples of a worker's n-th lease; by default those of the lease's number, whoever has it.
  std::function<std::vector<std::int64_t>(int worker, std::int64_t nth)> pinned;
  // What is pushed, where it is not the gradient.
  std::function<void(int worker, Clock clock, std::vector<float>& gradient)> make_update;
  struct Change {
    double at = 0;
    std::vector<int> workers;  // from then on; who is missing was killed
  };
  std::vector<Change> changes;
  bool source_hears_of_deaths = true;  // false: what dead workers hold stays theirs
  std::function<void(int worker, Clock clock, std::span<const float> values)> on_read;
  std::function<void(const consistency::Batch& batch)> on_update;
};

struct ClusterPoint {
  double seconds = 0;
  std::int64_t leases = 0;
  double loss = 0;
  double accuracy = 0;
};

struct ClusterResult {
  std::vector<ClusterPoint> curve;
  std::vector<float> parameters;
  consistency::Staleness staleness;
  std::int64_t updates = 0;
  std::int64_t refused = 0;
  std::int64_t spread = 0;           // of clocks, at most
  double seconds = 0;                // simulated
  double waited = 0;                 // by all workers, for the model's leave to read
  double reached = kForever;         // when the target was
  std::vector<std::int64_t> taken;   // leases, in the shard's order
  std::vector<std::int64_t> rounds;  // of each worker
};

ClusterResult Run(const ClusterOptions& options);

}  // namespace starling::techniques
