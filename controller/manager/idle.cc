// SPDX-License-Identifier: Apache-2.0
#include "controller/manager/idle.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "controller/kube/objects.h"

namespace starling::manager {
namespace {

using Json = nlohmann::json;

// An ended job that goes this soon is waited for.
constexpr absl::Duration kSoon = absl::Seconds(10);

bool ExpiresSoon(const Json& job, absl::Time now) {
  const Json& ttl = kube::At(job, "/spec/runPolicy/ttlSecondsAfterFinished");
  const auto end = kube::ParseTimestamp(kube::StringAt(job, "/status/completionTime"));
  if (!ttl.is_number() || !end.has_value()) return false;
  return *end + absl::Seconds(ttl.get<double>()) - now < kSoon;
}

bool IsAtRest(const Json& job, absl::Time now) {
  if (kube::IsBeingDeleted(job)) return false;
  if (kube::IsConditionTrue(job, "Succeeded") || kube::IsConditionTrue(job, "Failed")) {
    return !ExpiresSoon(job, now);
  }
  return kube::IsConditionTrue(job, "Suspended") &&
         kube::BoolAt(job, "/spec/runPolicy/suspend", false);
}

bool HasEnded(const Json& pod) {
  const std::string phase = kube::StringAt(pod, "/status/phase");
  return phase == "Succeeded" || phase == "Failed";
}

}  // namespace

bool IsIdle(const std::vector<Object>& jobs, const std::vector<Object>& pods, absl::Time now) {
  return std::all_of(jobs.begin(), jobs.end(),
                     [now](const Object& job) { return IsAtRest(*job, now); }) &&
         std::all_of(pods.begin(), pods.end(), [](const Object& pod) { return HasEnded(*pod); });
}

}  // namespace starling::manager
