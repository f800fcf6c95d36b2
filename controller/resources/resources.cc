// SPDX-License-Identifier: Apache-2.0
#include "controller/resources/resources.h"

#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/json/json.h"
#include "common/status/macros.h"
#include "starling/v1alpha1/training_job.pb.h"

namespace starling::resources {
namespace {

std::string Text(std::string_view view) { return std::string(view); }

Json Labels(const JobIdentity& job) {
  return {{Text(kJobLabel), job.name},
          {"app.kubernetes.io/name", "starling"},
          {"app.kubernetes.io/instance", job.name},
          {"app.kubernetes.io/part-of", "starling"},
          {"app.kubernetes.io/managed-by", "starling-controller"}};
}

// An object that the job owns and that goes when it goes.
Json Owned(const JobIdentity& job, std::string_view kind, std::string name) {
  return {{"apiVersion", "v1"},
          {"kind", Text(kind)},
          {"metadata",
           {{"name", std::move(name)},
            {"namespace", job.ns},
            {"labels", Labels(job)},
            {"ownerReferences", Json::array({{{"apiVersion", "starling.dev/v1alpha1"},
                                              {"kind", "TrainingJob"},
                                              {"name", job.name},
                                              {"uid", job.uid},
                                              {"controller", true},
                                              {"blockOwnerDeletion", true}}})}}}};
}

Json FieldEnv(const char* name, const char* path) {
  return {{"name", name}, {"valueFrom", {{"fieldRef", {{"fieldPath", path}}}}}};
}

std::string PolicyName(v1alpha1::RestartPolicy policy) {
  switch (policy) {
    case v1alpha1::RESTART_POLICY_EXIT_CODE:
      return "ExitCode";
    case v1alpha1::RESTART_POLICY_NEVER:
      return "Never";
    default:
      return "OnFailure";
  }
}

std::string TrainingFolder(const JobIdentity& job, const Platform& platform) {
  return platform.local() ? JobFolder(platform.jobs_folder, job) : "/var/lib/starling/job";
}

std::vector<std::string> SupervisorArgs(Role role, const v1alpha1::TrainingJobSpec& resolved,
                                        const Platform& platform) {
  std::vector<std::string> args = {"starling-supervisor",
                                   "--progress-file",
                                   absl::StrCat(Text(kRunFolder), "/progress"),
                                   "--exit-record",
                                   absl::StrCat(Text(kRunFolder), "/exit.json"),
                                   "--max-restarts",
                                   "3",
                                   "--restart-policy"};
  args.push_back(PolicyName(role == Role::kWorker
                                ? resolved.replica_specs().worker().restart_policy()
                                : resolved.replica_specs().coordinator().restart_policy()));
  // The process kubelet names the pod's own record and FIFO in the environment.
  if (!platform.local()) {
    args.push_back("--termination-log");
    args.push_back("/dev/termination-log");
  }
  args.push_back("--");
  return args;
}

std::vector<std::string> RoleArgs(const JobIdentity& job, Role role, const Platform& platform) {
  std::vector<std::string> args = {
      absl::StrCat("starling-", Text(RoleName(role))),
      "--spec",
      absl::StrCat(Text(kSpecFolder), "/", Text(kSpecKey)),
      "--secret",
      absl::StrCat(Text(kSecretFolder), "/", Text(kSecretKey)),
      "--address",
      "$(POD_IP)",
      "--pod-name",
      "$(POD_NAME)",
      "--pod-uid",
      "$(POD_UID)",
  };
  if (role == Role::kWorker) {
    for (const std::string& arg :
         {std::string("--job-uid"), job.uid, std::string("--job-name"), job.name,
          std::string("--job-dir"), TrainingFolder(job, platform)}) {
      args.push_back(arg);
    }
  }
  return args;
}

Json Ports(Role role) {
  Json ports = Json::array();
  const auto add = [&ports](const char* name, int port) {
    ports.push_back({{"name", name}, {"containerPort", port}, {"protocol", "TCP"}});
  };
  if (role == Role::kCoordinator) {
    add("coordinator", kCoordinatorPort);
  } else {
    add("member", kMemberPort);
    add("data", kDataPort);
  }
  add("metrics", kMetricsPort);
  return ports;
}

Json Container(const JobIdentity& job, const v1alpha1::TrainingJobSpec& resolved, Role role,
               const Platform& platform) {
  std::vector<std::string> command = SupervisorArgs(role, resolved, platform);
  for (std::string& arg : RoleArgs(job, role, platform)) command.push_back(std::move(arg));
  Json mounts =
      Json::array({{{"name", "spec"}, {"mountPath", Text(kSpecFolder)}, {"readOnly", true}},
                   {{"name", "secret"}, {"mountPath", Text(kSecretFolder)}, {"readOnly", true}},
                   {{"name", "run"}, {"mountPath", Text(kRunFolder)}}});
  if (role == Role::kWorker) {
    mounts.push_back({{"name", "job"}, {"mountPath", TrainingFolder(job, platform)}});
  }
  return {{"name", Text(kContainer)},
          {"image", platform.image.empty() ? "starling" : platform.image},
          {"command", std::move(command)},
          {"env",
           Json::array({FieldEnv("POD_NAME", "metadata.name"),
                        FieldEnv("POD_NAMESPACE", "metadata.namespace"),
                        FieldEnv("POD_UID", "metadata.uid"), FieldEnv("POD_IP", "status.podIP")})},
          {"ports", Ports(role)},
          {"terminationMessagePolicy", "FallbackToLogsOnError"},
          {"volumeMounts", std::move(mounts)}};
}

Json Volumes(const JobIdentity& job, Role role, std::int64_t config_generation,
             const Platform& platform) {
  Json volumes = Json::array(
      {{{"name", "spec"}, {"configMap", {{"name", ConfigName(job.name, config_generation)}}}},
       {{"name", "secret"},
        {"secret", {{"secretName", SecretName(job.name)}, {"defaultMode", 0400}}}},
       {{"name", "run"}, {"emptyDir", Json::object()}}});
  if (role == Role::kWorker && platform.local()) {
    volumes.push_back(
        {{"name", "job"},
         {"hostPath", {{"path", TrainingFolder(job, platform)}, {"type", "DirectoryOrCreate"}}}});
  } else if (role == Role::kWorker) {
    volumes.push_back({{"name", "job"}, {"emptyDir", Json::object()}});
  }
  return volumes;
}

// What tells two items of a list apart, by the list's key; null: the list is a plain value.
const char* MergeKey(const std::string& list) {
  static constexpr std::pair<const char*, const char*> kKeys[] = {
      {"containers", "name"},       {"initContainers", "name"},
      {"volumes", "name"},          {"env", "name"},
      {"imagePullSecrets", "name"}, {"volumeMounts", "mountPath"},
      {"ports", "containerPort"},   {"hostAliases", "ip"}};
  for (const auto& [name, key] : kKeys) {
    if (list == name) return key;
  }
  return nullptr;
}

Json MergeList(Json base, const Json& patch, const char* key) {
  for (const Json& item : patch) {
    Json* same = nullptr;
    for (Json& candidate : base) {
      if (item.is_object() && item.contains(key) && candidate.is_object() &&
          candidate.contains(key) && candidate[key] == item[key]) {
        same = &candidate;
      }
    }
    if (same != nullptr) {
      *same = MergeTemplate(std::move(*same), item);
    } else {
      base.push_back(item);
    }
  }
  return base;
}

absl::StatusOr<Json> TemplateOf(const v1alpha1::TrainingJobSpec& resolved, Role role) {
  const v1alpha1::ReplicaSpecs& roles = resolved.replica_specs();
  const std::string& text =
      role == Role::kWorker ? roles.worker().template_() : roles.coordinator().template_();
  if (text.empty()) return Json::object();
  ASSIGN_OR_RETURN(Json value, json::Parse(text));
  if (!value.is_object()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "spec.replicaSpecs.", Text(RoleName(role)),
        ".template: must be an object (a PodTemplateSpec), not ", json::Describe(value)));
  }
  return value;
}

}  // namespace

