// SPDX-License-Identifier: Apache-2.0
#include "controller/resources/tools.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace starling::resources {
namespace {

constexpr char kTools[] = "starling-tools";

template <typename AnyJson>
AnyJson* FindTrainer(AnyJson& pod_or_template) {
  if (!pod_or_template.is_object() || !pod_or_template.contains("spec")) return nullptr;
  AnyJson& spec = pod_or_template["spec"];
  if (!spec.is_object() || !spec.contains("containers")) return nullptr;
  for (AnyJson& container : spec["containers"]) {
    if (container.is_object() && container.value("name", Json()) == Json(Text(kContainer))) {
      return &container;
    }
  }
  return nullptr;
}

// What Pod Security asks of each container, where the pod does not say it for all.
Json ToolsSecurity(const Json& of_pod) {
  Json security = {{"runAsNonRoot", true},
                   {"allowPrivilegeEscalation", false},
                   {"readOnlyRootFilesystem", true},
                   {"capabilities", {{"drop", Json::array({"ALL"})}}}};
  // Else it is the image's own.
  if (of_pod.contains("runAsUser")) security["runAsUser"] = 65532;
  if (!of_pod.contains("seccompProfile")) security["seccompProfile"] = {{"type", "RuntimeDefault"}};
  return security;
}

}  // namespace

const Json* TrainerIn(const Json& pod_or_template) { return FindTrainer(pod_or_template); }
Json* TrainerIn(Json& pod_or_template) { return FindTrainer(pod_or_template); }

std::string InstalledSupervisor() { return absl::StrCat(Text(kRunFolder), "/", kSupervisor); }

void AddTools(Json& pod, const std::vector<std::string>& more, const Platform& platform) {
  Json command = {kSupervisor, "--install", InstalledSupervisor()};
  for (const std::string& word : more) command.push_back(word);
  Json& spec = pod["spec"];
  Json init = {
      {"name", kTools},
      {"image", platform.image},
      {"command", std::move(command)},
      {"resources", {{"requests", {{"cpu", "10m"}, {"memory", "16Mi"}}}}},
      {"securityContext", ToolsSecurity(spec.value("securityContext", Json::object()))},
      {"volumeMounts", Json::array({{{"name", kRunVolume}, {"mountPath", Text(kRunFolder)}}})}};
  if (!platform.image_pull_policy.empty()) init["imagePullPolicy"] = platform.image_pull_policy;
  Json all = Json::array({std::move(init)});
  for (const Json& theirs : spec.value("initContainers", Json::array())) all.push_back(theirs);
  spec["initContainers"] = std::move(all);
}

}  // namespace starling::resources
