// SPDX-License-Identifier: Apache-2.0
#include "controller/kube/garbage_collector.h"

#include <nlohmann/json.hpp>

#include "absl/container/flat_hash_set.h"
#include "common/status/macros.h"
#include "controller/kube/objects.h"

namespace starling::kube {
namespace {

struct Dependent {
  ResourceKind kind;
  Json object;
};

// Asked of the store itself and not of the list before, which may be older than the owner.
absl::StatusOr<bool> OwnerLives(KubeClient& client, const std::string& ns, const Json& owner) {
  const ResourceKind* kind = FindKind(StringAt(owner, "/apiVersion"), StringAt(owner, "/kind"));
  if (kind == nullptr) return true;
  const auto found = client.Get(*kind, {kind->namespaced ? ns : "", StringAt(owner, "/name")});
  if (absl::IsNotFound(found.status())) return false;
  RETURN_IF_ERROR(found.status());
  return UidOf(*found) == StringAt(owner, "/uid");
}

absl::StatusOr<bool> IsGarbage(KubeClient& client, const Json& object,
                               const absl::flat_hash_set<std::string>& living) {
  for (const Json& owner : At(object, "/metadata/ownerReferences")) {
    if (living.contains(StringAt(owner, "/uid"))) return false;
  }
  for (const Json& owner : At(object, "/metadata/ownerReferences")) {
    ASSIGN_OR_RETURN(const bool lives, OwnerLives(client, NamespaceOf(object), owner));
    if (lives) return false;
  }
  return true;
}

}  // namespace

absl::StatusOr<int> CollectGarbage(KubeClient& client, const std::vector<ResourceKind>& kinds) {
  std::vector<Dependent> dependents;
  absl::flat_hash_set<std::string> living;
  for (const ResourceKind& kind : kinds) {
    ASSIGN_OR_RETURN(ObjectList list, client.List(kind, "", {}));
    for (Json& object : list.items) {
      living.insert(UidOf(object));
      const bool owned = !At(object, "/metadata/ownerReferences").empty();
      if (owned && !IsBeingDeleted(object)) dependents.push_back({kind, std::move(object)});
    }
  }
  int deleted = 0;
  for (const Dependent& dependent : dependents) {
    ASSIGN_OR_RETURN(const bool garbage, IsGarbage(client, dependent.object, living));
    if (!garbage) continue;
    const auto result = client.Delete(
        dependent.kind, KeyOf(dependent.object),
        {.uid = UidOf(dependent.object), .resource_version = {}, .grace_period_seconds = {}});
    if (absl::IsNotFound(result.status()) || absl::IsAborted(result.status())) continue;
    RETURN_IF_ERROR(result.status());
    ++deleted;
  }
  return deleted;
}

}  // namespace starling::kube