Json MergeTemplate(Json base, const Json& patch) {
  if (!patch.is_object()) return patch;
  if (!base.is_object()) base = Json::object();
  for (const auto& [key, value] : patch.items()) {
    const char* merge_key = MergeKey(key);
    if (value.is_null()) {
      base.erase(key);
    } else if (value.is_array() && merge_key != nullptr && base.contains(key) &&
               base[key].is_array()) {
      base[key] = MergeList(std::move(base[key]), value, merge_key);
    } else if (value.is_object()) {
      base[key] = MergeTemplate(base.contains(key) ? std::move(base[key]) : Json::object(), value);
    } else {
      base[key] = value;
    }
  }
  return base;
}

absl::StatusOr<Json> BuildPod(const JobIdentity& job, const v1alpha1::TrainingJobSpec& resolved,
                              Role role, std::int64_t index, std::int64_t config_generation,
                              const Platform& platform) {
  const Json owned = Owned(job, "Pod", PodName(job.name, role, index));
  Json pod = owned;
  pod["spec"] = {{"restartPolicy", "Never"},
                 {"enableServiceLinks", false},
                 {"automountServiceAccountToken", false},
                 {"subdomain", ServiceName(job.name)},
                 {"hostname", PodName(job.name, role, index)},
                 {"terminationGracePeriodSeconds", platform.local() ? 20 : 30},
                 {"containers", Json::array({Container(job, resolved, role, platform)})},
                 {"volumes", Volumes(job, role, config_generation, platform)}};
  ASSIGN_OR_RETURN(const Json user, TemplateOf(resolved, role));
  Json merged = MergeTemplate({{"metadata", pod["metadata"]}, {"spec", pod["spec"]}}, user);
  if (!merged["metadata"].is_object() || !merged["spec"].is_object()) {
    return absl::InvalidArgumentError(absl::StrCat("spec.replicaSpecs.", Text(RoleName(role)),
                                                   ".template: metadata and spec must be objects"));
  }
  // What the controller finds its pods by is not the user's to change.
  Json labels = merged["metadata"].value("labels", Json::object());
  labels.update(owned["metadata"]["labels"]);
  labels[Text(kRoleLabel)] = Text(RoleName(role));
  labels[Text(kIndexLabel)] = absl::StrCat(index);
  labels["app.kubernetes.io/component"] = Text(RoleName(role));
  Json annotations = merged["metadata"].value("annotations", Json::object());
  annotations[Text(kGenerationAnnotation)] = absl::StrCat(config_generation);
  pod["metadata"]["labels"] = std::move(labels);
  pod["metadata"]["annotations"] = std::move(annotations);
  pod["spec"] = std::move(merged["spec"]);
  pod["spec"]["restartPolicy"] = "Never";
  return pod;
}

Json BuildService(const JobIdentity& job) {
  Json service = Owned(job, "Service", ServiceName(job.name));
  service["spec"] = {{"clusterIP", "None"},
                     {"publishNotReadyAddresses", true},
                     {"selector", {{Text(kJobLabel), job.name}}},
                     {"ports", Json::array({{{"name", "metrics"}, {"port", kMetricsPort}}})}};
  return service;
}

Json BuildSecret(const JobIdentity& job, std::string_view data_plane_key) {
  Json secret = Owned(job, "Secret", SecretName(job.name));
  secret["type"] = "Opaque";
  secret["immutable"] = true;
  secret["data"] = {{Text(kSecretKey), absl::Base64Escape(Text(data_plane_key))}};
  return secret;
}

Json BuildConfig(const JobIdentity& job, std::int64_t generation, std::string_view given_json,
                 std::string_view resolved_json) {
  Json config = Owned(job, "ConfigMap", ConfigName(job.name, generation));
  config["immutable"] = true;
  config["data"] = {{Text(kSpecKey), Text(resolved_json)}, {Text(kGivenKey), Text(given_json)}};
  return config;
}

}  // namespace starling::resources
