// SPDX-License-Identifier: Apache-2.0
// What rows PS-10 (a tree of aggregators) and PS-19 (two levels) say of bytes: four workers in
// groups of two, over real links, before and after the first of them dies. Groups are those that
// the real GroupOf makes.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>

#include "common/status/macros.h"
#include "tests/techniques/cluster.h"
#include "tests/techniques/loops.h"
#include "tests/techniques/rows.h"

namespace starling::techniques {
namespace {

using parameter_server::ClientLoop;

constexpr std::uint64_t kRows = 25000;
constexpr double kModelBytes = kRows * sizeof(float);

// Of one update of every view.
struct Played {
  std::vector<double> models;  // payload into the server, beside the model's bytes
  std::vector<float> values;   // all parameters' value afterwards; NaN if they differ
};

// One bulk-synchronous update with all four workers, then one without worker 0, whose portion
// worker 1 pushes with its own. Worker w pushes the gradient -w everywhere, and the rule subtracts
// their mean.
Played Play(const parameter_server::Topology& topology, const std::vector<std::string>& nodes) {
  TableOptions table;
  table.parameters = kRows;
  table.rule = Sgd();
  table.model = consistency::BulkSynchronous{4};
  Loops loops(1, 4, {ShardOf(table)});
  loops.SetTopology(topology, nodes);
  Played played;
  for (const std::vector<int>& workers : {std::vector<int>{0, 1, 2, 3}, {1, 2, 3}}) {
    const auto clock = static_cast<Clock>(played.models.size());
    const std::uint64_t before = loops.ServerTraffic(0).payload_received;
    std::atomic<float> value{0};
    (void)loops.InView(
        static_cast<membership::ViewNumber>(clock + 1), {0}, workers,
        [&](int worker, ClientLoop& client) -> absl::Status {
          parameter_server::Read read;
          read.clock = clock;  // so that the shard has welcomed this worker
          read.rows = kRows;
          RETURN_IF_ERROR(client.Pull(0, read, Soon()).status());
          parameter_server::Entry entry;
          entry.clock = clock;
          const bool two = workers.size() == 3 && worker == 1;
          entry.lease =
              static_cast<parameter_server::Lease>(2 + clock * 4 + worker - (two ? 1 : 0));
          entry.leases = two ? 2 : 1;
          entry.update = Encoded(std::vector<float>(kRows, static_cast<float>(-worker)));
          (void)client.Push(0, entry);
          read.clock = clock + 1;
          ASSIGN_OR_RETURN(const parameter_server::ReadDone done, client.Pull(0, read, Soon()));
          std::vector<float> values(kRows);
          std::memcpy(values.data(), done.values->data(), done.values->size());
          const bool equal = std::equal(values.begin() + 1, values.end(), values.begin());
          value = equal ? values[0] : NAN;
          return absl::OkStatus();
        });
    const auto bytes = static_cast<double>(loops.ServerTraffic(0).payload_received - before);
    played.models.push_back(bytes / kModelBytes);
    played.values.push_back(value);
  }
  return played;
}

}  // namespace

void ThroughGroups(Report& report, const parameter_server::Topology& topology,
                   const std::vector<std::string>& nodes, const std::string& what) {
  const Played flat = Play({}, nodes), tree = Play(topology, nodes);
  report.Each("pushes into the server of one update, " + what + ", of 4, in models", tree.models[0],
              Rule::kAtMost, 2.02);
  report.Each("and at least", tree.models[0], Rule::kAtLeast, 2);
  report.Each("the first aggregator has died: 3 workers in a group of 2 and one alone, in models",
              tree.models[1], Rule::kAtMost, 2.02);
  report.Each("parameters after both updates, beside everybody's own push: difference",
              std::abs(tree.values[1] - flat.values[1]), Rule::kAtMost, 1e-6);
  report.Each("and beside the mean of all gradients", std::abs(tree.values[1] - 3.5), Rule::kAtMost,
              1e-6);
  report.Control("everybody pushes by itself, in models", flat.models[0], Rule::kAtLeast, 4);
}

}  // namespace starling::techniques
