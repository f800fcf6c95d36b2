// SPDX-License-Identifier: Apache-2.0
// What is wrong with pods and nodes, as one condition with reason and remedy: Degraded.
//
// A job that trains may be degraded all the same: with fewer workers than are wanted. Of several
// problems the one that comes first in kRanking is told. The message is written once for a reason
// and a number of pods: kubelets and schedulers change their words all the time, and each change
// would be a write.
#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "controller/trainingjob/policies.h"

namespace starling::trainingjob {
namespace {

constexpr char kDegraded[] = "Degraded";
constexpr std::size_t kLongestDetail = 600;
// Names are taken for a moment by pods of an earlier job of that name.
constexpr int kPassing = 4;

constexpr std::string_view kRanking[] = {
    kQuotaExceeded,       kPodForbidden, kNameTaken,       kNamesUnpublished,    kImagePullFailed,
    kContainerNotCreated, kOutOfMemory,  kUnschedulable,   kSchedulingGated,     kWorkerRefused,
    kServerRefused,       kNodeLost,     kUnderReplicated, kPodStuckTerminating, kSchedulingIgnored,
    kSingleCopy,          kExportFailing};

// What has this reason, each with a detail; a map, so that the order is always the same.
using Found = std::map<std::string_view, std::map<std::string, std::string>>;

bool NodeIsLost(const ObservedNode* node) {
  return node != nullptr && (!node->exists || !node->ready);
}

void FindInPod(Pass& pass, const ObservedPod& pod, Found& found) {
  if (pod.Terminated()) return;
  const ObservedNode* node = pass.NodeOf(pod);
  if (NodeIsLost(node)) {
    found[kNodeLost][pod.node] = node->exists ? "it does not answer" : "it is gone";
    return;
  }
  if (pod.terminating) {
    const absl::Time stuck = pod.deletion_due + pass.options.stuck_grace;
    if (pass.now < stuck) {
      pass.RequeueAt(stuck);
    } else {
      found[kPodStuckTerminating][pod.name] =
          pod.node.empty() ? "it has no node" : absl::StrCat("on ", pod.node);
    }
    return;
  }
  if (!pod.problem.has_value() || pass.deleted.contains(pod.uid)) return;
  const absl::Time tell = pod.problem->since + pass.options.problem_grace;
  if (pass.now < tell) {
    pass.RequeueAt(tell);
  } else {
    found[pod.problem->reason][pod.name] = pod.problem->message;
  }
}

// Kills for want of memory that nothing is done about.
void FindOutOfMemory(const Pass& pass, Found& found) {
  if (pass.status.failures() == 0) return;
  const v1alpha1::Incident* last = nullptr;
  for (const v1alpha1::Incident& incident : pass.status.incidents()) {
    if (incident.has_exit_code()) last = &incident;
  }
  if (last != nullptr && last->reason() == "OOMKilled") {
    found[kOutOfMemory][last->pod()] = last->message();
  }
}

std::string_view RefusalOf(const Pass& pass, const v1alpha1::MemberStatus& member) {
  const auto& pods = pass.observed.pods;
  const bool server = std::any_of(pods.begin(), pods.end(), [&](const ObservedPod& pod) {
    return pod.uid == member.id().pod_uid() && pod.role == Role::kParameterServer;
  });
  return server ? kServerRefused : kWorkerRefused;
}

// Of each part of the model there are as many copies as there are servers, at most.
void FindTooFewServers(const Pass& pass, Found& found) {
  const std::int64_t servers = WantedServers(pass).replicas;
  const std::int64_t copies = pass.observed.spec.exchange().parameter_server().replication();
  if (!pass.HasServers() || servers >= copies) return;
  found[kUnderReplicated][""] =
      absl::StrCat("replication is ", copies, ", replicas of the parameter servers ", servers);
}

// With one copy and snapshots that go with the pod, the pod's end is the end of what it holds.
void FindSingleCopy(const Pass& pass, Found& found) {
  const std::int64_t copies = pass.observed.spec.exchange().parameter_server().replication();
  if (!pass.HasServers() || copies > 1 || pass.observed.checkpoint_durable) return;
  const std::string& uri = pass.observed.spec.checkpoint().uri();
  found[kSingleCopy][""] = absl::StrCat(
      "exchange.parameterServer.replication is 1, and checkpoint.uri is ",
      uri.empty() ? "not set"
                  : absl::StrCat(uri, ", which no lasting volume of both templates holds"));
}

Found FindAll(Pass& pass) {
  Found found;
  for (const ObservedPod& pod : pass.observed.pods) FindInPod(pass, pod, found);
  FindOutOfMemory(pass, found);
  FindTooFewServers(pass, found);
  FindSingleCopy(pass, found);
  for (const auto* refusal : {&pass.observed.refusal, &pass.observed.slices_refused}) {
    if (!refusal->has_value()) continue;
    const Refusal& what = **refusal;
    const bool may_pass = what.reason == kNameTaken && what.attempts <= kPassing;
    if (!may_pass) found[what.reason][""] = what.message;
  }
  if (const std::string& warning = pass.observed.queueing.warning; !warning.empty()) {
    found[kSchedulingIgnored][""] = warning;
  }
  if (pass.report != nullptr) {
    if (const std::string& why = pass.report->export_problem(); !why.empty()) {
      found[kExportFailing][""] = why;
    }
    for (const v1alpha1::MemberStatus& member : pass.report->members()) {
      const bool refused = !member.refused().empty() && !member.in_view();
      if (refused) found[RefusalOf(pass, member)][member.pod()] = member.refused();
    }
  }
  return found;
}

void Tell(Pass& pass, std::string_view reason, const std::map<std::string, std::string>& details) {
  const std::string headline =
      absl::StrCat(std::string(MeaningOf(reason)),
                   details.size() > 1 ? absl::StrCat(" (", details.size(), " times): ") : ": ");
  const v1alpha1::Condition* known = FindCondition(pass.status, kDegraded);
  const bool told = known != nullptr && known->status() == "True" && known->reason() == reason;
  if (told && known->message().starts_with(headline)) return;
  const auto& [who, detail] = *details.begin();
  std::string message = headline;
  if (!who.empty()) absl::StrAppend(&message, who, ": ");
  absl::StrAppend(&message, detail.substr(0, kLongestDetail));
  absl::StrAppend(&message, "; ", std::string(RemedyOf(reason)));
  SetCondition(pass, kDegraded, "True", reason, message);
  if (!told) pass.Event(true, reason, "Wait", std::move(message));
}

}  // namespace

void FindProblems(Pass& pass, bool held) {
  const Found found = pass.Finished() || held ? Found() : FindAll(pass);
  for (const std::string_view reason : kRanking) {
    const auto problem = found.find(reason);
    if (problem == found.end()) continue;
    Tell(pass, reason, problem->second);
    return;
  }
  if (FindCondition(pass.status, kDegraded) != nullptr) {
    SetCondition(pass, kDegraded, "False", kNoProblem, "");
  }
}

}  // namespace starling::trainingjob
