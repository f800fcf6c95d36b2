// SPDX-License-Identifier: Apache-2.0
#include "trainer/simulation/world.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace starling::simulation {
namespace {

// From the end of the faults, in simulated time. Takeover timeouts are 8 s here, so this is ample.
constexpr Micros kPatience = 120'000'000;
constexpr std::int64_t kMostEvents = 400'000;
constexpr Micros kReport = 100'000;

}  // namespace

std::int64_t World::Random(std::int64_t low, std::int64_t high) {
  // Not std::uniform_int_distribution: its values differ between libraries.
  return low + static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(high - low + 1));
}

bool World::Chance(double probability) {
  return static_cast<double>(random_() >> 11) * 0x1.0p-53 < probability;
}

void World::At(Micros delay, Event event) {
  queue_.emplace(now_ + std::max<Micros>(0, delay), sequence_++, std::move(event));
}

void World::Trace(const std::string& line) {
  if (options_.trace) outcome_.trace.push_back(absl::StrCat(now_ / 1000, "ms ", line));
}

Outcome World::Run(Job& job) {
  job_ = &job;
  wanted_[Role::kServer] = ways_.servers;
  wanted_[Role::kWorker] = options_.workers;
  StartCoordinator();
  ControllerTick();
  PlanFaults();
  while (!queue_.empty() && !finished_ && invariants_.violation().empty()) {
    auto [time, sequence, event] = queue_.top();
    queue_.pop();
    if (time > faults_end_ + kPatience || outcome_.counts["events"] > kMostEvents) break;
    now_ = time;
    Count("events");
    event();
    job_->Check();
  }
  if (finished_) {
    job_->OnFinished();
  } else {
    invariants_.OnStuck(WhyNot());
  }
  outcome_.violation = invariants_.violation();
  outcome_.finished = finished_;
  outcome_.seconds = static_cast<double>(now_) / 1e6;
  return outcome_;
}

std::string World::WhyNot() {
  std::string why = "the job did not finish after the faults had stopped:";
  for (const Process* process : Living()) {
    absl::StrAppend(&why, " ", process->id.pod_uid, "/", process->id.start, " ",
                    job_->Standing(*process));
  }
  for (const auto& leader : leaders_) {
    if (!leader->alive) continue;
    absl::StrAppend(&why, "; coordinator ", leader->incarnation, ": ",
                    leader->machine->MakeSummary(Now()).waiting);
  }
  return why;
}

Process* World::Find(const MemberId& id) {
  const auto process = processes_.find(id);
  return process == processes_.end() || !process->second->alive ? nullptr : process->second.get();
}

std::vector<Process*> World::Living(std::optional<Role> role) {
  std::vector<Process*> living;
  for (const auto& [id, process] : processes_) {
    if (process->alive && (!role || process->role == *role)) living.push_back(process.get());
  }
  return living;
}

bool World::Ended(const MemberId& id) const {
  return !processes_.at(id)->alive || given_up_.contains(id.pod_uid);
}

World::Pod& World::PodOf(const std::string& uid) {
  return **std::find_if(pods_.begin(), pods_.end(),
                        [&](const auto& pod) { return pod->uid == uid; });
}

