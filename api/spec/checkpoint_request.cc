// SPDX-License-Identifier: Apache-2.0
#include "api/spec/checkpoint_request.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"

namespace starling::spec {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kLongest = 64;

std::string TextAt(const Json& object, const char* pointer) {
  const Json::json_pointer path(pointer);
  if (!object.contains(path) || !object.at(path).is_string()) return "";
  return object.at(path).get<std::string>();
}

bool HasCondition(const Json& job, const char* type) {
  const Json::json_pointer path("/status/conditions");
  if (!job.contains(path) || !job.at(path).is_array()) return false;
  for (const Json& condition : job.at(path)) {
    if (TextAt(condition, "/type") == type && TextAt(condition, "/status") == "True") return true;
  }
  return false;
}

// Why there is nobody to write one; empty: somebody is, or will be.
std::string WhyNot(const Json& job) {
  if (HasCondition(job, "Succeeded") || HasCondition(job, "Failed")) {
    return "is finished; its last checkpoint is in status.lastCheckpoint";
  }
  if (!TextAt(job, "/metadata/deletionTimestamp").empty()) return "is being deleted";
  if (job.value(Json::json_pointer("/spec/runPolicy/suspend"), Json()) == Json(true)) {
    return "is suspended, and was saved then: see status.lastCheckpoint; resume it first";
  }
  const std::string manager = TextAt(job, "/spec/runPolicy/managedBy");
  if (!manager.empty() && manager != "starling.dev/controller") {
    return absl::StrCat("is managed by ", manager, "; ask there");
  }
  if (job.contains(Json::json_pointer("/spec/workload/container"))) {
    return "brings its own container, which writes checkpoints as it likes; only spec.workload "
           "kinds of ours can be asked for one";
  }
  return "";
}

}  // namespace

std::string CheckpointRequestOf(const Json& job) {
  const Json::json_pointer path("/metadata/annotations");
  if (!job.contains(path) || !job.at(path).is_object()) return "";
  const auto found = job.at(path).find(kCheckpointRequest);
  if (found == job.at(path).end() || !found->is_string()) return "";
  return found->get<std::string>().substr(0, kLongest);
}

absl::Status CheckCheckpointRequest(const Json& job) {
  const std::string why = WhyNot(job);
  if (why.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("job \"", TextAt(job, "/metadata/name"), "\" ", why));
}

Json CheckpointRequestPatch(const Json& job, absl::Time now) {
  const std::string time = absl::FormatTime("%Y-%m-%d%ET%H:%M:%E9SZ", now, absl::UTCTimeZone());
  return {{"metadata",
           {{"uid", TextAt(job, "/metadata/uid")}, {"annotations", {{kCheckpointRequest, time}}}}}};
}

}  // namespace starling::spec
