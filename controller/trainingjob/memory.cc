// SPDX-License-Identifier: Apache-2.0
// onOutOfMemory: a pod that was killed because it used more memory than it may comes back with more
// of it, up to a maximum; so do all pods of its role made after it. It is given with the workers
// and holds for the job: a parameter server or a coordinator that is too small ends training as
// surely as a worker does. Each role grows by itself. What they get is kept in the status, and
// never shrinks while the job lives.
#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "controller/trainingjob/policies.h"
#include "controller/trainingjob/quantity.h"

namespace starling::trainingjob {
namespace {

constexpr double kMebibyte = 1024.0 * 1024.0;
constexpr double kLeastFactor = 1.01;
constexpr double kMostFactor = 16;

const char* Plural(Role role) {
  switch (role) {
    case Role::kCoordinator:
      return "coordinators";
    case Role::kParameterServer:
      return "parameter servers";
    default:
      return "workers";
  }
}

}  // namespace

std::string RaisedMemory(const Pass& pass, Role role) {
  const auto& roles = pass.status.replica_statuses();
  const auto found = roles.find(std::string(resources::RoleField(role)));
  return found == roles.end() ? "" : found->second.memory();
}

std::optional<std::string> RaiseMemory(Pass& pass, const ObservedPod& pod) {
  const v1alpha1::WorkerSpec& worker = pass.observed.spec.replica_specs().worker();
  if (!worker.has_on_out_of_memory()) return std::nullopt;
  const std::int64_t maximum = ParseBytes(worker.on_out_of_memory().maximum());
  if (pod.memory <= 0 || pod.memory >= maximum) return std::nullopt;
  const double factor = std::clamp(worker.on_out_of_memory().factor(), kLeastFactor, kMostFactor);
  const double grown = std::ceil(static_cast<double>(pod.memory) * factor / kMebibyte) * kMebibyte;
  const std::int64_t next =
      std::min(maximum, static_cast<std::int64_t>(std::min(grown, static_cast<double>(maximum))));
  const std::int64_t known = ParseBytes(RaisedMemory(pass, pod.role));
  const std::string memory = FormatBytes(std::max(next, known));
  if (next > known) {
    (*pass.status.mutable_replica_statuses())[std::string(resources::RoleField(pod.role))]
        .set_memory(memory);
    pass.Event(false, "MemoryRaised", "RaiseMemory",
               absl::StrCat(pod.name, " was killed at ", FormatBytes(pod.memory), "; new ",
                            Plural(pod.role), " get ", memory));
  }
  return absl::StrCat("it comes back with ", memory, " of memory");
}

}  // namespace starling::trainingjob
