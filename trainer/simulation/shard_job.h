// SPDX-License-Identifier: Apache-2.0
// Jobs with parameter servers: servers (shard_servers.h), and a ShardClient in every worker with a
// program that reads all shards, computes, and pushes units of work. That is in shard_clients.cc.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "trainer/membership/session.h"
#include "trainer/parameter_server/shard_client.h"
#include "trainer/parameter_server/topology.h"
#include "trainer/simulation/shard_invariants.h"
#include "trainer/simulation/shard_servers.h"
#include "trainer/simulation/world.h"

namespace starling::simulation {

// Thread-compatible.
class ShardJob final : public Job {
 public:
  explicit ShardJob(const ShardOptions& options);
  Outcome Run() { return world_.Run(*this); }

 private:
  // A client's program: read all shards, compute, push a unit or two to all shards. Unit u is lease
  // u + 1.
  struct Client {
    std::unique_ptr<membership::Session> session;
    std::unique_ptr<ps::ShardClient> machine;
    ps::Clock clock = 0;
    bool computing = false;
    std::map<std::pair<std::size_t, std::int64_t>, ps::Clock> reading;
    // Pushed, not acknowledged.
    std::map<std::pair<std::size_t, ps::Sequence>, std::vector<std::size_t>> units;
    std::map<std::size_t, std::set<std::size_t>>
        missing;  // leased units and shards still to answer
    ps::Version version = 0;
    std::vector<ps::Lease> listed;         // in the newest directive
    std::set<ps::Lease> done;              // of those, by all shards
    std::map<ps::Lease, Micros> returned;  // of those, given back: until then
    // In step: the units of leases that it reads for or computes; those of which some shard has
    // refused a push; and those that are therefore to be pushed one by one.
    std::vector<std::size_t> portions;
    std::set<std::size_t> refused;
    std::set<std::size_t> individually;
  };

  std::unique_ptr<membership::Coordinator> NewCoordinator(
      membership::CoordinatorOptions options) override;
  void OnStarted(Process& process) override;
  void OnDirective(Process& process, const membership::Directive& directive) override;
  membership::Report ReportOf(Process& process) override;
  void OnBroken(Process& process, ViewNumber view, const MemberId& peer) override;
  void OnPublished(const membership::View& view) override { servers_.OnPublished(view); }
  void OnTick() override { servers_.OnTick(); }
  void Check() override { servers_.Check(); }
  bool Finished(const membership::Coordinator& coordinator) override;
  void OnFinished() override;
  std::string Standing(const Process& process) override;

  // shard_clients.cc
  void StartClient(const MemberId& id);
  void EnterAsClient(Process& process, const membership::View& view);
  void HearLeases(const MemberId& id, const std::vector<ps::Lease>& leases);
  void SendFrom(const MemberId& client, const ps::ClientSends& sends);
  void OnClientEvents(const MemberId& id);
  void On(const MemberId& id, const ps::StartedOver& event);
  void On(const MemberId& id, const ps::Ready& event);
  void On(const MemberId& id, const ps::Acknowledged& event);
  void On(const MemberId& id, const ps::Rejected& event);
  void On(const MemberId& id, const ps::ReadDone& event);
  std::optional<std::size_t> TakeLease(Client& client);
  bool GivesBack(Client& client, ps::Lease lease, double probability);
  void StartReading(const MemberId& id);
  void Compute(const MemberId& id);
  void RestAWhile(const MemberId& id);
  void Push(const MemberId& id, const std::vector<std::size_t>& units, bool leased, bool completes);
  void Retry(const MemberId& id);
  void LosePatience(const MemberId& id);
  // Of bulk-synchronous clients: what they read and push belongs to the steps of their leases, not
  // to clocks of their own.
  void TakePortions(Client& client);
  void BeginPortions(const MemberId& id);
  void PushPortions(const MemberId& id);
  void GiveUpForLower(const MemberId& id);
  ps::Clock StepOf(std::size_t unit) const;

  const ShardOptions options_;
  const std::size_t shards_;
  const std::optional<std::int64_t> staleness_;  // that the model promises
  const std::int64_t portions_;                  // of a bulk-synchronous step; 0: another model
  ShardInvariants invariants_;
  World world_;
  ShardServers servers_;
  std::map<MemberId, Client> clients_;
  std::vector<std::vector<UnitPush>> pushes_;  // per shard, all ever made
  std::size_t next_unit_ = 0;                  // of those without a lease
  std::int64_t returns_ = 0;
};

}  // namespace starling::simulation
