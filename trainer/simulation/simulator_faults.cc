// SPDX-License-Identifier: Apache-2.0
// What goes wrong. Half of the faults wait for their moment: a sync round, a copy, the exchange of
// a step, a takeover; the others come at any time.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "trainer/simulation/simulator.h"

namespace starling::simulation {

void Simulator::PlanFaults() {
  faults_end_ = now_ + (options_.faults == 0 ? 0 : Random(1'500'000, 6'000'000));
  for (int i = 0; i < options_.faults; ++i) {
    if (i % 2 == 0) {
      aimed_.push_back(static_cast<Point>(Random(1, 3)));
    } else {
      At(Random(0, faults_end_ - now_), [this] { RandomFault(); });
    }
  }
  // Whatever is still broken is mended at the end.
  At(faults_end_ - now_, [this] {
    Trace("faults stop");
    aimed_.clear();
    data_cuts_.clear();
    for (const auto& coordinator : coordinators_) coordinator->cut.clear();
    wanted_ = std::max<std::int64_t>(1, wanted_);
    if (halt_) Halt(false);
  });
}

// `process` is at such a moment: a fault that waits for it may hit it, or another, now.
void Simulator::Hit(Point point, Process& process) {
  if (Late() || aimed_.empty() || !Chance(0.15)) return;
  const auto aimed = std::find(aimed_.begin(), aimed_.end(), point);
  if (aimed == aimed_.end()) return;
  aimed_.erase(aimed);
  const std::int64_t kind = Random(0, 9);
  if (kind < 4) {
    Kill(process);
  } else if (kind < 7) {
    Pause(process, Random(200'000, 4'000'000));
  } else if (kind < 9) {
    RandomFault();
  } else {
    KillCoordinator(/*replace_only=*/false);
  }
}

Simulator::Process* Simulator::RandomProcess() {
  std::vector<Process*> living;
  for (auto& [id, process] : processes_) {
    if (process.alive) living.push_back(&process);
  }
  if (living.empty()) return nullptr;
  return living[static_cast<std::size_t>(Random(0, static_cast<std::int64_t>(living.size()) - 1))];
}

void Simulator::KillCoordinator(bool replace_only) {
  Coordinator& last = *coordinators_.back();
  if (!replace_only) {
    Trace(absl::StrCat("coordinator ", last.incarnation, " killed"));
    last.alive = false;
    return;  // the controller starts the next one
  }
  // The controller cannot reach it and grants another: from now on two lead.
  Trace(absl::StrCat("coordinator ", last.incarnation, " is given up"));
  StartCoordinator();
}

// Suspended, and wanted again before the processes are taken away.
void Simulator::Halt(bool halt) {
  Trace(halt ? "halt" : "resume the job");
  halt_ = halt;
  ++settings_generation_;
  outcome_.halts += halt ? 1 : 0;
}

void Simulator::RandomFault() {
  if (Late()) return;
  Process* process = RandomProcess();
  if (process == nullptr) return;
  const std::int64_t kind = Random(0, 12);
  if (kind <= 2) {
    Kill(*process);
  } else if (kind <= 4) {
    Pause(*process, Random(500'000, 4'000'000));
  } else if (kind == 5) {
    const Process* other = RandomProcess();
    const auto pair = std::minmax(process->id.pod_uid, other->id.pod_uid);
    data_cuts_[std::pair<std::string, std::string>(pair)] = now_ + Random(100'000, 2'000'000);
    Trace(absl::StrCat("data cut ", pair.first, " ", pair.second));
  } else if (kind == 6) {
    KillCoordinator(/*replace_only=*/false);
  } else if (kind == 7) {
    KillCoordinator(/*replace_only=*/true);
    // Somebody hears only the old one for a while.
    if (Chance(0.7)) coordinators_.back()->cut.insert(process->id.pod_uid);
  } else if (kind == 8) {
    Coordinator& last = *coordinators_.back();
    last.paused = true;
    Trace(absl::StrCat("coordinator ", last.incarnation, " paused"));
    At(Random(200'000, 3'000'000), [this, index = last.index] {
      Coordinator& woken = *coordinators_[static_cast<std::size_t>(index)];
      woken.paused = false;
      std::vector<Event> inbox = std::exchange(woken.inbox, {});
      for (Event& event : inbox) At(Random(0, 2000), std::move(event));
    });
  } else if (kind == 9) {
    wanted_ = Random(1, 4);
    Trace(absl::StrCat("wanted: ", wanted_));
  } else if (kind == 10) {
    ++settings_generation_;
  } else if (kind == 11) {
    if (halt_) return;
    Halt(true);
    At(Random(50'000, 1'500'000), [this] {
      if (halt_) Halt(false);
    });
  } else {
    Coordinator& some = *coordinators_[static_cast<std::size_t>(
        Random(0, static_cast<std::int64_t>(coordinators_.size()) - 1))];
    some.cut.insert(process->id.pod_uid);
    Trace(absl::StrCat("control cut ", some.incarnation, " ", process->id.pod_uid));
    At(Random(200'000, 3'000'000), [this, index = some.index, uid = process->id.pod_uid] {
      coordinators_[static_cast<std::size_t>(index)]->cut.erase(uid);
    });
  }
}

}  // namespace starling::simulation
