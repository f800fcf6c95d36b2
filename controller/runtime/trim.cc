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

// Anything but an object stays as it is, here and below: readers are total.
Json Kept(const Json& object, Names names) {
  if (!object.is_object()) return object;
  Json kept = Json::object();
  for (const std::string_view name : names) {
    const auto member = object.find(name);
    if (member != object.end()) kept.emplace(std::string(name), *member);
  }
  return kept;
}

Json KeptInEach(const Json& list, Names names) {
  if (!list.is_array()) return list;
  Json kept = Json::array();
  for (const Json& item : list) kept.push_back(Kept(item, names));
  return kept;
}

// Of a map, the entries whose key begins with our domain.
Json KeptOurs(const Json& map) {
  if (!map.is_object()) return map;
  Json kept = Json::object();
  for (const auto& [key, value] : map.items()) {
    if (std::string_view(key).starts_with(kOurs)) kept.emplace(key, value);
  }
  return kept;
}

// The members of an object that are kept, each as `of` makes it.
template <typename Of>
Json KeptMembers(const Json& object, Names names, const Of& of) {
  if (!object.is_object()) return object;
  Json kept = Json::object();
  for (const std::string_view name : names) {
    const auto member = object.find(name);
    if (member != object.end()) kept.emplace(std::string(name), of(name, *member));
  }
  return kept;
}

Json KeptMetadata(const Json& metadata) {
  return KeptMembers(metadata, kMetadata, [](std::string_view name, const Json& value) {
    if (name == "labels" || name == "annotations") return KeptOurs(value);
    return name == "ownerReferences" ? KeptInEach(value, kOwner) : value;
  });
}

Json KeptPodSpec(const Json& spec) {
  return KeptMembers(spec, kPodSpec, [](std::string_view name, const Json& value) {
    return name == "containers" ? KeptInEach(value, kContainer) : value;
  });
}

Json KeptStatus(const Json& status, Names names) {
  return KeptMembers(status, names, [](std::string_view name, const Json& value) {
    if (name == "conditions") return KeptInEach(value, kCondition);
    return name.ends_with("ontainerStatuses") ? KeptInEach(value, kContainerStatus) : value;
  });
}

Json Trimmed(const Json& object, Names names) {
  return KeptMembers(object, names, [](std::string_view name, const Json& value) {
    return name == "metadata" ? KeptMetadata(value) : value;
  });
}

}  // namespace

Json TrimmedPod(const Json& object) {
  return KeptMembers(object, kPod, [](std::string_view name, const Json& value) {
    if (name == "metadata") return KeptMetadata(value);
    if (name == "spec") return KeptPodSpec(value);
    return name == "status" ? KeptStatus(value, kPodStatus) : value;
  });
}

Json TrimmedNode(const Json& object) {
  return KeptMembers(object, kPod, [](std::string_view name, const Json& value) {
    if (name == "metadata") return KeptMetadata(value);
    if (name == "spec") return Kept(value, kNodeSpec);
    return name == "status" ? KeptStatus(value, kNodeStatus) : value;
  });
}

Json TrimmedToMetadata(const Json& object) { return Trimmed(object, kOnlyMetadata); }
Json TrimmedToSpec(const Json& object) { return Trimmed(object, kWithSpec); }
Json TrimmedToData(const Json& object) { return Trimmed(object, kWithData); }

Trim TrimFor(const kube::ResourceKind& kind) {
  constexpr std::pair<const kube::ResourceKind*, Trim> kTrims[] = {
      {&kube::kPod, TrimmedPod},
      {&kube::kNode, TrimmedNode},
      {&kube::kConfigMap, TrimmedToData},
      {&kube::kSecret, TrimmedToData},
      {&kube::kService, TrimmedToMetadata},
      {&kube::kPodDisruptionBudget, TrimmedToSpec}};
  for (const auto& [trimmed, trim] : kTrims) {
    if (kind == *trimmed) return trim;
  }
  return nullptr;
}

}  // namespace starling::runtime
