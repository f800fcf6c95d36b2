// SPDX-License-Identifier: Apache-2.0
// The servers of a simulated job: a ChainServer for each shard in every server, snapshots, and what
// servers and their clients send one another. Every shard has all rows of one table. The clients
// are the job's own.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "trainer/membership/session.h"
#include "trainer/parameter_server/chain_server.h"
#include "trainer/parameter_server/shard_coordinator.h"
#include "trainer/simulation/shard_invariants.h"
#include "trainer/simulation/world.h"

namespace starling::simulation {

namespace ps = parameter_server;

// Rows to which plain addition adds what is pushed.
std::shared_ptr<const ps::TableSpec> TableOfUnits(std::size_t rows);
// What a process says that knows the job's model and data.
v1alpha1::ParameterServerReport ReportWithLayout();
// Whether this is to be acted on: the session has taken it, and the process does not end by it.
bool Obeys(World& world, Process& process, membership::Session& session,
           const membership::Directive& directive);

// Thread-compatible.
class ShardServers {
 public:
  // What arrives at a client, of a view that it has installed.
  using ToClient = std::function<void(Process&, std::size_t shard, const ps::Message&)>;
  struct Options {
    ps::ShardOptions shard;
    std::size_t shards = 1;
    std::int64_t portions = 0;  // of a bulk-synchronous step; 0: another model
    // As of ShardOptions.
    bool whims = false;
    bool loads = false;
  };

  // `world` and `invariants` outlive it.
  ShardServers(Options options, World& world, ShardInvariants& invariants, ToClient to_client);

  ps::ShardCoordinator::Options CoordinatorOf(membership::CoordinatorOptions common) const;

  // As of Job, of processes that are servers. ----------------------------------------------------
  void OnStarted(const MemberId& id);
  void OnDirective(Process& process, const membership::Directive& directive);
  membership::Report ReportOf(const Process& process);
  void OnBroken(const Process& process, ViewNumber view);
  void OnPublished(const membership::View& view);
  void OnTick();
  void Check();
  std::string Standing(const Process& process) const;

  // Inside a chain links keep their order until they break; between clients and servers a retry may
  // overtake, be lost, or arrive twice.
  void Post(const MemberId& from, const MemberId& to, std::size_t shard,
            const ps::Message& message);
  // Of the newest view's chain, the open tail's; null: nobody serves.
  const ps::ShardState* NewestState(std::size_t shard) const;
  // A view that was published, as this shard's servers see it.
  ps::ShardView ViewOf(ViewNumber view, std::size_t shard) const {
    return ps::ShardViewOf(views_.at(view), shard);
  }
  const ps::ShardOptions& shard() const { return options_.shard; }

 private:
  struct Server {
    std::unique_ptr<membership::Session> session;
    std::vector<std::unique_ptr<ps::ChainServer>> shards;
    std::vector<StateId> seen;  // per shard, as the invariants last saw it
    std::vector<ViewNumber> based;
    std::vector<ViewNumber> loading;  // per shard, the view for which it was last asked to load
    std::int64_t turn = 0;            // the newest checkpoint that it has saved
  };

  void Install(Process& process, const membership::View& view);
  void Receive(Process& process, std::size_t shard, const ps::Message& message);
  void SendFrom(const MemberId& server, std::size_t shard, const ps::Sends& sends);
  void LoadIfWanted(const MemberId& id, std::size_t shard);
  void SaveIfAsked(const MemberId& id, std::int64_t turn);
  void Snapshot();

  const Options options_;
  World& world_;
  ShardInvariants& invariants_;
  const ToClient to_client_;
  std::map<MemberId, Server> servers_;
  std::vector<std::map<StateId, std::string>> disk_;  // per shard
  std::map<ViewNumber, membership::View> views_;
  std::vector<std::set<ViewNumber>> restored_;  // per shard, the views that restored it
  std::vector<std::int64_t> loads_;             // by shard
};

}  // namespace starling::simulation
