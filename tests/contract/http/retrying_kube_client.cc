// SPDX-License-Identifier: Apache-2.0
#include "tests/contract/http/retrying_kube_client.h"

#include <nlohmann/json.hpp>

#include "common/bytes/bytes.h"
#include "common/status/macros.h"
#include "controller/kube/objects.h"

namespace starling::kube {
namespace {

constexpr int kAttempts = 12;
constexpr const char* kMark = "test.starling.dev/created-by";

template <typename Call>
auto Insist(const Call& call) {
  auto result = call();
  for (int i = 1; i < kAttempts && absl::IsUnavailable(result.status()); ++i) result = call();
  return result;
}

// Everything that `wanted` says is so in `now`; what the server keeps for itself left out.
bool Includes(const Json& now, const Json& wanted) {
  if (!wanted.is_object()) return now == wanted;
  if (!now.is_object()) return wanted.empty();
  for (const auto& [name, value] : wanted.items()) {
    if (name == "resourceVersion" || name == "generation" || name == "managedFields") continue;
    const auto found = now.find(name);
    if (found == now.end() ? !(value.is_null() || value.empty()) : !Includes(*found, value)) {
      return false;
    }
  }
  return true;
}

}  // namespace

// A refusal that follows an unknown result may be of our own making.
absl::StatusOr<Json> RetryingKubeClient::Settle(const ResourceKind& kind, const ObjectKey& key,
                                                const Call& call, const Wanted& is_wanted) {
  auto result = call();
  if (!absl::IsUnavailable(result.status())) return result;
  for (int i = 1; i < kAttempts && absl::IsUnavailable(result.status()); ++i) result = call();
  if (!absl::IsAborted(result.status()) && !absl::IsAlreadyExists(result.status())) return result;
  auto now = Get(kind, key);
  if (now.ok() && is_wanted(*now)) return now;
  return result;
}

absl::StatusOr<Json> RetryingKubeClient::Get(const ResourceKind& kind, const ObjectKey& key) {
  return Insist([&] { return inner_.Get(kind, key); });
}

absl::StatusOr<ObjectList> RetryingKubeClient::List(const ResourceKind& kind, std::string_view ns,
                                                    const ListOptions& options) {
  return Insist([&] { return inner_.List(kind, ns, options); });
}

absl::StatusOr<std::unique_ptr<WatchStream>> RetryingKubeClient::Watch(
    const ResourceKind& kind, std::string_view ns, const WatchOptions& options) {
  return Insist([&] { return inner_.Watch(kind, ns, options); });
}

absl::StatusOr<Json> RetryingKubeClient::Create(const ResourceKind& kind, const Json& object) {
  ObjectKey key = KeyOf(object);
  if (kind.namespaced && key.ns.empty()) key.ns = "default";
  // Whose it is that already exists, nothing but a mark of our own tells.
  const std::string mark = bytes::RandomUuid();
  Json marked = object;
  marked["metadata"]["annotations"][kMark] = mark;
  return Settle(
      kind, key, [&] { return inner_.Create(kind, marked); },
      [&](const Json& now) { return AnnotationOf(now, kMark) == mark; });
}

absl::StatusOr<Json> RetryingKubeClient::Update(const ResourceKind& kind, const Json& object) {
  Json wanted = object;
  wanted.erase("status");
  auto result = Settle(
      kind, KeyOf(object), [&] { return inner_.Update(kind, object); },
      [&](const Json& now) { return Includes(now, wanted); });
  // Who takes off the last finalizer takes the object away with it.
  const bool last = IsBeingDeleted(object) && At(object, "/metadata/finalizers").empty();
  if (last && absl::IsNotFound(result.status())) return object;
  return result;
}

absl::StatusOr<Json> RetryingKubeClient::UpdateStatus(const ResourceKind& kind,
                                                      const Json& object) {
  return Settle(
      kind, KeyOf(object), [&] { return inner_.UpdateStatus(kind, object); },
      [&](const Json& now) { return Includes(At(now, "/status"), At(object, "/status")); });
}

absl::StatusOr<Json> RetryingKubeClient::Merge(const ResourceKind& kind, const ObjectKey& key,
                                               const Json& patch, bool status) {
  Json fenced = patch;
  const bool is_map = patch.is_object();
  if (is_map && ResourceVersionOf(patch).empty()) {
    ASSIGN_OR_RETURN(const Json now, Get(kind, key));
    fenced["metadata"]["resourceVersion"] = ResourceVersionOf(now);
  }
  const auto call = [&] {
    return status ? inner_.PatchStatus(kind, key, fenced) : inner_.Patch(kind, key, fenced);
  };
  return Settle(kind, key, call, [&](const Json& now) {
    Json merged = now;
    merged.merge_patch(patch);
    return Includes(now, merged) && Includes(merged, now);
  });
}

absl::StatusOr<Json> RetryingKubeClient::Patch(const ResourceKind& kind, const ObjectKey& key,
                                               const Json& patch) {
  return Merge(kind, key, patch, /*status=*/false);
}

absl::StatusOr<Json> RetryingKubeClient::PatchStatus(const ResourceKind& kind, const ObjectKey& key,
                                                     const Json& patch) {
  return Merge(kind, key, patch, /*status=*/true);
}

absl::StatusOr<Json> RetryingKubeClient::Apply(const ResourceKind& kind, const Json& object,
                                               const ApplyOptions& options) {
  return Insist([&] { return inner_.Apply(kind, object, options); });
}

absl::StatusOr<Json> RetryingKubeClient::DryRunCreate(const ResourceKind& kind,
                                                      const Json& object) {
  return Insist([&] { return inner_.DryRunCreate(kind, object); });
}

absl::StatusOr<bool> RetryingKubeClient::Serves(const ResourceKind& kind) {
  return Insist([&] { return inner_.Serves(kind); });
}

// By UID, so that a late copy cannot strike a successor; gone after an unknown result is done.
absl::StatusOr<Json> RetryingKubeClient::Delete(const ResourceKind& kind, const ObjectKey& key,
                                                const DeleteOptions& options) {
  ASSIGN_OR_RETURN(Json last, Get(kind, key));
  DeleteOptions fenced = options;
  if (fenced.uid.empty()) fenced.uid = UidOf(last);
  auto result = inner_.Delete(kind, key, fenced);
  if (!absl::IsUnavailable(result.status())) return result;
  result = Insist([&] { return inner_.Delete(kind, key, fenced); });
  if (absl::IsNotFound(result.status())) return last;
  return result;
}

absl::StatusOr<Json> RetryingKubeClient::GetScale(const ResourceKind& kind, const ObjectKey& key) {
  return Insist([&] { return inner_.GetScale(kind, key); });
}

absl::StatusOr<Json> RetryingKubeClient::UpdateScale(const ResourceKind& kind, const Json& scale) {
  auto result = inner_.UpdateScale(kind, scale);
  if (!absl::IsUnavailable(result.status())) return result;
  result = Insist([&] { return inner_.UpdateScale(kind, scale); });
  if (!absl::IsAborted(result.status())) return result;
  auto now = GetScale(kind, KeyOf(scale));
  if (now.ok() && At(*now, "/spec") == At(scale, "/spec")) return now;
  return result;
}

absl::StatusOr<MessagePtr> RetryingKubeClient::GetMessage(const ResourceKind& kind,
                                                          const ObjectKey& key) {
  return Insist([&] { return inner_.GetMessage(kind, key); });
}

absl::StatusOr<MessageList> RetryingKubeClient::ListMessages(const ResourceKind& kind,
                                                             std::string_view ns,
                                                             const ListOptions& options) {
  return Insist([&] { return inner_.ListMessages(kind, ns, options); });
}

absl::StatusOr<std::unique_ptr<MessageStream>> RetryingKubeClient::WatchMessages(
    const ResourceKind& kind, std::string_view ns, const WatchOptions& options) {
  return Insist([&] { return inner_.WatchMessages(kind, ns, options); });
}

}  // namespace starling::kube
