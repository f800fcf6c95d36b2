// SPDX-License-Identifier: Apache-2.0
// One decision in the making: what the policies read and what they add to.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "controller/resources/resources.h"
#include "controller/trainingjob/decide.h"

namespace starling::trainingjob {

// Confined to one Decide().
struct Pass {
  Pass(const Observed& seen, const Options& given, absl::Time time)
      : observed(seen), options(given), now(time), status(seen.status) {}

  const Observed& observed;
  const Options& options;
  const absl::Time now;
  v1alpha1::TrainingJobStatus status;  // the new one
  Decision decision;

  const ObservedPod* leader = nullptr;                  // the coordinator's pod
  const ObservedPod* standby = nullptr;                 // the pod of the one that waits to lead
  const v1alpha1::CoordinatorReport* report = nullptr;  // of the incarnation in the status
  std::set<std::string> leaving;                        // UIDs of live pods that soon must go
  std::set<std::string> deleted;                        // UIDs of pods deleted in this pass
  bool halt = false;                                    // training is to stop at a boundary

  bool Finished() const;
  // Whether the job brings its own container: then there is no coordinator.
  bool OwnContainer() const { return observed.spec.workload().has_container(); }
  bool HasServers() const { return resources::HasServers(observed.spec); }
  // The stream to a coordinator's pod; null: there is none.
  const ObservedLink* LinkOf(const ObservedPod* pod) const;
  // What was heard last from it; null: nothing.
  const v1alpha1::CoordinatorReport* ReportOf(const ObservedPod* pod) const;
  // Null: the pod has no place yet, or nodes are not watched.
  const ObservedNode* NodeOf(const ObservedPod& pod) const;
  // Since it was made or, later, started, which its node says: by a clock that may be ahead.
  absl::Duration AgeOf(const ObservedPod& pod) const;
  // Live and not given up.
  bool Usable(const ObservedPod& pod) const;
  // By index.
  std::vector<const ObservedPod*> UsablePods(Role role) const;
  // Workers and parameter servers.
  std::vector<const ObservedPod*> UsableMembers() const;
  // Of a role's, the ones that stay.
  std::vector<const ObservedPod*> StayingPods(Role role) const;

  void Reason(std::string sentence) { decision.reasons.push_back(std::move(sentence)); }
  void Event(bool warning, std::string_view reason, std::string_view action, std::string note);
  void Delete(const ObservedPod& pod, std::optional<std::int64_t> grace_seconds);
  void RequeueAfter(absl::Duration delay);
  // Whether what is wanted has to wait, for so long.
  bool PutOff(absl::Duration delay);
  void RequeueAt(absl::Time time) { RequeueAfter(time - now); }
};

// Conditions of the status.
const v1alpha1::Condition* FindCondition(const v1alpha1::TrainingJobStatus& status,
                                         std::string_view type);
// True, False, Unknown, or empty: there is no such condition.
std::string_view ConditionStatus(const v1alpha1::TrainingJobStatus& status, std::string_view type);
// The transition time moves only with the status. Returns whether the status moved.
bool SetCondition(Pass& pass, std::string_view type, std::string_view value,
                  std::string_view reason, std::string message);

absl::Time ToTime(const google::protobuf::Timestamp& stamp);
void SetTime(google::protobuf::Timestamp* stamp, absl::Time time);

}  // namespace starling::trainingjob
