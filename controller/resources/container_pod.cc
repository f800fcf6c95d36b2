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
#include "controller/resources/tools.h"
#include "starling/v1alpha1/training_job.pb.h"

namespace starling::resources {
namespace {

constexpr char kJobVolume[] = "job";

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
                                std::int64_t index, const Round& round, const Platform& platform) {
  const auto place = std::find(round.members.begin(), round.members.end(), index);
  if (place == round.members.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("worker ", index, " is not in round ", round.number));
  }
  return Rendezvous{.id = absl::StrCat(job.uid, "-", round.number),
                    .round = round.number,
                    .rank = place - round.members.begin(),
                    .processes = std::max<std::int64_t>(container.processes_per_pod(), 1),
                    .workers = Endpoints(job, round, static_cast<int>(container.port()), platform),
                    .local = platform.local()};
}

// Told to the program by our supervisor instead of in the pod's description: that is written anew
// with each change of the pod's status, and every variable of it costs the API server.
constexpr std::string_view kBySupervisor[] = {
    "LOCAL_RANK",       "LOCAL_WORLD_SIZE",  "NODE_RANK",       "STARLING_ROUND",
    "PET_RDZV_BACKEND", "PET_RDZV_ENDPOINT", "PET_RDZV_ID",     "PET_MAX_RESTARTS",
    "PYTHONUNBUFFERED", "PET_MASTER_ADDR",   "PET_MASTER_PORT", "PET_NPROC_PER_NODE",
    "PET_NNODES",       "PET_NODE_RANK"};

// Whether `given`, the template, speaks of the variable: a kubelet puts it into commands and into
// other variables, and knows only those of the description.
bool IsBySupervisor(std::string_view name, const std::string& given) {
  return std::find(std::begin(kBySupervisor), std::end(kBySupervisor), name) !=
             std::end(kBySupervisor) &&
         given.find(absl::StrCat("$(", Text(name), ")")) == std::string::npos;
}

Variables VariablesFor(v1alpha1::ContainerFramework framework, const Rendezvous& rendezvous) {
  Variables variables = CommonVariables(rendezvous);
  for (auto& variable : FrameworkVariables(framework, rendezvous)) {
    variables.push_back(std::move(variable));
  }
  return variables;
}

// The user's variables come last and win: they are merged in by name. Of the downward API's, those
// that the template speaks of.
Json Environment(const Json& ours, const std::string& given, const Variables& added,
                 const Json& users) {
  Json list = Json::array();
  for (const Json& variable : ours) {
    if (given.find(variable.value("name", "")) != std::string::npos) list.push_back(variable);
  }
  for (const auto& [name, value] : added) {
    if (!IsBySupervisor(name, given)) list.push_back({{"name", name}, {"value", value}});
  }
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

// Whether the template says where the job's folder is to lie.
bool PlacesJobFolder(const Json& given, const Json& theirs) {
  const auto any = [](const Json& list, const char* key, std::string_view value) {
    return list.is_array() && std::any_of(list.begin(), list.end(), [&](const Json& item) {
             return item.is_object() && item.value(key, "") == value;
           });
  };
  const Json none = Json::array();
  return any(given["spec"].value("volumes", none), "name", kJobVolume) ||
         any(theirs.value("volumeMounts", none), "mountPath", kClusterJobFolder);
}

// The folder that outlives the program: on one machine the job's, in a cluster on the pod's disk.
std::string JobFolderOf(const Json& our_trainer, bool placed, const Platform& platform) {
  if (!platform.local() && !placed) return absl::StrCat(Text(kRunFolder), "/", kJobVolume);
  for (const Json& mount : our_trainer["volumeMounts"]) {
    if (mount.value("name", "") == kJobVolume) return mount.value("mountPath", "");
  }
  return Text(kClusterJobFolder);
}

// The job's secrets and its frozen spec are our roles' business, not a stranger's; what an image
// has in /tmp stays visible; and of disks of the pod one is enough.
void DropVolumes(Json& spec, Json& trainer, bool job_folder) {
  std::vector<std::string> names;
  for (const Json& volume : spec["volumes"]) {
    const std::string name = volume.value("name", "");
    const bool content = volume.contains("secret") || volume.contains("configMap");
    if (content || name == "tmp" || (name == kJobVolume && !job_folder)) names.push_back(name);
  }
  RemoveNamed(spec, "volumes", "name", names);
  RemoveNamed(trainer, "volumeMounts", "name", names);
}

// What our own roles need and a stranger's image does not. Which user it runs as, whether it writes
// to its own files, and the group of its volumes are the image's and the template's business. The
// pods are not spread over nodes: a round ends with any one of them, so each node more would be one
// more that can end it. And what the API server adds where nothing is said is not said.
void DropOurs(Json& spec, Json& trainer, const Platform& platform, bool job_folder) {
  DropVolumes(spec, trainer, job_folder);
  for (const char* field :
       {"ports", "startupProbe", "workingDir", "imagePullPolicy", "terminationMessagePath"}) {
    trainer.erase(field);
  }
  if (platform.local()) return;
  trainer["securityContext"].erase("readOnlyRootFilesystem");
  for (const char* field :
       {"runAsUser", "runAsGroup", "runAsNonRoot", "fsGroup", "fsGroupChangePolicy"}) {
    spec["securityContext"].erase(field);
  }
  spec.erase("topologySpreadConstraints");
  spec.erase("terminationGracePeriodSeconds");
}

// Who is not the first waits for the first one's name.
std::vector<std::string> Awaited(const Rendezvous& rendezvous) {
  if (rendezvous.rank == 0) return {};
  return {"--await-name", rendezvous.workers.front().host};
}

// Our supervisor's part of the command, up to the "--". A process cannot come back into a round,
// where its peers are stuck without it: its end is the pod's, and the pod's is the round's.
Json SupervisorCommand(const Json& ours, const std::string& given, const Variables& variables,
                       const std::string& job_folder, const Platform& platform) {
  Json command = {platform.local() ? kSupervisor : InstalledSupervisor(), "--exit-record",
                  absl::StrCat(Text(kRunFolder), "/exit.json"), "--max-restarts", "0"};
  const auto add = [&command](const char* flag, std::string value) {
    command.push_back(flag);
    command.push_back(std::move(value));
  };
  const auto policy = std::find(ours.begin(), ours.end(), "--restart-policy");
  if (policy != ours.end()) add("--restart-policy", *std::next(policy));
  // The process kubelet names the pod's own record and FIFO in the environment.
  if (!platform.local()) add("--termination-log", "/dev/termination-log");
  add("--job-dir", job_folder);
  for (const auto& [name, value] : variables) {
    if (IsBySupervisor(name, given)) add("--env", absl::StrCat(name, "=", value));
  }
  command.push_back("--");
  return command;
}

absl::StatusOr<Json> ParseTemplate(const v1alpha1::TrainingJobSpec& resolved) {
  const std::string& text = resolved.replica_specs().worker().template_();
  if (text.empty()) return Json::object();
  return json::Parse(text);
}

}  // namespace

