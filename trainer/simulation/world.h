// SPDX-License-Identifier: Apache-2.0
// The world of a simulated job, whatever its kind; see simulation.h. Its parts are files: time,
// network and processes in world.cc, coordinators and controller in world_control.cc, standbys in
// world_standby.cc, faults in world_faults.cc.
//
// A kind of job derives from Job: it says what its processes do with a directive and with what they
// send one another, what they report, and when all is done. The world knows of a process only that
// it lives, whether it stands still, and which views it takes data of.
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
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "trainer/membership/coordinator.h"
#include "trainer/membership/standby.h"
#include "trainer/simulation/invariants.h"
#include "trainer/simulation/simulation.h"

namespace starling::simulation {

using membership::MemberId;
using membership::Role;
using membership::StateId;
using membership::ViewNumber;

class World;
using Event = std::function<void()>;
using Micros = std::int64_t;

// Moments for which some faults wait.
enum class Point { kSync, kCopy, kExchange };

struct Process {
  virtual ~Process() = default;

  MemberId id;
  Role role = Role::kWorker;
  bool alive = true;
  bool paused = false;
  bool busy = false;                              // its loop is: what the loop receives waits
  std::vector<Event> inbox;                       // what arrived while it was paused
  std::vector<Event> behind;                      // while it was busy
  ViewNumber barred = 0;                          // data of lower views is refused
  std::map<ViewNumber, membership::View> opened;  // views that it takes data of
  std::map<ViewNumber, std::vector<Event>> parked;
};
using Handler = std::function<void(Process&)>;

// What a kind of job adds.
class Job {
 public:
  virtual ~Job() = default;

  virtual std::unique_ptr<Process> NewProcess() { return std::make_unique<Process>(); }
  virtual std::unique_ptr<membership::Coordinator> NewCoordinator(
      membership::CoordinatorOptions options) = 0;
  virtual void OnStarted(Process& process) = 0;
  virtual void OnDirective(Process& process, const membership::Directive& directive) = 0;
  virtual membership::Report ReportOf(Process& process) = 0;
  // A link of this view broke.
  virtual void OnBroken(Process& process, ViewNumber view, const MemberId& peer) = 0;
  // After a pause, or when the loop is free again.
  virtual void GoOn(Process& /*process*/) {}
  // A new view is published.
  virtual void OnPublished(const membership::View& /*view*/) {}
  // Now and then, while a coordinator lives.
  virtual void OnTick() {}
  // After every event.
  virtual void Check() = 0;
  // The newest coordinator's, and everybody's, view of the matter.
  virtual bool Finished(const membership::Coordinator& coordinator) = 0;
  virtual void OnFinished() {}
  // How this living process stands, for whoever asks why the job has not finished.
  virtual std::string Standing(const Process& process) = 0;
};

// Thread-compatible.
class World {
 public:
  // What depends on the kind of job.
  struct Ways {
    int servers = 0;
    // So much faster is everything but what coordinators wait for: heartbeats, reports, faults.
    std::int64_t speed = 1;
    bool refuses_old_data = true;  // else machines themselves are to refuse it
  };
  World(const Options& options, const Ways& ways, Invariants& invariants)
      : options_(options), ways_(ways), invariants_(invariants), random_(options.seed) {}

  Outcome Run(Job& job);

  // world.cc
  std::int64_t Random(std::int64_t low, std::int64_t high);
  bool Chance(double probability);
  void At(Micros delay, Event event);
  absl::Time Now() const { return absl::FromUnixMicros(now_); }
  Micros now() const { return now_; }
  // The faults are over.
  bool Late() const { return now_ > faults_end_; }
  bool Disturbs(double probability) { return !Late() && Chance(probability); }
  void Count(const char* what, std::int64_t by = 1) { outcome_.counts[what] += by; }
  void Trace(const std::string& line);

  // Those that live.
  Process* Find(const MemberId& id);
  std::vector<Process*> Living(std::optional<Role> role = std::nullopt);
  // It has ended, or a coordinator counts it as ended.
  bool Ended(const MemberId& id) const;
  std::int64_t IndexOf(const MemberId& id) { return PodOf(id.pod_uid).index; }
  void ToProcess(const MemberId& id, Micros delay, Handler event);
  // What the loop itself receives, once it is not busy any more.
  void ToLoop(const MemberId& id, Micros delay, Handler event);
  // Data of a view, ordered like a connection: later messages never overtake earlier ones of the
  // same link. What is lost breaks the link.
  void Send(const MemberId& from, const MemberId& to, ViewNumber view, Handler event);
  // Takes data of this view from now on.
  void Open(Process& process, const membership::View& view);
  // `flush`: what is on its way arrives; else it may be lost.
  void CloseLinks(Process& process, ViewNumber below, bool flush);
  void Break(const MemberId& at, ViewNumber view, const MemberId& peer, Micros delay);
  bool Cut(const MemberId& a, const MemberId& b) const;
  void Exit(Process& process, const std::string& why);

  // world_control.cc
  void Report(Process& process);
  const membership::Coordinator& Newest() const { return *Last().machine; }

  // world_faults.cc
  // `process` is at such a moment: a fault that waits for it may hit it, or another, now.
  void Hit(Point point, Process& process);
  // Most often its pod starts another process; else the pod is gone.
  void Kill(Process& process);

