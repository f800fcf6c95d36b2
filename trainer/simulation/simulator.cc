// SPDX-License-Identifier: Apache-2.0
#include "trainer/simulation/simulator.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace starling::simulation {
namespace {

// From the end of the faults, in simulated time. Takeover timeouts are 3 s here, so this is ample.
constexpr std::int64_t kPatience = 120'000'000;
constexpr std::int64_t kMostEvents = 3'000'000;

}  // namespace

Outcome Simulate(const Options& options) { return Simulator(options).Run(); }

Simulator::Simulator(const Options& options)
    : options_(options),
      random_(options.seed),
      invariants_([this](std::int64_t step, std::uint64_t hash) {
        return std::any_of(processes_.begin(), processes_.end(), [&](const auto& process) {
          return process.second.alive && process.second.content.Holds(step, hash);
        });
      }),
      wanted_(options.workers) {
  shared_disk_ = Chance(0.5);
}

std::int64_t Simulator::Random(std::int64_t low, std::int64_t high) {
  // Not std::uniform_int_distribution: its values differ between libraries.
  return low + static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(high - low + 1));
}

bool Simulator::Chance(double probability) {
  return static_cast<double>(random_() >> 11) * 0x1.0p-53 < probability;
}

void Simulator::At(Micros delay, Event event) {
  queue_.emplace(now_ + std::max<Micros>(0, delay), sequence_++, std::move(event));
}

void Simulator::Trace(const std::string& line) {
  if (options_.trace) outcome_.trace.push_back(absl::StrCat(now_ / 1000, "ms ", line));
}

Simulator::Process* Simulator::Find(const MemberId& id) {
  const auto process = processes_.find(id);
  return process == processes_.end() || !process->second.alive ? nullptr : &process->second;
}

Simulator::Pod& Simulator::PodOf(const std::string& uid) {
  return **std::find_if(pods_.begin(), pods_.end(),
                        [&](const auto& pod) { return pod->uid == uid; });
}

bool Simulator::DataCut(const MemberId& a, const MemberId& b) const {
  const auto cut = data_cuts_.find(std::minmax(a.pod_uid, b.pod_uid));
  return cut != data_cuts_.end() && now_ < cut->second;
}

Outcome Simulator::Run() {
  for (std::int64_t i = 0; i < wanted_; ++i) AddPod(i);
  StartCoordinator();
  ControllerTick();
  PlanFaults();
  while (!queue_.empty() && !finished_ && invariants_.violation().empty()) {
    auto [time, sequence, event] = queue_.top();
    queue_.pop();
    if (time > faults_end_ + kPatience || outcome_.events > kMostEvents) break;
    now_ = time;
    ++outcome_.events;
    event();
    CheckAll();
  }
  if (!finished_) {
    std::string why = "the job did not finish after the faults had stopped:";
    for (const auto& [id, process] : processes_) {
      if (!process.alive) continue;
      absl::StrAppend(&why, " ", id.pod_uid, "/", id.start, " ",
                      membership::PhaseName(process.machine->phase()));
    }
    for (const auto& coordinator : coordinators_) {
      if (!coordinator->alive) continue;
      absl::StrAppend(&why, "; coordinator ", coordinator->incarnation, ": ",
                      coordinator->machine->MakeSummary(Now()).waiting);
    }
    invariants_.OnStuck(why);
  }
  outcome_.violation = invariants_.violation();
  outcome_.finished = finished_;
  outcome_.seconds = static_cast<double>(now_) / 1e6;
  return outcome_;
}

void Simulator::CheckAll() {
  std::map<ViewNumber, std::pair<std::int64_t, std::int64_t>> spread;
  for (const auto& [id, process] : processes_) {
    if (!process.alive || !process.machine->state()) continue;
    const StateId& state = *process.machine->state();
    // What the loop has not come to yet may be what makes the content the state's.
    if (process.todo.empty()) invariants_.OnState(id, state, process.content);
    if (process.machine->phase() != membership::Phase::kRun) continue;
    auto [known, added] = spread.emplace(state.view, std::pair(state.step, state.step));
    known->second.first = std::min(known->second.first, state.step);
    known->second.second = std::max(known->second.second, state.step);
  }
  for (const auto& [view, steps] : spread) {
    invariants_.OnSpread(view, steps.first, steps.second);
  }
}

}  // namespace starling::simulation