void World::AddPod(Role role, std::int64_t index) {
  auto pod = std::make_unique<Pod>();
  pod->uid = absl::StrCat(role == Role::kServer ? "s" : "p", pods_.size());
  pod->role = role;
  pod->index = index;
  pods_.push_back(std::move(pod));
  At(Long(1000, 400'000), [this, uid = pods_.back()->uid] { StartProcess(PodOf(uid)); });
}

void World::StartProcess(Pod& pod) {
  if (pod.terminated) return;
  const MemberId id{pod.uid, pod.next_start++};
  std::unique_ptr<Process>& process = processes_[id];
  process = job_->NewProcess();
  process->id = pod.process = id;
  process->role = pod.role;
  Trace(absl::StrCat("start ", id.pod_uid, "/", id.start));
  job_->OnStarted(*process);
  At(Long(0, kReport), [this, id] { KeepReporting(id); });
}

// Reports every so often while the process lives.
void World::KeepReporting(const MemberId& id) {
  Process* living = Find(id);
  if (living == nullptr) return;
  if (!living->paused) Report(*living);
  At(kReport / ways_.speed, [this, id] { KeepReporting(id); });
}

void World::Exit(Process& process, const std::string& why) {
  Trace(absl::StrCat(process.id.pod_uid, "/", process.id.start, " exits: ", why));
  CloseLinks(process, ~0ULL, /*flush=*/true);
  process.alive = false;
  TerminatePod(PodOf(process.id.pod_uid), /*confirm_soon=*/true);
}

void World::TerminatePod(Pod& pod, bool confirm_soon) {
  pod.terminated = true;
  At(confirm_soon ? Long(10'000, 500'000) : Long(1'000'000, 6'000'000),
     [this, uid = pod.uid] { PodOf(uid).confirmed = true; });
}

void World::ToProcess(const MemberId& id, Micros delay, Handler event) {
  At(delay, [this, id, event = std::move(event)] {
    Process* process = Find(id);
    if (process == nullptr) return;
    if (!process->paused) return event(*process);
    process->inbox.emplace_back(
        [this, id, event] { ToProcess(id, Random(0, 2000 / ways_.speed), event); });
  });
}

void World::ToLoop(const MemberId& id, Micros delay, Handler event) {
  ToProcess(id, delay, [this, id, event = std::move(event)](Process& process) {
    if (!process.busy) return event(process);
    process.behind.emplace_back([this, id, event] { ToLoop(id, 0, event); });
  });
}

bool World::Cut(const MemberId& a, const MemberId& b) const {
  const auto cut = data_cuts_.find(std::minmax(a.pod_uid, b.pod_uid));
  return cut != data_cuts_.end() && now_ < cut->second;
}

void World::Send(const MemberId& from, const MemberId& to, ViewNumber view, Handler event) {
  Link& link = links_[{from, to, view}];
  const Micros slow = Chance(0.1) ? Long(4'000, 300'000) : Long(100, 3000);
  link.last = std::max(link.last + 1, now_ + slow);
  const Micros due = link.last;
  if (Cut(from, to) || Disturbs(0.002)) {
    link.cut = std::min(link.cut, now_);
    Break(from, view, to, Long(1000, 50'000));
    Break(to, view, from, Long(1000, 50'000));
    return;
  }
  // Once more, when the receiver has gone on to another view.
  if (Disturbs(0.05)) {
    At(Long(20'000, 1'200'000), [this, from, to, view, event] {
      const Process* receiver = Find(to);
      if (receiver != nullptr && receiver->barred > view) Arrive(from, to, view, event);
    });
  }
  At(due - now_, [this, from, to, view, due, event = std::move(event)] {
    if (due <= links_[{from, to, view}].cut) Arrive(from, to, view, event);
  });
}

// In order, also after a pause.
void World::Arrive(const MemberId& from, const MemberId& to, ViewNumber view,
                   const Handler& event) {
  Process* process = Find(to);
  if (process == nullptr) return Break(from, view, to, Long(100, 2000));
  const auto again = [this, from, to, view, event] { Arrive(from, to, view, event); };
  const bool opened = process->opened.contains(view);
  if (process->paused) {
    process->inbox.emplace_back(again);
  } else if (process->busy) {
    process->behind.emplace_back(again);
  } else if (!opened && view >= process->barred) {
    process->parked[view].emplace_back(again);
  } else if (!opened && ways_.refuses_old_data) {
    Break(from, view, to, Long(100, 2000));  // refused
  } else {
    event(*process);
  }
}

void World::Open(Process& process, const membership::View& view) {
  process.opened[view.number] = view;
  auto& parked = process.parked;
  while (!parked.empty() && parked.begin()->first <= view.number) {
    auto arrived = parked.extract(parked.begin());
    for (Event& event : arrived.mapped()) At(0, std::move(event));
  }
}

void World::CloseLinks(Process& process, ViewNumber below, bool flush) {
  for (auto& [ends, link] : links_) {
    const auto& [from, to, view] = ends;
    if (view >= below || from != process.id || link.cut != INT64_MAX) continue;
    Micros end = std::max(link.last, now_);
    if (!flush && Chance(0.5)) end = now_ + Long(0, 3000);
    link.cut = end;
  }
  for (const Process* other : Living()) {
    if (other == &process) continue;
    for (const auto& [number, view] : other->opened) {
      if (number >= below || !view.Has(process.id)) continue;
      const auto link = links_.find({process.id, other->id, number});
      const Micros end = link == links_.end() ? now_ : std::max(now_, link->second.cut);
      Break(other->id, number, process.id, end - now_ + Long(100, 5000));
    }
  }
}

void World::Break(const MemberId& at, ViewNumber view, const MemberId& peer, Micros delay) {
  ToLoop(at, delay, [this, view, peer](Process& process) { job_->OnBroken(process, view, peer); });
}

}  // namespace starling::simulation