 private:
  struct Pod {
    std::string uid;
    Role role = Role::kWorker;
    std::int64_t index = 0;
    std::int64_t next_start = 0;
    MemberId process;  // the last one
    bool terminated = false;
    bool confirmed = false;  // the controller knows
    bool draining = false;
  };
  struct Stream {  // from a coordinator to a pod
    int number = 0;
    bool open = false;
    MemberId to;
  };
  // A coordinator process. One that was replaced may go on for a while, and not know it.
  struct Leader {
    std::size_t index = 0;
    std::unique_ptr<membership::Coordinator> machine;
    std::string boot_id;
    std::uint64_t incarnation = 0;
    bool alive = true;
    bool paused = false;
    std::vector<Event> inbox;
    std::map<std::string, Stream> streams;
    std::uint64_t told = 0;
    std::set<std::string> cut;  // pods that it cannot reach
    // The standby that it was told of last, by index, and under which grant; a controller that does
    // not know better says so again.
    std::optional<std::size_t> standby;
    std::uint64_t standby_incarnation = 0;
    ViewNumber shadowed = 0;  // the newest view that it was sent
  };
  // A process that waits to be a coordinator. When it leads, it is a Leader as well.
  struct Waiting {
    std::size_t index = 0;
    std::unique_ptr<membership::Standby> machine;
    std::string boot_id;
    std::uint64_t incarnation = 0;  // granted last
    std::uint64_t primary = 0;      // whom it follows by that
    bool alive = true;
    bool paused = false;
    bool cut = false;        // from coordinators
    bool confirmed = false;  // the controller knows that it has ended
    std::optional<std::size_t> leader;
    // Pods that it cannot reach where it leads, until then.
    std::set<std::string> far;
    Micros far_until = 0;
  };
  struct Link {  // data, one direction, of one view
    Micros last = 0;
    Micros cut = INT64_MAX;
  };

  // world.cc
  Micros Long(Micros least, Micros most) { return Random(least, most) / ways_.speed; }
  Pod& PodOf(const std::string& uid);
  void AddPod(Role role, std::int64_t index);
  void StartProcess(Pod& pod);
  void TerminatePod(Pod& pod, bool confirm_soon);
  void KeepReporting(const MemberId& id);
  void Arrive(const MemberId& from, const MemberId& to, ViewNumber view, const Handler& event);
  std::string WhyNot();

  // world_control.cc
  void StartCoordinator();
  std::size_t NewLeader(const std::string& boot_id, std::uint64_t incarnation);
  Leader& Last() const;
  void GrantTo(std::size_t index, Micros delay);
  void ToLeader(std::size_t index, Micros delay, std::function<void(Leader&)> event);
  void AfterEvent(Leader& leader);
  void TellAll(Leader& leader);
  void Dial(Leader& leader, const std::string& uid);
  void LeaderTick(std::size_t index);
  void ControllerTick();
  void KeepPods(Role role);
  void SayDesired(std::size_t index);
  membership::Pod RecordOf(const Pod& pod) const;
  int Copies();

  // world_standby.cc
  void StartStandby();
  void GrantStandby(Waiting& standby);
  void TellGrant(const Waiting& standby);
  void KeepStandby();
  void NameStandby(Leader& leader, membership::Desired& desired);
  bool StandbyMayLead() const;
  void SendShadow(Leader& leader);
  void SendNewView(Leader& leader);
  void StandbyTick(std::size_t index);
  void Succeed(Waiting& standby, const membership::Standby::Succession& succession);
  void StandbyFault(std::int64_t kind);
  void Part(Waiting& standby);
  void EndStandby(Waiting& standby);

  // world_faults.cc
  void PlanFaults();
  void RandomFault();
  void Pause(Process& process, Micros length);
  void PauseLeader(Leader& leader);
  void KillLeader();
  void ReplaceLeader();
  void CutOff(std::size_t index, const std::string& uid, Micros length);
  void Halt(bool halt);
  Process& RandomOf(const std::vector<Process*>& living);

  const Options options_;
  const Ways ways_;
  Invariants& invariants_;
  Job* job_ = nullptr;
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

  std::map<MemberId, std::unique_ptr<Process>> processes_;
  std::vector<std::unique_ptr<Pod>> pods_;
  std::vector<std::unique_ptr<Leader>> leaders_;
  std::vector<std::unique_ptr<Waiting>> standbys_;
  std::map<std::tuple<MemberId, MemberId, ViewNumber>, Link> links_;
  std::map<std::pair<std::string, std::string>, Micros> data_cuts_;  // pods, until
  std::set<std::string> given_up_;                                   // pods, by a coordinator

  // The controller.
  std::string status_boot_id_;
  std::uint64_t status_incarnation_ = 0;
  ViewNumber status_newest_view_ = 0;
  std::optional<std::size_t> status_standby_;
  Micros away_until_ = 0;  // no controller leads
  Micros gone_since_ = 0;  // since when its coordinator is known to be gone; 0: it is not
  std::map<Role, std::int64_t> wanted_;
  std::int64_t sequence_sent_ = 0;
  std::int64_t settings_generation_ = 1;
  bool halt_ = false;
  bool finished_ = false;

  std::set<ViewNumber> published_;
  std::vector<Point> aimed_;  // faults that wait for their moment
  Outcome outcome_;
};

}  // namespace starling::simulation
