// SPDX-License-Identifier: Apache-2.0
// Nodes that new pods are kept away from for a while.
//
// A node whose pods fell silent is avoided immediately, for a short time: until Kubernetes has
// noticed itself that it is gone. If this excludes every node on which the job has been, the cause
// is the network or the load and not a node, and no node is avoided: a pod without any place helps
// nobody. A node on which several pods failed is avoided for longer, but only while other members
// run elsewhere: otherwise it is the program that fails, not the node. The list in the status is
// all that is known, so any controller decides the same.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "controller/trainingjob/policies.h"

namespace starling::trainingjob {
namespace {

constexpr int kMostNodes = 64;

v1alpha1::AvoidedNode& EntryOf(Pass& pass, const std::string& node) {
  auto& nodes = *pass.status.mutable_avoided_nodes();
  for (v1alpha1::AvoidedNode& entry : nodes) {
    if (entry.name() == node) return entry;
  }
  if (nodes.size() >= kMostNodes) {
    const auto oldest =
        std::min_element(nodes.begin(), nodes.end(), [](const auto& a, const auto& b) {
          return ToTime(a.last_failure_time()) < ToTime(b.last_failure_time());
        });
    nodes.erase(oldest);
  }
  v1alpha1::AvoidedNode& entry = *nodes.Add();
  entry.set_name(node);
  entry.set_failures(0);
  return entry;
}

bool IsAvoided(const Pass& pass, const v1alpha1::AvoidedNode& entry) {
  return ToTime(entry.until()) > pass.now;  // one that is not set is long past
}

void Avoid(Pass& pass, v1alpha1::AvoidedNode& entry, absl::Duration time, std::string_view why) {
  const absl::Time until = pass.now + time;
  if (ToTime(entry.until()) >= until) return;
  const bool news = !IsAvoided(pass, entry);
  SetTime(entry.mutable_until(), until);
  if (!news) return;
  pass.Event(true, "NodeAvoided", "AvoidNode",
             absl::StrCat(entry.name(), ": ", std::string(why), "; new pods stay away from it for ",
                          absl::FormatDuration(time)));
}

// Whether a member of the job lives on a node that is none of these.
bool LivesBeyond(const Pass& pass, const std::vector<std::string>& nodes) {
  return std::ranges::any_of(pass.UsableMembers(), [&](const ObservedPod* pod) {
    return pod->phase == PodPhase::kRunning && !pod->node.empty() &&
           std::ranges::find(nodes, pod->node) == nodes.end();
  });
}

// Whether another node is avoided and no member of the job lives on one that is not.
bool IsLastPlace(const Pass& pass, const std::string& node) {
  std::vector<std::string> nodes = NodesToAvoid(pass);
  std::erase(nodes, node);
  if (nodes.empty()) return false;
  nodes.push_back(node);
  return !LivesBeyond(pass, nodes);
}

}  // namespace

void NoteFailureOn(Pass& pass, const ObservedPod& pod) {
  if (!pass.options.avoid_nodes || pod.node.empty()) return;
  v1alpha1::AvoidedNode& entry = EntryOf(pass, pod.node);
  const absl::Duration window = pass.options.failing_node_avoidance;
  if (ToTime(entry.last_failure_time()) + window < pass.now) entry.set_failures(0);
  entry.set_failures(entry.failures() + 1);
  SetTime(entry.mutable_last_failure_time(), pass.now);
  if (entry.failures() >= pass.options.failing_node_limit && LivesBeyond(pass, {pod.node})) {
    Avoid(pass, entry, window, absl::StrCat(entry.failures(), " pods failed there"));
  }
}

void NoteSilenceOf(Pass& pass, const std::string& node) {
  if (!pass.options.avoid_nodes || node.empty() || IsLastPlace(pass, node)) return;
  v1alpha1::AvoidedNode& entry = EntryOf(pass, node);
  SetTime(entry.mutable_last_failure_time(), pass.now);
  Avoid(pass, entry, pass.options.silent_node_avoidance, "a pod fell silent there");
}

std::vector<std::string> NodesToAvoid(const Pass& pass) {
  std::vector<std::string> nodes;
  if (!pass.options.avoid_nodes) return nodes;
  for (const v1alpha1::AvoidedNode& entry : pass.status.avoided_nodes()) {
    if (IsAvoided(pass, entry)) nodes.push_back(entry.name());
  }
  std::sort(nodes.begin(), nodes.end());
  return nodes;
}

void ForgetNodes(Pass& pass) {
  auto& nodes = *pass.status.mutable_avoided_nodes();
  const auto old = [&pass](const v1alpha1::AvoidedNode& entry) {
    return ToTime(entry.last_failure_time()) + pass.options.failing_node_avoidance < pass.now &&
           !IsAvoided(pass, entry);
  };
  nodes.erase(std::remove_if(nodes.begin(), nodes.end(), old), nodes.end());
}

void RetryAvoidingPods(Pass& pass) {
  const std::vector<std::string> avoided = NodesToAvoid(pass);
  for (const ObservedPod& pod : pass.observed.pods) {
    const bool waits = pod.Live() && pod.node.empty() && pod.problem.has_value() &&
                       pod.problem->reason == kUnschedulable && !pod.avoids.empty();
    if (!waits) continue;
    absl::Time next = absl::InfiniteFuture();
    for (const v1alpha1::AvoidedNode& entry : pass.status.avoided_nodes()) {
      if (IsAvoided(pass, entry)) next = std::min(next, ToTime(entry.until()));
    }
    const bool needless =
        std::any_of(pod.avoids.begin(), pod.avoids.end(), [&](const std::string& node) {
          return !std::binary_search(avoided.begin(), avoided.end(), node);
        });
    if (needless) {
      pass.Reason(absl::StrCat(pod.name, " avoids a node that it need not avoid any more"));
      pass.Delete(pod, std::nullopt);
    } else if (next != absl::InfiniteFuture()) {
      pass.RequeueAt(next + absl::Milliseconds(1));
    }
  }
}

}  // namespace starling::trainingjob
