// SPDX-License-Identifier: Apache-2.0
// The world of a simulated run; see simulation.h. Its parts are files: time and network here and in
// simulator.cc, the members' processes in simulator_members.cc, coordinators and controller in
// simulator_control.cc, faults in simulator_faults.cc.
#pragma once

#include <deque>
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

#include "absl/time/time.h"
#include "trainer/membership/member.h"
#include "trainer/membership/peer_coordinator.h"
#include "trainer/simulation/content.h"
#include "trainer/simulation/invariants.h"
#include "trainer/simulation/simulation.h"

namespace starling::simulation {

using membership::MemberId;
using membership::StateId;
using membership::ViewNumber;

// Thread-compatible.
class Simulator {
 public:
  explicit Simulator(const Options& options);
  Outcome Run();

 private:
  using Event = std::function<void()>;
  using Micros = std::int64_t;

  struct Contribution {
    std::uint64_t from = 0;  // hash of the state that it starts from
    membership::ControlWord word;
    bool empty = false;
  };
  using Disk = std::map<StateId, std::pair<Content, membership::Agreed>>;
  struct Snapshot {
    StateId id;
    Content content;
    membership::Agreed agreed;
    int number = 0;  // of its process
    bool written = false;
  };
  // Of the reductions of a view, in order. The step alone does not name one: an empty reduction
  // leaves the state where it is, and another of the same step may follow.
  struct Round {
    ViewNumber view = 0;
    std::int64_t step = 0;
    std::int64_t number = 0;
    auto operator<=>(const Round&) const = default;  // NOLINT(modernize-use-nullptr)
  };
  // A reduction that is complete at one member.
  struct Reduced {
    membership::Reduction reduction;
    std::uint64_t update = 0;
  };

  // One process of a worker's pod.
  struct Process {
    MemberId id;
    std::unique_ptr<membership::Member> machine;
    bool alive = true;
    bool paused = false;
    std::vector<Event> inbox;  // what arrived while it was paused
    // The step loop runs beside the machine: directives reach the machine while the loop is busy,
    // and what the loop is to do waits, in order.
    bool busy = false;
    std::deque<membership::Action> todo;
    std::vector<Event> behind;  // what the loop itself will receive
    Content content;
    Content staged;
    ViewNumber whole = 0;                           // the view for which `staged` is whole
    ViewNumber barred = 0;                          // data of lower views is refused
    std::map<ViewNumber, membership::View> opened;  // views that it takes data of
    std::map<ViewNumber, std::vector<Event>> parked;
    std::map<Round, std::map<MemberId, Contribution>> received;
    std::map<ViewNumber, std::int64_t> rounds;  // reductions that it has completed
    std::set<Round> contributed;
    std::map<std::pair<ViewNumber, MemberId>, int> shares;
    std::optional<Snapshot> snapshot;
    int snapshots = 0;
    bool settle_only = false;
    ViewNumber ran = 0;  // the last view in which it ran
  };
  struct Pod {
    std::string uid;
    std::int64_t index = 0;
    std::int64_t next_start = 0;
    MemberId process;  // the last one
    bool terminated = false;
    bool confirmed = false;  // the controller knows
    bool draining = false;
    Disk disk;
  };
  struct Stream {  // from a coordinator to a pod
    int number = 0;
    bool open = false;
    MemberId to;
  };
  struct Coordinator {
    int index = 0;
    std::unique_ptr<membership::PeerCoordinator> machine;
    std::string boot_id;
    bool alive = true;
    bool paused = false;
    std::vector<Event> inbox;
    std::uint64_t incarnation = 0;
    std::map<std::string, Stream> streams;
    std::uint64_t told = 0;
    std::set<std::string> cut;  // pods that it cannot reach
  };
  struct Link {  // data, one direction, of one view
    Micros last = 0;
    Micros cut = INT64_MAX;
  };
  enum class Point { kAnywhere, kSync, kCopy, kReduce, kTakeover };

  // simulator.cc
  std::int64_t Random(std::int64_t low, std::int64_t high);
  bool Chance(double probability);
  absl::Time Now() const { return absl::FromUnixMicros(now_); }
  void At(Micros delay, Event event);
  void Trace(const std::string& line);
  void CheckAll();
  Process* Find(const MemberId& id);
  Pod& PodOf(const std::string& uid);
  bool Late() const { return now_ > faults_end_; }
  bool DataCut(const MemberId& a, const MemberId& b) const;

