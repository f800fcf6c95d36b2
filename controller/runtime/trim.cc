// SPDX-License-Identifier: Apache-2.0
#include "controller/runtime/trim.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "controller/kube/objects.h"

namespace starling::runtime {
namespace {

using Json = nlohmann::json;
using kube::KeptField;

constexpr KeptField kOurs[] = {{"starling.dev/*"}};
constexpr KeptField kOwner[] = {{"kind"}, {"name"}, {"uid"}, {"controller"}};
constexpr KeptField kMetadata[] = {{"name"},
                                   {"namespace"},
                                   {"uid"},
                                   {"resourceVersion"},
                                   {"generation"},
                                   {"creationTimestamp"},
                                   {"deletionTimestamp"},
                                   {"deletionGracePeriodSeconds"},
                                   {"finalizers"},
                                   {"labels", kOurs},
                                   {"annotations", kOurs},
                                   {"ownerReferences", kOwner},
                                   {"continue"}};  // of a list
constexpr KeptField kCondition[] = {
    {"type"}, {"status"}, {"reason"}, {"message"}, {"lastTransitionTime"}};
constexpr KeptField kContainerStatus[] = {
    {"name"}, {"state"}, {"lastState"}, {"ready"}, {"restartCount"}};
constexpr KeptField kContainer[] = {{"name"}, {"resources"}};
constexpr KeptField kPodSpec[] = {
    {"nodeName"}, {"containers", kContainer}, {"schedulerName"}, {"schedulingGates"}};
constexpr KeptField kPodStatus[] = {{"phase"},
                                    {"reason"},
                                    {"message"},
                                    {"podIP"},
                                    {"conditions", kCondition},
                                    {"containerStatuses", kContainerStatus},
                                    {"initContainerStatuses", kContainerStatus},
                                    {"startTime"}};
constexpr KeptField kPod[] = {
    {"apiVersion"}, {"kind"}, {"metadata", kMetadata}, {"spec", kPodSpec}, {"status", kPodStatus}};
constexpr KeptField kNodeSpec[] = {{"taints"}, {"unschedulable"}};
constexpr KeptField kNodeStatus[] = {{"conditions", kCondition}};
constexpr KeptField kNode[] = {{"apiVersion"},
                               {"kind"},
                               {"metadata", kMetadata},
                               {"spec", kNodeSpec},
                               {"status", kNodeStatus}};
constexpr KeptField kOnlyMetadata[] = {{"apiVersion"}, {"kind"}, {"metadata", kMetadata}};
constexpr KeptField kWithSpec[] = {{"apiVersion"}, {"kind"}, {"metadata", kMetadata}, {"spec"}};
constexpr KeptField kWithData[] = {
    {"apiVersion"}, {"kind"}, {"metadata", kMetadata}, {"data"}, {"immutable"}};

// Waiting reasons that only mean that the container has not started yet.
constexpr std::string_view kStarting[] = {"", "ContainerCreating", "PodInitializing"};

void AddCondition(const Json& condition, std::string& news) {
  const std::string type = kube::StringAt(condition, "/type");
  const std::string status = kube::StringAt(condition, "/status");
  const bool unplaced = type == "PodScheduled" && status == "False";
  if (!unplaced && type != "Ready" && type != "DisruptionTarget") return;
  absl::StrAppend(&news, "\n", type, "=", status);
  if (type == "Ready") return;
  absl::StrAppend(&news, " ", kube::StringAt(condition, "/reason"), " ",
                  kube::StringAt(condition, "/message"));
}

void AddContainer(const Json& container, std::string& news) {
  const std::string waits = kube::StringAt(container, "/state/waiting/reason");
  const bool starts =
      std::find(std::begin(kStarting), std::end(kStarting), waits) != std::end(kStarting);
  const Json& ended = kube::At(container, "/state/terminated");
  if (starts && !ended.is_object()) return;
  absl::StrAppend(&news, "\n", kube::StringAt(container, "/name"), ":", waits, " ",
                  ended.is_object() ? kube::IntAt(ended, "/exitCode") : -1);
}

}  // namespace

std::string NewsOfPod(const Json& pod) {
  std::string news = absl::StrCat(kube::StringAt(pod, "/metadata/deletionTimestamp"), "\n",
                                  kube::StringAt(pod, "/status/phase"), "\n",
                                  kube::StringAt(pod, "/status/reason"), "\n",
                                  kube::StringAt(pod, "/status/podIP"));
  for (const Json& condition : kube::At(pod, "/status/conditions")) AddCondition(condition, news);
  for (const char* list : {"/status/initContainerStatuses", "/status/containerStatuses"}) {
    for (const Json& container : kube::At(pod, list)) AddContainer(container, news);
  }
  return news;
}

Json TrimmedPod(const Json& object) { return kube::KeepFields(object, kPod); }
Json TrimmedNode(const Json& object) { return kube::KeepFields(object, kNode); }
Json TrimmedToMetadata(const Json& object) { return kube::KeepFields(object, kOnlyMetadata); }
Json TrimmedToSpec(const Json& object) { return kube::KeepFields(object, kWithSpec); }
Json TrimmedToData(const Json& object) { return kube::KeepFields(object, kWithData); }

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

kube::KeptFields FieldsRead(const kube::ResourceKind& kind) {
  constexpr std::pair<const kube::ResourceKind*, kube::KeptFields> kRead[] = {
      {&kube::kPod, kPod},
      {&kube::kNode, kNode},
      {&kube::kService, kOnlyMetadata},
      {&kube::kPodDisruptionBudget, kWithSpec},
      {&kube::kEvent, kOnlyMetadata}};
  for (const auto& [read, fields] : kRead) {
    if (kind == *read) return fields;
  }
  return {};
}

}  // namespace starling::runtime
