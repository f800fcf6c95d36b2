// SPDX-License-Identifier: Apache-2.0
#include "controller/rest/room.h"

#include <sched.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "api/spec/quantity.h"
#include "controller/kube/objects.h"

namespace starling::service {
namespace {

using kube::Json;
using resources::Demand;
using resources::Role;

// What a quota calls the things that we count.
constexpr std::pair<const char*, const char*> kQuotaNames[] = {
    {"requests.cpu", "cpu"},
    {"cpu", "cpu"},
    {"requests.memory", "memory"},
    {"memory", "memory"},
    {"pods", "pods"},
    {"count/pods", "pods"},
    {"count/trainingjobs.starling.dev", "jobs"}};
constexpr std::string_view kRequests = "requests.";  // before the name of any other resource

std::optional<double> AmountAt(const Json& amounts, const std::string& name) {
  if (!amounts.is_object() || !amounts.contains(name)) return std::nullopt;
  const Json& amount = amounts[name];
  if (amount.is_number()) return amount.get<double>();
  return amount.is_string() ? spec::ParseQuantity(amount.get<std::string>()) : std::nullopt;
}

std::string NameInDemand(const std::string& quota_name) {
  for (const auto& [theirs, ours] : kQuotaNames) {
    if (quota_name == theirs) return ours;
  }
  return quota_name.starts_with(kRequests) ? quota_name.substr(kRequests.size()) : "";
}

bool HasEnded(const Json& pod) {
  const std::string phase = kube::StringAt(pod, "/status/phase");
  return phase == "Succeeded" || phase == "Failed";
}

bool TakesPods(const Json& node) {
  return !kube::BoolAt(node, "/spec/unschedulable") && kube::IsConditionTrue(node, "Ready");
}

// Those without requests ask for what a pod of their role would ask for in a cluster.
double CoresOfLocalPod(const Json& pod) {
  const auto role =
      resources::ParseRole(kube::LabelOf(pod, std::string_view(resources::kRoleLabel)));
  return role ? resources::CoresOf(*role, pod) : 0;
}

double CoresOfMachine() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  return sched_getaffinity(0, sizeof(allowed), &allowed) == 0 ? CPU_COUNT(&allowed) : 1;
}

std::optional<double> FreeMemory() {
  std::ifstream file("/proc/meminfo");
  std::string name, unit;
  for (double kilobytes = 0; file >> name >> kilobytes; std::getline(file, unit)) {
    if (name == "MemAvailable:") return kilobytes * 1024;
  }
  return std::nullopt;
}

bool IsRefused(const absl::Status& status) {
  return absl::IsPermissionDenied(status) || absl::IsUnauthenticated(status);
}

std::string WhyUnseen(const char* what, const absl::Status& status) {
  return absl::StrCat(what, IsRefused(status)
                                ? " are not yours to see"
                                : absl::StrCat(" cannot be read: ", std::string(status.message())));
}

}  // namespace

Demand LeftOfQuota(const Json& quota) {
  Demand left;
  if (!kube::At(quota, "/spec/scopes").empty() || !kube::At(quota, "/spec/scopeSelector").empty()) {
    return left;
  }
  const Json& hard = kube::At(quota, "/status/hard");
  const Json& used = kube::At(quota, "/status/used");
  for (const auto& [name, unused] : hard.items()) {
    const std::string ours = NameInDemand(name);
    const auto most = AmountAt(hard, name);
    if (ours.empty() || !most) continue;
    const double free = *most - AmountAt(used, name).value_or(0);
    const auto known = left.find(ours);
    left[ours] = known == left.end() ? free : std::min(known->second, free);
  }
  return left;
}

Room RoomOfNodes(const std::vector<Json>& nodes, const std::vector<Json>& pods) {
  std::map<std::string, Demand> free;
  for (const Json& node : nodes) {
    if (!TakesPods(node)) continue;
    const Json& amounts = kube::At(node, "/status/allocatable");
    Demand& own = free[kube::NameOf(node)];
    for (const auto& [resource, unused] : amounts.items()) {
      own[resource] = AmountAt(amounts, resource).value_or(0);
    }
  }
  for (const Json& pod : pods) {
    const auto node = free.find(kube::StringAt(pod, "/spec/nodeName"));
    if (node == free.end() || HasEnded(pod)) continue;
    Demand taken = resources::DemandOf(pod);
    taken["pods"] = 1;
    for (const auto& [resource, amount] : taken) node->second[resource] -= amount;
  }
  Room room{.source = "nodes"};
  for (auto& [name, left] : free) {
    resources::Add(left, room.left);
    room.nodes.push_back(std::move(left));
  }
  // Without a node that takes pods there is room for none.
  if (room.nodes.empty()) room.left["pods"] = 0;
  return room;
}

Rooms RoomsOfCluster(kube::KubeClient& caller, const std::string& ns) {
  Rooms rooms;
  const auto note = [&rooms](std::string why) {
    absl::StrAppend(&rooms.unknown, rooms.unknown.empty() ? "" : "; ", why);
  };
  const auto quotas = caller.List(kube::kResourceQuota, ns, {});
  if (!quotas.ok()) note(WhyUnseen("quotas", quotas.status()));
  for (std::size_t i = 0; quotas.ok() && i < quotas->items.size(); ++i) {
    Demand left = LeftOfQuota(quotas->items[i]);
    if (left.empty()) continue;
    rooms.known.push_back(
        {absl::StrCat("quota ", kube::NameOf(quotas->items[i])), std::move(left)});
  }
  const auto nodes = caller.List(kube::kNode, "", {});
  const auto pods = nodes.ok() ? caller.List(kube::kPod, "", {})
                               : absl::StatusOr<kube::ObjectList>(nodes.status());
  if (!pods.ok()) {
    note(WhyUnseen(nodes.ok() ? "pods of all namespaces" : "nodes", pods.status()));
  } else {
    rooms.known.push_back(RoomOfNodes(nodes->items, pods->items));
  }
  return rooms;
}

Rooms RoomsOfMachine(kube::KubeClient& store) {
  Room room{.source = "this machine", .left = {{"cpu", CoresOfMachine()}}};
  Rooms rooms;
  if (const auto memory = FreeMemory()) {
    room.left["memory"] = *memory;
  } else {
    rooms.unknown = "free memory cannot be read from /proc/meminfo";
  }
  const auto pods = store.List(kube::kPod, "", {});
  if (!pods.ok()) {
    rooms.unknown = WhyUnseen("pods", pods.status());
    return rooms;
  }
  for (const Json& pod : pods->items) {
    if (!HasEnded(pod)) room.left["cpu"] -= CoresOfLocalPod(pod);
  }
  rooms.known.push_back(std::move(room));
  return rooms;
}

}  // namespace starling::service