struct RoundPods::Parts {
  JobIdentity job;
  v1alpha1::Container container;
  Platform platform;
  Role role = Role::kWorker;
  std::string text;        // the template
  std::string job_folder;  // that outlives the program
  Json our_command;
  Json our_env;
  Json their_words = Json::array();  // command and arguments
  Json their_env;
  bool our_host_name = false;  // and not the template's
  Json pod;                    // of any index, and without command and variables
};

absl::StatusOr<RoundPods> RoundPods::Make(const JobIdentity& job,
                                          const v1alpha1::TrainingJobSpec& resolved,
                                          const PodRequest& request, const Platform& platform) {
  ASSIGN_OR_RETURN(const Json given, ParseTemplate(resolved));
  const Json* theirs = TrainerIn(given);
  if (theirs == nullptr || !theirs->contains("command") || !(*theirs)["command"].is_array()) {
    return absl::InvalidArgumentError(
        "spec.replicaSpecs.worker.template: the container \"trainer\" needs a command; it is run "
        "by "
        "our supervisor, which cannot see the image's own");
  }
  auto parts = std::make_shared<Parts>();
  parts->job = job;
  parts->container = resolved.workload().container();
  parts->platform = platform;
  parts->role = request.role;
  parts->text = resolved.replica_specs().worker().template_();
  for (const char* field : {"command", "args"}) {
    for (const Json& word : theirs->value(field, Json::array())) parts->their_words.push_back(word);
  }
  parts->their_env = theirs->value("env", Json::array());

  const PodRequest common{.role = request.role, .avoid = request.avoid, .memory = request.memory};
  Json ours = DefaultPodSpec(job, resolved, common, platform);
  Json& our_trainer = ours["containers"][0];
  const bool places_folder = PlacesJobFolder(given, *theirs);
  parts->job_folder = JobFolderOf(our_trainer, places_folder, platform);
  parts->our_command = std::move(our_trainer["command"]);
  parts->our_env = std::move(our_trainer["env"]);
  our_trainer.erase("command");
  our_trainer.erase("env");
  DropOurs(ours, our_trainer, platform, platform.local() || places_folder);
  ASSIGN_OR_RETURN(parts->pod, BuildPodOver(std::move(ours), job, resolved, common, platform));
  Json& trainer = *TrainerIn(parts->pod);
  for (const char* field : {"command", "args", "env"}) trainer.erase(field);
  parts->our_host_name =
      parts->pod["spec"].contains("hostname") && !given["spec"].contains("hostname");
  return RoundPods(std::move(parts));
}

absl::StatusOr<Json> RoundPods::Pod(const PodRequest& request, const Round& round) const {
  const Parts& of = *parts_;
  ASSIGN_OR_RETURN(const Rendezvous rendezvous,
                   Meet(of.job, of.container, request.index, round, of.platform));
  Variables variables = VariablesFor(of.container.framework(), rendezvous);
  if (!of.job.traceparent.empty()) variables.emplace_back("TRACEPARENT", of.job.traceparent);
  Json pod = of.pod;
  SetIndex(pod, of.job, of.role, request.index);
  SetAnnotations(pod["metadata"]["annotations"], request);
  if (of.our_host_name) pod["spec"]["hostname"] = PodName(of.job.name, of.role, request.index);
  Json& trainer = *TrainerIn(pod);
  Json& command = trainer["command"];
  command = SupervisorCommand(of.our_command, of.text, variables, of.job_folder, of.platform);
  for (const Json& word : of.their_words) command.push_back(word);
  trainer["env"] = Environment(of.our_env, of.text, variables, of.their_env);
  if (!of.platform.local()) AddTools(pod, Awaited(rendezvous), of.platform);
  return pod;
}

absl::StatusOr<Json> BuildContainerPod(const JobIdentity& job,
                                       const v1alpha1::TrainingJobSpec& resolved,
                                       const PodRequest& request, const Round& round,
                                       const Platform& platform) {
  ASSIGN_OR_RETURN(const RoundPods pods, RoundPods::Make(job, resolved, request, platform));
  return pods.Pod(request, round);
}

}  // namespace starling::resources
