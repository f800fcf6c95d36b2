// SPDX-License-Identifier: Apache-2.0
// Runs the Pods of the store as processes of this machine: local mode's node.
//
// A pod becomes one process group whose first process is the container's command (our supervisor,
// normally), with an address 127.x.y.z of its own, its volumes as files in its folder, and its fate
// written into the pod's status: what a kubelet does, without images and isolation. All that it
// knows is in the store and in the pods' folders, so it may be killed at any instant; its successor
// adopts the pods that still run (by pid, start time and pidfd) and reads the exit records of those
// that ended meanwhile. A pod that vanished without a record counts as killed by signal 9.
//
//   DIR/jobs/<namespace>/<job>-<first 8 of UID>/alive       FIFO: held open while a controller
//   lives DIR/jobs/<namespace>/<job>-<...>/pods/<pod>-<first 8>/  log, exit.json, state.json,
//   volumes/
//
// What others may rely on:
//   - status: phase, podIP, startTime, conditions (Ready), one containerStatus with running or
//     terminated {exitCode, signal, reason, message (last log lines), startedAt, finishedAt};
//   - annotation starling.dev/pid: the pod's first process, set before the phase is Running;
//   - spec.nodeName "local";
//   - a missing Secret or ConfigMap shows as waiting CreateContainerConfigError and is tried again;
//   - pods that were ended because the whole node was told to stop are Failed with
//     status.reason "NodeShutdown", whatever their exit code: no failures of theirs;
//   - a job's folder is removed when the job has left the store, its pods have ended and
//     KubeletOptions::may_remove agrees; a pod's log stays until then, unless the finished job's
//     cleanPodPolicy is All.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/clock/clock.h"
#include "controller/kube/kube_client.h"
#include "controller/local/folders.h"
#include "controller/runtime/informer.h"

namespace starling::local {

class Node;

struct KubeletOptions {
  std::string home;            // STARLING_HOME: an absolute path
  std::string program_folder;  // where starling-supervisor and the roles lie
  // NAME=value, for every pod; beside these it gets only what its spec says. See PodEnvironment().
  std::vector<std::string> environment;
  absl::Duration retry = absl::Milliseconds(100);  // of what waits and of writes that failed
  absl::Duration stop_grace = absl::Seconds(20);   // for pods when the node stops
  // Whether the folder of a job that is gone may go, with the logs in it; asked again until it may.
  // Of the UID the first eight characters count. It must not wait. Null: it may.
  std::function<bool(const JobReference& job)> may_remove = nullptr;
};

// What of the controller's own environment pods inherit: PATH (with the program folder first),
// HOME, TMPDIR, locale, time zone, library path, sanitizer options, and STARLING_HOME.
std::vector<std::string> PodEnvironment(const KubeletOptions& options);

enum class StopMode {
  kTerminatePods,  // SIGTERM to all, SIGKILL after stop_grace
  kLeavePods,      // a successor adopts them within 10 s, else they save their work and end
};

// Thread-safe. Has one thread of its own between Start and Stop.
class ProcessKubelet {
 public:
  // `pods` (all namespaces) and `jobs` (TrainingJobs, all namespaces) must outlive it; construct it
  // before their first Poll, since it adds handlers. Whoever owns the informers runs them, and
  // stops them before this is destroyed.
  ProcessKubelet(kube::KubeClient& client, runtime::Informer& pods, runtime::Informer& jobs,
                 const clock::Clock& clock, KubeletOptions options);
  ~ProcessKubelet();  // stops, leaving the pods

  // Once both informers have synced: adopts what a predecessor left, then runs pods.
  // FailedPrecondition before that.
  absl::Status Start();

  // Ends the thread. After kTerminatePods every process of every pod has ended.
  void Stop(StopMode mode);

 private:
  std::unique_ptr<Node> node_;
};

}  // namespace starling::local
