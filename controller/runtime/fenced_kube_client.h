// SPDX-License-Identifier: Apache-2.0
// A KubeClient that refuses writes once the leader's lease has ended.
//
// A process may be paused for any time between a decision and the write that follows from it. Each
// write checks the lease again, so a late one is refused here. One that was already on its way is
// refused by the API server, because it carries a resource version, a UID or a name that is taken.
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
  absl::StatusOr<Written> Write(const kube::ResourceKind& kind, const kube::ObjectKey& key,
                                std::string_view verb, const Call& call) override;

 private:
  const std::function<bool()> may_write_;
};

}  // namespace starling::runtime
