// SPDX-License-Identifier: Apache-2.0
// Coordinators, the streams between them and the members, and a controller that grants, lists pods
// and says what is wanted.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "trainer/simulation/simulator.h"

namespace starling::simulation {
namespace {

constexpr std::int64_t kTick = 50'000;
constexpr std::int64_t kControllerTick = 100'000;

std::string Name(ViewNumber view) {
  return absl::StrCat(membership::IncarnationOf(view), "-", membership::EpochOf(view));
}

std::string Describe(const membership::View& view) {
  const membership::ReplicaGroup& group = view.groups.front();
  std::string text =
      absl::StrCat("view ", Name(view.number), view.at_boundary ? " from " : "",
                   view.at_boundary ? Name(view.from) : "", group.restore ? " restore" : "", " {");
  for (const auto& member : view.members)
    absl::StrAppend(&text, " ", member.id.pod_uid, "/", member.id.start);
  absl::StrAppend(&text, " } since");
  for (const auto& past : group.since) absl::StrAppend(&text, " ", Name(past.number));
  if (!group.waived.empty()) absl::StrAppend(&text, " waived");
  for (const ViewNumber number : group.waived) absl::StrAppend(&text, " ", Name(number));
  return text;
}

}  // namespace

void Simulator::StartCoordinator() {
  auto coordinator = std::make_unique<Coordinator>();
  coordinator->index = static_cast<int>(coordinators_.size());
  coordinator->boot_id = absl::StrCat("boot", coordinator->index);
  membership::PeerCoordinator::Options options;
  options.boot_id = coordinator->boot_id;
  options.takeover_timeout = absl::Seconds(8);
  options.takeover_timeout_with_witness = absl::Seconds(2);
  options.blame_hold = absl::Seconds(1);
  options.rules = options_.rules;
  coordinator->machine = std::make_unique<membership::PeerCoordinator>(options);
  const int index = coordinator->index;
  coordinators_.push_back(std::move(coordinator));
  ++outcome_.coordinators;
  // The controller finds it, swaps its boot id into the status, and tells it.
  status_boot_id_ = coordinators_.back()->boot_id;
  coordinators_.back()->incarnation = ++status_incarnation_;
  Trace(absl::StrCat("coordinator ", status_incarnation_, " starts"));
  GrantTo(index, Random(1000, 100'000));
  CoordinatorTick(index);
}

void Simulator::GrantTo(int index, Micros delay) {
  membership::Grant grant;
  grant.incarnation = coordinators_[static_cast<std::size_t>(index)]->incarnation;
  grant.boot_id = coordinators_[static_cast<std::size_t>(index)]->boot_id;
  grant.newest_view = status_newest_view_;
  for (const auto& pod : pods_) {
    if (!pod->confirmed) grant.roster.push_back(PodRecord(*pod));
  }
  ToCoordinator(index, delay, [this, grant](Coordinator& coordinator) {
    coordinator.machine->OnGrant(grant, Now());
    for (const auto& [uid, pod] : coordinator.machine->PodsToDial()) Dial(coordinator, uid);
    AfterEvent(coordinator);
  });
  ToCoordinator(index, delay + 1, [this, index](Coordinator&) { SayDesired(index); });
}

void Simulator::ToCoordinator(int index, Micros delay, std::function<void(Coordinator&)> event) {
  At(delay, [this, index, event = std::move(event)] {
    Coordinator& coordinator = *coordinators_[static_cast<std::size_t>(index)];
    if (!coordinator.alive) return;
    if (coordinator.paused) {
      coordinator.inbox.push_back([this, index, event] { ToCoordinator(index, 0, event); });
    } else {
      event(coordinator);
    }
  });
}

// What the shell does after every event: whoever is concerned learns of it.
void Simulator::AfterEvent(Coordinator& coordinator) {
  for (const std::string& uid : coordinator.machine->assumed_terminated()) {
    invariants_.OnGivenUp(uid);
  }
  const std::uint64_t version = coordinator.machine->directives_version();
  if (version == coordinator.told) return;
  coordinator.told = version;
  TellAll(coordinator);
}

void Simulator::TellAll(Coordinator& coordinator) {
  for (const auto& [uid, stream] : coordinator.streams) {
    const membership::Directive directive = coordinator.machine->DirectiveFor(uid);
    if (directive.view) {
      if (published_.insert(directive.view->number).second) Trace(Describe(*directive.view));
      outcome_.views = static_cast<int>(published_.size());
      invariants_.OnPublished(*directive.view);
    }
    if (!stream.open || coordinator.cut.contains(uid)) continue;
    const int copies = Late() ? 1 : Chance(0.05) ? 0 : Chance(0.05) ? 2 : 1;
    for (int i = 0; i < copies; ++i) {
      const Micros delay = !Late() && Chance(0.05) ? Random(10'000, 400'000) : Random(100, 2000);
      ToProcess(stream.to, delay,
                [this, directive](Process& process) { Obey(process, directive); });
    }
  }
}

void Simulator::Dial(Coordinator& coordinator, const std::string& uid) {
  Stream& stream = coordinator.streams[uid];
  if (stream.open || coordinator.cut.contains(uid)) return;
  const Pod& pod = PodOf(uid);
  Process* process = pod.terminated ? nullptr : Find(pod.process);
  if (process == nullptr) {
    coordinator.machine->OnRefused(uid, Now());
    AfterEvent(coordinator);
    return;
  }
  stream.open = true;
  ++stream.number;
  stream.to = process->id;
  coordinator.machine->OnConnected(uid, Now());
  // The first directive carries the incarnation.
  const membership::Directive directive = coordinator.machine->DirectiveFor(uid);
  ToProcess(stream.to, Random(100, 2000), [this, directive](Process& told) {
    Obey(told, directive);
    ReportToCoordinators(told);
  });
  AfterEvent(coordinator);
}

void Simulator::CoordinatorTick(int index) {
  Coordinator& coordinator = *coordinators_[static_cast<std::size_t>(index)];
  if (!coordinator.alive) return;
  At(kTick, [this, index] { CoordinatorTick(index); });
  if (coordinator.paused) return;
  const std::map<std::string, membership::Dial> dial = coordinator.machine->PodsToDial();
  for (auto& [uid, stream] : coordinator.streams) {
    const bool over = stream.open && (Find(stream.to) == nullptr || !dial.contains(uid));
    if (!over) continue;
    stream.open = false;
    ++stream.number;
    coordinator.machine->OnDisconnected(uid, Now());
  }
  for (const auto& [uid, pod] : dial) Dial(coordinator, uid);
  coordinator.machine->OnTick(Now());
  AfterEvent(coordinator);
  TellAll(coordinator);
}

// Every stream that is open to this process carries its report up.
void Simulator::ReportToCoordinators(Process& process) {
  const membership::Report report = process.machine->MakeReport();
  if (report.state) invariants_.OnSynced(process.id, report.state->view);
  if (report.stopped) invariants_.OnStopped(process.id, *report.state);
  for (const auto& coordinator : coordinators_) {
    const auto stream = coordinator->streams.find(process.id.pod_uid);
    if (!coordinator->alive || stream == coordinator->streams.end()) continue;
    if (!stream->second.open || stream->second.to != process.id) continue;
    if (coordinator->cut.contains(process.id.pod_uid)) continue;
    const int copies = Late() ? 1 : Chance(0.05) ? 0 : Chance(0.05) ? 2 : 1;
    for (int i = 0; i < copies; ++i) {
      const Micros delay = !Late() && Chance(0.05) ? Random(10'000, 300'000) : Random(100, 2000);
      ToCoordinator(coordinator->index, delay,
                    [this, report, number = stream->second.number](Coordinator& to) {
                      const std::string& uid = report.id.pod_uid;
                      if (to.streams[uid].number != number) return;
                      to.machine->OnReport(uid, report, Now());
                      AfterEvent(to);
                    });
    }
  }
}

membership::Pod Simulator::PodRecord(const Pod& pod) const {
  membership::Pod record;
  record.uid = pod.uid;
  record.name = pod.uid;
  record.role = "worker";
  record.index = pod.index;
  record.ip = pod.uid;
  record.state = pod.confirmed  ? membership::PodState::kTerminated
                 : pod.draining ? membership::PodState::kDraining
                                : membership::PodState::kLive;
  return record;
}

void Simulator::AddPod(std::int64_t index) {
  auto pod = std::make_unique<Pod>();
  pod->uid = absl::StrCat("p", pods_.size());
  pod->index = index;
  pods_.push_back(std::move(pod));
  At(Random(1000, 400'000), [this, uid = pods_.back()->uid] { StartProcess(PodOf(uid)); });
}

void Simulator::SayDesired(int index) {
  membership::Desired desired;
  desired.sequence = ++sequence_sent_;
  desired.workers = wanted_;
  desired.min_workers = 1;
  desired.checkpoint_interval_ms = 200;
  desired.settings.generation = settings_generation_;
  desired.settings.halt = halt_;
  desired.finished = finished_;
  // A pod object goes away some time after its end was confirmed; here at once for some.
  for (const auto& pod : pods_) {
    if (!pod->confirmed || pod->index % 2 == 0) desired.pods.push_back(PodRecord(*pod));
  }
  ToCoordinator(index, Random(500, 5000), [this, desired](Coordinator& coordinator) {
    coordinator.machine->OnDesired(desired, Now());
    AfterEvent(coordinator);
  });
}

void Simulator::ControllerTick() {
  At(kControllerTick, [this] { ControllerTick(); });
  std::set<std::int64_t> taken;
  std::int64_t live = 0;
  for (const auto& pod : pods_) {
    if (pod->confirmed) continue;
    taken.insert(pod->index);
    live += pod->draining ? 0 : 1;
  }
  for (std::int64_t index = 0; live < wanted_; ++index) {
    if (taken.contains(index)) continue;
    AddPod(index);
    ++live;
  }
  for (auto pod = pods_.rbegin(); pod != pods_.rend() && live > wanted_; ++pod) {
    if ((*pod)->confirmed || (*pod)->draining) continue;
    (*pod)->draining = true;
    --live;
  }
  for (const auto& coordinator : coordinators_) {
    if (!coordinator->alive || coordinator->paused) continue;
    const bool leads = coordinator->boot_id == status_boot_id_;
    // An old one may still hear from a controller that does not know better.
    if (!leads && !Chance(0.3)) continue;
    SayDesired(coordinator->index);
    if (!leads) continue;
    const membership::Summary summary = coordinator->machine->MakeSummary(Now());
    status_newest_view_ = std::max(status_newest_view_, summary.newest_view);
    if (!summary.training.has_result) continue;
    finished_ = true;
  }
  // The leading coordinator is gone, or has been cut off for too long.
  const Coordinator& last = *coordinators_.back();
  if (!last.alive || last.machine->superseded()) StartCoordinator();
}

}  // namespace starling::simulation
