// SPDX-License-Identifier: Apache-2.0
// A KubeClient that writes only while it may: the writes of a leader end with its lease.
//
// A process may be stopped for any time between a decision and the write that it led to. Each write
// asks anew, so one that comes too late is refused here; the rare one that was already on its way
// is refused by the API server, for it carries a resource version, a UID or a name that is taken.
#pragma once

#include <functional>

#include "controller/runtime/forwarding_kube_client.h"

namespace starling::runtime {

// Thread-safe if `may_write` is. Reads pass at all times.
class FencedKubeClient final : public ForwardingKubeClient {
 public:
  FencedKubeClient(kube::KubeClient& inner, std::function<bool()> may_write)
      : ForwardingKubeClient(inner), may_write_(std::move(may_write)) {}

 protected:
  // FailedPrecondition, with nothing written, when it may not.
  absl::StatusOr<Json> Write(const kube::ResourceKind& kind, const kube::ObjectKey& key,
                             std::string_view verb, const Call& call) override;

 private:
  const std::function<bool()> may_write_;
};

}  // namespace starling::runtime