  // simulator_members.cc
  void StartProcess(Pod& pod);
  void KeepReporting(const MemberId& id);
  void ToProcess(const MemberId& id, Micros delay, std::function<void(Process&)> event);
  void ToLoop(const MemberId& id, Micros delay, std::function<void(Process&)> event);
  void Obey(Process& process, const membership::Directive& directive);
  void Do(Process& process, const membership::Actions& actions);
  void DoAtOnce(Process& process, const membership::Action& action);
  void GoOn(Process& process);
  void FallBehind(Process& process, Event then);
  void On(Process& process, const membership::Fence& fence);
  void On(Process& process, const membership::AbortView& abort);
  void On(Process& process, const membership::OpenMesh& open);
  void On(Process& process, const membership::FindCheckpoint& find);
  void On(Process& process, const membership::SendSyncId& send);
  void On(Process& process, const membership::StartFresh& fresh);
  void On(Process& process, const membership::LoadCheckpoint& load);
  void On(Process& process, const membership::ServeState& serve);
  void On(Process& process, const membership::CopyState& copy);
  void On(Process& process, const membership::AdoptCopy& adopt);
  void On(Process& process, const membership::Run& run);
  void On(Process& process, const membership::TakeCheckpoint& take);
  void On(Process& process, const membership::CommitCheckpoint& commit);
  void On(Process& process, const membership::DropCheckpoint& drop);
  void On(Process& process, const membership::SendReport& report);
  void On(Process& process, const membership::Exit& exit);
  // Ask has done these before, or nothing is to be done here.
  void On(Process&, const membership::Apply&) {}
  void On(Process&, const membership::Settled&) {}
  void On(Process&, const membership::ApplySettings&) {}
  void On(Process&, const membership::Pause&) {}
  void Send(Process& from, const MemberId& to, ViewNumber view,
            std::function<void(Process&)> event);
  void Receive(const MemberId& from, Process& to, ViewNumber view,
               const std::function<void(Process&)>& event);
  void CloseLinks(Process& process, ViewNumber below, bool flush);
  void Break(const MemberId& at, ViewNumber view, const MemberId& peer, Micros delay);
  void Expect(Process& process, ViewNumber view);
  void ScheduleStep(Process& process);
  void Contribute(Process& process, const StateId& from);
  void TryReduce(Process& process);
  bool TryReduceIn(Process& process, const membership::View& view);
  std::optional<Reduced> ReducedIn(const Process& process, const membership::View& view) const;
  Round RoundOf(const Process& process, ViewNumber view) const;
  bool Ask(Process& process, const Reduced& reduced);
  void OnShare(Process& process, ViewNumber view, const MemberId& from, const Content& content,
               std::size_t holders);
  void Kill(Process& process);
  void Pause(Process& process, Micros length);
  void TerminatePod(Pod& pod, bool confirm_soon);
  Disk& DiskOf(const Process& process);

  // simulator_control.cc
  void StartCoordinator();
  void GrantTo(int index, Micros delay);
  void ToCoordinator(int index, Micros delay, std::function<void(Coordinator&)> event);
  void AfterEvent(Coordinator& coordinator);
  void TellAll(Coordinator& coordinator);
  void Dial(Coordinator& coordinator, const std::string& uid);
  void CoordinatorTick(int index);
  void ReportToCoordinators(Process& process);
  void ControllerTick();
  void SayDesired(int index);
  membership::Pod PodRecord(const Pod& pod) const;
  void AddPod(std::int64_t index);

  // simulator_faults.cc
  void PlanFaults();
  void Hit(Point point, Process& process);
  void RandomFault();
  void KillCoordinator(bool replace_only);
  void Halt(bool halt);
  Process* RandomProcess();

  const Options options_;
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

  Invariants invariants_;
  std::map<MemberId, Process> processes_;
  std::vector<std::unique_ptr<Pod>> pods_;
  std::vector<std::unique_ptr<Coordinator>> coordinators_;
  std::map<std::tuple<MemberId, MemberId, ViewNumber>, Link> links_;
  std::map<std::pair<std::string, std::string>, Micros> data_cuts_;  // pods, until
  bool shared_disk_ = false;
  Disk disk_;  // if shared

  // The controller.
  std::string status_boot_id_;
  std::uint64_t status_incarnation_ = 0;
  ViewNumber status_newest_view_ = 0;
  std::int64_t wanted_ = 0;
  std::int64_t sequence_sent_ = 0;
  std::int64_t settings_generation_ = 1;
  bool halt_ = false;
  bool finished_ = false;

  std::set<ViewNumber> published_;
  std::vector<Point> aimed_;  // faults that wait for their moment
  Outcome outcome_;
};

}  // namespace starling::simulation
