// SPDX-License-Identifier: Apache-2.0
// Jobs that bring their own container: no coordinator, elasticity by restart.
//
// Their workers live in rounds. All of a round are told of each other by their environment, so when
// their number changes or one of them is lost, all go and the next round begins once they are gone:
// the program goes on from its own checkpoint. Success and failure come from pods alone.
//
// The status holds the number of the round; who belongs to it is written on each of its pods. A
// round of which no pod is left is simply made again.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "controller/trainingjob/policies.h"

namespace starling::trainingjob {
namespace {

// A round that finds too few places is tried with those that there are.
constexpr absl::Duration kPlaceTimeout = absl::Seconds(30);

std::int64_t RoundOf(const Pass& pass) { return pass.status.round().number(); }

bool IsOfRound(const Pass& pass, const ObservedPod& pod) {
  return pod.role == Role::kWorker && pod.world.round == RoundOf(pass);
}

// Nothing: no pod of the round is left, or none was made yet.
std::optional<World> WorldOf(const Pass& pass) {
  for (const ObservedPod& pod : pass.observed.pods) {
    if (IsOfRound(pass, pod) && !pod.world.members.empty()) return pod.world;
  }
  return std::nullopt;
}

const ObservedPod* Member(const Pass& pass, std::int64_t index) {
  for (const ObservedPod& pod : pass.observed.pods) {
    if (IsOfRound(pass, pod) && pod.index == index) return &pod;
  }
  return nullptr;
}

bool Succeeded(const ObservedPod* pod) {
  return pod != nullptr && pod->phase == PodPhase::kSucceeded;
}

bool NodeIsLost(const Pass& pass, const ObservedPod& pod) {
  const ObservedNode* node = pass.NodeOf(pod);
  return node != nullptr && (!node->exists || !node->ready);
}

// Why the round cannot go on as it is; empty: it can.
std::string WhyOver(const Pass& pass, const World& world, std::int64_t wanted) {
  if (world.wanted != wanted) return absl::StrCat(wanted, " workers are wanted");
  const bool ran = ConditionStatus(pass.observed.status, "Running") == "True";
  for (const std::int64_t index : world.members) {
    const ObservedPod* pod = Member(pass, index);
    if (pod == nullptr) {
      // Before it has ever run, it may just not have been made yet.
      if (ran) return absl::StrCat("worker ", index, " is gone");
    } else if (pod->phase == PodPhase::kFailed) {
      return absl::StrCat(pod->name, " failed");
    } else if (pod->terminating && !Succeeded(pod)) {
      return absl::StrCat(pod->name, " is being deleted");
    } else if (!pod->Terminated() && NodeIsLost(pass, *pod)) {
      return absl::StrCat(pod->node, " does not answer");
    } else if (pass.leaving.contains(pod->uid)) {
      return absl::StrCat(pod->name, " must go");
    }
  }
  return "";
}

// Members that have found no place for long; the round is then tried without them.
std::int64_t Unplaced(Pass& pass, const World& world) {
  std::int64_t count = 0;
  for (const std::int64_t index : world.members) {
    const ObservedPod* pod = Member(pass, index);
    if (pod == nullptr || !pod->Live() || !pod->problem.has_value()) continue;
    if (pod->problem->reason != kUnschedulable) continue;
    const absl::Time limit = pod->problem->since + kPlaceTimeout;
    if (pass.now >= limit) {
      ++count;
    } else {
      pass.RequeueAt(limit);
    }
  }
  return count;
}

void BeginRound(Pass& pass, std::int64_t workers, const std::string& why) {
  v1alpha1::ContainerRound& round = *pass.status.mutable_round();
  round.set_number(round.number() + 1);
  round.set_workers(workers);
  if (why.empty()) return;
  pass.Reason(absl::StrCat("round ", round.number(), " begins: ", why));
  pass.Event(false, "RoundStarted", "Restart",
             absl::StrCat("all ", workers, " workers are started again: ", why));
}

void DecideRound(Pass& pass, const Wanted& wanted) {
  if (RoundOf(pass) == 0) return BeginRound(pass, wanted.replicas, "");
  const std::optional<World> world = WorldOf(pass);
  if (!world.has_value()) {
    // Fewer than are wanted stands only until another number is wanted.
    const bool changed = pass.observed.status.replicas() != wanted.replicas;
    if (changed) pass.status.mutable_round()->set_workers(wanted.replicas);
    return;
  }
  if (const std::string why = WhyOver(pass, *world, wanted.replicas); !why.empty()) {
    return BeginRound(pass, wanted.replicas, why);
  }
  const std::int64_t unplaced = Unplaced(pass, *world);
  const auto placed = static_cast<std::int64_t>(world->members.size()) - unplaced;
  const std::int64_t least =
      std::max<std::int64_t>(pass.observed.spec.replica_specs().worker().min_replicas(), 1);
  if (unplaced > 0 && placed >= least) {
    BeginRound(pass, placed, absl::StrCat("only ", placed, " workers have a place"));
  }
}

// Ends what is left of former rounds. Returns whether the next one may begin: whoever might still
// compute has ended, or is out of reach.
bool EndFormerRounds(Pass& pass) {
  bool over = true;
  for (const ObservedPod& pod : pass.observed.pods) {
    if (pod.role != Role::kWorker || IsOfRound(pass, pod)) continue;
    if (pod.Terminated()) {
      if (!pod.terminating) pass.Delete(pod, 0);
      continue;
    }
    if (!pod.terminating) {
      pass.Delete(pod, std::nullopt);
      over = over && pod.phase == PodPhase::kPending;
      continue;
    }
    const bool stuck = pass.now >= pod.deletion_due + pass.options.stuck_grace;
    if (!stuck) pass.RequeueAt(pod.deletion_due + pass.options.stuck_grace);
    over = over && (stuck || NodeIsLost(pass, pod));
  }
  return over;
}

// No pod has that name any more; one that has ended and is deleted in this pass gives it up.
bool IsFree(const Pass& pass, std::int64_t index) {
  return std::none_of(pass.observed.pods.begin(), pass.observed.pods.end(),
                      [&](const ObservedPod& pod) {
                        const bool gone = pod.Terminated() && pass.deleted.contains(pod.uid);
                        return pod.role == Role::kWorker && pod.index == index && !gone;
                      });
}

void CompleteRound(Pass& pass, const Wanted& wanted) {
  std::optional<World> world = WorldOf(pass);
  if (!world.has_value()) {
    world.emplace();
    world->round = RoundOf(pass);
    world->members = FreeIndexes(pass, Role::kWorker, pass.status.round().workers());
    world->wanted = wanted.replicas;
  }
  for (const std::int64_t index : world->members) {
    if (IsFree(pass, index)) MakePod(pass, Role::kWorker, index, *world);
  }
}

}  // namespace

bool IsOfFormerRound(const Pass& pass, const ObservedPod& pod) {
  return pass.OwnContainer() && pod.role == Role::kWorker && !IsOfRound(pass, pod);
}

bool RoundRuns(const Pass& pass) {
  const std::optional<World> world = WorldOf(pass);
  return world.has_value() &&
         std::all_of(world->members.begin(), world->members.end(), [&](std::int64_t index) {
           const ObservedPod* pod = Member(pass, index);
           return pod != nullptr &&
                  (Succeeded(pod) || (pod->phase == PodPhase::kRunning && pass.Usable(*pod)));
         });
}

void SucceedWithWorkers(Pass& pass) {
  if (!pass.OwnContainer()) return;
  const std::optional<World> world = WorldOf(pass);
  if (!world.has_value()) return;
  const bool first_only =
      pass.observed.spec.run_policy().success_policy() == v1alpha1::SUCCESS_POLICY_FIRST_WORKER;
  const std::size_t needed = first_only ? 1 : world->members.size();
  for (std::size_t rank = 0; rank < needed; ++rank) {
    if (!Succeeded(Member(pass, world->members[rank]))) return;
  }
  pass.status.mutable_result()->set_seconds(ActiveSeconds(pass));
  FinishJob(pass, true, "WorkersSucceeded",
            first_only ? "the worker of rank 0 has ended well"
                       : absl::StrCat("all ", needed, " workers have ended well"));
}

void RunContainerJob(Pass& pass) {
  const Wanted wanted = WantedWorkers(pass);
  NoteWanted(pass, wanted);
  DecideRound(pass, wanted);
  if (EndFormerRounds(pass) && !IsDelayed(pass)) CompleteRound(pass, wanted);
}

}  // namespace starling::trainingjob
