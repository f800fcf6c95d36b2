// SPDX-License-Identifier: Apache-2.0
#include "controller/resources/container_pod.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/json/json.h"
#include "common/status/macros.h"
#include "controller/resources/objects.h"
#include "controller/resources/rendezvous.h"
#include "starling/v1alpha1/training_job.pb.h"

namespace starling::resources {
namespace {

constexpr char kToolsVolume[] = "starling-tools";
constexpr char kToolsFolder[] = "/opt/starling-tools";
constexpr char kSupervisor[] = "starling-supervisor";

std::string Text(std::string_view view) { return std::string(view); }

// The container "trainer" among a pod's, or null.
Json* TrainerOf(Json& pod_or_template) {
  if (!pod_or_template.is_object() || !pod_or_template.contains("spec")) return nullptr;
  Json& spec = pod_or_template["spec"];
  if (!spec.is_object() || !spec.contains("containers")) return nullptr;
  for (Json& container : spec["containers"]) {
    if (container.is_object() && container.value("name", Json()) == Json(Text(kContainer))) {
      return &container;
    }
  }
  return nullptr;
}

// Everybody's address. On one machine all pods share the loopback's ports, so each round has some
// of its own; in a cluster pods have names under the headless service.
std::vector<Endpoint> Endpoints(const JobIdentity& job, const Round& round, int port,
                                const Platform& platform) {
  std::uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (const char byte : absl::StrCat(job.uid, "/", round.number)) {
    hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3;
  }
  const int local_port = 20000 + static_cast<int>(hash % 10000);
  std::vector<Endpoint> endpoints;
  for (const std::int64_t index : round.members) {
    if (platform.local()) {
      const int rank = static_cast<int>(endpoints.size());
      endpoints.push_back({.host = "127.0.0.1", .port = local_port + rank});
    } else {
      endpoints.push_back({.host = absl::StrCat(PodName(job.name, Role::kWorker, index), ".",
                                                ServiceName(job.name)),
                           .port = port});
    }
  }
  return endpoints;
}

Variables FrameworkVariables(v1alpha1::ContainerFramework framework, const Rendezvous& rendezvous) {
  switch (framework) {
    case v1alpha1::CONTAINER_FRAMEWORK_TENSOR_FLOW:
      return TensorFlowVariables(rendezvous);
    case v1alpha1::CONTAINER_FRAMEWORK_DMLC:
      return DmlcVariables(rendezvous);
    case v1alpha1::CONTAINER_FRAMEWORK_PLAIN:
      return {};
    default:
      return PyTorchVariables(rendezvous);
  }
}

absl::StatusOr<Rendezvous> Meet(const JobIdentity& job, const v1alpha1::Container& container,
                                const PodRequest& request, const Round& round,
                                const Platform& platform) {
  const auto place = std::find(round.members.begin(), round.members.end(), request.index);
  if (place == round.members.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("worker ", request.index, " is not in round ", round.number));
  }
  return Rendezvous{.id = absl::StrCat(job.uid, "-", round.number),
                    .round = round.number,
                    .rank = place - round.members.begin(),
                    .processes = std::max<std::int64_t>(container.processes_per_pod(), 1),
                    .workers = Endpoints(job, round, static_cast<int>(container.port()), platform),
                    .local = platform.local()};
}

Variables VariablesFor(v1alpha1::ContainerFramework framework, const Rendezvous& rendezvous,
                       const Json& our_trainer) {
  Variables variables = CommonVariables(rendezvous);
  for (auto& variable : FrameworkVariables(framework, rendezvous)) {
    variables.push_back(std::move(variable));
  }
  for (const Json& mount : our_trainer["volumeMounts"]) {
    if (mount.value("name", "") != "job") continue;
    variables.emplace_back(Text(kJobFolderVariable), mount.value("mountPath", ""));
  }
  return variables;
}

// The user's variables come last and win: they are merged in by name.
Json Environment(const Json& ours, const Variables& added, const Json& users) {
  Json list = ours.is_array() ? ours : Json::array();
  for (const auto& [name, value] : added) list.push_back({{"name", name}, {"value", value}});
  Json merged = MergeTemplate({{"env", std::move(list)}}, {{"env", users}});
  return std::move(merged["env"]);
}

void RemoveNamed(Json& parent, const char* list, const char* key,
                 const std::vector<std::string>& names) {
  if (!parent.contains(list)) return;
  Json kept = Json::array();
  for (Json& item : parent[list]) {
    if (std::find(names.begin(), names.end(), item.value(key, "")) == names.end()) {
      kept.push_back(std::move(item));
    }
  }
  parent[list] = std::move(kept);
}

// The job's secrets and its frozen spec are our roles' business, not a stranger's; and what an
// image has in /tmp stays visible.
void RemoveOurVolumes(Json& pod, const Json& ours) {
  std::vector<std::string> names;
  for (const Json& volume : ours["spec"]["volumes"]) {
    const std::string name = volume.value("name", "");
    const bool content =
        volume.contains("secret") || volume.contains("configMap") || volume.contains("projected");
    if (content || name == "tmp") names.push_back(name);
  }
  RemoveNamed(pod["spec"], "volumes", "name", names);
  RemoveNamed(*TrainerOf(pod), "volumeMounts", "name", names);
}

void EraseUnlessGiven(Json& object, const Json& given, const std::vector<const char*>& fields) {
  for (const char* field : fields) {
    if (!given.is_object() || !given.contains(field)) object.erase(field);
  }
}

// Which user an image runs as, and whether it writes to its own files, is the image's business.
void FreeTheUser(Json& owner, const Json& given) {
  if (!owner.contains("securityContext")) return;
  EraseUnlessGiven(owner["securityContext"], given.value("securityContext", Json::object()),
                   {"runAsUser", "runAsGroup", "runAsNonRoot", "readOnlyRootFilesystem"});
}

void AddTools(Json& pod, const Rendezvous& rendezvous, const Platform& platform) {
  Json command = {kSupervisor, "--install", absl::StrCat(kToolsFolder, "/", kSupervisor)};
  if (rendezvous.rank > 0) {
    command.push_back("--await-name");
    command.push_back(rendezvous.workers.front().host);
  }
  Json init = {
      {"name", kToolsVolume},
      {"image", platform.image},
      {"command", std::move(command)},
      {"resources", {{"requests", {{"cpu", "10m"}, {"memory", "16Mi"}}}}},
      {"securityContext",
       {{"runAsNonRoot", true},
        {"runAsUser", 65532},
        {"allowPrivilegeEscalation", false},
        {"readOnlyRootFilesystem", true},
        {"capabilities", {{"drop", Json::array({"ALL"})}}},
        {"seccompProfile", {{"type", "RuntimeDefault"}}}}},
      {"volumeMounts", Json::array({{{"name", kToolsVolume}, {"mountPath", kToolsFolder}}})}};
  if (!platform.image_pull_policy.empty()) init["imagePullPolicy"] = platform.image_pull_policy;
  Json& spec = pod["spec"];
  Json all = Json::array({std::move(init)});
  for (const Json& theirs : spec.value("initContainers", Json::array())) all.push_back(theirs);
  spec["initContainers"] = std::move(all);
  spec["volumes"].push_back({{"name", kToolsVolume}, {"emptyDir", Json::object()}});
  (*TrainerOf(pod))["volumeMounts"].push_back(
      {{"name", kToolsVolume}, {"mountPath", kToolsFolder}, {"readOnly", true}});
}

// Our supervisor's part of the command that our own roles have, up to the "--". A process cannot
// come back into a round, where its peers are stuck without it: its end is the pod's, and the pod's
// is the round's.
absl::StatusOr<Json> SupervisorCommand(const Json& ours, const Platform& platform) {
  Json command = Json::array();
  bool restarts = false;
  for (const Json& word : ours) {
    command.push_back(restarts ? Json("0") : word);
    restarts = word == "--max-restarts";
    if (word != "--") continue;
    if (!platform.local()) command[0] = absl::StrCat(kToolsFolder, "/", kSupervisor);
    return command;
  }
  return absl::InternalError("the supervisor's command has no end");
}

absl::StatusOr<Json> ParseTemplate(const v1alpha1::TrainingJobSpec& resolved) {
  const std::string& text = resolved.replica_specs().worker().template_();
  if (text.empty()) return Json::object();
  return json::Parse(text);
}

}  // namespace

