// SPDX-License-Identifier: Apache-2.0
#include "tests/techniques/loops.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/status/check.h"
#include "common/status/macros.h"
#include "trainer/parameter_server/shard_placement.h"

namespace starling::techniques {
namespace {

using parameter_server::ClientLoop;
using parameter_server::ServerLoop;
using parameter_server::ShardView;
using transport::testing::Kind;

transport::Options Shaped(const transport::Shaping& shaping) {
  transport::Options options;
  options.shaping = shaping;
  return options;
}

}  // namespace

Loops::Loops(int servers, int workers, std::vector<parameter_server::ShardOptions> shards,
             int replication, const transport::Shaping& shaping)
    : servers_count_(servers),
      replication_(replication),
      shards_(std::move(shards)),
      members_(Kind::kInproc, servers + workers, Shaped(shaping)) {
  for (int member = 0; member < servers + workers; ++member) {
    ids_.push_back({absl::StrCat("member-", member), 0});
  }
  servers_.resize(static_cast<std::size_t>(servers));
  for (int server = 0; server < servers; ++server) Forget(server);
}

void Loops::Forget(int server) {
  const auto index = static_cast<std::size_t>(server);
  servers_[index] = std::make_unique<ServerLoop>(ids_[index], shards_);
}

void Loops::Kill(int server) {
  server_meshes_.at(server)->Cancel(absl::CancelledError("the check kills this server"));
}

std::vector<ShardView> Loops::ViewsOf(membership::ViewNumber number,
                                      const std::vector<int>& servers,
                                      const std::vector<int>& workers) {
  std::vector<ShardView> views(shards_.size());
  for (std::size_t shard = 0; shard < shards_.size(); ++shard) {
    membership::ReplicaGroup& group = views[shard].group;
    group.epoch = number;
    const std::size_t length =
        std::min(servers.size(), static_cast<std::size_t>(std::max(1, replication_)));
    for (std::size_t i = 0; i < length; ++i) {
      const int server = servers[(i + shard) % servers.size()];
      group.members.push_back(ids_[static_cast<std::size_t>(server)]);
    }
    for (const std::vector<ShardView>& past : past_) {
      membership::PastView& known = group.since.emplace_back();
      known.number = past[shard].group.epoch;
      known.members = past[shard].group.members;
    }
    for (const int worker : workers) {
      views[shard].clients.push_back({IdOfWorker(worker), joined_.at(worker)});
    }
  }
  return views;
}

void Loops::PutGroup(const std::vector<int>& workers, std::size_t rank,
                     parameter_server::ClientView& view) const {
  membership::View job;
  for (const int worker : workers) {
    membership::ViewMember& member = job.members.emplace_back();
    member.id = IdOfWorker(worker);
    if (!nodes_.empty()) member.node = nodes_[static_cast<std::size_t>(worker)];
  }
  view.group = parameter_server::GroupOf(job, topology_, job.members[rank].id);
  for (const auto& shard : shards_) view.reductions.push_back(parameter_server::ReductionOf(shard));
}

std::vector<absl::Status> Loops::InView(membership::ViewNumber number,
                                        const std::vector<int>& servers,
                                        const std::vector<int>& workers, const Body& body) {
  std::erase_if(joined_, [&](const auto& one) {
    return std::find(workers.begin(), workers.end(), one.first) == workers.end();
  });
  std::vector<int> present = servers;
  for (const int worker : workers) {
    joined_.emplace(worker, number);
    present.push_back(servers_count_ + worker);
    if (!clients_.contains(worker)) {
      clients_[worker] = std::make_unique<ClientLoop>(IdOfWorker(worker), shards_.size());
    }
  }
  parameter_server::Ranks ranks;
  std::vector<transport::Peer> peers;
  for (const int member : present) {
    ranks.push_back(ids_[static_cast<std::size_t>(member)]);
    peers.push_back(members_.peers()[static_cast<std::size_t>(member)]);
  }
  const std::vector<ShardView> views = ViewsOf(number, servers, workers);
  std::vector<std::unique_ptr<transport::Mesh>> meshes(present.size());
  transport::testing::OnEachRank(static_cast<int>(present.size()), [&](int rank) {
    const auto index = static_cast<std::size_t>(rank);
    auto mesh = members_[present[index]].Open(number, peers, rank, Soon(), nullptr);
    STARLING_CHECK(mesh.ok(), mesh.status().ToString().c_str());
    meshes[index] = *std::move(mesh);
  });
  server_meshes_.clear();
  for (std::size_t i = 0; i < servers.size(); ++i) server_meshes_[servers[i]] = meshes[i].get();
  std::vector<absl::Status> results(workers.size());
  std::vector<std::thread> serving, working;
  for (std::size_t i = 0; i < servers.size(); ++i) {
    serving.emplace_back([&, i] {
      (void)servers_[static_cast<std::size_t>(servers[i])]->Serve(views, ranks, *meshes[i]);
    });
  }
  for (std::size_t i = 0; i < workers.size(); ++i) {
    working.emplace_back([&, i] {
      ClientLoop& client = *clients_.at(workers[i]);
      parameter_server::ClientView view{number, joined_.at(workers[i]), {}};
      for (const ShardView& shard : views) {
        view.shards.push_back({shard.group.members.front(), shard.group.members.back()});
      }
      PutGroup(workers, i, view);
      results[i] = client.Enter(view, ranks, *meshes[servers.size() + i]);
      // Known already where the client was in the view before.
      if (results[i].ok() && joined_.at(workers[i]) == number) {
        results[i] = client.WaitUntilReady(Soon()).status();
      }
      if (results[i].ok()) results[i] = body(workers[i], client);
    });
  }
  for (std::thread& one : working) one.join();
  for (const auto& mesh : meshes) mesh->Cancel(absl::AbortedError("the view is over"));
  for (std::thread& one : serving) one.join();
  last_meshes_ = std::move(meshes);
  past_.push_back(views);
  return results;
}

}  // namespace starling::techniques
