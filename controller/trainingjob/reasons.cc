// SPDX-License-Identifier: Apache-2.0
#include "controller/trainingjob/reasons.h"

#include "absl/strings/str_cat.h"

namespace starling::trainingjob {
namespace {

constexpr ReasonRow kRows[] = {
    {"Created", "JobCreated", "the controller has taken the job", ""},

    {"Running", "Training", "workers train", ""},
    {"Running", "Starting", "training has not begun yet", "see the message for what it waits for"},
    {"Running", "Recovering", "training stopped and is brought back", ""},
    {"Running", "JobFinished", "the job has ended", ""},
    {"Running", "ControllerStopped", "the controller of this machine has ended, its pods too",
     "start it again; training goes on from the newest checkpoint"},
    {"Running", "JobSuspended", "the job is suspended", ""},

    {"Suspended", "Suspending", "a checkpoint is written, then the pods go", ""},
    {"Suspended", "JobSuspended", "no pod is left", "set spec.runPolicy.suspend to false to go on"},
    {"Suspended", "Queued", "a queue has no room for the job yet", "see the message"},
    {"Suspended", "WaitingForAdmissionChecks", "its quota is reserved, checks of the queue go on",
     "see the message"},
    {"Suspended", "Evicted", "the queue has taken its quota back for others",
     "nothing: it goes on when there is quota again"},
    {"Suspended", "JobResumed", "training goes on", ""},

    {"Succeeded", "TrainingFinished", "training has come to its end", ""},
    {"Succeeded", "WorkersSucceeded", "the containers have ended well, as successPolicy asks", ""},
    {"Suspended, Succeeded", kCheckpointNotDurable,
     "checkpoints lie on disks that go with the pods: after a suspension training begins at step "
     "0, "
     "after the end the model is not kept",
     "set spec.checkpoint.uri to s3://bucket/prefix, or to a path on a PersistentVolumeClaim that "
     "the worker's template mounts; with exchange.parameterServer the parameter servers' template "
     "too"},

    {"Suspended", kCheckpointNotWritten,
     "no checkpoint could be written before the pods had to go: steps since the newest one are "
     "lost",
     "make room at the path that the message names and make it writable for the pods' user, or set "
     "spec.checkpoint.uri to another place while the job is suspended; why it failed is in the "
     "logs of the pods and of its storage"},

    {"Failed", kInvalidSpec, "the spec is wrong, or the API server refuses the pods made from it",
     "correct the field that the message names and create the job again"},
    {"Failed", "TrainingFailed", "training itself gave up", "see the message"},
    {"Failed", "BadConfiguration", "a process cannot run with this configuration or data",
     "correct what the message names; trying again cannot help"},
    {"Failed", "PodFailed", "a pod ended in a way that its restartPolicy does not restart",
     "see the message, or choose restartPolicy: OnFailure"},
    {"Failed", "BackoffLimitExceeded", "pods failed again and again without a step between them",
     "see the last failure in the message; raise backoffLimit if failures are to be expected"},
    {"Failed", "DeadlineExceeded", "the job was active for longer than activeDeadlineSeconds",
     "raise spec.runPolicy.activeDeadlineSeconds"},

    {"Degraded", kQuotaExceeded, "the namespace's quota does not allow more pods",
     "raise the ResourceQuota, ask for less, or end other jobs; it is tried again by itself"},
    {"Degraded", kPodForbidden, "the API server does not allow the job's objects",
     "see the message: admission policies, pod security, or the controller's own rights; it is "
     "tried again by itself"},
    {"Degraded", kNameTaken,
     "an object of another owner has the name that an object of this job would get",
     "delete that object or choose another name for the job"},
    {"Degraded", kNamesUnpublished,
     "the API server does not take the EndpointSlices by which the pods' names are known",
     "see the message: the controller's rights over endpointslices (and "
     "endpointslices/restricted), "
     "a quota, an address that others cannot use; it is tried again by itself"},
    {"Degraded", kImagePullFailed, "an image cannot be pulled",
     "check its name and tag, the registry, and imagePullSecrets in the template; the kubelet "
     "tries again by itself"},
    {"Degraded", kContainerNotCreated, "a container cannot be created",
     "see the message: often a Secret, ConfigMap or key that the template names is not there"},
    {"Degraded", kUnschedulable, "no node has room, or is of the kind that is asked for",
     "free or add nodes, ask for less, or lower minReplicas; the job trains with as many workers "
     "as have a place once there are minReplicas"},
    {"Degraded", kSchedulingGated, "a queue or a gang scheduler holds the pods back",
     "wait for its turn, or see the queue"},
    {"Degraded", kNodeLost, "a node does not answer, or is gone",
     "nothing, if it comes back; if it does not, delete the Node object, so that its pods are "
     "known "
     "to have ended"},
    {"Degraded", kPodStuckTerminating, "a pod has not ended though its grace period is over",
     "look at its finalizers and at the kubelet of its node; its replacement does not wait for it"},
    {"Degraded", kSchedulingIgnored,
     "what the job or the administrator asks of a scheduler or a queue cannot be had here; the job "
     "goes on without it",
     "install what the message names, or take the label or the controller's flag away"},
    {"Degraded", kWorkerRefused, "a worker is not admitted to training",
     "see the message, often that nodes are of different kinds"},
    {"Degraded", kServerRefused, "a parameter server is not admitted to training",
     "see the message, often that it serves the tables of another model or data set"},
    {"Degraded", kUnderReplicated, "the job wants fewer parameter servers than copies",
     "raise replicaSpecs.parameterServer.replicas, or lower exchange.parameterServer.replication "
     "while the job is suspended; until then a server that dies may take what it holds with it"},
    {"Degraded", kSingleCopy,
     "what a parameter server holds is nowhere else: there is one copy, and its snapshots lie on a "
     "disk that goes with its pod, so that its part of the model begins anew when the pod is lost",
     "set spec.checkpoint.uri to s3://bucket/prefix or to a path on a PersistentVolumeClaim that "
     "the "
     "templates of workers and parameter servers mount, or exchange.parameterServer.replication to "
     "2"},
    {"Degraded", kExportFailing,
     "metrics do not get to where spec.export wants them told; training goes on",
     "see the message; status, history and Prometheus have them all the same"},
    {"Degraded", kOutOfMemory, "pods are killed because they need more memory than they may use",
     "raise resources.limits.memory in the template of their role, or set onOutOfMemory and its "
     "maximum"},
    {"Degraded", kNoProblem, "nothing is wrong with pods and nodes", ""},
    {"StandbyReady", "StandsBy",
     "a second coordinator leads within seconds where the first falls silent", ""},
    {"StandbyReady", "StandbyStarting", "the second coordinator cannot take over yet", ""},

    {"incident", "WorkerFailed", "a worker's pod ended with an error", "see its exit code and log"},
    {"incident", "WorkerLost", "a worker's process ended or fell silent", ""},
    {"incident", "WorkerSilent", "a worker stopped answering, though its connection stands", ""},
    {"incident", "WorkerHung", "a worker answered, but its step did not end; it was replaced",
     "see the stacks of its threads at the end of its log, and the message for where it stood"},
    {"incident", "WorkerUnreachable", "other workers could not reach it", "look at the network"},
    {"incident", "WorkerLeftEarly", "a worker ended well though it was not told to", ""},
    {"incident", "WorkerEvicted", "a worker's pod was evicted", ""},
    {"incident", "WorkerPreempted", "a worker's pod made room for one of higher priority", ""},
    {"incident", "ParameterServerFailed", "a parameter server's pod ended with an error",
     "see its exit code and log"},
    {"incident", "ParameterServerLost", "a parameter server's process ended or fell silent", ""},
    {"incident", "ParameterServerSilent",
     "a parameter server stopped answering, though its connection stands", ""},
    {"incident", "ParameterServerHung",
     "a parameter server answered its coordinator, but served nobody; it was replaced",
     "see the stacks of its threads at the end of its log"},
    {"incident", "ParameterServerUnreachable", "others could not reach it", "look at the network"},
    {"incident", "ParameterServerLeftEarly",
     "a parameter server ended well though it was not told to", ""},
    {"incident", "ParameterServerEvicted", "a parameter server's pod was evicted", ""},
    {"incident", "ParameterServerPreempted", "its pod made room for one of higher priority", ""},
    {"incident", "CoordinatorFailed", "the coordinator's pod ended with an error",
     "see its exit code and log"},
    {"incident", "CoordinatorLost", "the coordinator fell silent and was replaced", ""},
    {"incident", "CoordinatorRestarted", "the coordinator's process was started again", ""},
    {"incident", "CoordinatorTakenOver",
     "the coordinator that stood by leads: the one before fell silent, and no controller had to "
     "say "
     "so",
     ""},
    {"incident", "StandbyLost", "the coordinator that stood by fell silent and was replaced", ""},
    {"incident", "CoordinatorLeftEarly", "the coordinator ended though it was not told to", ""},
    {"incident", "CoordinatorEvicted", "the coordinator's pod was evicted", ""},
    {"incident", "CoordinatorPreempted", "its pod made room for one of higher priority", ""},
    {"incident", "OOMKilled", "a process was killed because it used more memory than it may",
     "raise resources.limits.memory, or set onOutOfMemory"},
    {"incident", "StepsAtRisk", "silent workers count as ended; steps only they know may be lost",
     ""},
    {"incident", "StepsLost",
     "all who held the newest state have ended: training went on from an older one",
     "shorten checkpoint.interval to lose fewer, or run workers on more nodes; from step 0 means "
     "that there was no checkpoint"},

    {"event", "PodsCreated", "pods were made", ""},
    {"event", "Running", "training runs", ""},
    {"event", "Restarting", "training stopped and is brought back", ""},
    {"event", "Resumed", "a suspended job goes on", ""},
    {"event", "Suspended", "a job is suspended", ""},
    {"event", "ReplicasBounded", "fewer or more workers or servers than asked for, by a bound", ""},
    {"event", "MemoryRaised", "pods of a role get more memory after a kill for want of it", ""},
    {"event", "NodeAvoided", "pods are kept away from a node for a while", ""},
    {"event", "RoundStarted", "all containers are started again with a new environment", ""},
};

const ReasonRow* Find(std::string_view reason) {
  for (const ReasonRow& row : kRows) {
    if (row.reason == reason) return &row;
  }
  return nullptr;
}

}  // namespace

std::span<const ReasonRow> Reasons() { return kRows; }

std::string_view MeaningOf(std::string_view reason) {
  const ReasonRow* row = Find(reason);
  return row == nullptr ? std::string_view() : row->meaning;
}

std::string_view RemedyOf(std::string_view reason) {
  const ReasonRow* row = Find(reason);
  return row == nullptr ? std::string_view() : row->remedy;
}

std::string ReasonsAsMarkdown() {
  std::string text = "| Where | Reason | What it means | What to do |\n| --- | --- | --- | --- |\n";
  for (const ReasonRow& row : kRows) {
    absl::StrAppend(&text, "| ", std::string(row.where), " | `", std::string(row.reason), "` | ",
                    std::string(row.meaning), " | ");
    absl::StrAppend(&text, std::string(row.remedy), " |\n");
  }
  return text;
}

}  // namespace starling::trainingjob
