// SPDX-License-Identifier: Apache-2.0
// What goes wrong. Half of the faults wait for their moment: a sync round, a copy, the exchange of
// a step; the others come at any time.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "trainer/simulation/world.h"

namespace starling::simulation {

void World::PlanFaults() {
  faults_end_ = now_ + (options_.faults == 0 ? -1 : Long(1'500'000, 6'000'000));
  if (options_.standby && options_.faults != 0) faults_end_ += Long(0, 6'000'000);
  for (int i = 0; i < options_.faults; ++i) {
    if (i % 2 == 0) {
      aimed_.push_back(static_cast<Point>(Random(0, 2)));
    } else {
      At(Random(0, faults_end_ - now_), [this] { RandomFault(); });
    }
  }
  // Whatever is still broken is mended at the end.
  At(faults_end_ - now_, [this] {
    Trace("faults stop");
    aimed_.clear();
    data_cuts_.clear();
    for (const auto& leader : leaders_) leader->cut.clear();
    for (const auto& standby : standbys_) standby->cut = false;
    away_until_ = 0;
    if (halt_) Halt(false);
  });
}

void World::Hit(Point point, Process& process) {
  if (Late() || aimed_.empty() || !Chance(0.15)) return;
  const auto aimed = std::find(aimed_.begin(), aimed_.end(), point);
  if (aimed == aimed_.end()) return;
  aimed_.erase(aimed);
  const std::int64_t kind = Random(0, 9);
  if (kind < 4) {
    Kill(process);
  } else if (kind < 7) {
    Pause(process, Long(200'000, 4'000'000));
  } else if (kind < 9) {
    RandomFault();
  } else {
    KillLeader();
  }
}

Process& World::RandomOf(const std::vector<Process*>& living) {
  return *living[static_cast<std::size_t>(Random(0, static_cast<std::int64_t>(living.size()) - 1))];
}

void World::Kill(Process& process) {
  if (!process.alive) return;
  const bool server = process.role == Role::kServer;
  Trace(absl::StrCat("kill ", process.id.pod_uid, "/", process.id.start));
  Count(server ? "server kills" : "worker kills");
  CloseLinks(process, ~0ULL, /*flush=*/false);
  process.alive = false;
  Pod& pod = PodOf(process.id.pod_uid);
  if (Chance(0.75)) {
    At(Long(5000, 500'000), [this, uid = pod.uid] { StartProcess(PodOf(uid)); });
  } else {
    TerminatePod(pod, Chance(0.8));
  }
  // Now and then another server as well: all copies of a shard may be gone.
  const std::vector<Process*> others = Living(Role::kServer);
  if (server && !others.empty() && Chance(0.4)) Kill(RandomOf(others));
}

void World::Pause(Process& process, Micros length) {
  if (process.paused) return;
  Trace(absl::StrCat("pause ", process.id.pod_uid, "/", process.id.start, " for ", length / 1000,
                     "ms"));
  Count("pauses");
  process.paused = true;
  At(length, [this, id = process.id] {
    Process* woken = Find(id);
    if (woken == nullptr) return;
    Trace(absl::StrCat("resume ", id.pod_uid, "/", id.start));
    woken->paused = false;
    At(Random(0, 2000 / ways_.speed), [inbox = std::exchange(woken->inbox, {})] {
      for (const Event& event : inbox) event();
    });
    job_->GoOn(*woken);
  });
}

// The controller starts the next one.
void World::KillLeader() {
  Trace(absl::StrCat("coordinator ", Last().incarnation, " killed"));
  Last().alive = false;
  for (const auto& standby : standbys_) {
    if (standby->leader == Last().index) EndStandby(*standby);
  }
}

// The controller cannot reach it and grants another: from now on two lead.
void World::ReplaceLeader() {
  Trace(absl::StrCat("coordinator ", Last().incarnation, " is given up"));
  StartCoordinator();
}

void World::PauseLeader(Leader& leader) {
  leader.paused = true;
  Trace(absl::StrCat("coordinator ", leader.incarnation, " paused"));
  At(Long(200'000, 3'000'000), [this, index = leader.index] {
    Leader& woken = *leaders_[index];
    woken.paused = false;
    for (Event& event : std::exchange(woken.inbox, {})) At(Random(0, 2000), std::move(event));
  });
}

// It does not reach this pod for a while.
void World::CutOff(std::size_t index, const std::string& uid, Micros length) {
  leaders_[index]->cut.insert(uid);
  Trace(absl::StrCat("coordinator ", leaders_[index]->incarnation, " cut off from ", uid));
  At(length, [this, index, uid] { leaders_[index]->cut.erase(uid); });
}

// Suspended, and wanted again before the processes are taken away.
void World::Halt(bool halt) {
  Trace(halt ? "halt" : "resume the job");
  halt_ = halt;
  ++settings_generation_;
  if (halt) Count("halts");
}

void World::RandomFault() {
  const std::vector<Process*> living = Living();
  if (Late() || living.empty()) return;
  Process& process = RandomOf(living);
  const std::string& uid = process.id.pod_uid;
  const std::int64_t kind = Random(0, options_.standby ? 18 : 12);
  if (kind > 12) {
    StandbyFault(kind);
  } else if (kind <= 2) {
    Kill(process);
  } else if (kind <= 4) {
    Pause(process, Long(500'000, 4'000'000));
  } else if (kind == 5) {
    const auto pair = std::minmax(uid, RandomOf(living).id.pod_uid);
    data_cuts_[std::pair<std::string, std::string>(pair)] = now_ + Long(100'000, 2'000'000);
    Trace(absl::StrCat("data cut ", pair.first, " ", pair.second));
    Count("data cuts");
  } else if (kind == 6) {
    KillLeader();
  } else if (kind == 7) {
    ReplaceLeader();
    // Somebody hears only the old one for a while.
    if (Chance(0.7)) Last().cut.insert(uid);
  } else if (kind == 8) {
    PauseLeader(Last());
  } else if (kind == 9) {
    wanted_[process.role] = Random(1, 4);
    Trace(absl::StrCat("wanted like ", uid, ": ", wanted_[process.role]));
  } else if (kind == 10) {
    ++settings_generation_;
  } else if (kind == 11) {
    if (halt_) return;
    Halt(true);
    At(Long(50'000, 1'500'000), [this] {
      if (halt_) Halt(false);
    });
  } else {
    Leader& some = *leaders_[static_cast<std::size_t>(
        Random(0, static_cast<std::int64_t>(leaders_.size()) - 1))];
    CutOff(some.index, uid, Long(200'000, 3'000'000));
    if (!Chance(0.4)) return;
    At(Long(500'000, 2'000'000), [this] {
      if (!Late()) ReplaceLeader();
    });
  }
}

}  // namespace starling::simulation
