// SPDX-License-Identifier: Apache-2.0
// The policies that make up a decision, in the order in which decide.cc applies them.
//
// Each reads what is observed and adds to the Pass; none depends on another except through it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "controller/trainingjob/pass.h"
#include "controller/trainingjob/reasons.h"

namespace starling::trainingjob {

// Reasons of incidents that condemn a pod.
inline constexpr std::string_view kCoordinatorLost = "CoordinatorLost";
inline constexpr std::string_view kWorkerLost = "WorkerLost";
inline constexpr std::string_view kServerLost = "ParameterServerLost";
inline constexpr std::string_view kStandbyLost = "StandbyLost";

// coordinator.cc: which pod leads, which incarnation it has, whether it has fallen silent.
void FindLeader(Pass& pass);
void GrantIncarnation(Pass& pass);
void GiveUpSilentCoordinator(Pass& pass);
void GiveUpCoordinator(Pass& pass, const std::string& why);
// The number that nobody has been granted yet.
std::int64_t NextIncarnation(const v1alpha1::CoordinatorGrant& grant);
// So long the stream to a coordinator's pod may be silent.
absl::Duration SilenceLimit(const Pass& pass, const ObservedPod& pod, bool heard);

// standby.cc: spec.replicaSpecs.coordinator.standby, a coordinator that leads without being told.
bool WantsStandby(const Pass& pass);
// One that leads by now is told of in the status.
void PromoteStandby(Pass& pass);
// Its process, as the status has it, leads by itself, or has not been heard yet: nobody else is
// granted anything meanwhile.
bool StandbyMayLead(Pass& pass, const ObservedPod& pod);
// Whether a coordinator's pod that does not lead can stand by.
bool FitsAsStandby(const Pass& pass, const ObservedPod& pod);
void GiveUpSilentStandby(Pass& pass);
void GrantStandby(Pass& pass);
void EnsureStandby(Pass& pass);
void SetStandbyReady(Pass& pass);

// progress.cc: what an accepted report says of training; newest view.
void TakeProgress(Pass& pass);

// disruption.cc: pods that are about to be taken away: told of in time, handed over, replaced.
void FindLeaving(Pass& pass);
void ReplaceLeavingCoordinator(Pass& pass);

// The kubelet of a node that is gone confirms nothing any more: its pods have ended.
void ReleaseGoneNodes(Pass& pass);

// problems.cc: what keeps pods from running, as the condition Degraded.
void FindProblems(Pass& pass, bool held);

// memory.cc: onOutOfMemory. What new pods of the role get; empty: what their template says.
std::string RaisedMemory(const Pass& pass, Role role);
// The pod was killed for want of memory. Returns what is done about it, for people; nothing: no
// more can be given.
std::optional<std::string> RaiseMemory(Pass& pass, const ObservedPod& pod);

// placement.cc: nodes that new pods are kept away from.
std::vector<std::string> NodesToAvoid(const Pass& pass);
void NoteFailureOn(Pass& pass, const ObservedPod& pod);   // a pod failed there
void NoteSilenceOf(Pass& pass, const std::string& node);  // the node itself seems to be gone
void ForgetNodes(Pass& pass);
// A pod that finds no place because it avoids nodes that it need not avoid any more is made anew.
void RetryAvoidingPods(Pass& pass);

// container_job.cc: jobs that bring their own container.
void SucceedWithWorkers(Pass& pass);
void RunContainerJob(Pass& pass);
bool RoundRuns(const Pass& pass);
// Whether the pod's end is fallout of a round that has been given up.
bool IsOfFormerRound(const Pass& pass, const ObservedPod& pod);

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
void FailInvalidSpec(Pass& pass);  // finish.cc
// A sentence to be added to a message where checkpoints go with the pods; empty: they do not.
std::string DurabilityWarning(const Pass& pass);  // finish.cc
void SucceedWithResult(Pass& pass);               // success.cc
void FailWithTraining(Pass& pass);                // success.cc
void FailByRestartPolicy(Pass& pass);             // restart.cc
void FailByBackoffLimit(Pass& pass);              // backoff_limit.cc
void FailByDeadline(Pass& pass);                  // deadline.cc

// deadline.cc: seconds of activity up to now, suspension not counted.
double ActiveSeconds(const Pass& pass);

// endpoints.cc: pods' names and addresses.
void PublishEndpoints(Pass& pass);

// clean_pod_policy.cc, ttl.cc: after the end.
void CleanPods(Pass& pass);
void ExpireJob(Pass& pass);

// suspend.cc: returns whether the job is held, that is, whether no pod may be made.
bool HoldSuspended(Pass& pass);
// Deletes the pods, members first: they leave in order only while the coordinator lives.
void DeleteAllPods(Pass& pass);

// resources of an active job.
void EnsureObjects(Pass& pass);  // objects.cc: secret, service, frozen spec
std::int64_t ConfigGeneration(const Pass& pass);
void GiveUpSilentMembers(Pass& pass);           // restart.cc
void RemoveEndedPods(Pass& pass);               // restart.cc
absl::Duration RestartDelay(const Pass& pass);  // backoff_limit.cc: until pods may be replaced
// backoff_limit.cc: until what was refused is tried again.
absl::Duration RefusalDelay(const std::optional<Refusal>& refusal, absl::Time now);
absl::Duration RefusalDelay(const Pass& pass);                                // of actions
void EnsureCoordinator(Pass& pass);                                           // scaling.cc
void MakePod(Pass& pass, Role role, std::int64_t index, const World& world);  // scaling.cc
// New pods wait while replacements fail or are refused; returns whether they do.
bool IsDelayed(Pass& pass);  // scaling.cc
// The n lowest indexes that no pod has. A pod keeps its index until it is gone; one that has ended
// and is deleted in this pass is.
std::vector<std::int64_t> FreeIndexes(const Pass& pass, Role role, std::int64_t n);  // scaling.cc
void ScaleWorkers(Pass& pass);                                                       // scaling.cc
void ScaleServers(Pass& pass);                                                       // scaling.cc

// How many pods of a role the spec asks for within its bounds, and what bounds it, if anything
// does.
struct Wanted {
  std::int64_t replicas = 0;
  std::string limit;  // empty: spec.replicaSpecs.*.replicas itself
};
Wanted WantedWorkers(const v1alpha1::TrainingJobSpec& spec);
Wanted WantedWorkers(const Pass& pass);                       // the same, within what queues allow
Wanted WantedServers(const v1alpha1::TrainingJobSpec& spec);  // 0: the job has none
Wanted WantedServers(const Pass& pass);
// Puts the wanted number into the status, and tells of what bounds it.
void NoteWanted(Pass& pass, const Wanted& wanted);

// Nothing would be lost if the pods ended now.
bool IsAtRest(const Pass& pass);  // decide.cc

// checkpoint_request.cc: somebody asks for a checkpoint now.
void AnswerCheckpointRequest(Pass& pass);
// What is asked for and not yet in the status; empty: nothing.
std::string OpenCheckpointRequest(const Pass& pass);

// trace_request.cc: somebody asks for a timeline.
void AnswerTraceRequest(Pass& pass);
// What is asked for and not stored yet; empty: nothing.
std::string OpenTraceRequest(const Pass& pass);

// conditions.cc: conditions, state, counts.
void SetConditions(Pass& pass, bool held);

// desired.cc: what the coordinator is told.
void Supervise(Pass& pass);

}  // namespace starling::trainingjob
