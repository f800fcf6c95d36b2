// SPDX-License-Identifier: Apache-2.0
// The step of a reconcile that deals with other people's schedulers and queues.
//
// A reconciler calls it thrice: Look() before it decides, Settle() once the status is written,
// Decorate() for each pod that it creates.
//
//   ASSIGN_OR_RETURN(const scheduling::Plan plan, scheduling.Look(facts));
//   observed.scheduling = plan.verdict;             // hold like suspend; bound like maxReplicas
//   const Decision decision = Decide(observed, ...);
//   ... write the status ...
//   RETURN_IF_ERROR(scheduling.Settle(plan));       // groups and Workloads, before any pod
//   pod = scheduling::Decorate(plan, role, pod);    // where a pod is built
//   requeue = std::min(requeue, plan.requeue_after);
//
// What is decided is pure (gang.h, kueue.h); here are only the reads and writes.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/clock/clock.h"
#include "common/sync/mutex.h"
#include "controller/kube/kube_client.h"
#include "controller/scheduling/facts.h"
#include "controller/scheduling/gang.h"
#include "controller/scheduling/options.h"

namespace starling::scheduling {

struct Write {
  enum class Kind { kCreate, kPatch, kPatchStatus };
  Kind kind = Kind::kCreate;
  kube::ResourceKind resource;
  kube::ObjectKey key;
  Json body;
};

struct Plan {
  Verdict verdict;
  std::vector<Write> writes;
  Json pod_patch = Json::object();               // for every pod
  std::map<resources::Role, Json> role_patches;  // for the pods of a role
  absl::Duration requeue_after = absl::InfiniteDuration();
};

// Which fields of the job's schedulingPolicy have no effect where no gang scheduler is used, as a
// sentence; "" if the job gives none of them. `why` continues it: "none is installed here; ...".
// `driver` is the one that is used, if one is. A priority class needs none.
std::string IgnoredPolicy(const JobFacts& facts, const std::string& why,
                          const GangDriver* driver = nullptr);

// The same of a job on one machine, where processes start at once: no field has an effect.
std::string IgnoredOnOneMachine(const JobFacts& facts);

// `pod` with what schedulers and queues need to see on it. Labels, annotations and node selectors
// are added, tolerations appended; a schedulerName that the pod has stays.
Json Decorate(const Plan& plan, resources::Role role, Json pod);

// Thread-safe.
class Scheduling {
 public:
  // Both must outlive it.
  Scheduling(kube::KubeClient& client, const clock::Clock& clock, Options options)
      : client_(client), clock_(clock), options_(std::move(options)) {}

  // Reads what there is and says what it means. Costs no request for a job that asks for nothing
  // while nothing is installed, but for discovery once a minute.
  absl::StatusOr<Plan> Look(const JobFacts& facts);

  // Takes the writes of the plan. Aborted and AlreadyExists: somebody was faster; look again.
  absl::Status Settle(const Plan& plan);

  // Kinds whose changes a reconciler should hear of, by their controlling owner, where served:
  // group objects need none, Kueue's Workload does.
  static std::vector<kube::ResourceKind> Watched();

 private:
  struct Known {
    bool served = false;
    absl::Time asked = absl::InfinitePast();
  };

  absl::StatusOr<bool> Serves(const kube::ResourceKind& kind) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status LookAtGang(const JobFacts& facts, Plan& plan);
  absl::Status LookAtQueue(const JobFacts& facts, Plan& plan);

  kube::KubeClient& client_;
  const clock::Clock& clock_;
  const Options options_;
  sync::Mutex mutex_;
  std::map<std::string, Known> known_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace starling::scheduling
