// SPDX-License-Identifier: Apache-2.0
#include "controller/local/container_plan.h"

#include <sys/stat.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/status/macros.h"
#include "controller/kube/objects.h"

namespace starling::local {
namespace {

using kube::Json;
using kube::StringAt;

bool IsNamed(const std::string& variable, std::string_view name) {
  return variable.size() > name.size() && variable.starts_with(name) &&
         variable[name.size()] == '=';
}

const std::string* Find(const std::vector<std::string>& variables, std::string_view name) {
  for (const std::string& variable : variables) {
    if (IsNamed(variable, name)) return &variable;
  }
  return nullptr;
}

// One key of a Secret or ConfigMap; nothing when it is optional and not there.
absl::StatusOr<std::optional<std::string>> ReadKey(const Json& reference,
                                                   const kube::ResourceKind& kind,
                                                   const ObjectReader& read) {
  const std::string name = StringAt(reference, "/name");
  const std::string key = StringAt(reference, "/key");
  const bool optional = kube::BoolAt(reference, "/optional");
  const auto object = read(kind, name);
  if (absl::IsNotFound(object.status()) && optional) return std::nullopt;
  RETURN_IF_ERROR(object.status());
  for (auto& [entry, value] : DataOf(*object)) {
    if (entry == key) return value;
  }
  if (optional) return std::nullopt;
  return absl::NotFoundError(
      absl::StrCat(std::string(kind.kind), " ", name, " has no key \"", key, "\""));
}

absl::StatusOr<std::optional<std::string>> ResolveValue(const PodFacts& facts, const Json& entry,
                                                        const std::vector<std::string>& variables,
                                                        const ObjectReader& read) {
  const Json& from = kube::At(entry, "/valueFrom");
  if (!from.is_object()) return ExpandVariables(StringAt(entry, "/value"), variables);
  if (from.contains("fieldRef")) return ResolveField(facts, StringAt(from, "/fieldRef/fieldPath"));
  if (from.contains("secretKeyRef")) return ReadKey(from["secretKeyRef"], kube::kSecret, read);
  if (from.contains("configMapKeyRef")) {
    return ReadKey(from["configMapKeyRef"], kube::kConfigMap, read);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("env ", StringAt(entry, "/name"),
                   ": local mode knows fieldRef, secretKeyRef and configMapKeyRef only"));
}

absl::Status AddEnvFrom(const Json& container, std::vector<std::string>& variables,
                        const ObjectReader& read) {
  for (const Json& source : kube::At(container, "/envFrom")) {
    const bool secret = source.contains("secretRef");
    const Json& reference = kube::At(source, secret ? "/secretRef" : "/configMapRef");
    const auto object =
        read(secret ? kube::kSecret : kube::kConfigMap, StringAt(reference, "/name"));
    if (absl::IsNotFound(object.status()) && kube::BoolAt(reference, "/optional")) continue;
    RETURN_IF_ERROR(object.status());
    for (const auto& [key, value] : DataOf(*object)) {
      SetVariable(variables, absl::StrCat(StringAt(source, "/prefix"), key), value);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> Environment(const PodFacts& facts, const Json& container,
                                                     const std::vector<Mount>& mounts,
                                                     std::vector<std::string> variables,
                                                     const ObjectReader& read) {
  RETURN_IF_ERROR(AddEnvFrom(container, variables, read));
  for (const Json& entry : kube::At(container, "/env")) {
    ASSIGN_OR_RETURN(const auto value, ResolveValue(facts, entry, variables, read));
    if (value) SetVariable(variables, StringAt(entry, "/name"), RewritePath(*value, mounts));
  }
  return variables;
}

bool IsExecutable(const std::string& path) {
  struct stat info {};
  return stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) && access(path.c_str(), X_OK) == 0;
}

std::string FindProgram(const std::string& name, const std::string& program_folder,
                        const std::vector<std::string>& environment) {
  if (name.find('/') != std::string::npos) return name;
  if (std::string path = absl::StrCat(program_folder, "/", name); IsExecutable(path)) {
    return path;
  }
  const std::string* variable = Find(environment, "PATH");
  if (variable != nullptr) {
    for (const auto folder : absl::StrSplit(variable->substr(5), ':', absl::SkipEmpty())) {
      if (std::string path = absl::StrCat(folder, "/", name); IsExecutable(path)) return path;
    }
  }
  return absl::StrCat(program_folder, "/", name);  // so that the error says where it should be
}

}  // namespace

absl::StatusOr<const Json*> OnlyContainer(const Json& pod) {
  const Json& containers = kube::At(pod, "/spec/containers");
  const Json& init = kube::At(pod, "/spec/initContainers");
  if (!containers.is_array() || containers.size() != 1 || !containers[0].is_object() ||
      !init.empty()) {
    return absl::InvalidArgumentError(
        "local mode runs pods of exactly one container and no initContainers; use a cluster for "
        "others");
  }
  return &containers[0];
}

void SetVariable(std::vector<std::string>& variables, const std::string& name,
                 const std::string& value) {
  for (std::string& variable : variables) {
    if (IsNamed(variable, name)) {
      variable = absl::StrCat(name, "=", value);
      return;
    }
  }
  variables.push_back(absl::StrCat(name, "=", value));
}

std::string ExpandVariables(const std::string& text, const std::vector<std::string>& variables) {
  std::string expanded;
  for (std::size_t at = 0; at < text.size();) {
    if (text[at] != '$' || at + 1 == text.size()) {
      expanded += text[at++];
      continue;
    }
    if (text[at + 1] == '$') {
      expanded += '$';
      at += 2;
      continue;
    }
    const auto close = text.find(')', at);
    const bool reference = text[at + 1] == '(' && close != std::string::npos;
    const std::string name = reference ? text.substr(at + 2, close - at - 2) : std::string();
    if (const std::string* variable = reference ? Find(variables, name) : nullptr) {
      expanded += variable->substr(name.size() + 1);
      at = close + 1;
    } else {
      expanded += text[at++];
    }
  }
  return expanded;
}

std::string RewritePath(const std::string& text, const std::vector<Mount>& mounts) {
  std::size_t start = 0;
  if (!text.starts_with('/')) {
    const auto equals = text.find("=/");
    if (equals == std::string::npos) return text;
    start = equals + 1;
  }
  const Mount* longest = nullptr;
  for (const Mount& mount : mounts) {
    const std::string& path = mount.mount_path;
    if (path.empty() || text.compare(start, path.size(), path) != 0) continue;
    const std::size_t end = start + path.size();
    if (end != text.size() && text[end] != '/') continue;
    if (longest == nullptr || path.size() > longest->mount_path.size()) longest = &mount;
  }
  if (longest == nullptr) return text;
  return absl::StrCat(text.substr(0, start), longest->real_path,
                      text.substr(start + longest->mount_path.size()));
}

absl::StatusOr<process::LaunchPlan> PlanContainer(const PodFacts& facts, const Json& container,
                                                  const std::vector<Mount>& mounts,
                                                  const std::vector<std::string>& base,
                                                  const std::string& program_folder,
                                                  const ObjectReader& read) {
  process::LaunchPlan plan;
  ASSIGN_OR_RETURN(plan.environment, Environment(facts, container, mounts, base, read));
  for (const char* field : {"/command", "/args"}) {
    for (const Json& word : kube::At(container, field)) {
      if (!word.is_string()) continue;
      plan.arguments.push_back(
          RewritePath(ExpandVariables(word.get<std::string>(), plan.environment), mounts));
    }
  }
  if (!kube::At(container, "/command").is_array() || plan.arguments.empty()) {
    return absl::InvalidArgumentError(
        "the container has no command; local mode runs programs, not images: give it one");
  }
  plan.program = FindProgram(plan.arguments.front(), program_folder, plan.environment);
  plan.arguments.erase(plan.arguments.begin());
  plan.working_directory = RewritePath(StringAt(container, "/workingDir"), mounts);
  return plan;
}

}  // namespace starling::local
