// SPDX-License-Identifier: Apache-2.0
// What a job would take, what is left for it, and how long it would run. Pure.
//
// What it takes is counted from the pods as they would be built. What is left is told by whoever
// can see it (room.h); what nobody can tell is said to be unknown, with the reason, and is never
// guessed. How long comes from finished jobs of the same name or that computed the same: their
// seconds a step, times the steps of this one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "controller/kube/kube_client.h"
#include "controller/resources/demand.h"
#include "starling/v1alpha1/training_job.pb.h"

namespace starling::service {

// Some pods that are alike.
struct PlannedPods {
  resources::Role role = resources::Role::kWorker;
  std::int64_t wanted = 1;
  std::int64_t least = 1;  // without so many it does not train
  resources::Demand each = {};
};

// InvalidArgument: a role's template gives no pod.
absl::StatusOr<std::vector<PlannedPods>> PodsOf(const v1alpha1::TrainingJobSpec& resolved);

// What is left of one thing that bounds a job.
struct Room {
  std::string source;           // such as "quota team", "nodes", "this machine"
  resources::Demand left = {};  // of what it bounds; "pods" and "jobs" too, where it does
  // Of the nodes, each: a pod must fit on one. Empty: it does not matter where.
  std::vector<resources::Demand> nodes = {};
};

struct Rooms {
  std::vector<Room> known;
  std::string unknown;  // why there is none that is known, or what could not be seen
};

// A finished job, for its summary: what it computed, in how many steps and seconds. Null: it has
// not succeeded, or brings its own container.
kube::Json RunOf(const kube::Json& job);

// The same job but for its name, its size and how long it trains: computes what this one computes.
std::string LikenessOf(const kube::Json& spec);

// A run that may tell how long another one takes.
struct PastRun {
  bool same_name = false;
  double seconds = 0;
  double steps = 0;
  double epochs = 0;
  std::int64_t workers = 0;
  double batch = 0;
};

// What a summary tells of a run for the job; nothing: nothing.
std::optional<PastRun> ReadRun(const kube::Json& summary, const std::string& name,
                               const std::string& likeness);

// {"seconds": {"p50", "p90"}, "steps", "basis"}, or only the basis that is missing.
kube::Json DurationOf(const v1alpha1::TrainingJobSpec& resolved, const std::vector<PastRun>& runs);

// The whole answer.
kube::Json PlanOf(const std::vector<PlannedPods>& pods, const Rooms& rooms, kube::Json duration);

}  // namespace starling::service
