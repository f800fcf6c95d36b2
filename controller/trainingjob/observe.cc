// SPDX-License-Identifier: Apache-2.0
#include "controller/trainingjob/observe.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "api/spec/checkpoint_request.h"
#include "api/spec/job_file.h"
#include "api/spec/mutability.h"
#include "api/spec/reader.h"
#include "api/spec/resolve.h"
#include "api/spec/template.h"
#include "api/spec/trace_request.h"
#include "api/spec/validate.h"
#include "api/spec/writer.h"
#include "common/json/json.h"
#include "common/trace/trace_context.h"
#include "controller/kube/messages.h"
#include "controller/kube/objects.h"
#include "controller/resources/credentials.h"
#include "controller/trainingjob/build.h"
#include "controller/trainingjob/durability.h"

namespace starling::trainingjob {
namespace {

// Whether the job's pods may run with a spec frozen from `given_json`, as the job stands now.
bool IsCurrent(const std::string& given_json, const v1alpha1::TrainingJobSpec& resolved) {
  const absl::StatusOr<Json> value = json::Parse(given_json);
  v1alpha1::TrainingJobSpec given;
  if (!value.ok() || !spec::ReadMessage(*value, "spec", given, spec::kLenient).empty()) {
    return false;
  }
  return spec::CheckChange(spec::Resolve(given), resolved, /*suspended=*/false).empty();
}

std::string TextIn(const kubernetes::ConfigMap& config, std::string_view key) {
  const auto found = config.data().find(std::string(key));
  return found == config.data().end() ? std::string() : found->second;
}

// Whether the object is there and belongs to the job.
bool IsOf(const std::string& job_uid, const kube::Message* object) {
  return object != nullptr && kube::ControllerUidOf(*object) == job_uid;
}

std::vector<ObservedConfig> ReadConfigs(const JobObjects& objects, const Reading& reading) {
  const Observed& observed = reading.observed;
  std::vector<ObservedConfig> configs;
  for (const auto& config : objects.configs) {
    const auto generation = resources::ParseConfigName(observed.job.name, kube::NameOf(*config));
    if (!generation.has_value() || kube::ControllerUidOf(*config) != observed.job.uid ||
        kube::IsBeingDeleted(*config)) {
      continue;
    }
    const std::string given = TextIn(*config, resources::kGivenKey);
    // Most often it is what was frozen, and need not be compared part by part.
    const bool same = given == reading.spec->given_json;
    configs.push_back({*generation, same || IsCurrent(given, observed.spec)});
  }
  return configs;
}

// Whether a job of ours has it, whichever it is.
bool IsOfAJob(const kubernetes::EndpointSlice& slice) {
  const auto& owners = slice.metadata().owner_references();
  return std::ranges::any_of(owners, [](const kubernetes::OwnerReference& owner) {
    return owner.controller() && owner.kind() == kube::kTrainingJob.kind;
  });
}

// The cluster's DNS asks for the service's name alone, so those of an earlier job of this name
// count until they are collected.
std::vector<ObservedSlice> ReadSlices(const JobObjects& objects, const std::string& job_uid) {
  std::vector<ObservedSlice> slices;
  for (const auto& slice : objects.slices) {
    if (!IsOfAJob(*slice) || kube::IsBeingDeleted(*slice)) continue;
    slices.push_back({kube::NameOf(*slice), kube::UidOf(*slice), IsOf(job_uid, slice.get()),
                      resources::ReadSlice(*slice)});
  }
  return slices;
}

// Whether `known` is of this spec, and the status is all that there is to be read.
bool ReadStatusAlone(const Json& object, const SpecReading* known, Observed& observed) {
  if (known == nullptr || known->uid != observed.job.uid ||
      known->generation != observed.generation) {
    return false;
  }
  const auto status = object.find("status");
  return status == object.end() ||
         spec::ReadMessage(*status, "status", observed.status, spec::kLenient).empty();
}

void ReadJob(const JobObjects& objects, Reading& reading) {
  Observed& observed = reading.observed;
  if (ReadStatusAlone(*objects.job, objects.spec.get(), observed)) {
    reading.spec = objects.spec;
  } else {
    v1alpha1::TrainingJob job;
    auto read = std::make_shared<SpecReading>();
    read->uid = observed.job.uid;
    read->generation = observed.generation;
    read->error = spec::Format(spec::ReadStoredJob(*objects.job, job));
    observed.status = std::move(*job.mutable_status());
    read->given = std::move(*job.mutable_spec());
    read->given_json = json::Dump(spec::WriteMessage(read->given));
    read->resolved = spec::Resolve(read->given);
    reading.spec = std::move(read);
  }
  observed.spec = reading.spec->resolved;
  observed.spec_error = reading.spec->error;
}

// Rules between fields, and templates that give no pod. A job that has begun is not judged anew.
void CheckSpec(const Json& job, const resources::Platform& platform, Reading& reading) {
  const Observed& observed = reading.observed;
  std::string& error = reading.observed.spec_error;
  const bool begun = std::any_of(observed.configs.begin(), observed.configs.end(),
                                 [](const ObservedConfig& config) { return config.current; });
  if (begun) return;
  spec::FieldErrors errors = spec::Validate(observed.spec);
  if (errors.empty()) errors = spec::CheckBounds(job, observed.spec);
  if (!errors.empty()) {
    error = spec::Format(errors);
    return;
  }
  const bool alone = observed.spec.workload().has_container();
  PodBuilder builder(observed.job, platform);
  for (const Role role : resources::RolesOf(observed.spec)) {
    CreatePod create{.role = role, .index = 0, .config_generation = 0};
    if (alone) create.world = {.round = 1, .members = {0}, .wanted = 1};
    const auto pod = builder.Build(observed.spec, create);
    if (!pod.ok()) {
      error = std::string(pod.status().message());
      return;
    }
  }
  reading.pods = builder.Made();
}

bool HasSecret(const JobObjects& objects, const Observed& observed,
               const resources::Platform& platform) {
  const std::string& uid = observed.job.uid;
  return IsOf(uid, objects.secret.get()) &&
         resources::SecretFits(*objects.secret, platform.seed, uid, ServersOf(observed.spec));
}

// Anybody may write it who may write the job, and it goes into environments.
std::string TraceparentOf(const Json& job) {
  const auto context =
      trace::ParseTraceparent(kube::AnnotationOf(job, resources::kTraceparentAnnotation));
  return context ? trace::ToTraceparent(*context) : "";
}

}  // namespace

resources::Servers ServersOf(const v1alpha1::TrainingJobSpec& resolved) {
  return resources::HasServers(resolved) ? resources::Servers::kSome : resources::Servers::kNone;
}

v1alpha1::TrainingJobSpec FrozenSpec(const JobObjects& objects, const Observed& observed,
                                     std::int64_t generation) {
  const std::string name = resources::ConfigName(observed.job.name, generation);
  for (const auto& config : objects.configs) {
    if (kube::NameOf(*config) != name || !IsOf(observed.job.uid, config.get())) continue;
    const std::string text = TextIn(*config, resources::kSpecKey);
    if (auto frozen = spec::ReadResolvedSpec(text); frozen.ok()) return *std::move(frozen);
  }
  return observed.spec;
}

const kubernetes::ConfigMap* StoredTrace(const JobObjects& objects, const JobIdentity& job) {
  const std::string name = spec::TraceConfigName(job.name);
  for (const auto& config : objects.configs) {
    const bool it = kube::NameOf(*config) == name && IsOf(job.uid, config.get());
    if (it && !kube::IsBeingDeleted(*config)) return config.get();
  }
  return nullptr;
}

Reading Read(const JobObjects& objects, const resources::Platform& platform) {
  Reading reading;
  Observed& observed = reading.observed;
  const Json& job = *objects.job;
  observed.job = {kube::NamespaceOf(job), kube::NameOf(job), kube::UidOf(job), TraceparentOf(job)};
  observed.generation = kube::GenerationOf(job);
  observed.deleting = kube::IsBeingDeleted(job);
  observed.created = kube::CreationTimeOf(job).value_or(absl::UnixEpoch());
  observed.checkpoint_request = spec::CheckpointRequestOf(job);
  observed.trace_request = spec::TraceRequestOf(job);
  if (const auto* stored = StoredTrace(objects, observed.job); stored != nullptr) {
    const auto& annotations = stored->metadata().annotations();
    const auto word = annotations.find(spec::kTraceRequest);
    if (word != annotations.end()) observed.trace_stored = word->second;
  }
  ReadJob(objects, reading);
  for (const auto& pod : objects.pods) {
    if (auto seen = ReadPod(observed.job, *pod); seen.has_value()) {
      observed.pods.push_back(*std::move(seen));
    }
  }
  observed.configs = ReadConfigs(objects, reading);
  if (observed.spec_error.empty()) CheckSpec(job, platform, reading);
  observed.has_secret = HasSecret(objects, observed, platform);
  observed.has_service = IsOf(observed.job.uid, objects.service.get());
  observed.service_selects = observed.has_service && !objects.service->spec().selector().empty();
  observed.slices = ReadSlices(objects, observed.job.uid);
  observed.has_budget = IsOf(observed.job.uid, objects.budget.get());
  observed.checkpoint_durable = IsCheckpointDurable(observed.spec, platform);
  return reading;
}

}  // namespace starling::trainingjob
