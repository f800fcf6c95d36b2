// SPDX-License-Identifier: Apache-2.0
#include "controller/runtime/forwarding_kube_client.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "common/status/macros.h"
#include "controller/kube/messages.h"
#include "controller/kube/objects.h"

namespace starling::runtime {
namespace {

using kube::Json;

// An object that names no namespace is put into "default".
template <typename Object>
kube::ObjectKey TargetOf(const kube::ResourceKind& kind, const Object& object) {
  kube::ObjectKey key = kube::KeyOf(object);
  if (kind.namespaced && key.ns.empty()) key.ns = "default";
  return key;
}

}  // namespace

absl::StatusOr<ForwardingKubeClient::Written> ForwardingKubeClient::Write(
    const kube::ResourceKind& /*kind*/, const kube::ObjectKey& /*key*/, std::string_view /*verb*/,
    const Call& call) {
  return call();
}

absl::StatusOr<Json> ForwardingKubeClient::WriteJson(const kube::ResourceKind& kind,
                                                     const kube::ObjectKey& key,
                                                     std::string_view verb, const JsonCall& call) {
  ASSIGN_OR_RETURN(const Written written,
                   Write(kind, key, verb, [&call]() -> absl::StatusOr<Written> {
                     ASSIGN_OR_RETURN(Json object, call());
                     return Written{std::make_shared<Json>(std::move(object)), nullptr};
                   }));
  // Whoever passed it on may have kept it.
  if (written.json.use_count() > 1) return *written.json;
  return std::move(*written.json);
}

absl::StatusOr<kube::MessagePtr> ForwardingKubeClient::WriteMessage(const kube::ResourceKind& kind,
                                                                    const kube::ObjectKey& key,
                                                                    std::string_view verb,
                                                                    const MessageCall& call) {
  ASSIGN_OR_RETURN(const Written written,
                   Write(kind, key, verb, [&call]() -> absl::StatusOr<Written> {
                     ASSIGN_OR_RETURN(kube::MessagePtr object, call());
                     return Written{nullptr, std::move(object)};
                   }));
  return written.message;
}

absl::StatusOr<Json> ForwardingKubeClient::Get(const kube::ResourceKind& kind,
                                               const kube::ObjectKey& key) {
  return inner_.Get(kind, key);
}

absl::StatusOr<kube::ObjectList> ForwardingKubeClient::List(const kube::ResourceKind& kind,
                                                            std::string_view ns,
                                                            const kube::ListOptions& options) {
  return inner_.List(kind, ns, options);
}

absl::StatusOr<std::unique_ptr<kube::WatchStream>> ForwardingKubeClient::Watch(
    const kube::ResourceKind& kind, std::string_view ns, const kube::WatchOptions& options) {
  return inner_.Watch(kind, ns, options);
}

absl::StatusOr<Json> ForwardingKubeClient::Create(const kube::ResourceKind& kind,
                                                  const Json& object) {
  return WriteJson(kind, TargetOf(kind, object), "create",
                   [&] { return inner_.Create(kind, object); });
}

absl::StatusOr<Json> ForwardingKubeClient::Update(const kube::ResourceKind& kind,
                                                  const Json& object) {
  return WriteJson(kind, TargetOf(kind, object), "update",
                   [&] { return inner_.Update(kind, object); });
}

absl::StatusOr<Json> ForwardingKubeClient::UpdateStatus(const kube::ResourceKind& kind,
                                                        const Json& object) {
  return WriteJson(kind, TargetOf(kind, object), "update",
                   [&] { return inner_.UpdateStatus(kind, object); });
}

absl::StatusOr<Json> ForwardingKubeClient::Patch(const kube::ResourceKind& kind,
                                                 const kube::ObjectKey& key, const Json& patch) {
  return WriteJson(kind, key, "patch", [&] { return inner_.Patch(kind, key, patch); });
}

absl::StatusOr<Json> ForwardingKubeClient::PatchStatus(const kube::ResourceKind& kind,
                                                       const kube::ObjectKey& key,
                                                       const Json& patch) {
  return WriteJson(kind, key, "patch", [&] { return inner_.PatchStatus(kind, key, patch); });
}

absl::StatusOr<Json> ForwardingKubeClient::Apply(const kube::ResourceKind& kind, const Json& object,
                                                 const kube::ApplyOptions& options) {
  if (options.dry_run) return inner_.Apply(kind, object, options);
  return WriteJson(kind, TargetOf(kind, object), "patch",
                   [&] { return inner_.Apply(kind, object, options); });
}

absl::StatusOr<Json> ForwardingKubeClient::DryRunCreate(const kube::ResourceKind& kind,
                                                        const Json& object) {
  return inner_.DryRunCreate(kind, object);
}

absl::StatusOr<bool> ForwardingKubeClient::Serves(const kube::ResourceKind& kind) {
  return inner_.Serves(kind);
}

absl::StatusOr<Json> ForwardingKubeClient::Delete(const kube::ResourceKind& kind,
                                                  const kube::ObjectKey& key,
                                                  const kube::DeleteOptions& options) {
  return WriteJson(kind, key, "delete", [&] { return inner_.Delete(kind, key, options); });
}

absl::StatusOr<Json> ForwardingKubeClient::GetScale(const kube::ResourceKind& kind,
                                                    const kube::ObjectKey& key) {
  return inner_.GetScale(kind, key);
}

absl::StatusOr<Json> ForwardingKubeClient::UpdateScale(const kube::ResourceKind& kind,
                                                       const Json& scale) {
  return WriteJson(kind, TargetOf(kind, scale), "update",
                   [&] { return inner_.UpdateScale(kind, scale); });
}

absl::StatusOr<kube::MessagePtr> ForwardingKubeClient::GetMessage(const kube::ResourceKind& kind,
                                                                  const kube::ObjectKey& key) {
  return inner_.GetMessage(kind, key);
}

absl::StatusOr<kube::MessageList> ForwardingKubeClient::ListMessages(
    const kube::ResourceKind& kind, std::string_view ns, const kube::ListOptions& options) {
  return inner_.ListMessages(kind, ns, options);
}

absl::StatusOr<std::unique_ptr<kube::MessageStream>> ForwardingKubeClient::WatchMessages(
    const kube::ResourceKind& kind, std::string_view ns, const kube::WatchOptions& options) {
  return inner_.WatchMessages(kind, ns, options);
}

absl::StatusOr<kube::MessagePtr> ForwardingKubeClient::CreateMessage(const kube::ResourceKind& kind,
                                                                     const kube::Message& object) {
  return WriteMessage(kind, TargetOf(kind, object), "create",
                      [&] { return inner_.CreateMessage(kind, object); });
}

absl::StatusOr<kube::MessagePtr> ForwardingKubeClient::CreateFromJson(
    const kube::ResourceKind& kind, const Json& object) {
  return WriteMessage(kind, TargetOf(kind, object), "create",
                      [&] { return inner_.CreateFromJson(kind, object); });
}

absl::StatusOr<kube::MessagePtr> ForwardingKubeClient::DeleteMessage(
    const kube::ResourceKind& kind, const kube::ObjectKey& key,
    const kube::DeleteOptions& options) {
  return WriteMessage(kind, key, "delete",
                      [&] { return inner_.DeleteMessage(kind, key, options); });
}

}  // namespace starling::runtime
