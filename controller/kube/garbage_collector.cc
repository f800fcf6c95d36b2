// SPDX-License-Identifier: Apache-2.0
#include "controller/kube/garbage_collector.h"

#include <nlohmann/json.hpp>

#include "absl/container/flat_hash_map.h"
#include "common/status/macros.h"
#include "controller/kube/objects.h"

namespace starling::kube {
namespace {

struct Dependent {
  ResourceKind kind;
  Json object;
};

// Who owns, each asked for once. Asked of the store itself and not of a list that was read before,
// which may be older than the owner; and a store of thousands of jobs without dependents is not
// read whole for them.
class Owners {
 public:
  explicit Owners(KubeClient& client) : client_(client) {}

  absl::StatusOr<bool> Live(const std::string& ns, const Json& owner) {
    const std::string uid = StringAt(owner, "/uid");
    if (const auto known = lives_.find(uid); known != lives_.end()) return known->second;
    ASSIGN_OR_RETURN(const bool lives, Ask(ns, owner, uid));
    lives_[uid] = lives;
    return lives;
  }

 private:
  absl::StatusOr<bool> Ask(const std::string& ns, const Json& owner, const std::string& uid) {
    const ResourceKind* kind = FindKind(StringAt(owner, "/apiVersion"), StringAt(owner, "/kind"));
    if (kind == nullptr) return true;
    const auto found = client_.Get(*kind, {kind->namespaced ? ns : "", StringAt(owner, "/name")});
    if (absl::IsNotFound(found.status())) return false;
    RETURN_IF_ERROR(found.status());
    return UidOf(*found) == uid;
  }

  KubeClient& client_;
  absl::flat_hash_map<std::string, bool> lives_;  // by UID
};

absl::StatusOr<bool> IsGarbage(Owners& owners, const Json& object) {
  for (const Json& owner : At(object, "/metadata/ownerReferences")) {
    ASSIGN_OR_RETURN(const bool lives, owners.Live(NamespaceOf(object), owner));
    if (lives) return false;
  }
  return true;
}

}  // namespace

absl::StatusOr<int> CollectGarbage(KubeClient& client, const std::vector<ResourceKind>& kinds) {
  std::vector<Dependent> dependents;
  for (const ResourceKind& kind : kinds) {
    ASSIGN_OR_RETURN(ObjectList list, client.List(kind, "", {}));
    for (Json& object : list.items) {
      const bool owned = !At(object, "/metadata/ownerReferences").empty();
      if (owned && !IsBeingDeleted(object)) dependents.push_back({kind, std::move(object)});
    }
  }
  Owners owners(client);
  int deleted = 0;
  for (const Dependent& dependent : dependents) {
    ASSIGN_OR_RETURN(const bool garbage, IsGarbage(owners, dependent.object));
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
