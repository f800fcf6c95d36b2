// SPDX-License-Identifier: Apache-2.0
// What a controller must do when it cannot know whether a write has happened: look, then decide.
//
// Every write carries a precondition, so that a copy of it which arrives late does nothing; after
// Unavailable it is asked again, and a refusal is held against what is there now. This stands
// between the contract suite and a client behind a proxy that loses answers.
#pragma once

#include <functional>
#include <memory>
#include <string_view>

#include "controller/kube/kube_client.h"

namespace starling::kube {

// Thread-safe. `inner` must outlive it.
class RetryingKubeClient final : public KubeClient {
 public:
  explicit RetryingKubeClient(KubeClient& inner) : inner_(inner) {}

  absl::StatusOr<Json> Get(const ResourceKind& kind, const ObjectKey& key) override;
  absl::StatusOr<ObjectList> List(const ResourceKind& kind, std::string_view ns,
                                  const ListOptions& options) override;
  absl::StatusOr<std::unique_ptr<WatchStream>> Watch(const ResourceKind& kind, std::string_view ns,
                                                     const WatchOptions& options) override;
  absl::StatusOr<Json> Create(const ResourceKind& kind, const Json& object) override;
  absl::StatusOr<Json> Update(const ResourceKind& kind, const Json& object) override;
  absl::StatusOr<Json> UpdateStatus(const ResourceKind& kind, const Json& object) override;
  absl::StatusOr<Json> Patch(const ResourceKind& kind, const ObjectKey& key,
                             const Json& patch) override;
  absl::StatusOr<Json> PatchStatus(const ResourceKind& kind, const ObjectKey& key,
                                   const Json& patch) override;
  absl::StatusOr<Json> Apply(const ResourceKind& kind, const Json& object,
                             const ApplyOptions& options) override;
  absl::StatusOr<Json> DryRunCreate(const ResourceKind& kind, const Json& object) override;
  absl::StatusOr<bool> Serves(const ResourceKind& kind) override;
  absl::StatusOr<Json> Delete(const ResourceKind& kind, const ObjectKey& key,
                              const DeleteOptions& options) override;
  absl::StatusOr<Json> GetScale(const ResourceKind& kind, const ObjectKey& key) override;
  absl::StatusOr<Json> UpdateScale(const ResourceKind& kind, const Json& scale) override;
  absl::StatusOr<MessagePtr> GetMessage(const ResourceKind& kind, const ObjectKey& key) override;
  absl::StatusOr<MessageList> ListMessages(const ResourceKind& kind, std::string_view ns,
                                           const ListOptions& options) override;
  absl::StatusOr<std::unique_ptr<MessageStream>> WatchMessages(
      const ResourceKind& kind, std::string_view ns, const WatchOptions& options) override;

 private:
  using Call = std::function<absl::StatusOr<Json>()>;
  // Whether what is there now is what the write wanted.
  using Wanted = std::function<bool(const Json& now)>;

  absl::StatusOr<Json> Settle(const ResourceKind& kind, const ObjectKey& key, const Call& call,
                              const Wanted& is_wanted);
  absl::StatusOr<Json> Merge(const ResourceKind& kind, const ObjectKey& key, const Json& patch,
                             bool status);

  KubeClient& inner_;
};

}  // namespace starling::kube
