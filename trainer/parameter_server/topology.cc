// SPDX-License-Identifier: Apache-2.0
#include "trainer/parameter_server/topology.h"

#include <algorithm>
#include <variant>

#include "starling/v1alpha1/training_job.pb.h"
#include "trainer/optimizer/optimizer.h"

namespace starling::parameter_server {
namespace {

// What an aggregate is to each model. Where every push is an update by itself, it is their sum:
// what plain descent would have done with one after the other.
struct ReductionFor {
  bool adds = false;  // the table adds what others take the mean of

  using Reduced = std::optional<Reduction>;
  Reduced operator()(const consistency::BulkSynchronous&) const { return Reduction{adds, true}; }
  Reduced operator()(const consistency::SoftSync&) const { return Reduction{adds, false}; }
  Reduced operator()(const consistency::Asynchronous&) const { return Reduction{true, false}; }
  Reduced operator()(const consistency::BoundedDelay&) const { return Reduction{true, false}; }
  Reduced operator()(const consistency::StaleSynchronous&) const { return Reduction{true, false}; }
  Reduced operator()(const consistency::EagerStaleSynchronous&) const { return std::nullopt; }
  Reduced operator()(const consistency::BackupWorkers&) const { return std::nullopt; }
};

}  // namespace

Topology TopologyOf(const v1alpha1::TrainingJobSpec& spec) {
  const v1alpha1::Topology& chosen = spec.exchange().parameter_server().topology();
  Topology topology;
  if (chosen.has_host_reduce()) topology.kind = Topology::Kind::kHostReduce;
  if (!chosen.has_tree()) return topology;
  topology.kind = Topology::Kind::kTree;
  if (chosen.tree().has_fanout())
    topology.fanout = std::max<std::int64_t>(1, chosen.tree().fanout());
  return topology;
}

std::vector<MemberId> GroupOf(const membership::View& view, const Topology& topology,
                              const MemberId& self) {
  std::vector<MemberId> group;
  const std::span<const membership::ViewMember> clients = view.workers();
  const auto own = std::find_if(clients.begin(), clients.end(),
                                [&](const auto& client) { return client.id == self; });
  if (own == clients.end() || topology.kind == Topology::Kind::kFlat) return group;
  const auto rank = own - clients.begin();
  for (auto client = clients.begin(); client != clients.end(); ++client) {
    const bool together =
        topology.kind == Topology::Kind::kTree
            ? (client - clients.begin()) / topology.fanout == rank / topology.fanout
            : client->node == own->node;
    if (together) group.push_back(client->id);
  }
  if (group.size() == 1) group.clear();
  return group;
}

std::optional<Reduction> ReductionOf(const ShardOptions& shard) {
  const TableSpec& table = *shard.table;
  if (table.kind != TableKind::kDense) return std::nullopt;
  if (table.rule->remembered() != optimizer::Optimizer::kNothing) return std::nullopt;
  return std::visit(ReductionFor{table.combine == Combine::kSum}, shard.consistency);
}

}  // namespace starling::parameter_server
