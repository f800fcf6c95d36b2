// SPDX-License-Identifier: Apache-2.0
// The policies that make up a decision, in the order in which decide.cc applies them.
//
// Each reads what is observed and adds to the Pass; none depends on another except through it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "controller/trainingjob/pass.h"

namespace starling::trainingjob {

// Reasons of incidents that condemn a pod.
inline constexpr std::string_view kCoordinatorLost = "CoordinatorLost";
inline constexpr std::string_view kWorkerLost = "WorkerLost";

// coordinator.cc: which pod leads, which incarnation it has, whether it has fallen silent.
void FindLeader(Pass& pass);
void GrantIncarnation(Pass& pass);
void GiveUpSilentCoordinator(Pass& pass);

// progress.cc: what an accepted report says of training; newest view.
void TakeProgress(Pass& pass);

// incidents.cc: failures of pods, each once, and what the coordinator tells of its members.
void RecordIncidents(Pass& pass);
// Puts it on record, or adds what it knows to the one that is there. Returns whether the end of a
// process has become known by it.
bool AddIncident(Pass& pass, v1alpha1::Incident incident);
// Whether the end of this pod is on record.
bool IsRecorded(const v1alpha1::TrainingJobStatus& status, const ObservedPod& pod);
// Whether it is on record that this pod is given up for its silence: then it goes, even if another
// controller did not live to delete it.
bool IsCondemned(const v1alpha1::TrainingJobStatus& status, const ObservedPod& pod);
// Whether the end of this pod counts against backoffLimit.
bool IsFailure(const Pass& pass, const ObservedPod& pod);

// finish.cc: the end of a job. The first that applies decides.
void FinishJob(Pass& pass, bool succeeded, std::string_view reason, std::string message);
// Whether the job may train: nothing below it applies otherwise.
void FailInvalidSpec(Pass& pass);      // finish.cc
void SucceedWithResult(Pass& pass);    // success.cc
void FailWithTraining(Pass& pass);     // success.cc
void FailByRestartPolicy(Pass& pass);  // restart.cc
void FailByBackoffLimit(Pass& pass);   // backoff_limit.cc
void FailByDeadline(Pass& pass);       // deadline.cc

// deadline.cc: seconds of activity up to now, suspension not counted.
double ActiveSeconds(const Pass& pass);

// clean_pod_policy.cc, ttl.cc: after the end.
void CleanPods(Pass& pass);
void ExpireJob(Pass& pass);

// suspend.cc: returns whether the job is held, that is, whether no pod may be made.
bool HoldSuspended(Pass& pass);
// Deletes the pods, workers first: they leave in order only while the coordinator lives.
void DeleteAllPods(Pass& pass);

// resources of an active job.
void EnsureObjects(Pass& pass);  // objects.cc: secret, service, frozen spec
std::int64_t ConfigGeneration(const Pass& pass);
void GiveUpSilentWorkers(Pass& pass);           // restart.cc
void RemoveEndedPods(Pass& pass);               // restart.cc
absl::Duration RestartDelay(const Pass& pass);  // backoff_limit.cc: until pods may be replaced
void EnsureCoordinator(Pass& pass);             // scaling.cc
void ScaleWorkers(Pass& pass);                  // scaling.cc

// How many workers the spec asks for within its bounds, and what bounds it, if anything does.
struct Wanted {
  std::int64_t workers = 0;
  std::string limit;  // empty: spec.replicaSpecs.worker.replicas itself
};
Wanted WantedWorkers(const v1alpha1::TrainingJobSpec& spec);

// conditions.cc: conditions, state, counts.
void SetConditions(Pass& pass, bool held);

// desired.cc: what the coordinator is told.
void Supervise(Pass& pass);

}  // namespace starling::trainingjob
