// SPDX-License-Identifier: Apache-2.0
#include "controller/trainingjob/pass.h"

#include <algorithm>

namespace starling::trainingjob {

bool Pass::Finished() const {
  return ConditionStatus(status, "Succeeded") == "True" ||
         ConditionStatus(status, "Failed") == "True";
}

absl::Duration Pass::AgeOf(const ObservedPod& pod) const {
  return std::max(absl::ZeroDuration(), now - std::max(pod.started, pod.created));
}

bool Pass::Usable(const ObservedPod& pod) const { return pod.Live() && !deleted.contains(pod.uid); }

std::vector<const ObservedPod*> Pass::UsablePods(Role role) const {
  std::vector<const ObservedPod*> pods;
  for (const ObservedPod& pod : observed.pods) {
    if (pod.role == role && Usable(pod)) pods.push_back(&pod);
  }
  std::sort(pods.begin(), pods.end(), [](const ObservedPod* a, const ObservedPod* b) {
    return std::pair(a->index, a->name) < std::pair(b->index, b->name);
  });
  return pods;
}

std::vector<const ObservedPod*> Pass::UsableMembers() const {
  std::vector<const ObservedPod*> members = UsablePods(Role::kParameterServer);
  for (const ObservedPod* worker : UsablePods(Role::kWorker)) members.push_back(worker);
  return members;
}

std::vector<const ObservedPod*> Pass::StayingPods(Role role) const {
  std::vector<const ObservedPod*> pods = UsablePods(role);
  std::erase_if(pods, [this](const ObservedPod* pod) { return leaving.contains(pod->uid); });
  return pods;
}

const ObservedLink* Pass::LinkOf(const ObservedPod* pod) const {
  for (const auto* link : {&observed.link, &observed.second_link}) {
    if (pod != nullptr && link->has_value() && (*link)->pod_uid == pod->uid) return &**link;
  }
  return nullptr;
}

const v1alpha1::CoordinatorReport* Pass::ReportOf(const ObservedPod* pod) const {
  const ObservedLink* link = LinkOf(pod);
  return link == nullptr || !link->heard ? nullptr : &link->report;
}

const ObservedNode* Pass::NodeOf(const ObservedPod& pod) const {
  const auto node = observed.nodes.find(pod.node);
  return pod.node.empty() || node == observed.nodes.end() ? nullptr : &node->second;
}

void Pass::Event(bool warning, std::string_view reason, std::string_view action, std::string note) {
  decision.actions.push_back(
      EmitEvent{warning, std::string(reason), std::string(action), std::move(note)});
}

void Pass::Delete(const ObservedPod& pod, std::optional<std::int64_t> grace_seconds) {
  if (!deleted.insert(pod.uid).second) return;
  decision.actions.push_back(DeletePod{pod.name, pod.uid, grace_seconds});
}

void Pass::RequeueAfter(absl::Duration delay) {
  decision.requeue_after = std::min(decision.requeue_after, std::max(delay, absl::Milliseconds(1)));
}

bool Pass::PutOff(absl::Duration delay) {
  if (delay <= absl::ZeroDuration()) return false;
  decision.delayed = true;
  RequeueAfter(delay);
  return true;
}

const v1alpha1::Condition* FindCondition(const v1alpha1::TrainingJobStatus& status,
                                         std::string_view type) {
  for (const v1alpha1::Condition& condition : status.conditions()) {
    if (condition.type() == type) return &condition;
  }
  return nullptr;
}

std::string_view ConditionStatus(const v1alpha1::TrainingJobStatus& status, std::string_view type) {
  const v1alpha1::Condition* condition = FindCondition(status, type);
  return condition == nullptr ? std::string_view() : std::string_view(condition->status());
}

bool SetCondition(Pass& pass, std::string_view type, std::string_view value,
                  std::string_view reason, std::string message) {
  v1alpha1::Condition* condition = nullptr;
  for (v1alpha1::Condition& candidate : *pass.status.mutable_conditions()) {
    if (candidate.type() == type) condition = &candidate;
  }
  if (condition == nullptr) {
    condition = pass.status.add_conditions();
    condition->set_type(std::string(type));
  }
  const bool moved = condition->status() != value;
  if (moved) {
    condition->set_status(std::string(value));
    SetTime(condition->mutable_last_transition_time(), pass.now);
  }
  condition->set_reason(std::string(reason));
  condition->set_message(std::move(message));
  condition->set_observed_generation(pass.observed.generation);
  return moved;
}

absl::Time ToTime(const google::protobuf::Timestamp& stamp) {
  return absl::FromUnixSeconds(stamp.seconds()) + absl::Nanoseconds(stamp.nanos());
}

void SetTime(google::protobuf::Timestamp* stamp, absl::Time time) {
  const std::int64_t seconds = absl::ToUnixSeconds(time);
  stamp->set_seconds(seconds);
  stamp->set_nanos(
      static_cast<std::int32_t>(absl::ToInt64Nanoseconds(time - absl::FromUnixSeconds(seconds))));
}

}  // namespace starling::trainingjob
