// SPDX-License-Identifier: Apache-2.0
// The world of a simulated history of parameter servers; see slot_simulation.h. Time, network and
// checks are in slot_world.cc, the processes in slot_world_processes.cc (what bulk-synchronous
// clients do otherwise in slot_world_in_step.cc), the made-up coordinator and the faults in
// slot_world_control.cc, the real coordinator's rules in slot_world_planned.cc.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "trainer/parameter_server/chain_server.h"
#include "trainer/parameter_server/slot_client.h"
#include "trainer/parameter_server/slot_coordinator.h"
#include "trainer/parameter_server/topology.h"
#include "trainer/simulation/slot_invariants.h"
#include "trainer/simulation/slot_simulation.h"

namespace starling::simulation {

namespace ps = parameter_server;
using ps::MemberId;
using ps::StateId;
using ps::ViewNumber;

// Thread-compatible.
class SlotWorld {
 public:
  explicit SlotWorld(const SlotOptions& options);
  SlotOutcome Run();

 private:
  using Event = std::function<void()>;
  using Micros = std::int64_t;

  // What the coordinator publishes: each slot's group and the clients.
  struct View {
    ViewNumber number = 0;
    std::vector<ps::SlotView> slots;
    std::set<std::size_t> restored;
  };
  struct Process {
    MemberId id;
    bool server = false;
    bool alive = true;
    bool paused = false;
    bool suspected = false;  // by the coordinator, while it lives
    std::vector<Event> inbox;
    std::uint64_t incarnation = 0;  // of the coordinators that it has heard of, the highest
    ViewNumber view = 0;
    std::map<ViewNumber, std::vector<Event>> parked;  // messages of later views
  };
  struct Server {
    std::vector<std::unique_ptr<ps::ChainServer>> slots;
    std::vector<StateId> seen;  // per slot, as the invariants last saw it
    std::vector<ViewNumber> based;
    std::vector<ViewNumber> loading;  // per slot, the view for which it was last asked to load
  };
  // A client's program: read all slots, compute, push a unit or two to all slots.
  struct Client {
    std::unique_ptr<ps::SlotClient> machine;
    ps::Clock clock = 0;
    bool computing = false;
    std::map<std::pair<std::size_t, std::int64_t>, ps::Clock> reading;
    // Pushed, not acknowledged.
    std::map<std::pair<std::size_t, ps::Sequence>, std::vector<std::size_t>> units;
    std::map<std::size_t, std::set<std::size_t>> missing;  // leased units and slots still to answer
    ps::Version version = 0;
    std::vector<ps::Lease> listed;         // in the newest directive
    std::set<ps::Lease> done;              // of those, by all slots
    std::map<ps::Lease, Micros> returned;  // of those, given back: until then
    // In step: the units of leases that it reads for or computes; those of which some slot has
    // refused a push; and those that are therefore to be pushed one by one.
    std::vector<std::size_t> portions;
    std::set<std::size_t> refused;
    std::set<std::size_t> singly;
  };
  // A coordinator's stream to a pod.
  struct Stream {
    std::optional<MemberId> to;
    Micros dialled = 0;  // not before
    Micros made = 0;     // the newest report that came
    Micros told = 0;     // the last directive arrives
  };
  // A coordinator process. One that was replaced may go on for a while, and not know it.
  struct Leader {
    std::unique_ptr<ps::SlotCoordinator> machine;
    std::uint64_t incarnation = 0;
    Micros from = 0;
    Micros until = 0;                       // 0: no end
    std::map<std::string, Stream> streams;  // by pod
  };
  struct Lease {
    std::optional<ps::Client> holder;
    bool done = false;
  };

  // slot_world.cc
  std::int64_t Random(std::int64_t low, std::int64_t high);
  bool Chance(double probability);
  void At(Micros delay, Event event);
  void Trace(const std::string& line);
  bool Late() const { return now_ >= faults_end_; }
  void Deliver(const MemberId& to, Micros delay, std::function<void(Process&)> event);
  void Post(const MemberId& from, const MemberId& to, std::size_t slot, const ps::Message& message);
  void Receive(Process& process, std::size_t slot, const ps::Message& message);
  void Check();
  bool Finished();
  const View* NewestView() const;
  std::string WhyNot();

