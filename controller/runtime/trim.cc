// SPDX-License-Identifier: Apache-2.0
#include "controller/runtime/trim.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <span>
#include <string_view>
#include <utility>

namespace starling::runtime {
namespace {

using Json = nlohmann::json;
using Names = std::span<const std::string_view>;

constexpr std::string_view kOurs = "starling.dev/";

constexpr std::array<std::string_view, 12> kMetadata = {"name",
                                                        "namespace",
                                                        "uid",
                                                        "resourceVersion",
                                                        "generation",
                                                        "creationTimestamp",
                                                        "deletionTimestamp",
                                                        "deletionGracePeriodSeconds",
                                                        "finalizers",
                                                        "labels",
                                                        "annotations",
                                                        "ownerReferences"};
constexpr std::array<std::string_view, 4> kOwner = {"kind", "name", "uid", "controller"};
constexpr std::array<std::string_view, 5> kPod = {"apiVersion", "kind", "metadata", "spec",
                                                  "status"};
constexpr std::array<std::string_view, 4> kPodSpec = {"nodeName", "containers", "schedulerName",
                                                      "schedulingGates"};
constexpr std::array<std::string_view, 2> kContainer = {"name", "resources"};
constexpr std::array<std::string_view, 8> kPodStatus = {"phase",
                                                        "reason",
                                                        "message",
                                                        "podIP",
                                                        "conditions",
                                                        "containerStatuses",
                                                        "initContainerStatuses",
                                                        "startTime"};
constexpr std::array<std::string_view, 5> kCondition = {"type", "status", "reason", "message",
                                                        "lastTransitionTime"};
constexpr std::array<std::string_view, 5> kContainerStatus = {"name", "state", "lastState", "ready",
                                                              "restartCount"};
constexpr std::array<std::string_view, 2> kNodeSpec = {"taints", "unschedulable"};
constexpr std::array<std::string_view, 1> kNodeStatus = {"conditions"};
constexpr std::array<std::string_view, 3> kOnlyMetadata = {"apiVersion", "kind", "metadata"};
constexpr std::array<std::string_view, 4> kWithSpec = {"apiVersion", "kind", "metadata", "spec"};
constexpr std::array<std::string_view, 5> kWithData = {"apiVersion", "kind", "metadata", "data",
                                                       "immutable"};

// A new object of the named members: an erased one would keep the old one's memory scattered.
void Keep(Json& object, Names names) {
  if (!object.is_object()) return;
  Json kept = Json::object();
  for (const std::string_view name : names) {
    const auto member = object.find(name);
    if (member != object.end()) kept.emplace(std::string(name), std::move(*member));
  }
  object = std::move(kept);
}

void KeepInEach(Json& object, const char* list, Names names) {
  const auto found = object.is_object() ? object.find(list) : object.end();
  if (found == object.end() || !found->is_array()) return;
  for (Json& item : *found) Keep(item, names);
}

// Of a map, the entries whose key begins with our domain.
void KeepOurs(Json& metadata, const char* map) {
  const auto found = metadata.find(map);
  if (found == metadata.end() || !found->is_object()) return;
  Json kept = Json::object();
  for (auto& [key, value] : found->items()) {
    if (std::string_view(key).starts_with(kOurs)) kept.emplace(key, std::move(value));
  }
  *found = std::move(kept);
}

void TrimMetadata(Json& object) {
  const auto metadata = object.find("metadata");
  if (metadata == object.end() || !metadata->is_object()) return;
  Keep(*metadata, kMetadata);
  KeepOurs(*metadata, "labels");
  KeepOurs(*metadata, "annotations");
  KeepInEach(*metadata, "ownerReferences", kOwner);
}

}  // namespace

void TrimManagedFields(Json& object) {
  if (!object.is_object()) return;
  const auto metadata = object.find("metadata");
  if (metadata != object.end() && metadata->is_object()) metadata->erase("managedFields");
}

void TrimPod(Json& object) {
  if (!object.is_object()) return;
  Keep(object, kPod);
  TrimMetadata(object);
  if (const auto spec = object.find("spec"); spec != object.end() && spec->is_object()) {
    Keep(*spec, kPodSpec);
    KeepInEach(*spec, "containers", kContainer);
  }
  if (const auto status = object.find("status"); status != object.end() && status->is_object()) {
    Keep(*status, kPodStatus);
    KeepInEach(*status, "conditions", kCondition);
    KeepInEach(*status, "containerStatuses", kContainerStatus);
    KeepInEach(*status, "initContainerStatuses", kContainerStatus);
  }
}

void TrimNode(Json& object) {
  if (!object.is_object()) return;
  Keep(object, kPod);
  TrimMetadata(object);
  if (const auto spec = object.find("spec"); spec != object.end()) Keep(*spec, kNodeSpec);
  if (const auto status = object.find("status"); status != object.end() && status->is_object()) {
    Keep(*status, kNodeStatus);
    KeepInEach(*status, "conditions", kCondition);
  }
}

void TrimToMetadata(Json& object) {
  if (!object.is_object()) return;
  Keep(object, kOnlyMetadata);
  TrimMetadata(object);
}

void TrimToSpec(Json& object) {
  if (!object.is_object()) return;
  Keep(object, kWithSpec);
  TrimMetadata(object);
}

void TrimToData(Json& object) {
  if (!object.is_object()) return;
  Keep(object, kWithData);
  TrimMetadata(object);
}

Trim TrimFor(const kube::ResourceKind& kind) {
  constexpr std::pair<const kube::ResourceKind*, Trim> kTrims[] = {
      {&kube::kPod, TrimPod},
      {&kube::kNode, TrimNode},
      {&kube::kConfigMap, TrimToData},
      {&kube::kSecret, TrimToData},
      {&kube::kService, TrimToMetadata},
      {&kube::kPodDisruptionBudget, TrimToSpec}};
  for (const auto& [trimmed, trim] : kTrims) {
    if (kind == *trimmed) return trim;
  }
  return TrimManagedFields;
}

}  // namespace starling::runtime
