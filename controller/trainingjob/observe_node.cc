// SPDX-License-Identifier: Apache-2.0
// Of a node, whether it answers, and whether it has been announced that it will go.
#include "absl/strings/str_cat.h"
#include "controller/kube/messages.h"
#include "controller/trainingjob/observe.h"

namespace starling::trainingjob {
namespace {

// Taints by which autoscalers and the agents of clouds announce a node's end, spot notices among
// them. The pods there are still alive, for seconds or minutes. Taints with the effect NoExecute
// need no entry: Kubernetes deletes the pods itself, with their grace period.
constexpr std::string_view kNotices[] = {
    "ToBeDeletedByClusterAutoscaler",
    "karpenter.sh/disrupted",
    "karpenter.sh/disruption",
    "aws-node-termination-handler/spot-itn",
    "aws-node-termination-handler/scheduled-maintenance",
    "aws-node-termination-handler/asg-lifecycle-termination",
    "aws-node-termination-handler/rebalance-recommendation",
    "cloud.google.com/impending-node-termination",
    "kubernetes.azure.com/scheduled-event",
    "node.cloudprovider.kubernetes.io/shutdown",
    "starling.dev/departing",
};

}  // namespace

ObservedNode ReadNode(const kubernetes::Node& node) {
  ObservedNode seen;
  seen.ready = kube::IsConditionTrue(node, "Ready");
  for (const kubernetes::Taint& taint : node.spec().taints()) {
    for (const std::string_view notice : kNotices) {
      if (taint.key() == notice) seen.departure = absl::StrCat("taint ", taint.key());
    }
  }
  if (kube::IsBeingDeleted(node)) seen.departure = "its object is being deleted";
  return seen;
}

}  // namespace starling::trainingjob
