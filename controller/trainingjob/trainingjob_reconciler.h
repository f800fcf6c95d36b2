// SPDX-License-Identifier: Apache-2.0
// Makes the world of one TrainingJob as it should be: observe -> decide -> act.
//
// The thin shell around Decide(): it lists what there is, writes the status, takes the actions and
// keeps the stream to the coordinator. It may be stopped after any single write; whoever comes next
// decides the same from what is stored.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "common/clock/clock.h"
#include "common/sync/mutex.h"
#include "controller/kube/kube_client.h"
#include "controller/resources/resources.h"
#include "controller/runtime/event_recorder.h"
#include "controller/runtime/reconciler.h"
#include "controller/trainingjob/coordinator_links.h"
#include "controller/trainingjob/decide.h"

namespace starling::kubernetes {
class Node;
}
namespace starling::scheduling {
class Scheduling;
}

namespace starling::trainingjob {

struct JobObjects;
struct Reading;
struct SpecReading;

// Thread-safe: different jobs may be reconciled at the same time.
class TrainingJobReconciler final : public runtime::Reconciler {
 public:
  // What is referred to must outlive it.
  TrainingJobReconciler(kube::KubeClient& client, runtime::EventRecorder& events,
                        CoordinatorLinks& links, const clock::Clock& clock,
                        resources::Platform platform, Options options);

  // Where nodes are watched: the node of that name, null if there is none. Before the first
  // Reconcile(); without it nothing is known of nodes. It must not wait.
  using FindNode = std::function<std::shared_ptr<const kubernetes::Node>(const std::string& name)>;
  void WatchNodes(FindNode find_node) { find_node_ = std::move(find_node); }

  // Where jobs may be queued and placed by others: `scheduling`, which must outlive this, has its
  // say in every reconcile. Before the first one.
  void UseScheduling(scheduling::Scheduling& scheduling) { scheduling_ = &scheduling; }

  // Whether jobs wait to be looked at: then a status that may wait does. Before the first
  // Reconcile(); without it nothing waits.
  void UseBacklog(std::function<bool()> backlog) { backlog_ = std::move(backlog); }

  absl::StatusOr<runtime::Result> Reconcile(const runtime::Key& key) override;

  // From now on no pods are made, and training is to save its work and stop: the process is about
  // to end. Takes effect with the next Reconcile() of each job.
  void Halt() ABSL_LOCKS_EXCLUDED(mutex_);
  // Every job has been reconciled since Halt() and would lose nothing.
  bool Halted() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  // A first status that waits to be written.
  struct UnwrittenStatus {
    absl::Time since;
    v1alpha1::TrainingJobStatus status;
  };
  // What only this process remembers of a job.
  struct Memory {
    std::string uid;  // of the job: of one made anew under the same name nothing is known
    std::map<std::string, absl::Time> surplus;  // pod UID -> since when
    std::map<std::string, absl::Time> unheard;  // the same
    std::optional<Refusal> refusal;
    std::optional<Refusal> slices_refused;
    std::optional<UnwrittenStatus> unwritten;
    std::optional<absl::Time> endpoints_behind;  // since when
    absl::Time status_written = absl::InfinitePast();
    bool at_rest = false;
    std::string rejected;  // why the API server refuses its pods
    std::int64_t rejected_generation = 0;
  };

  absl::StatusOr<JobObjects> List(const runtime::Key& key, kube::Json& job);
  // What was read of the job's spec before; null: nothing, or it is forgotten.
  std::shared_ptr<const SpecReading> SpecOf(const runtime::Key& key) ABSL_LOCKS_EXCLUDED(mutex_);
  void KeepSpec(const runtime::Key& key, std::shared_ptr<const SpecReading> spec)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void Remember(const runtime::Key& key, Reading& reading) ABSL_LOCKS_EXCLUDED(mutex_);
  // Writes the status, or keeps it in mind for now and has the decision looked at again in time.
  absl::Status SettleStatus(const runtime::Key& key, kube::Json& job, Decision& decision);
  bool PutOff(const runtime::Key& key, Decision& decision) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status WriteStatus(const runtime::Key& key, kube::Json& job, const Decision& decision);
  absl::Status Act(const JobObjects& objects, const Reading& reading, const Action& action);
  absl::Status Create(const kube::Message& object);
  absl::Status Remove(const kube::Message& object);  // it alone, not another one of its name
  absl::Status Remove(const kube::ResourceKind& kind, const kube::ObjectKey& key,
                      const std::string& uid);
  absl::Status Change(const resources::JobIdentity& job, const SliceChange& slice);
  // Changes the slices. Returns when to look again, or an error that says nothing of the job.
  absl::StatusOr<absl::Duration> Publish(const runtime::Key& key, const resources::JobIdentity& job,
                                         const Decision& decision) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status CreatePodFrom(const kube::Json& pod);
  void Store(const JobObjects& objects, const resources::JobIdentity& job, const StoreTrace& trace);
  // The object is ours, after all: seen late, or made by a write whose result was lost.
  absl::Status AcceptOwn(const kube::ResourceKind& kind, const kube::ObjectKey& key,
                         const std::string& owner, absl::Status taken);
  // Makes the pods of all CreatePod among the actions; the first error, if there is one.
  absl::Status CreatePods(const JobObjects& objects, const Reading& reading,
                          const Decision& decision);
  // What the API server will not have. Returns when to look again, or the error as it was.
  absl::StatusOr<absl::Duration> TakeRefusal(const runtime::Key& key, const Reading& reading,
                                             const absl::Status& status)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Remembers it, and says when to look again.
  absl::Duration Note(const runtime::Key& key, std::optional<Refusal>& refused,
                      std::string_view reason, const absl::Status& status) const;
  void ForgetRefusal(const runtime::Key& key) ABSL_LOCKS_EXCLUDED(mutex_);
  void ReadNodes(Observed& observed) const;
  absl::Status CreateCredentials(const JobObjects& objects, const Observed& observed);
  absl::Status FindServerBudget(const runtime::Key& key, Observed& observed);
  void NoteDecision(const runtime::Key& key, const Decision& decision) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::StatusOr<runtime::Result> TakeActions(const runtime::Key& key, const JobObjects& objects,
                                              const Reading& reading, const Decision& decision);

  kube::KubeClient& client_;
  runtime::EventRecorder& events_;
  CoordinatorLinks& links_;
  const clock::Clock& clock_;
  const resources::Platform platform_;
  const Options options_;
  FindNode find_node_;
  std::function<bool()> backlog_;
  scheduling::Scheduling* scheduling_ = nullptr;
  sync::Mutex mutex_;
  std::map<runtime::Key, Memory> memory_ ABSL_GUARDED_BY(mutex_);
  std::map<runtime::Key, std::shared_ptr<const SpecReading>> specs_ ABSL_GUARDED_BY(mutex_);
  std::deque<runtime::Key> by_age_ ABSL_GUARDED_BY(mutex_);  // those of specs_, the oldest first
  bool halt_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace starling::trainingjob