  // slot_world_processes.cc
  void StartServer(const std::string& uid, std::int64_t start);
  void StartClient(const std::string& uid, std::int64_t start);
  ps::SlotOptions SlotOfAll() const {
    return {table_, {0, table_->rows}, options_.model, options_.rules};
  }
  void Install(Process& process, const View& view);
  std::vector<MemberId> GroupOf(const View& view, const MemberId& id) const;
  void SendFrom(const MemberId& server, std::size_t slot, const ps::Sends& sends);
  void LoadIfWanted(const MemberId& id, std::size_t slot);
  void SendFrom(const MemberId& client, const ps::ClientSends& sends);
  void OnClientEvents(const MemberId& id);
  void On(const MemberId& id, const ps::StartedOver& event);
  void On(const MemberId& id, const ps::Ready& event);
  void On(const MemberId& id, const ps::Acknowledged& event);
  void On(const MemberId& id, const ps::Rejected& event);
  void On(const MemberId& id, const ps::ReadDone& event);
  void StartReading(const MemberId& id);
  void Compute(const MemberId& id);
  void RestAWhile(const MemberId& id);
  void PushUnit(const MemberId& id, std::optional<std::size_t> lease, bool completes);
  void PushToAll(const MemberId& id, const ps::Entry& entry, const std::vector<std::size_t>& units);
  void Retry(const MemberId& id);
  void LosePatience(const MemberId& id);
  void Prefetch();
  void Snapshot();

  // slot_world_in_step.cc
  void BeginPortions(const MemberId& id);
  void TakePortions(const MemberId& id);
  void PushPortions(const MemberId& id);
  void GiveUpForLower(const MemberId& id);
  ps::Clock StepOf(std::size_t unit) const;

  // slot_world_control.cc
  void CoordinatorTick();
  bool AllLeasesDone() const;
  bool NeedsView();
  void Publish();
  std::vector<MemberId> ChainFor(std::size_t slot, std::set<std::size_t>& restored,
                                 std::vector<ViewNumber>& waived);
  bool Terminated(const MemberId& id) const;
  std::optional<std::size_t> TakeLease(const ps::Client& client);
  bool GivesBack(Client& client, ps::Lease lease, double probability);
  void LeaseDone(std::size_t lease, const ps::Client& client);
  void ReissueLeases();
  bool DoneEverywhere(std::size_t lease);
  const ps::SlotState* NewestState(std::size_t slot);
  void PlanFaults();
  void RandomFault();
  void Kill(Process& process);
  void Pause(Process& process, Micros length);
  void NoticeBreak(const MemberId& at, ViewNumber view);
  void BreakLink(const MemberId& a, const MemberId& b);
  Process* RandomProcess(bool server);

  // slot_world_planned.cc
  void TakeOver();
  void AddPod(const std::string& uid, std::int64_t index, bool server);
  std::string ReplacePod(const std::string& uid);
  void SayDesired();
  void PlanTick();
  bool Leads(const Leader& leader) const;
  const ps::SlotCoordinator* Newest() const;
  void KeepStreams(Leader& leader);
  void AfterEvent(const Leader& leader);
  void TellAll(Leader& leader);
  void Obey(Process& process, const membership::Directive& directive);
  void Live(const MemberId& id);
  membership::Report ReportOf(const Process& process) const;
  void OnReport(Leader& leader, const membership::Report& report, Micros made);
  void Publish(const membership::View& job);

  const SlotOptions options_;
  std::mt19937_64 random_;
  Micros now_ = 1'000'000;
  Micros faults_end_ = 0;
  std::int64_t sequence_ = 0;
  using Timed = std::tuple<Micros, std::int64_t, Event>;
  struct Later {
    bool operator()(const Timed& a, const Timed& b) const {
      return std::tie(std::get<0>(a), std::get<1>(a)) > std::tie(std::get<0>(b), std::get<1>(b));
    }
  };
  std::priority_queue<Timed, std::vector<Timed>, Later> queue_;

  std::shared_ptr<const ps::TableSpec> table_;
  std::optional<std::int64_t> staleness_;  // that the model promises
  std::int64_t portions_ = 0;              // of a bulk-synchronous step; 0: another model
  SlotInvariants invariants_;
  std::map<MemberId, Process> processes_;
  std::map<MemberId, Server> servers_;
  std::map<MemberId, Client> clients_;
  std::map<std::tuple<MemberId, MemberId, ViewNumber>, Micros> links_;  // last arrival, in order
  std::set<std::tuple<MemberId, MemberId, ViewNumber>> cut_;
  std::vector<std::vector<UnitPush>> pushes_;         // per slot, all ever made
  std::vector<std::map<StateId, std::string>> disk_;  // per slot
  std::map<ViewNumber, View> views_;
  std::vector<std::set<ViewNumber>> restored_;  // per slot, the views that restored it

  // Of coordinators that plan; the newest is the last.
  std::vector<std::shared_ptr<Leader>> leaders_;
  std::vector<membership::Pod> pods_;
  std::int64_t desired_ = 0;  // sequence
  std::map<ViewNumber, membership::View> jobs_;
  std::vector<std::int64_t> loads_;  // by slot

  std::vector<Lease> leases_;
  std::size_t next_unit_ = 0;
  std::uint64_t incarnation_ = 1;
  std::uint64_t epoch_ = 0;
  bool replan_ = false;
  SlotOutcome outcome_;
};

}  // namespace starling::simulation
