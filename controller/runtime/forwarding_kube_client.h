// SPDX-License-Identifier: Apache-2.0
// A KubeClient that hands every call on to another: the common part of those that add one thing.
//
// Derive from it and override what is to be different. Writes all pass through Write(), so that a
// rule about all writes is one function.
#pragma once

#include <functional>
#include <memory>
#include <string_view>

#include "controller/kube/kube_client.h"

namespace starling::runtime {

// Thread-safe if the one behind it is. `inner` must outlive it.
class ForwardingKubeClient : public kube::KubeClient {
 public:
  using Json = kube::Json;

  explicit ForwardingKubeClient(kube::KubeClient& inner) : inner_(inner) {}

  absl::StatusOr<Json> Get(const kube::ResourceKind& kind, const kube::ObjectKey& key) override;
  absl::StatusOr<kube::ObjectList> List(const kube::ResourceKind& kind, std::string_view ns,
                                        const kube::ListOptions& options) override;
  absl::StatusOr<std::unique_ptr<kube::WatchStream>> Watch(
      const kube::ResourceKind& kind, std::string_view ns,
      const kube::WatchOptions& options) override;
  absl::StatusOr<Json> Create(const kube::ResourceKind& kind, const Json& object) override;
  absl::StatusOr<Json> Update(const kube::ResourceKind& kind, const Json& object) override;
  absl::StatusOr<Json> UpdateStatus(const kube::ResourceKind& kind, const Json& object) override;
  absl::StatusOr<Json> Patch(const kube::ResourceKind& kind, const kube::ObjectKey& key,
                             const Json& patch) override;
  absl::StatusOr<Json> PatchStatus(const kube::ResourceKind& kind, const kube::ObjectKey& key,
                                   const Json& patch) override;
  absl::StatusOr<Json> Apply(const kube::ResourceKind& kind, const Json& object,
                             const kube::ApplyOptions& options) override;
  absl::StatusOr<Json> DryRunCreate(const kube::ResourceKind& kind, const Json& object) override;
  absl::StatusOr<bool> Serves(const kube::ResourceKind& kind) override;
  absl::StatusOr<Json> Delete(const kube::ResourceKind& kind, const kube::ObjectKey& key,
                              const kube::DeleteOptions& options) override;
  absl::StatusOr<Json> GetScale(const kube::ResourceKind& kind,
                                const kube::ObjectKey& key) override;
  absl::StatusOr<Json> UpdateScale(const kube::ResourceKind& kind, const Json& scale) override;
  absl::StatusOr<kube::MessagePtr> GetMessage(const kube::ResourceKind& kind,
                                              const kube::ObjectKey& key) override;
  absl::StatusOr<kube::MessageList> ListMessages(const kube::ResourceKind& kind,
                                                 std::string_view ns,
                                                 const kube::ListOptions& options) override;
  absl::StatusOr<std::unique_ptr<kube::MessageStream>> WatchMessages(
      const kube::ResourceKind& kind, std::string_view ns,
      const kube::WatchOptions& options) override;
  absl::StatusOr<kube::MessagePtr> CreateMessage(const kube::ResourceKind& kind,
                                                 const kube::Message& object) override;
  absl::StatusOr<kube::MessagePtr> CreateFromJson(const kube::ResourceKind& kind,
                                                  const Json& object) override;
  absl::StatusOr<kube::MessagePtr> DeleteMessage(const kube::ResourceKind& kind,
                                                 const kube::ObjectKey& key,
                                                 const kube::DeleteOptions& options) override;

 protected:
  // What a write returned, in the form that was asked for; the other is null.
  struct Written {
    std::shared_ptr<Json> json;
    kube::MessagePtr message;
  };
  using Call = std::function<absl::StatusOr<Written>()>;

  // One write of the object `key`. `verb` as Kubernetes' RBAC names it: create, update, patch,
  // delete. By default it just makes the call.
  virtual absl::StatusOr<Written> Write(const kube::ResourceKind& kind, const kube::ObjectKey& key,
                                        std::string_view verb, const Call& call);

  kube::KubeClient& inner() { return inner_; }

 private:
  using JsonCall = std::function<absl::StatusOr<Json>()>;
  using MessageCall = std::function<absl::StatusOr<kube::MessagePtr>()>;
  absl::StatusOr<Json> WriteJson(const kube::ResourceKind& kind, const kube::ObjectKey& key,
                                 std::string_view verb, const JsonCall& call);
  absl::StatusOr<kube::MessagePtr> WriteMessage(const kube::ResourceKind& kind,
                                                const kube::ObjectKey& key, std::string_view verb,
                                                const MessageCall& call);

  kube::KubeClient& inner_;
};

}  // namespace starling::runtime
