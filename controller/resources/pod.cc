// SPDX-License-Identifier: Apache-2.0
// The pod of one member: what we give it, the user's template over that, what the controller needs
// on top.
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "api/spec/quantity.h"
#include "common/json/json.h"
#include "common/net/ports.h"
#include "common/status/macros.h"
#include "controller/kube/message_json.h"
#include "controller/resources/demand.h"
#include "controller/resources/objects.h"
#include "controller/resources/resources.h"
#include "starling/v1alpha1/training_job.pb.h"

namespace starling::resources {
namespace {

constexpr int kUser = 65532;  // of the image: nobody in particular, and not root

std::string Path(std::string_view folder, std::string_view file) {
  return absl::StrCat(Text(folder), "/", Text(file));
}

// One pod to be built.
struct Draft {
  const JobIdentity& job;
  const v1alpha1::TrainingJobSpec& resolved;
  const PodRequest& request;
  const Platform& platform;

  bool member() const { return IsMember(request.role); }
  std::string JobPath() const {
    return platform.local() ? JobFolder(platform.jobs_folder, job) : Text(kClusterJobFolder);
  }
  std::string TemplatePath() const {
    return absl::StrCat("spec.replicaSpecs.", Text(RoleField(request.role)), ".template");
  }
};

// What pods ask for where their template does not say: servers compute little.
struct Appetite {
  const char* cpu;
  const char* memory;
};

constexpr Appetite AppetiteOf(Role role) {
  switch (role) {
    case Role::kCoordinator:
      return {"50m", "64Mi"};
    case Role::kWorker:
      return {"500m", "512Mi"};
    case Role::kParameterServer:
      return {"250m", "256Mi"};
  }
  return {};
}

// The part of the spec that speaks of the pod's role: its template, its restart policy.
template <typename Use>
auto WithRole(const Draft& draft, const Use& use) {
  const v1alpha1::ReplicaSpecs& roles = draft.resolved.replica_specs();
  switch (draft.request.role) {
    case Role::kCoordinator:
      return use(roles.coordinator());
    case Role::kParameterServer:
      return use(roles.parameter_server());
    case Role::kWorker:
      break;
  }
  return use(roles.worker());
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

std::vector<std::string> SupervisorArgs(const Draft& draft) {
  std::vector<std::string> args = {"starling-supervisor",
                                   "--progress-file",
                                   Path(kRunFolder, "progress"),
                                   "--exit-record",
                                   Path(kRunFolder, "exit.json"),
                                   "--max-restarts",
                                   "3",
                                   "--restart-policy"};
  args.push_back(
      PolicyName(WithRole(draft, [](const auto& role) { return role.restart_policy(); })));
  // The process kubelet names the pod's own record and FIFO in the environment.
  if (!draft.platform.local()) {
    args.push_back("--termination-log");
    args.push_back("/dev/termination-log");
  }
  args.push_back("--");
  return args;
}

std::vector<std::string> RoleArgs(const Draft& draft) {
  std::vector<std::string> args = {Text(RoleProgram(draft.request.role)),
                                   "--spec",
                                   Path(kSpecFolder, kSpecKey),
                                   "--tls",
                                   Text(kSecretFolder),
                                   "--address",
                                   "$(POD_IP)",
                                   "--pod-name",
                                   "$(POD_NAME)",
                                   "--pod-uid",
                                   "$(POD_UID)",
                                   "--job-uid",
                                   draft.job.uid,
                                   "--job-name",
                                   draft.job.name};
  if (draft.member()) {
    for (const std::string& arg : {std::string("--secret"), Path(kSecretFolder, kSecretKey),
                                   std::string("--job-dir"), draft.JobPath()}) {
      args.push_back(arg);
    }
  }
  return args;
}

Json Ports(const Draft& draft) {
  Json ports = Json::array();
  const auto add = [&ports](const char* name, int port) {
    ports.push_back({{"name", name}, {"containerPort", port}, {"protocol", "TCP"}});
  };
  if (draft.member()) {
    add("member", net::kMemberPort);
    add("data", net::kDataPort);
  } else {
    add("coordinator", net::kCoordinatorPort);
  }
  add("metrics", net::kMetricsPort);
  return ports;
}

// A place in the pod, and what lies there.
struct Place {
  const char* name;
  std::string path;
  bool read_only;
  Json source;  // the volume without its name
};

Json SecretItem(std::string_view key, std::string_view path) {
  return {{"key", Text(key)}, {"path", Text(path)}};
}

// Of all that the job's secret holds, what this role needs.
Json SecretSource(const Draft& draft) {
  const Role role = draft.request.role;
  Json items =
      Json::array({SecretItem(kAuthorityKey, "ca.crt"), SecretItem(CertificateKey(role), "tls.crt"),
                   SecretItem(PrivateKeyKey(role), "tls.key")});
  if (draft.member()) items.push_back(SecretItem(kSecretKey, kSecretKey));
  // With fsGroup, a kubelet adds the group's right to read.
  return {{"secret",
           {{"secretName", SecretName(draft.job.name)},
            {"defaultMode", 0400},
            {"items", std::move(items)}}}};
}

Json ConfigSource(const Draft& draft) {
  return {{"configMap",
           {{"name", ConfigName(draft.job.name, draft.request.config_generation)},
            {"items", Json::array({SecretItem(kSpecKey, kSpecKey)})}}}};
}

std::vector<Place> Places(const Draft& draft) {
  const Json scratch = {{"emptyDir", Json::object()}};
  std::vector<Place> places = {{"spec", Text(kSpecFolder), true, ConfigSource(draft)},
                               {"secret", Text(kSecretFolder), true, SecretSource(draft)},
                               {"run", Text(kRunFolder), false, scratch}};
  const bool local = draft.platform.local();
  if (draft.member() && local) {
    places.push_back({"job",
                      draft.JobPath(),
                      false,
                      {{"hostPath", {{"path", draft.JobPath()}, {"type", "DirectoryOrCreate"}}}}});
  } else if (draft.member()) {
    places.push_back({"job", draft.JobPath(), false, scratch});
    places.push_back({"shm", "/dev/shm", false, {{"emptyDir", {{"medium", "Memory"}}}}});
  }
  if (!local) places.push_back({"tmp", "/tmp", false, scratch});
  return places;
}

// What only matters where a kubelet and an admission controller look at it.
void AddClusterParts(const Draft& draft, Json& container) {
  container["image"] = draft.platform.image;
  if (!draft.platform.image_pull_policy.empty()) {
    container["imagePullPolicy"] = draft.platform.image_pull_policy;
  }
  container["workingDir"] = Text(kImageFolder);  // where relative URIs start
  container["securityContext"] = {{"allowPrivilegeEscalation", false},
                                  {"capabilities", {{"drop", Json::array({"ALL"})}}},
                                  {"readOnlyRootFilesystem", true}};
  // Only whether it serves by now: whether it trains is the coordinator's to judge. A kubelet warns
  // of each probe that fails, so it is not asked before the program listens, nor, as a readiness
  // probe would be, when training has ended and the program with it.
  container["startupProbe"] = {{"httpGet", {{"path", "/readyz"}, {"port", "metrics"}}},
                               {"initialDelaySeconds", 3},
                               {"periodSeconds", 5},
                               {"timeoutSeconds", 2},
                               {"failureThreshold", 720}};  // an hour: then it is ended
  container["terminationMessagePath"] = "/dev/termination-log";
}

Json Container(const Draft& draft, const std::vector<Place>& places) {
  std::vector<std::string> command = SupervisorArgs(draft);
  for (std::string& arg : RoleArgs(draft)) command.push_back(std::move(arg));
  Json mounts = Json::array();
  for (const Place& place : places) {
    Json mount = {{"name", place.name}, {"mountPath", place.path}};
    if (place.read_only) mount["readOnly"] = true;
    mounts.push_back(std::move(mount));
  }
  Json env = Json::array({FieldEnv("POD_NAME", "metadata.name"),
                          FieldEnv("POD_NAMESPACE", "metadata.namespace"),
                          FieldEnv("POD_UID", "metadata.uid"), FieldEnv("POD_IP", "status.podIP")});
  if (!draft.job.traceparent.empty()) {
    env.push_back({{"name", "TRACEPARENT"}, {"value", draft.job.traceparent}});
  }
  Json container = {{"name", Text(kContainer)},
                    {"image", "starling"},
                    {"command", std::move(command)},
                    {"env", std::move(env)},
                    {"ports", Ports(draft)},
                    {"terminationMessagePolicy", "FallbackToLogsOnError"},
                    {"volumeMounts", std::move(mounts)}};
  if (!draft.platform.local()) AddClusterParts(draft, container);
  return container;
}

// Members of a role spread over the nodes, where there is room.
Json SpreadOverNodes(const Draft& draft) {
  return Json::array({{{"maxSkew", 1},
                       {"topologyKey", "kubernetes.io/hostname"},
                       {"whenUnsatisfiable", "ScheduleAnyway"},
                       {"labelSelector",
                        {{"matchLabels",
                          {{Text(kJobLabel), draft.job.name},
                           {Text(kRoleLabel), Text(RoleName(draft.request.role))}}}}}}});
}

// A coordinator that stands by is of use where the other one's node is lost: beside it only where
// there is no other room.
Json ApartFromTheOther(const Draft& draft) {
  const Json others = {{"matchLabels",
                        {{Text(kJobLabel), draft.job.name},
                         {Text(kRoleLabel), Text(RoleName(draft.request.role))}}}};
  const Json term = {{"topologyKey", "kubernetes.io/hostname"}, {"labelSelector", others}};
  return {{"podAntiAffinity",
           {{"preferredDuringSchedulingIgnoredDuringExecution",
             Json::array({{{"weight", 100}, {"podAffinityTerm", term}}})}}}};
}

Json DefaultSpec(const Draft& draft) {
  const std::vector<Place> places = Places(draft);
  Json volumes = Json::array();
  for (const Place& place : places) {
    Json volume = place.source;
    volume["name"] = place.name;
    volumes.push_back(std::move(volume));
  }
  Json spec = {{"enableServiceLinks", false},
               {"automountServiceAccountToken", false},
               {"subdomain", ServiceName(draft.job.name)},
               {"hostname", PodName(draft.job.name, draft.request.role, draft.request.index)},
               {"terminationGracePeriodSeconds", draft.platform.local() ? 20 : 30},
               {"containers", Json::array({Container(draft, places)})},
               {"volumes", std::move(volumes)}};
  if (draft.platform.local()) return spec;
  spec["securityContext"] = {{"runAsNonRoot", true},
                             {"runAsUser", kUser},
                             {"runAsGroup", kUser},
                             {"fsGroup", kUser},
                             {"fsGroupChangePolicy", "OnRootMismatch"},
                             {"seccompProfile", {{"type", "RuntimeDefault"}}}};
  spec["topologySpreadConstraints"] = SpreadOverNodes(draft);
  const bool pair = draft.resolved.replica_specs().coordinator().standby();
  if (pair && draft.request.role == Role::kCoordinator) spec["affinity"] = ApartFromTheOther(draft);
  return spec;
}

absl::Status Refuse(const Draft& draft, std::string_view field, std::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat(draft.TemplatePath(), Text(field), ": must be ", Text(what)));
}

absl::StatusOr<Json> TemplateOf(const Draft& draft) {
  const std::string text = WithRole(draft, [](const auto& role) { return role.template_(); });
  if (text.empty()) return Json::object();
  ASSIGN_OR_RETURN(Json value, json::Parse(text));
  if (value.is_object()) return value;
  return Refuse(draft, "",
                absl::StrCat("an object (a PodTemplateSpec), not ", json::Describe(value)));
}

// The object at `key`, made if there is none; null: there is something else.
Json* ObjectAt(Json& parent, const char* key) {
  Json& child = parent[key];
  if (child.is_null()) child = Json::object();
  return child.is_object() ? &child : nullptr;
}

// The container "trainer" of a merged pod; null: `containers` is not a list that has it.
Json* TrainerOf(Json& spec) {
  Json& containers = spec["containers"];
  if (!containers.is_array()) return nullptr;
  for (Json& container : containers) {
    if (container.is_object() && container.value("name", Json()) == Json(kContainer)) {
      return &container;
    }
  }
  return nullptr;
}

// A default request where the template says nothing of the resource: beside a limit of the user's
// it could be more than that.
absl::Status SetResources(const Draft& draft, Json& trainer) {
  Json* resources = ObjectAt(trainer, "resources");
  Json* requests = resources == nullptr ? nullptr : ObjectAt(*resources, "requests");
  Json* limits = resources == nullptr ? nullptr : ObjectAt(*resources, "limits");
  if (requests == nullptr || limits == nullptr) {
    return Refuse(draft, ".spec.containers.trainer.resources", "an object of objects");
  }
  const Appetite appetite = AppetiteOf(draft.request.role);
  const std::pair<const char*, const char*> defaults[] = {{"cpu", appetite.cpu},
                                                          {"memory", appetite.memory}};
  for (const auto& [name, amount] : defaults) {
    if (!requests->contains(name) && !limits->contains(name)) (*requests)[name] = amount;
  }
  if (!draft.request.memory.empty()) {
    (*requests)["memory"] = draft.request.memory;
    (*limits)["memory"] = draft.request.memory;
  }
  if (limits->empty()) resources->erase("limits");
  return absl::OkStatus();
}

// Terms are alternatives, so each of them must exclude the nodes.
absl::Status AvoidNodes(const Draft& draft, Json& spec) {
  if (draft.request.avoid.empty()) return absl::OkStatus();
  Json* affinity = ObjectAt(spec, "affinity");
  Json* node = affinity == nullptr ? nullptr : ObjectAt(*affinity, "nodeAffinity");
  Json* required =
      node == nullptr ? nullptr : ObjectAt(*node, "requiredDuringSchedulingIgnoredDuringExecution");
  if (required == nullptr) return Refuse(draft, ".spec.affinity", "an object of objects");
  Json& terms = (*required)["nodeSelectorTerms"];
  if (terms.is_null() || terms == Json::array()) terms = Json::array({Json::object()});
  if (!terms.is_array()) return Refuse(draft, ".spec.affinity.nodeAffinity", "a node affinity");
  for (Json& term : terms) {
    Json* fields = term.is_object() ? &term["matchFields"] : nullptr;
    if (fields == nullptr || !(fields->is_null() || fields->is_array())) {
      return Refuse(draft, ".spec.affinity.nodeAffinity", "a node affinity");
    }
    for (const std::string& name : draft.request.avoid) {
      fields->push_back(
          {{"key", "metadata.name"}, {"operator", "NotIn"}, {"values", Json::array({name})}});
    }
  }
  return absl::OkStatus();
}

// What the controller finds its pods by is not the user's to change.
absl::Status SetMetadata(const Draft& draft, Json merged, Json& metadata) {
  Json* labels = ObjectAt(merged, "labels");
  Json* annotations = ObjectAt(merged, "annotations");
  if (labels == nullptr || annotations == nullptr) {
    return Refuse(draft, ".metadata", "labels and annotations, each an object");
  }
  const std::string role = Text(RoleName(draft.request.role));
  labels->update(metadata["labels"]);
  (*labels)[Text(kRoleLabel)] = role;
  (*labels)["app.kubernetes.io/component"] = role;
  SetAnnotations(*annotations, draft.request);
  metadata["labels"] = std::move(*labels);
  metadata["annotations"] = std::move(*annotations);
  return absl::OkStatus();
}

}  // namespace

void SetIndex(Json& pod, const JobIdentity& job, Role role, std::int64_t index) {
  Json& metadata = pod["metadata"];
  metadata["name"] = PodName(job.name, role, index);
  metadata["labels"][Text(kIndexLabel)] = absl::StrCat(index);
}

void SetAnnotations(Json& annotations, const PodRequest& request) {
  annotations[Text(kGenerationAnnotation)] = absl::StrCat(request.config_generation);
  for (const auto& [name, value] : request.annotations) annotations[name] = value;
}

double DefaultCores(Role role) { return spec::ParseQuantity(AppetiteOf(role).cpu).value_or(0); }

Json DefaultPodSpec(const JobIdentity& job, const v1alpha1::TrainingJobSpec& resolved,
                    const PodRequest& request, const Platform& platform) {
  return DefaultSpec({job, resolved, request, platform});
}

absl::StatusOr<Json> BuildPod(const JobIdentity& job, const v1alpha1::TrainingJobSpec& resolved,
                              const PodRequest& request, const Platform& platform) {
  return BuildPodOver(DefaultPodSpec(job, resolved, request, platform), job, resolved, request,
                      platform);
}

absl::StatusOr<Json> BuildPodOver(Json defaults, const JobIdentity& job,
                                  const v1alpha1::TrainingJobSpec& resolved,
                                  const PodRequest& request, const Platform& platform) {
  const Draft draft{job, resolved, request, platform};
  Json pod = {
      {"apiVersion", "v1"}, {"kind", "Pod"}, {"metadata", kube::ToJson(Owned(job, job.name))}};
  ASSIGN_OR_RETURN(const Json user, TemplateOf(draft));
  Json base = {{"metadata", Json::object()}};
  base["spec"] = std::move(defaults);
  Json merged = MergeTemplate(std::move(base), user);
  Json* metadata = ObjectAt(merged, "metadata");
  Json* spec = ObjectAt(merged, "spec");
  if (metadata == nullptr || spec == nullptr) {
    return Refuse(draft, "", "an object whose metadata and spec are objects");
  }
  RETURN_IF_ERROR(SetMetadata(draft, std::move(*metadata), pod["metadata"]));
  SetIndex(pod, job, request.role, request.index);
  Json* trainer = TrainerOf(*spec);
  if (trainer == nullptr) {
    return Refuse(draft, ".spec.containers", "a list; our container in it is \"trainer\"");
  }
  if (!platform.local()) RETURN_IF_ERROR(SetResources(draft, *trainer));
  RETURN_IF_ERROR(AvoidNodes(draft, *spec));
  (*spec)["restartPolicy"] = "Never";
  pod["spec"] = std::move(*spec);
  return pod;
}

}  // namespace starling::resources