absl::StatusOr<Json> BuildContainerPod(const JobIdentity& job,
                                       const v1alpha1::TrainingJobSpec& resolved,
                                       const PodRequest& request, const Round& round,
                                       const Platform& platform) {
  Json ours = Json::object();
  ours["spec"] = DefaultPodSpec(job, resolved, request, platform);
  ASSIGN_OR_RETURN(Json pod, BuildPodOver(ours["spec"], job, resolved, request, platform));
  ASSIGN_OR_RETURN(Json given, ParseTemplate(resolved));
  const Json* theirs = TrainerOf(given);
  if (theirs == nullptr || !theirs->contains("command") || !(*theirs)["command"].is_array()) {
    return absl::InvalidArgumentError(
        "spec.replicaSpecs.worker.template: the container \"trainer\" needs a command; it is run "
        "by "
        "our supervisor, which cannot see the image's own");
  }
  ASSIGN_OR_RETURN(const Rendezvous rendezvous,
                   Meet(job, resolved.workload().container(), request, round, platform));
  Json& trainer = *TrainerOf(pod);
  Json& our_trainer = *TrainerOf(ours);
  ASSIGN_OR_RETURN(Json command, SupervisorCommand(our_trainer["command"], platform));
  for (const char* field : {"command", "args"}) {
    for (const Json& word : theirs->value(field, Json::array())) command.push_back(word);
  }
  trainer["command"] = std::move(command);
  trainer.erase("args");
  const Variables variables =
      VariablesFor(resolved.workload().container().framework(), rendezvous, our_trainer);
  trainer["env"] = Environment(our_trainer["env"], variables, trainer.value("env", Json::array()));
  RemoveOurVolumes(pod, ours);
  EraseUnlessGiven(trainer, *theirs,
                   {"ports", "livenessProbe", "readinessProbe", "startupProbe", "lifecycle",
                    "workingDir", "imagePullPolicy"});
  FreeTheUser(trainer, *theirs);
  FreeTheUser(pod["spec"], given.value("spec", Json::object()));
  if (!platform.local()) AddTools(pod, rendezvous, platform);
  return pod;
}

}  // namespace starling::resources
