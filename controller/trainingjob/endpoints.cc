// SPDX-License-Identifier: Apache-2.0
// Where the job's pods are, for those who look them up by name.
//
// Pods of a job come and end one after the other, and each change is a write that all of the
// cluster's DNS servers hear of. So changes are gathered for a second, except three: what completes
// the names of all pods, for others wait for them; that none is left; and that a pod is gone, for
// the next one of its name must not be taken for it.
#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "controller/trainingjob/policies.h"

namespace starling::trainingjob {
namespace {

using resources::PodEndpoint;
using resources::PodEndpoints;

PodEndpoints WantedEndpoints(const Pass& pass) {
  PodEndpoints wanted;
  for (const ObservedPod& pod : pass.observed.pods) {
    if (pod.Terminated()) continue;
    for (const std::string& address : pod.ips) {
      resources::AddEndpoint(
          pass.observed.job, pod.index,
          {.pod = pod.name, .uid = pod.uid, .host = pod.host, .node = pod.node, .address = address},
          wanted);
    }
  }
  for (auto& [name, endpoints] : wanted) std::ranges::sort(endpoints);
  return wanted;
}

// What makes the slices as wanted. Those that go come first: an earlier job's may have the name.
std::vector<SliceChange> Changes(const PodEndpoints& wanted,
                                 const std::vector<ObservedSlice>& there) {
  std::vector<SliceChange> changes;
  std::map<std::string_view, const ObservedSlice*> kept;
  for (const ObservedSlice& slice : there) {
    if (slice.own && wanted.contains(slice.name)) {
      kept[slice.name] = &slice;
    } else {
      changes.push_back({slice.name, slice.uid, {}});
    }
  }
  for (const auto& [name, endpoints] : wanted) {
    const auto slice = kept.find(name);
    if (slice == kept.end()) {
      changes.push_back({name, "", endpoints});
    } else if (slice->second->endpoints != endpoints) {
      changes.push_back({name, slice->second->uid, endpoints});
    }
  }
  return changes;
}

bool IsUrgent(const Observed& seen, const PodEndpoints& wanted) {
  std::set<PodEndpoint> told;
  for (const ObservedSlice& slice : seen.slices) {
    told.insert(slice.endpoints.begin(), slice.endpoints.end());
  }
  std::set<std::string_view> pods;
  bool all_have_addresses = true;
  for (const ObservedPod& pod : seen.pods) {
    pods.insert(pod.uid);
    if (!pod.Terminated() && pod.ips.empty()) all_have_addresses = false;
  }
  const bool one_is_gone = std::ranges::any_of(
      told, [&pods](const PodEndpoint& endpoint) { return !pods.contains(endpoint.uid); });
  const bool one_is_new = std::ranges::any_of(wanted, [&told](const auto& slice) {
    return std::ranges::any_of(
        slice.second, [&told](const PodEndpoint& endpoint) { return !told.contains(endpoint); });
  });
  return wanted.empty() || one_is_gone || (one_is_new && all_have_addresses);
}

}  // namespace

void PublishEndpoints(Pass& pass) {
  const Observed& seen = pass.observed;
  if (!pass.options.endpoints || !seen.has_service || seen.service_selects) return;
  const PodEndpoints wanted = WantedEndpoints(pass);
  std::vector<SliceChange> changes = Changes(wanted, seen.slices);
  if (changes.empty()) return;
  absl::Duration left = RefusalDelay(seen.slices_refused, pass.now);
  if (!IsUrgent(seen, wanted)) {
    const absl::Duration settle = pass.options.endpoints_settle;
    const absl::Time since = seen.endpoints_behind_since.value_or(pass.now);
    left = std::max(left, std::clamp(since + settle - pass.now, absl::ZeroDuration(), settle));
  }
  pass.decision.endpoints_behind = left > absl::ZeroDuration();
  if (pass.decision.endpoints_behind) return pass.RequeueAfter(left);
  pass.decision.slices = std::move(changes);
}

}  // namespace starling::trainingjob
