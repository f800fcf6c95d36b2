// SPDX-License-Identifier: Apache-2.0
#include "controller/manager/job_control.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "controller/kube/messages.h"
#include "controller/kube/objects.h"
#include "controller/resources/names.h"

namespace starling::manager {
namespace {

// Whether a job on the node may have to be looked at after this change.
bool IsNewsOfNode(const kubernetes::Node& before, const kubernetes::Node& after) {
  return before.spec().SerializeAsString() != after.spec().SerializeAsString() ||
         before.status().SerializeAsString() != after.status().SerializeAsString() ||
         kube::IsBeingDeleted(before) != kube::IsBeingDeleted(after);
}

}  // namespace

JobControl::JobControl(kube::KubeClient& client, runtime::WorkQueue& queue,
                       const clock::Clock& clock, const JobControlOptions& options)
    : events_(client, clock, "starling.dev/trainingjob-controller", options.instance,
              options.event_writes) {
  trainingjob::GrpcLinkOptions link_options;
  link_options.lease_transition = options.decide.lease_transition;
  link_options.seed = options.platform.seed;
  // Dial anew while there is still time for the new call to be answered.
  link_options.silence = options.decide.coordinator_silence * 0.75;
  links_ = std::make_unique<trainingjob::GrpcCoordinatorLinks>(
      clock, link_options, [&queue](const runtime::Key& job) { queue.Add(job); });
  reconciler_ = std::make_unique<trainingjob::TrainingJobReconciler>(
      client, events_, *links_, clock, options.platform, options.decide);
  reconciler_->UseBacklog([&queue] { return queue.size() > 0; });
  if (options.scheduling.has_value()) {
    scheduling_ = std::make_unique<scheduling::Scheduling>(client, clock, *options.scheduling);
    reconciler_->UseScheduling(*scheduling_);
  }
}

// Handlers do no more than name the job to be looked at.
void EnqueueJobs(runtime::Informer& jobs, runtime::WorkQueue& queue, absl::Duration settle) {
  jobs.AddHandler(
      [&queue, settle](const auto& before, const auto& after) {
        const kube::Json& job = after != nullptr ? *after : *before;
        if (before == nullptr && kube::At(job, "/status/conditions").empty()) {
          return queue.AddNew(kube::KeyOf(job));
        }
        const bool only_status =
            before != nullptr && after != nullptr &&
            kube::GenerationOf(*before) == kube::GenerationOf(*after) &&
            kube::At(*before, "/metadata/labels") == kube::At(*after, "/metadata/labels");
        queue.AddAfter(kube::KeyOf(job), only_status ? settle : absl::ZeroDuration());
      },
      runtime::Informer::Hears::kNotOwnWrites);
}

template <typename T>
void EnqueueOwners(runtime::InformerOf<T>& objects, runtime::WorkQueue& queue,
                   absl::Duration settle) {
  objects.AddHandler(
      [&queue, settle](const auto& before, const auto& after) {
        const T& object = after != nullptr ? *after : *before;
        const std::string job = kube::LabelOf(object, resources::kJobLabel);
        if (!job.empty()) queue.AddAfter({kube::NamespaceOf(object), job}, settle);
      },
      runtime::InformerOf<T>::Hears::kNotOwnWrites);
}
template void EnqueueOwners(runtime::InformerOf<kube::Json>&, runtime::WorkQueue&, absl::Duration);
template void EnqueueOwners(runtime::InformerOf<kube::Message>&, runtime::WorkQueue&,
                            absl::Duration);

trainingjob::TrainingJobReconciler::FindNode FindNodeIn(const runtime::MessageInformer& nodes) {
  kubernetes::Node unknown;
  kubernetes::Condition& ready = *unknown.mutable_status()->add_conditions();
  ready.set_type("Ready");
  ready.set_status("True");
  return [&nodes, unknown = std::make_shared<const kubernetes::Node>(std::move(unknown))](
             const std::string& name) {
    if (!nodes.HasSynced()) return unknown;
    return std::static_pointer_cast<const kubernetes::Node>(nodes.Get({"", name}));
  };
}

void EnqueueJobsOnNode(runtime::MessageInformer& nodes, const runtime::MessageInformer& pods,
                       runtime::WorkQueue& queue) {
  nodes.AddHandler([&pods, &queue](const auto& before, const auto& after) {
    if (before != nullptr && after != nullptr &&
        !IsNewsOfNode(static_cast<const kubernetes::Node&>(*before),
                      static_cast<const kubernetes::Node&>(*after))) {
      return;
    }
    const std::string& node = kube::NameOf(after != nullptr ? *after : *before);
    for (const auto& pod : pods.List()) {
      if (static_cast<const kubernetes::Pod&>(*pod).spec().node_name() != node) continue;
      const std::string job = kube::LabelOf(*pod, resources::kJobLabel);
      if (!job.empty()) queue.Add({kube::NamespaceOf(*pod), job});
    }
  });
}

}  // namespace starling::manager
