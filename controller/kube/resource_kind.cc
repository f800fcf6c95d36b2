// SPDX-License-Identifier: Apache-2.0
#include "controller/kube/resource_kind.h"

#include "absl/strings/str_cat.h"

namespace starling::kube {
namespace {

absl::string_view Abseil(std::string_view text) { return {text.data(), text.size()}; }

}  // namespace

std::string ResourceKind::ApiVersion() const {
  if (group.empty()) return std::string(version);
  return absl::StrCat(Abseil(group), "/", Abseil(version));
}

const std::vector<ResourceKind>& KnownKinds() {
  static const auto& kinds = *new std::vector<ResourceKind>{
      kTrainingJob, kPod, kService, kSecret, kConfigMap, kEvent, kPodDisruptionBudget, kLease};
  return kinds;
}

const std::vector<ResourceKind>& OwnedKinds() {
  static const auto& kinds =
      *new std::vector<ResourceKind>{kPod, kService, kSecret, kConfigMap, kPodDisruptionBudget};
  return kinds;
}

const std::vector<ResourceKind>& AllKinds() {
  static const auto& kinds = *[] {
    auto* all = new std::vector<ResourceKind>(KnownKinds());
    for (const ResourceKind& kind :
         {kTrainingTemplate, kClusterTrainingTemplate, kResourceQuota, kPersistentVolumeClaim,
          kServiceAccount, kEndpointSlice, kNode, kNamespace, kPriorityClass,
          kValidatingWebhookConfiguration, kMutatingWebhookConfiguration, kCustomResourceDefinition,
          kCoschedulingPodGroup, kVolcanoPodGroup, kNativePodGroup, kKueueWorkload}) {
      all->push_back(kind);
    }
    return all;
  }();
  return kinds;
}

const ResourceKind* FindKind(std::string_view api_version, std::string_view kind) {
  for (const ResourceKind& known : AllKinds()) {
    if (known.kind == kind && known.ApiVersion() == api_version) return &known;
  }
  return nullptr;
}

}  // namespace starling::kube
