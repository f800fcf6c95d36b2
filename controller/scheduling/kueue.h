// SPDX-License-Identifier: Apache-2.0
// Kueue: a job waits in a queue until there is quota for it.
//
// Kueue's own integrations are Go code inside its process; for everybody else there is its object
// Workload, which says what is needed and hears what is granted. A TrainingJob with the label
// kueue.x-k8s.io/queue-name has one, made and kept by us, wherever Kueue is installed. The job is
// held, as if suspended, until the Workload is admitted, and again when it is evicted; the job's
// own spec is never written to. spec.runPolicy.suspend gives the quota back (spec.active: false).
//
// Everything here is pure; scheduling.cc reads and writes.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "controller/kube/resource_kind.h"
#include "controller/scheduling/facts.h"
#include "controller/scheduling/scheduling.h"

namespace starling::scheduling {

inline constexpr std::string_view kQueueLabel = "kueue.x-k8s.io/queue-name";
inline constexpr std::string_view kWorkloadPriorityLabel = "kueue.x-k8s.io/priority-class";
// On the Workload: a digest of the podSets that we asked for. The API server adds defaults to pod
// templates, so that what comes back cannot be compared.
inline constexpr std::string_view kPodSetsAnnotation = "starling.dev/pod-sets";

inline constexpr kube::ResourceKind kResourceFlavor{.group = "kueue.x-k8s.io",
                                                    .version = "v1beta1",
                                                    .kind = "ResourceFlavor",
                                                    .plural = "resourceflavors",
                                                    .namespaced = false,
                                                    .optional = true};
inline constexpr kube::ResourceKind kWorkloadPriorityClass{.group = "kueue.x-k8s.io",
                                                           .version = "v1beta1",
                                                           .kind = "WorkloadPriorityClass",
                                                           .plural = "workloadpriorityclasses",
                                                           .namespaced = false,
                                                           .optional = true};

// What there is of it.
struct Queueing {
  std::optional<Json> workload = {};          // the object of that name, whoever it belongs to
  std::map<std::string, Json> flavors = {};   // the ResourceFlavors that FlavorsOf(workload) names
  std::optional<std::int64_t> priority = {};  // the value of PriorityClassOf(facts), if it is there
};

// By whose value the queue orders the job: Kueue's class that the job's label names; else that of
// the job's pods, from schedulingPolicy.priorityClass or the first template that names one.
struct PriorityClassRef {
  const kube::ResourceKind* kind = nullptr;
  std::string name;
};
std::optional<PriorityClassRef> PriorityClassOf(const JobFacts& facts);

// The queue that the job asks for; empty: none.
std::string QueueOf(const JobFacts& facts);
std::string WorkloadName(std::string_view job);

// The Workload as it should be made.
Json BuildWorkload(const JobFacts& facts, const Queueing& queueing);

// Names of the flavors that the admitted Workload's pods run on.
std::vector<std::string> FlavorsOf(const Json& workload);

// May the job run, and with how many workers?
Verdict QueueVerdict(const JobFacts& facts, const Queueing& queueing);

// What is to be written to the Workload; nothing if it is as it should be. At most one write at a
// time: the next is decided with what that one left.
std::vector<Write> QueueWrites(const JobFacts& facts, const Queueing& queueing, absl::Time now);

// What the pods of a role take over from the admission: node labels and tolerations of the flavors,
// and what admission checks ask for.
Json AdmissionPatch(const Queueing& queueing, std::string_view pod_set);

}  // namespace starling::scheduling
