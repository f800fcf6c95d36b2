// SPDX-License-Identifier: Apache-2.0
#include "controller/rest/plan.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/bytes/bytes.h"
#include "common/json/json.h"
#include "common/status/macros.h"
#include "controller/kube/objects.h"

namespace starling::service {
namespace {

using kube::Json;
using resources::Demand;
using resources::Role;
using v1alpha1::TrainingJobSpec;

// What makes two jobs compute the same, as it was written. How long they go on and who does it does
// not.
constexpr const char* kLikeness[] = {"workload",    "dataset",      "exchange",   "update",
                                     "compression", "reproducible", "experiment", "preset"};
constexpr std::size_t kLikenessDigits = 16;
constexpr double kTolerance = 1 + 1e-9;  // of sums of fractions of a core

Json ToJson(const Demand& demand) {
  Json amounts = Json::object();
  for (const auto& [resource, amount] : demand) amounts[resource] = amount;
  return amounts;
}

template <typename Spec>
PlannedPods SizesOf(Role role, const Spec& spec) {
  PlannedPods pods{.role = role, .wanted = spec.replicas(), .least = spec.min_replicas()};
  pods.least = std::clamp<std::int64_t>(pods.least, 0, std::max<std::int64_t>(pods.wanted, 0));
  return pods;
}

// By how much `left` falls short of `wanted`, in words; empty: it does not.
std::string MissingIn(const Demand& left, const Demand& wanted) {
  std::vector<std::string> missing;
  for (const auto& [resource, amount] : wanted) {
    const auto found = left.find(resource);
    if (found == left.end() || amount <= found->second * kTolerance) continue;
    missing.push_back(absl::StrCat(amount, " of ", resource, " are asked for and ",
                                   std::max(found->second, 0.0), " are left"));
  }
  return absl::StrJoin(missing, ", ");
}

// Whether the pods find places, the largest first, each on the node that has the most cores left.
bool FitOnNodes(const std::vector<PlannedPods>& pods, bool least, std::vector<Demand> nodes) {
  std::vector<const Demand*> each;
  for (const PlannedPods& role : pods) {
    each.insert(each.end(), static_cast<std::size_t>(least ? role.least : role.wanted), &role.each);
  }
  const auto cores = [](const Demand& demand) {
    const auto found = demand.find("cpu");
    return found == demand.end() ? 0.0 : found->second;
  };
  std::stable_sort(each.begin(), each.end(),
                   [&](const Demand* a, const Demand* b) { return cores(*a) > cores(*b); });
  for (const Demand* pod : each) {
    Demand* place = nullptr;
    for (Demand& node : nodes) {
      Demand own = *pod;
      own["pods"] = 1;
      for (const auto& [resource, amount] : own) node.try_emplace(resource, 0);
      if (!MissingIn(node, own).empty()) continue;
      if (place == nullptr || cores(node) > cores(*place)) place = &node;
    }
    if (place == nullptr) return false;
    for (const auto& [resource, amount] : *pod) (*place)[resource] -= amount;
    (*place)["pods"] -= 1;
  }
  return true;
}

Demand Total(const std::vector<PlannedPods>& pods, bool least) {
  Demand total = {{"jobs", 1}, {"pods", 0}};
  for (const PlannedPods& role : pods) {
    const std::int64_t count = least ? role.least : role.wanted;
    total["pods"] += static_cast<double>(count);
    resources::Add(resources::Times(role.each, count), total);
  }
  return total;
}

// Why the job, whole or with the least that it trains with, does not fit; empty: it does.
std::string WhyNot(const std::vector<PlannedPods>& pods, const Rooms& rooms, bool least) {
  for (const Room& room : rooms.known) {
    const std::string missing = MissingIn(room.left, Total(pods, least));
    if (!missing.empty()) return absl::StrCat(room.source, ": ", missing);
    if (!room.nodes.empty() && !FitOnNodes(pods, least, room.nodes)) {
      return absl::StrCat(room.source,
                          ": together there is enough, but not for each pod on a node");
    }
  }
  return "";
}

// The steps that the job trains for, as far as its own words or another run tell; nothing: they do
// not.
std::optional<double> StepsOf(const TrainingJobSpec& spec, const std::vector<PastRun>& runs) {
  std::optional<double> by_epochs;
  const double batch = static_cast<double>(spec.dataset().global_batch_size());
  const double epochs = static_cast<double>(spec.stop().epochs());
  if (spec.stop().has_epochs() && spec.dataset().train().has_synthetic()) {
    const double samples = static_cast<double>(spec.dataset().train().synthetic().samples());
    by_epochs = epochs * std::ceil(samples / batch);
  }
  for (const PastRun& run : runs) {
    if (by_epochs || !spec.stop().has_epochs()) break;
    if (run.epochs > 0 && run.batch == batch) by_epochs = epochs * run.steps / run.epochs;
  }
  if (!spec.stop().has_steps()) return by_epochs;
  const double steps = static_cast<double>(spec.stop().steps());
  return by_epochs ? std::min(steps, *by_epochs) : steps;
}

double Quantile(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  const double place = share * static_cast<double>(values.size() - 1);
  const auto low = static_cast<std::size_t>(place);
  const std::size_t high = std::min(low + 1, values.size() - 1);
  return values[low] + (values[high] - values[low]) * (place - static_cast<double>(low));
}

// Those of the same name where there are any, of them those of the same size where there are any.
std::vector<PastRun> Closest(std::vector<PastRun> runs, std::int64_t workers) {
  const auto keep = [&runs](const auto& wanted) {
    std::vector<PastRun> kept;
    std::copy_if(runs.begin(), runs.end(), std::back_inserter(kept), wanted);
    if (!kept.empty()) runs = std::move(kept);
  };
  keep([](const PastRun& run) { return run.same_name; });
  keep([workers](const PastRun& run) { return run.workers == workers; });
  return runs;
}

std::string BasisOf(const std::vector<PastRun>& runs, std::int64_t workers) {
  const bool same_name = runs.front().same_name;
  std::string basis =
      absl::StrCat(runs.size(), runs.size() == 1 ? " finished job" : " finished jobs",
                   same_name ? " of this name that computed the same" : " that computed the same");
  if (runs.front().workers != workers) {
    absl::StrAppend(&basis, ", with ", runs.front().workers, " workers instead of ", workers,
                    ": that more of them are faster is not assumed");
  }
  return basis;
}

}  // namespace

absl::StatusOr<std::vector<PlannedPods>> PodsOf(const TrainingJobSpec& resolved) {
  const v1alpha1::ReplicaSpecs& roles = resolved.replica_specs();
  std::vector<PlannedPods> pods;
  for (const Role role : resources::RolesOf(resolved)) {
    PlannedPods planned{.role = role};
    if (role == Role::kCoordinator && roles.coordinator().standby()) planned.wanted = 2;
    if (role == Role::kWorker) planned = SizesOf(role, roles.worker());
    if (role == Role::kParameterServer) planned = SizesOf(role, roles.parameter_server());
    ASSIGN_OR_RETURN(planned.each, resources::DemandOfRole(resolved, role));
    pods.push_back(std::move(planned));
  }
  return pods;
}

std::string LikenessOf(const Json& spec) {
  Json alike = Json::object();
  for (const char* part : kLikeness) {
    if (spec.is_object() && spec.contains(part)) alike[part] = spec[part];
  }
  return bytes::Sha256Hex(json::Dump(alike)).substr(0, kLikenessDigits);
}

Json RunOf(const Json& job) {
  const Json& result = kube::At(job, "/status/result");
  const Json& spec = kube::At(job, "/spec");
  if (!kube::IsConditionTrue(job, "Succeeded") || !result.is_object()) return nullptr;
  const std::int64_t steps = kube::IntAt(result, "/steps");
  const Json& seconds = kube::At(result, "/seconds");
  if (steps <= 0 || !seconds.is_number() || !(seconds.get<double>() > 0)) return nullptr;
  return {{"like", LikenessOf(spec)},
          {"seconds", seconds},
          {"steps", steps},
          {"epochs", kube::IntAt(result, "/epochs")},
          {"workers", kube::IntAt(spec, "/replicaSpecs/worker/replicas", 1)},
          {"batch", kube::IntAt(spec, "/dataset/globalBatchSize", 64)}};
}

std::optional<PastRun> ReadRun(const Json& summary, const std::string& name,
                               const std::string& likeness) {
  const auto run = summary.find("run");
  if (run == summary.end() || kube::StringAt(*run, "/like") != likeness) return std::nullopt;
  const auto number = [&run](const char* field) {
    const Json& value = kube::At(*run, field);
    return value.is_number() ? value.get<double>() : 0.0;
  };
  PastRun past{.same_name = kube::StringAt(summary, "/name") == name,
               .seconds = number("/seconds"),
               .steps = number("/steps"),
               .epochs = number("/epochs"),
               .workers = kube::IntAt(*run, "/workers"),
               .batch = number("/batch")};
  if (!(past.steps > 0) || !(past.seconds > 0)) return std::nullopt;
  return past;
}

Json DurationOf(const TrainingJobSpec& resolved, const std::vector<PastRun>& runs) {
  if (resolved.workload().has_container()) {
    return {{"basis", "unknown: nobody but its own program knows what the container does"}};
  }
  const auto steps = StepsOf(resolved, runs);
  Json duration = Json::object();
  if (steps) duration["steps"] = *steps;
  if (runs.empty()) {
    duration["basis"] = "unknown: no finished job computed the same";
    return duration;
  }
  if (!steps) {
    duration["basis"] = "unknown: nothing tells how many steps it takes";
    return duration;
  }
  const std::int64_t workers = resolved.replica_specs().worker().replicas();
  const std::vector<PastRun> closest = Closest(runs, workers);
  std::vector<double> seconds;
  for (const PastRun& run : closest) seconds.push_back(*steps * run.seconds / run.steps);
  duration["seconds"] = {{"p50", Quantile(seconds, 0.5)}, {"p90", Quantile(seconds, 0.9)}};
  duration["basis"] = BasisOf(closest, workers);
  return duration;
}

Json PlanOf(const std::vector<PlannedPods>& pods, const Rooms& rooms, Json duration) {
  Json roles = Json::array();
  for (const PlannedPods& role : pods) {
    roles.push_back({{"role", resources::Text(resources::RoleField(role.role))},
                     {"replicas", role.wanted},
                     {"minReplicas", role.least},
                     {"each", ToJson(role.each)}});
  }
  Json left = Json::array();
  for (const Room& room : rooms.known) {
    left.push_back({{"source", room.source}, {"amounts", ToJson(room.left)}});
  }
  Json plan = {{"pods", std::move(roles)},
               {"total", ToJson(Total(pods, false))},
               {"left", std::move(left)},
               {"duration", std::move(duration)}};
  if (!rooms.unknown.empty()) plan["unknown"] = rooms.unknown;
  if (rooms.known.empty()) {
    plan["fits"] = "Unknown";
    return plan;
  }
  const std::string whole = WhyNot(pods, rooms, false);
  plan["fits"] = whole.empty() ? "Yes" : WhyNot(pods, rooms, true).empty() ? "WithFewer" : "No";
  if (!whole.empty()) plan["why"] = whole;
  return plan;
}

}  // namespace starling::service
