// SPDX-License-Identifier: Apache-2.0
// What runs TrainingJobs in either home: reconciler, links to coordinators, events.
//
// The one place that puts them together. What differs between the homes is in its options.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "common/clock/clock.h"
#include "controller/kube/kube_client.h"
#include "controller/resources/resources.h"
#include "controller/runtime/event_recorder.h"
#include "controller/runtime/informer.h"
#include "controller/runtime/work_queue.h"
#include "controller/scheduling/scheduling.h"
#include "controller/trainingjob/decide.h"
#include "controller/trainingjob/grpc_links.h"
#include "controller/trainingjob/trainingjob_reconciler.h"

namespace starling::manager {

struct JobControlOptions {
  trainingjob::Options decide;   // with the transition of this process's lease
  resources::Platform platform;  // with the home's seed
  std::string instance;          // of events: which controller it is
  runtime::EventWrites event_writes = runtime::EventWrites::kAtOnce;
  // Gang schedulers and queues; not given: there are none, as on one machine.
  std::optional<scheduling::Options> scheduling;
};

// Confined to the thread that makes it, but for its reconciler. What is referred to must outlive
// it.
class JobControl {
 public:
  JobControl(kube::KubeClient& client, runtime::WorkQueue& queue, const clock::Clock& clock,
             const JobControlOptions& options);

  trainingjob::TrainingJobReconciler& reconciler() { return *reconciler_; }
  runtime::EventRecorder& events() { return events_; }
  const trainingjob::GrpcCoordinatorLinks& links() const { return *links_; }

 private:
  runtime::EventRecorder events_;
  std::unique_ptr<trainingjob::GrpcCoordinatorLinks> links_;
  std::unique_ptr<scheduling::Scheduling> scheduling_;
  std::unique_ptr<trainingjob::TrainingJobReconciler> reconciler_;
};

// Has changes of jobs, and of objects that carry a job's label, put the job into the queue. What a
// user does comes immediately, the rest after `settle`: the pods of a job change together, and one
// look at all of them costs less than a look, and a status, for each.
void EnqueueJobs(runtime::Informer& jobs, runtime::WorkQueue& queue,
                 absl::Duration settle = absl::ZeroDuration());
template <typename T>  // kube::Json or kube::Message
void EnqueueOwners(runtime::InformerOf<T>& objects, runtime::WorkQueue& queue,
                   absl::Duration settle = absl::ZeroDuration());

// The nodes of a cluster, as reconcilers ask for them by name: null if there is none, and one that
// nothing is said against while the nodes are not known (no list yet, or no right to one).
trainingjob::TrainingJobReconciler::FindNode FindNodeIn(const runtime::MessageInformer& nodes);
// Has a change of a node put the jobs of its pods into the queue.
void EnqueueJobsOnNode(runtime::MessageInformer& nodes, const runtime::MessageInformer& pods,
                       runtime::WorkQueue& queue);

}  // namespace starling::manager
