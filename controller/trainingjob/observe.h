// SPDX-License-Identifier: Apache-2.0
// From Kubernetes' objects to what a decision reads. Total: whatever is strange in an object reads
// as absent, or as an error of the spec.
#pragma once

#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "controller/resources/credentials.h"
#include "controller/resources/resources.h"
#include "controller/scheduling/scheduling.h"
#include "controller/trainingjob/decision.h"
#include "controller/trainingjob/observed.h"
#include "kubernetes/objects.pb.h"

namespace starling::trainingjob {

using Json = nlohmann::json;

// The objects of one job, as listed; null: there is none.
struct JobObjects {
  Json* job = nullptr;
  std::vector<std::shared_ptr<const kubernetes::Pod>> pods;
  std::vector<std::shared_ptr<const kubernetes::ConfigMap>> configs;
  std::shared_ptr<const kubernetes::Secret> secret;
  std::shared_ptr<const kubernetes::Service> service;
  std::shared_ptr<const kubernetes::PodDisruptionBudget> budget;
};

// A pod of this job; nothing if the object belongs to another one, or is none of ours.
std::optional<ObservedPod> ReadPod(const JobIdentity& job, const kubernetes::Pod& pod);

// What a pod carries so that it can be read back: where it may not be, which round it is of.
std::map<std::string, std::string> AnnotationsOf(const CreatePod& create);

// For which credentials are needed.
resources::Servers ServersOf(const v1alpha1::TrainingJobSpec& resolved);

// A node that is there.
ObservedNode ReadNode(const kubernetes::Node& node);

// What was frozen for pods of a generation; the resolved spec of the job itself if there is none.
v1alpha1::TrainingJobSpec FrozenSpec(const JobObjects& objects, const Observed& observed,
                                     std::int64_t generation);

// `given`, the spec as the user wrote it, is returned too: the frozen spec keeps it.
struct Reading {
  Observed observed;
  v1alpha1::TrainingJobSpec given;
  scheduling::Plan scheduling;  // what schedulers and queues of others are told, and want of pods
};
Reading Read(const JobObjects& objects, const resources::Platform& platform);

}  // namespace starling::trainingjob
