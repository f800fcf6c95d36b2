// SPDX-License-Identifier: Apache-2.0
#include "controller/manager/lease.h"

#include <nlohmann/json.hpp>
#include <string>

#include "common/status/macros.h"
#include "controller/kube/objects.h"

namespace starling::manager {
namespace {

constexpr int kTries = 10;

absl::StatusOr<std::int64_t> TryTake(kube::KubeClient& client, const clock::Clock& clock,
                                     const runtime::ElectionOptions& election) {
  const kube::ObjectKey key{.ns = election.ns, .name = election.name};
  absl::StatusOr<kube::Json> lease = client.Get(kube::kLease, key);
  const bool is_new = absl::IsNotFound(lease.status());
  if (!is_new) RETURN_IF_ERROR(lease.status());
  kube::Json object = is_new ? kube::Json{{"apiVersion", kube::kLease.ApiVersion()},
                                          {"kind", "Lease"},
                                          {"metadata", {{"name", key.name}, {"namespace", key.ns}}}}
                             : *std::move(lease);
  const std::int64_t transitions = kube::IntAt(object, "/spec/leaseTransitions") + 1;
  const std::string now = kube::FormatMicroTimestamp(clock.WallNow());
  object["spec"] = {{"holderIdentity", election.identity},
                    {"leaseTransitions", transitions},
                    {"acquireTime", now},
                    {"renewTime", now}};
  RETURN_IF_ERROR(
      (is_new ? client.Create(kube::kLease, object) : client.Update(kube::kLease, object))
          .status());
  return transitions;
}

}  // namespace

absl::StatusOr<std::int64_t> TakeLease(kube::KubeClient& client, const clock::Clock& clock,
                                       const runtime::ElectionOptions& election) {
  absl::StatusOr<std::int64_t> taken = TryTake(client, clock, election);
  for (int i = 1; i < kTries && !taken.ok(); ++i) {
    if (!absl::IsAborted(taken.status()) && !absl::IsAlreadyExists(taken.status())) break;
    taken = TryTake(client, clock, election);
  }
  return taken;
}

}  // namespace starling::manager
