// SPDX-License-Identifier: Apache-2.0
#include "controller/trainingjob/observe.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "api/spec/job_file.h"
#include "api/spec/mutability.h"
#include "api/spec/reader.h"
#include "api/spec/resolve.h"
#include "api/spec/validate.h"
#include "common/json/json.h"
#include "controller/kube/objects.h"

namespace starling::trainingjob {
namespace {

// Reasons of a pod's end that are nobody's failure.
constexpr std::array<std::string_view, 8> kDisruptions = {
    "Evicted",  "Preempted",    "Preempting", kNodeShutdown,
    "NodeLost", "NodeAffinity", "Shutdown",   "Terminated"};

PodPhase ReadPhase(const std::string& phase) {
  if (phase == "Pending" || phase.empty()) return PodPhase::kPending;
  if (phase == "Succeeded") return PodPhase::kSucceeded;
  if (phase == "Failed") return PodPhase::kFailed;
  return PodPhase::kRunning;  // Unknown too: it may run
}

bool HasCondition(const Json& pod, std::string_view type) {
  return kube::IsConditionTrue(pod, type);
}

std::optional<PodExit> ReadExit(const Json& pod) {
  for (const Json& status : kube::At(pod, "/status/containerStatuses")) {
    const Json& ended = kube::At(status, "/state/terminated");
    if (!ended.is_object()) continue;
    if (kube::StringAt(status, "/name") != resources::kContainer) continue;
    PodExit exit;
    exit.code = kube::IntAt(ended, "/exitCode");
    exit.signal = kube::IntAt(ended, "/signal");
    exit.reason = kube::StringAt(ended, "/reason");
    exit.message = kube::StringAt(ended, "/message");
    exit.finished = kube::ParseTimestamp(kube::StringAt(ended, "/finishedAt"))
                        .value_or(kube::CreationTimeOf(pod).value_or(absl::UnixEpoch()));
    return exit;
  }
  return std::nullopt;
}

// Whether the job's pods may run with a spec frozen from `given_json`, as the job stands now.
bool IsCurrent(const std::string& given_json, const v1alpha1::TrainingJobSpec& resolved) {
  const absl::StatusOr<Json> value = json::Parse(given_json);
  v1alpha1::TrainingJobSpec given;
  if (!value.ok() || !spec::ReadMessage(*value, "spec", given, spec::kLenient).empty()) {
    return false;
  }
  return spec::CheckChange(spec::Resolve(given), resolved, /*suspended=*/false).empty();
}

std::vector<ObservedConfig> ReadConfigs(const JobObjects& objects, const Observed& observed) {
  std::vector<ObservedConfig> configs;
  for (const Json& config : objects.configs) {
    const auto generation = resources::ParseConfigName(observed.job.name, kube::NameOf(config));
    if (!generation.has_value() || kube::ControllerUidOf(config) != observed.job.uid ||
        kube::IsBeingDeleted(config)) {
      continue;
    }
    const std::string given =
        kube::StringAt(config, absl::StrCat("/data/", std::string(resources::kGivenKey)));
    configs.push_back({*generation, IsCurrent(given, observed.spec)});
  }
  return configs;
}

void ReadSpec(const Json& object, Reading& reading) {
  v1alpha1::TrainingJob job;
  const spec::FieldErrors errors = spec::ReadStoredJob(object, job);
  reading.given = job.spec();
  reading.observed.status = job.status();
  reading.observed.spec = spec::Resolve(job.spec());
  reading.observed.spec_error = spec::Format(errors);
}

// Rules between fields, and templates that give no pod. A job that has begun is not judged anew.
std::string CheckSpec(const Observed& observed, const resources::Platform& platform) {
  const bool begun = std::any_of(observed.configs.begin(), observed.configs.end(),
                                 [](const ObservedConfig& config) { return config.current; });
  if (begun) return "";
  const spec::FieldErrors errors = spec::Validate(observed.spec);
  if (!errors.empty()) return spec::Format(errors);
  for (const Role role : {Role::kCoordinator, Role::kWorker}) {
    const auto pod = resources::BuildPod(observed.job, observed.spec, role, 0, 0, platform);
    if (!pod.ok()) return std::string(pod.status().message());
  }
  return "";
}

std::string ReadSecret(const JobObjects& objects, const JobIdentity& job) {
  if (!objects.secret.has_value() || kube::ControllerUidOf(*objects.secret) != job.uid) return "";
  std::string key;
  const std::string pointer = absl::StrCat("/data/", std::string(resources::kSecretKey));
  if (!absl::Base64Unescape(kube::StringAt(*objects.secret, pointer), &key)) return "";
  return key;
}

}  // namespace

std::optional<ObservedPod> ReadPod(const JobIdentity& job, const Json& pod) {
  if (kube::ControllerUidOf(pod) != job.uid) return std::nullopt;
  const auto role = resources::ParseRole(kube::LabelOf(pod, resources::kRoleLabel));
  ObservedPod seen;
  if (!role.has_value() ||
      !absl::SimpleAtoi(kube::LabelOf(pod, resources::kIndexLabel), &seen.index)) {
    return std::nullopt;
  }
  seen.name = kube::NameOf(pod);
  seen.uid = kube::UidOf(pod);
  seen.ip = kube::StringAt(pod, "/status/podIP");
  seen.role = *role;
  seen.phase = ReadPhase(kube::StringAt(pod, "/status/phase"));
  seen.reason = kube::StringAt(pod, "/status/reason");
  seen.ready = seen.phase == PodPhase::kRunning && HasCondition(pod, "Ready");
  seen.terminating = kube::IsBeingDeleted(pod);
  seen.disrupted =
      HasCondition(pod, "DisruptionTarget") ||
      std::find(kDisruptions.begin(), kDisruptions.end(), seen.reason) != kDisruptions.end();
  seen.created = kube::CreationTimeOf(pod).value_or(absl::UnixEpoch());
  seen.exit = ReadExit(pod);
  return seen;
}

v1alpha1::TrainingJobSpec FrozenSpec(const JobObjects& objects, const Observed& observed,
                                     std::int64_t generation) {
  const std::string name = resources::ConfigName(observed.job.name, generation);
  for (const Json& config : objects.configs) {
    if (kube::NameOf(config) != name || kube::ControllerUidOf(config) != observed.job.uid) continue;
    const std::string text =
        kube::StringAt(config, absl::StrCat("/data/", std::string(resources::kSpecKey)));
    if (auto frozen = spec::ReadResolvedSpec(text); frozen.ok()) return *std::move(frozen);
  }
  return observed.spec;
}

Reading Read(const JobObjects& objects, const resources::Platform& platform) {
  Reading reading;
  Observed& observed = reading.observed;
  const Json& job = *objects.job;
  observed.job = {kube::NamespaceOf(job), kube::NameOf(job), kube::UidOf(job)};
  observed.generation = kube::GenerationOf(job);
  observed.deleting = kube::IsBeingDeleted(job);
  observed.created = kube::CreationTimeOf(job).value_or(absl::UnixEpoch());
  ReadSpec(job, reading);
  for (const Json& pod : objects.pods) {
    if (auto seen = ReadPod(observed.job, pod); seen.has_value()) {
      observed.pods.push_back(*std::move(seen));
    }
  }
  observed.configs = ReadConfigs(objects, observed);
  if (observed.spec_error.empty()) observed.spec_error = CheckSpec(observed, platform);
  reading.secret = ReadSecret(objects, observed.job);
  observed.has_secret = !reading.secret.empty();
  observed.has_service =
      objects.service.has_value() && kube::ControllerUidOf(*objects.service) == observed.job.uid;
  return reading;
}

}  // namespace starling::trainingjob
