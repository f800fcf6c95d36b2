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

#include "controller/resources/container_pod.h"
#include "controller/resources/credentials.h"
#include "controller/resources/resources.h"
#include "controller/scheduling/scheduling.h"
#include "controller/trainingjob/decision.h"
#include "controller/trainingjob/observed.h"
#include "kubernetes/objects.pb.h"

namespace starling::trainingjob {

using Json = nlohmann::json;

// What a job's spec says. It depends on the job's UID and generation alone (a CRD with other
// defaults comes with another controller), so one reading serves all passes of a generation.
struct SpecReading {
  std::string uid;
  std::int64_t generation = 0;
  v1alpha1::TrainingJobSpec given;  // as the user wrote it: the frozen spec keeps it
  std::string given_json;
  v1alpha1::TrainingJobSpec resolved;
  std::string error;  // why it cannot be read
};

// The objects of one job, as listed; null: there is none.
struct JobObjects {
  Json* job = nullptr;
  std::shared_ptr<const SpecReading> spec;  // of an earlier pass; of another spec it is passed over
  std::vector<std::shared_ptr<const kubernetes::Pod>> pods;
  std::vector<std::shared_ptr<const kubernetes::ConfigMap>> configs;
  std::shared_ptr<const kubernetes::Secret> secret;
  std::shared_ptr<const kubernetes::Service> service;
  std::vector<std::shared_ptr<const kubernetes::EndpointSlice>> slices;
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

// The timeline that was recorded last; null: none.
const kubernetes::ConfigMap* StoredTrace(const JobObjects& objects, const JobIdentity& job);

// What was frozen for pods of a generation; the resolved spec of the job itself if there is none.
v1alpha1::TrainingJobSpec FrozenSpec(const JobObjects& objects, const Observed& observed,
                                     std::int64_t generation);

struct Reading {
  Observed observed;
  std::shared_ptr<const SpecReading> spec;
  // Of a job that brings its own container and has not begun: what its pods have in common, as it
  // was made of the observed spec to see whether that gives any.
  std::optional<resources::RoundPods> pods;
  scheduling::Plan scheduling;  // what schedulers and queues of others are told, and want of pods
};
Reading Read(const JobObjects& objects, const resources::Platform& platform);

}  // namespace starling::trainingjob
