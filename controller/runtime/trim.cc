// SPDX-License-Identifier: Apache-2.0
#include "controller/runtime/trim.h"

#include <nlohmann/json.hpp>
#include <utility>

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

}  // namespace

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
