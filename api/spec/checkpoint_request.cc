// SPDX-License-Identifier: Apache-2.0
#include "api/spec/checkpoint_request.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "api/spec/stored_job.h"

namespace starling::spec {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kLongest = 64;

// Why there is nobody to write one; empty: somebody is, or will be.
std::string WhyNotSaved(const Json& job) {
  using Idle = Idleness::Kind;
  const Idleness idle = IdlenessOf(job);
  switch (idle.kind) {
    case Idle::kWorks:
      return "";
    case Idle::kFinished:
      return "is finished; its last checkpoint is in status.lastCheckpoint";
    case Idle::kDeleted:
      return "is being deleted";
    case Idle::kSuspended:
      return "is suspended, and was saved then: see status.lastCheckpoint; resume it first";
    case Idle::kManaged:
      return absl::StrCat("is managed by ", idle.manager, "; ask there");
    case Idle::kContainer:
      break;
  }
  return "brings its own container, which writes checkpoints as it likes; only spec.workload "
         "kinds of ours can be asked for one";
}

}  // namespace

std::string CheckpointRequestOf(const Json& job) {
  return AnnotationIn(job, kCheckpointRequest, kLongest);
}

absl::Status CheckCheckpointRequest(const Json& job) {
  return RefusalBecause(job, WhyNotSaved(job));
}

Json CheckpointRequestPatch(const Json& job, absl::Time now) {
  return AnnotationPatch(job, kCheckpointRequest, RequestTime(now));
}

}  // namespace starling::spec
