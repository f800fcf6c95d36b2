// SPDX-License-Identifier: Apache-2.0
// Servers and workers as threads over real links inside this process, view by view: for what is
// said of bytes on links, and of servers that die.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "trainer/parameter_server/server_loop.h"
#include "trainer/parameter_server/topology.h"
#include "trainer/testing/client_loop.h"
#include "trainer/testing/transports.h"

namespace starling::techniques {

using transport::testing::Soon;

// InView is confined to one thread; WorkerTraffic and Kill may be called by bodies.
class Loops {
 public:
  Loops(int servers, int workers, std::vector<parameter_server::ShardOptions> shards,
        int replication = 1, const transport::Shaping& shaping = {});

  using Body = std::function<absl::Status(int worker, parameter_server::ClientLoop& client)>;
  // One view: every shard's chain begins with another of `servers`; each of `workers` enters, waits
  // until it is ready, runs `body`; when all have returned the view ends. What they returned.
  std::vector<absl::Status> InView(membership::ViewNumber number, const std::vector<int>& servers,
                                   const std::vector<int>& workers, const Body& body);
  // From the next view on workers, on these nodes by their numbers, push through the first of each
  // group.
  void SetTopology(const parameter_server::Topology& topology, std::vector<std::string> nodes) {
    topology_ = topology;
    nodes_ = std::move(nodes);
  }
  // In a view: the server's links end, without a word.
  void Kill(int server);
  transport::Traffic WorkerTraffic(int worker) { return TrafficOf(servers_count_ + worker); }
  transport::Traffic ServerTraffic(int server) { return TrafficOf(server); }
  // A server that has lost everything.
  void Forget(int server);

 private:
  const membership::MemberId& IdOfWorker(int worker) const {
    return ids_[static_cast<std::size_t>(servers_count_) + static_cast<std::size_t>(worker)];
  }
  transport::Traffic TrafficOf(int member) { return members_[member].ledger().Total(); }
  void PutGroup(const std::vector<int>& workers, std::size_t rank,
                parameter_server::ClientView& view) const;
  std::vector<parameter_server::ShardView> ViewsOf(membership::ViewNumber number,
                                                   const std::vector<int>& servers,
                                                   const std::vector<int>& workers);

  const int servers_count_;
  const int replication_;
  const std::vector<parameter_server::ShardOptions> shards_;
  parameter_server::Topology topology_;  // flat
  std::vector<std::string> nodes_;
  transport::testing::Members members_;
  std::vector<membership::MemberId> ids_;
  std::vector<std::unique_ptr<parameter_server::ServerLoop>> servers_;
  std::map<int, std::unique_ptr<parameter_server::ClientLoop>> clients_;
  std::map<int, membership::ViewNumber> joined_;
  std::vector<std::vector<parameter_server::ShardView>> past_;
  std::map<int, transport::Mesh*> server_meshes_;
  std::vector<std::unique_ptr<transport::Mesh>> last_meshes_;
};

}  // namespace starling::techniques
