// SPDX-License-Identifier: Apache-2.0
// The node behind ProcessKubelet: every pod's state and what is done about it, on one thread.
//
// Level-triggered: a change only says which pod to look at; what to do follows from the pod as the
// store shows it and from the process as it is. Nothing waits but the loop itself (epoll on pidfds,
// on an eventfd for changes, and the earliest deadline).
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "common/sync/mutex.h"
#include "controller/local/address_pool.h"
#include "controller/local/job_folders.h"
#include "controller/local/pod_process.h"
#include "controller/local/process_kubelet.h"

namespace starling::local {

// Thread-safe: Enqueue*, Start and Stop; the rest is confined to the node's thread.
class Node {
 public:
  Node(kube::KubeClient& client, runtime::Informer& pods, runtime::Informer& jobs,
       const clock::Clock& clock, KubeletOptions options);
  ~Node();

  absl::Status Start();
  void Stop(StopMode mode);

 private:
  using Object = runtime::Informer::Object;

  // A pod that this kubelet has to do with; kept until the pod has left the store.
  struct Entry {
    runtime::Key key;
    std::string uid;
    JobReference job;
    std::string folder;
    std::string ip;
    std::optional<PodProcess> process;  // while it runs
    bool ended = false;
    bool terminating = false;                      // has got its SIGTERM
    absl::Time kill_at = absl::InfiniteFuture();   // gets its SIGKILL
    absl::Time retry_at = absl::InfiniteFuture();  // to be looked at again
    std::string waiting;                           // why it has not started, as last reported
    // Writes that are due, each kept until it has succeeded.
    std::shared_ptr<const kube::Json> placement;
    std::shared_ptr<const kube::Json> status;
  };

  // The loop (node.cc).
  void Loop();
  void Wake();
  void WaitForSomething();
  absl::Time NextDeadline() const;
  void HandleEnds();
  void HandleChanges();
  void HandleDeadlines();
  bool StopIfDone();
  void TerminateAll();

  // Pods (node_pods.cc).
  void ReconcilePod(const runtime::Key& key);
  void DropOthers(const runtime::Key& key, const std::string& present_uid);
  Entry& EntryOf(const kube::Json& pod);
  void Recover(const kube::Json& pod, Entry& entry);
  void StartPod(const kube::Json& pod, Entry& entry);
  absl::StatusOr<process::LaunchPlan> Prepare(const kube::Json& pod, Entry& entry);
  void OnRunning(const kube::Json& pod, Entry& entry, PodProcess process);
  void OnWaiting(const kube::Json& pod, Entry& entry, const absl::Status& why);
  void OnEnded(const kube::Json& pod, Entry& entry, const Outcome& outcome);
  void Terminate(const kube::Json& pod, Entry& entry);
  void FinishDeletion(const kube::Json& pod, Entry& entry);
  void Flush(Entry& entry);
  void Forget(const std::string& uid);

  // Jobs and what a predecessor left (node_jobs.cc).
  void CleanUpAfterPredecessor();
  void ReconcileJob(const runtime::Key& key);
  bool Runs(const JobReference& job) const;
  bool IsGone(const JobReference& job);
  void RemoveIfGone(const JobReference& job);
  bool MayRemove(const JobReference& job);
  void RemoveLeftovers();
  bool KeepsLogs(const JobReference& job) const;

  kube::KubeClient& client_;
  runtime::Informer& pods_;
  runtime::Informer& jobs_;
  const clock::Clock& clock_;
  const KubeletOptions options_;
  int epoll_ = -1;
  int wake_ = -1;                         // eventfd
  std::map<std::string, Entry> entries_;  // by UID
  AddressPool addresses_;
  JobFolders job_folders_;
  // Those whose folders may be there, by name, then by UID: a name is used again.
  std::map<runtime::Key, std::map<std::string, JobReference>> known_jobs_;
  std::vector<std::string> leftovers_;             // a predecessor's folders of jobs that are gone
  absl::Time remove_at_ = absl::InfiniteFuture();  // folders that wait are asked about again
  bool stopping_ = false;
  absl::Time give_up_at_ = absl::InfiniteFuture();
  std::thread thread_;

  sync::Mutex mutex_;
  std::set<runtime::Key> changed_pods_ ABSL_GUARDED_BY(mutex_);
  std::set<runtime::Key> changed_jobs_ ABSL_GUARDED_BY(mutex_);
  std::optional<StopMode> stop_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace starling::local
