// SPDX-License-Identifier: Apache-2.0
#include "api/spec/stored_job.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"

namespace starling::spec {

std::string TextIn(const nlohmann::json& job, const char* pointer) {
  const nlohmann::json::json_pointer path(pointer);
  if (!job.contains(path) || !job.at(path).is_string()) return "";
  return job.at(path).get<std::string>();
}

std::string AnnotationIn(const nlohmann::json& job, const char* name, std::size_t longest) {
  const nlohmann::json::json_pointer path("/metadata/annotations");
  if (!job.contains(path) || !job.at(path).is_object()) return "";
  const auto found = job.at(path).find(name);
  if (found == job.at(path).end() || !found->is_string()) return "";
  return found->get<std::string>().substr(0, longest);
}

bool HasCondition(const nlohmann::json& job, const char* type) {
  const nlohmann::json::json_pointer path("/status/conditions");
  if (!job.contains(path) || !job.at(path).is_array()) return false;
  for (const nlohmann::json& condition : job.at(path)) {
    if (TextIn(condition, "/type") == type && TextIn(condition, "/status") == "True") return true;
  }
  return false;
}

nlohmann::json AnnotationPatch(const nlohmann::json& job, const char* name,
                               const nlohmann::json& value) {
  return {{"metadata", {{"uid", TextIn(job, "/metadata/uid")}, {"annotations", {{name, value}}}}}};
}

std::string RequestTime(absl::Time now) {
  return absl::FormatTime("%Y-%m-%d%ET%H:%M:%E9SZ", now, absl::UTCTimeZone());
}

absl::Status RefusalBecause(const nlohmann::json& job, const std::string& why) {
  if (why.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("job \"", TextIn(job, "/metadata/name"), "\" ", why));
}

Idleness IdlenessOf(const nlohmann::json& job) {
  using Idle = Idleness::Kind;
  using Pointer = nlohmann::json::json_pointer;
  if (HasCondition(job, "Succeeded") || HasCondition(job, "Failed")) return {Idle::kFinished, ""};
  if (!TextIn(job, "/metadata/deletionTimestamp").empty()) return {Idle::kDeleted, ""};
  if (job.value(Pointer("/spec/runPolicy/suspend"), nlohmann::json()) == nlohmann::json(true)) {
    return {Idle::kSuspended, ""};
  }
  const std::string manager = TextIn(job, "/spec/runPolicy/managedBy");
  if (!manager.empty() && manager != "starling.dev/controller") return {Idle::kManaged, manager};
  if (job.contains(Pointer("/spec/workload/container"))) return {Idle::kContainer, ""};
  return {};
}

}  // namespace starling::spec
