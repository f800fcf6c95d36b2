// SPDX-License-Identifier: Apache-2.0
// Jobs of both ways: servers hold a part of the model (shard_servers.h), and workers the rest, as a
// replica group (peer_job.h). What worker::Hybrid and client::HybridExchange do between two
// reductions is done here at the level of messages: leases that come before the next step, reads,
// portions, and the word that waits for their acknowledgements. What servers and the coordinator
// say to a worker is in hybrid_job.cc, its loop in hybrid_steps.cc.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "trainer/parameter_server/shard_client.h"
#include "trainer/simulation/peer_job.h"
#include "trainer/simulation/shard_servers.h"

namespace starling::simulation {

// Thread-compatible.
class HybridJob final : public PeerJob {
 public:
  explicit HybridJob(const HybridOptions& options);

 private:
  // What a worker's loop is in the middle of.
  enum class Doing { kNothing, kReading, kComputing, kAwaiting, kSumming };
  // The step that is being made, or with a lease that which servers lack.
  struct Step {
    ps::Lease lease = 0;
    StateId from = {};
    membership::ControlWord word = {};
    bool validates = false;
    bool ahead = false;     // some server has this step already, as its version says
    bool exact = true;      // what was read was the state before it, as it is
    std::int64_t next = 0;  // portion
    std::int64_t end = 0;
  };
  struct Client {
    std::unique_ptr<ps::ShardClient> machine;
    ViewNumber entered = 0;  // by the loop
    bool ready = false;      // all shards have said where it stands
    // The newest directive's, of the view `told`.
    ViewNumber told = 0;
    std::vector<ps::Lease> listed;
    bool first_values = false;
    bool conclude = false;
    // As worker::LeaseQueue.
    std::set<ps::Lease> begun;
    std::set<ps::Lease> done;
    std::set<ps::Lease> done_unlisted;
    struct Flight {
      ps::Lease lease = 0;
      std::size_t unit = 0;
      std::size_t open = 0;  // shards that have not acknowledged it
    };
    std::map<std::int64_t, Flight> flights;
    std::map<std::pair<std::size_t, ps::Sequence>, std::int64_t> sent;  // by shard
    std::int64_t next_flight = 0;

    Doing doing = Doing::kNothing;
    std::int64_t turn = 0;  // names what it does, for what comes late
    Step step;
    std::set<std::pair<std::size_t, std::int64_t>> reading;  // shards and requests
    std::vector<std::uint64_t> held;  // by shard, the hash of what it has read last
    bool over = false;                // the last step is settled
    bool concluded = false;           // it has made the result
  };

  std::unique_ptr<membership::Coordinator> NewCoordinator(
      membership::CoordinatorOptions options) override;
  void OnStarted(Process& process) override;
  void OnDirective(Process& process, const membership::Directive& directive) override;
  membership::Report ReportOf(Process& process) override;
  void OnBroken(Process& process, ViewNumber view, const MemberId& peer) override;
  void GoOn(Process& process) override;
  void OnPublished(const membership::View& view) override;
  void OnTick() override { servers_.OnTick(); }
  void Check() override;
  std::string Standing(const Process& process) override;

  void Entered(Peer& peer, const membership::View& view) override;
  bool MayGoOn(const Peer& peer) const override;
  void Work(Peer& peer) override;
  Contribution ContributionOf(const Peer& peer) const override;
  void Made(Peer& peer, const Reduced& reduced, const Content& before) override;
  void Over(Peer& peer) override;
  std::uint64_t BytesOf(const Peer& peer) const override;

  // hybrid_job.cc
  void Receive(Process& process, std::size_t shard, const ps::Message& message);
  void SendFrom(const MemberId& client, const ps::ClientSends& sends);
  void OnClientEvents(Peer& peer);
  void On(Peer& peer, const ps::StartedOver& event);
  void On(Peer& peer, const ps::Ready& event);
  void On(Peer& peer, const ps::Acknowledged& event);
  void On(Peer& peer, const ps::Rejected& event);
  void On(Peer& peer, const ps::ReadDone& event);
  void Retry(const MemberId& id);
  void HearLeases(Peer& peer, const membership::Directive& directive);
  std::optional<ps::Lease> NextLease(const Client& client) const;

  static bool Lists(const Client& client, ps::Lease lease);
  std::size_t Leases() const;

  // hybrid_steps.cc
  bool Awake(Peer& peer);
  void BeginLease(Peer& peer, ps::Lease lease);
  void BeginStep(Peer& peer);
  void Read(Peer& peer, ps::Clock clock);
  bool ReadIsWanted(const Client& client) const;
  void HasRead(Peer& peer);
  void ComputeNext(Peer& peer);
  void Push(Peer& peer, ps::Lease lease);
  void Await(Peer& peer);
  void Idle(Peer& peer);
  void Conclude(Peer& peer);
  std::size_t UnitOf(const Peer& peer, ps::Lease lease) const;
  bool ValidationIsDue(const Peer& peer) const;

  const HybridOptions hybrid_;
  const std::size_t shards_;
  ShardInvariants shard_invariants_;
  ShardServers servers_;
  std::map<MemberId, Client> clients_;
  // By the hash of a state, the step whose validation it counts last.
  std::map<std::uint64_t, std::int64_t> validated_;
  bool published_ = false;     // some view
  bool stepped_back_ = false;  // steps that servers have may be made again, from a checkpoint
};

}  // namespace starling::simulation
