// SPDX-License-Identifier: Apache-2.0
// The kinds of object that Starling reads and writes, as Kubernetes' API names them.
//
// To add one: a constant here and a line in KnownKinds() or AllKinds().
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace starling::kube {

struct ResourceKind {
  std::string_view group;  // empty: the core group
  std::string_view version;
  std::string_view kind;
  std::string_view plural;
  bool namespaced = true;
  bool has_status = false;  // the `status` subresource: status is written apart from the rest
  bool has_scale = false;   // the `scale` subresource
  bool optional = false;    // from a CRD that is not everywhere: ask KubeClient::Serves

  std::string ApiVersion() const;  // "group/version", or "version" in the core group

  friend bool operator==(const ResourceKind& a, const ResourceKind& b) {
    return a.group == b.group && a.plural == b.plural;
  }
};

inline constexpr ResourceKind kTrainingJob{.group = "starling.dev",
                                           .version = "v1alpha1",
                                           .kind = "TrainingJob",
                                           .plural = "trainingjobs",
                                           .has_status = true,
                                           .has_scale = true};
inline constexpr ResourceKind kTrainingTemplate{.group = "starling.dev",
                                                .version = "v1alpha1",
                                                .kind = "TrainingTemplate",
                                                .plural = "trainingtemplates"};
inline constexpr ResourceKind kPod{
    .group = "", .version = "v1", .kind = "Pod", .plural = "pods", .has_status = true};
inline constexpr ResourceKind kService{
    .group = "", .version = "v1", .kind = "Service", .plural = "services", .has_status = true};
inline constexpr ResourceKind kSecret{
    .group = "", .version = "v1", .kind = "Secret", .plural = "secrets"};
inline constexpr ResourceKind kConfigMap{
    .group = "", .version = "v1", .kind = "ConfigMap", .plural = "configmaps"};
inline constexpr ResourceKind kEvent{
    .group = "events.k8s.io", .version = "v1", .kind = "Event", .plural = "events"};
inline constexpr ResourceKind kPodDisruptionBudget{.group = "policy",
                                                   .version = "v1",
                                                   .kind = "PodDisruptionBudget",
                                                   .plural = "poddisruptionbudgets",
                                                   .has_status = true};
inline constexpr ResourceKind kLease{
    .group = "coordination.k8s.io", .version = "v1", .kind = "Lease", .plural = "leases"};

inline constexpr ResourceKind kResourceQuota{.group = "",
                                             .version = "v1",
                                             .kind = "ResourceQuota",
                                             .plural = "resourcequotas",
                                             .has_status = true};
inline constexpr ResourceKind kPersistentVolumeClaim{.group = "",
                                                     .version = "v1",
                                                     .kind = "PersistentVolumeClaim",
                                                     .plural = "persistentvolumeclaims",
                                                     .has_status = true};
inline constexpr ResourceKind kServiceAccount{
    .group = "", .version = "v1", .kind = "ServiceAccount", .plural = "serviceaccounts"};
inline constexpr ResourceKind kEndpointSlice{.group = "discovery.k8s.io",
                                             .version = "v1",
                                             .kind = "EndpointSlice",
                                             .plural = "endpointslices"};

// Of the whole cluster, in no namespace.
inline constexpr ResourceKind kClusterTrainingTemplate{.group = "starling.dev",
                                                       .version = "v1alpha1",
                                                       .kind = "ClusterTrainingTemplate",
                                                       .plural = "clustertrainingtemplates",
                                                       .namespaced = false};
inline constexpr ResourceKind kNode{.group = "",
                                    .version = "v1",
                                    .kind = "Node",
                                    .plural = "nodes",
                                    .namespaced = false,
                                    .has_status = true};
inline constexpr ResourceKind kNamespace{.group = "",
                                         .version = "v1",
                                         .kind = "Namespace",
                                         .plural = "namespaces",
                                         .namespaced = false,
                                         .has_status = true};
inline constexpr ResourceKind kPriorityClass{.group = "scheduling.k8s.io",
                                             .version = "v1",
                                             .kind = "PriorityClass",
                                             .plural = "priorityclasses",
                                             .namespaced = false};
inline constexpr ResourceKind kValidatingWebhookConfiguration{
    .group = "admissionregistration.k8s.io",
    .version = "v1",
    .kind = "ValidatingWebhookConfiguration",
    .plural = "validatingwebhookconfigurations",
    .namespaced = false};
inline constexpr ResourceKind kMutatingWebhookConfiguration{
    .group = "admissionregistration.k8s.io",
    .version = "v1",
    .kind = "MutatingWebhookConfiguration",
    .plural = "mutatingwebhookconfigurations",
    .namespaced = false};
inline constexpr ResourceKind kCustomResourceDefinition{.group = "apiextensions.k8s.io",
                                                        .version = "v1",
                                                        .kind = "CustomResourceDefinition",
                                                        .plural = "customresourcedefinitions",
                                                        .namespaced = false,
                                                        .has_status = true};

// Of other projects, where they are installed.
inline constexpr ResourceKind kCoschedulingPodGroup{.group = "scheduling.x-k8s.io",
                                                    .version = "v1alpha1",
                                                    .kind = "PodGroup",
                                                    .plural = "podgroups",
                                                    .has_status = true,
                                                    .optional = true};
inline constexpr ResourceKind kVolcanoPodGroup{.group = "scheduling.volcano.sh",
                                               .version = "v1beta1",
                                               .kind = "PodGroup",
                                               .plural = "podgroups",
                                               .has_status = true,
                                               .optional = true};
inline constexpr ResourceKind kNativePodGroup{.group = "scheduling.k8s.io",
                                              .version = "v1alpha2",
                                              .kind = "PodGroup",
                                              .plural = "podgroups",
                                              .has_status = true,
                                              .optional = true};
inline constexpr ResourceKind kKueueWorkload{.group = "kueue.x-k8s.io",
                                             .version = "v1beta1",
                                             .kind = "Workload",
                                             .plural = "workloads",
                                             .has_status = true,
                                             .optional = true};

// All of the above that one machine has too.
const std::vector<ResourceKind>& KnownKinds();

// Of those, the ones whose objects have owners: what the garbage collector looks at.
const std::vector<ResourceKind>& OwnedKinds();

// Every kind above.
const std::vector<ResourceKind>& AllKinds();

// The kind that an owner reference's apiVersion and kind name, or null.
const ResourceKind* FindKind(std::string_view api_version, std::string_view kind);

}  // namespace starling::kube
