// SPDX-License-Identifier: Apache-2.0
#include "controller/kube/embedded_kube_client.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/status/macros.h"
#include "controller/kube/embedded_watch.h"
#include "controller/kube/field_ownership.h"
#include "controller/kube/object_rules.h"
#include "controller/kube/object_store.h"
#include "controller/kube/objects.h"
#include "controller/kube/selector.h"

namespace starling::kube {
namespace {

std::string TableKey(const ResourceKind& kind) {
  return absl::StrCat(std::string(kind.plural), ".", std::string(kind.group));
}

// What people were told of a job stays so, and no grant of an incarnation is ever made twice. The
// others are made again from jobs.
ObjectStore::Durability DurabilityOf(const ResourceKind& kind) {
  return kind == kTrainingJob ? ObjectStore::Durability::kNow : ObjectStore::Durability::kSoon;
}

absl::Status NotFound(const ResourceKind& kind, const ObjectKey& key) {
  return absl::NotFoundError(absl::StrCat(Describe(kind, key), " not found"));
}

// A page's end: the version that the list shows and the last key on the page.
struct Continuation {
  std::int64_t version = 0;
  ObjectKey last;

  std::string ToToken() const { return absl::StrCat(version, "/", last.ns, "/", last.name); }

  static absl::StatusOr<Continuation> Parse(const std::string& token) {
    Continuation parsed;
    const std::size_t first = token.find('/');
    const std::size_t second = first == std::string::npos ? first : token.find('/', first + 1);
    if (second == std::string::npos || !absl::SimpleAtoi(token.substr(0, first), &parsed.version)) {
      return absl::InvalidArgumentError("list: the continue token is not one of this store's");
    }
    parsed.last = {token.substr(first + 1, second - first - 1), token.substr(second + 1)};
    return parsed;
  }
};

// Thread-safe.
class EmbeddedKubeClient final : public KubeClient {
 public:
  EmbeddedKubeClient(const clock::Clock& clock, EmbeddedOptions options,
                     std::unique_ptr<ObjectStore> store)
      : clock_(clock), options_(std::move(options)), store_(std::move(store)) {}

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

 private:
  using Change = std::function<absl::StatusOr<Json>(const Json& old)>;

  // In one transaction: reads the object, lets `change` make the new one, stores it.
  absl::StatusOr<Json> Modify(const ResourceKind& kind, const ObjectKey& key, const Change& change);
  absl::StatusOr<Json> CreateOnce(const ResourceKind& kind, const Json& object, bool dry_run);
  // Whether the object is served and named, and by whom.
  absl::Status CheckApply(const ResourceKind& kind, const Json& object,
                          const ApplyOptions& options) const;
  absl::StatusOr<Json> CreateApplied(const ResourceKind& kind, const Json& object,
                                     const ApplyOptions& options);
  absl::Status RequireServed(const ResourceKind& kind) const;
  absl::Status Admit(const ResourceKind& kind, const Json* old, Json& object) const;
  // Everything between the wish and the object to store, for the main resource.
  absl::StatusOr<Json> Replace(const ResourceKind& kind, const Json& old, const Json& wanted) const;

  const clock::Clock& clock_;
  const EmbeddedOptions options_;
  const std::unique_ptr<ObjectStore> store_;
};

absl::Status RequireStatus(const ResourceKind& kind, const ObjectKey& key) {
  if (kind.has_status) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat(Describe(kind, key), " has no status subresource"));
}

absl::Status RequireScale(const ResourceKind& kind, const ObjectKey& key) {
  if (kind.has_scale) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat(Describe(kind, key), " has no scale subresource"));
}

// A patch may carry preconditions; a null removes nothing there.
absl::Status CheckPatch(const ResourceKind& kind, const Json& old, const Json& patch) {
  if (!patch.is_object()) {
    return absl::InvalidArgumentError(
        absl::StrCat("patch of ", Describe(kind, KeyOf(old)), ": must be a JSON object"));
  }
  for (const char* field : {"/metadata/name", "/metadata/namespace"}) {
    const std::string wanted = StringAt(patch, field);
    if (!wanted.empty() && wanted != StringAt(old, field)) {
      return absl::InvalidArgumentError(absl::StrCat("patch of ", Describe(kind, KeyOf(old)), ": ",
                                                     std::string(field), " may not change"));
    }
  }
  return CheckPreconditions(kind, old, UidOf(patch), ResourceVersionOf(patch));
}

absl::StatusOr<Json> EmbeddedKubeClient::Get(const ResourceKind& kind, const ObjectKey& key) {
  std::optional<Json> found;
  RETURN_IF_ERROR(store_->Read([&](ObjectStore::Transaction& transaction) -> absl::Status {
    ASSIGN_OR_RETURN(found, transaction.Find(TableKey(kind), key));
    return absl::OkStatus();
  }));
  if (!found) return NotFound(kind, key);
  return *std::move(found);
}

absl::StatusOr<ObjectList> EmbeddedKubeClient::List(const ResourceKind& kind, std::string_view ns,
                                                    const ListOptions& options) {
  RETURN_IF_ERROR(RequireServed(kind));
  ASSIGN_OR_RETURN(const Selector selector, Selector::Parse(kind, options.selection));
  std::optional<Continuation> from;
  if (!options.continue_token.empty()) {
    ASSIGN_OR_RETURN(from, Continuation::Parse(options.continue_token));
  }
  std::vector<Json> objects;
  std::int64_t version = 0;
  RETURN_IF_ERROR(store_->Read([&](ObjectStore::Transaction& transaction) -> absl::Status {
    ASSIGN_OR_RETURN(version, transaction.Version());
    if (from) {
      ASSIGN_OR_RETURN(const bool changed, transaction.ChangedSince(TableKey(kind), from->version));
      if (changed) {
        return absl::OutOfRangeError("list: changed since the page before; begin again");
      }
      version = from->version;
    }
    const auto after = from ? std::optional<ObjectKey>(from->last) : std::nullopt;
    ASSIGN_OR_RETURN(objects, transaction.List(TableKey(kind), std::string(ns), after));
    return absl::OkStatus();
  }));
  ObjectList list;
  list.resource_version = absl::StrCat(version);
  for (Json& object : objects) {
    if (!selector.Matches(object)) continue;
    if (options.limit > 0 && static_cast<std::int64_t>(list.items.size()) == options.limit) {
      list.continue_token = Continuation{version, KeyOf(list.items.back())}.ToToken();
      break;
    }
    list.items.push_back(std::move(object));
  }
  return list;
}

absl::StatusOr<std::unique_ptr<WatchStream>> EmbeddedKubeClient::Watch(
    const ResourceKind& kind, std::string_view ns, const WatchOptions& options) {
  RETURN_IF_ERROR(RequireServed(kind));
  ASSIGN_OR_RETURN(Selector selector, Selector::Parse(kind, options.selection));
  std::vector<Json> present;
  std::string after(options.resource_version);
  if (after.empty()) {
    ASSIGN_OR_RETURN(ObjectList list, List(kind, ns, {options.selection, 0, ""}));
    present = std::move(list.items);
    after = std::move(list.resource_version);
  }
  std::int64_t version = 0;
  if (!absl::SimpleAtoi(after, &version) || version < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("watch: \"", after, "\" is not a resource version"));
  }
  auto watch = std::make_unique<EmbeddedWatch>(*store_, kind, TableKey(kind), std::string(ns),
                                               std::move(selector), version);
  RETURN_IF_ERROR(watch->Start(std::move(present)));
  return watch;
}

absl::Status EmbeddedKubeClient::Admit(const ResourceKind& kind, const Json* old,
                                       Json& object) const {
  const auto admission = options_.admission.find(std::string(kind.kind));
  if (admission == options_.admission.end()) return absl::OkStatus();
  // What was admitted stays: a newer rule must not keep a finalizer from being taken off.
  if (old != nullptr && !SpecChanged(*old, object)) return absl::OkStatus();
  const absl::Status status = admission->second({object, old});
  return status.ok() ? status : absl::InvalidArgumentError(status.message());
}

absl::StatusOr<Json> EmbeddedKubeClient::Create(const ResourceKind& kind, const Json& object) {
  RETURN_IF_ERROR(RequireServed(kind));
  constexpr int kAttempts = 8;  // at a name that has not been given out
  const bool generated = NameOf(object).empty();
  absl::StatusOr<Json> created;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    created = CreateOnce(kind, object, /*dry_run=*/false);
    if (!generated || !absl::IsAlreadyExists(created.status())) break;
  }
  return created;
}

absl::StatusOr<Json> EmbeddedKubeClient::CreateOnce(const ResourceKind& kind, const Json& object,
                                                    bool dry_run) {
  ASSIGN_OR_RETURN(Json wanted, PrepareCreate(kind, object, clock_.WallNow()));
  RETURN_IF_ERROR(Admit(kind, nullptr, wanted));
  RETURN_IF_ERROR(CheckObject(kind, nullptr, wanted));
  const ObjectKey key = KeyOf(wanted);
  const auto store = [&](ObjectStore::Transaction& transaction) -> absl::Status {
    ASSIGN_OR_RETURN(const std::optional<Json> old, transaction.Find(TableKey(kind), key));
    if (old) return absl::AlreadyExistsError(absl::StrCat(Describe(kind, key), " already exists"));
    if (dry_run) return absl::OkStatus();
    ASSIGN_OR_RETURN(wanted, transaction.Put(TableKey(kind), nullptr, std::move(wanted)));
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(dry_run ? store_->Read(store) : store_->Write(store, DurabilityOf(kind)));
  return wanted;
}

absl::StatusOr<Json> EmbeddedKubeClient::DryRunCreate(const ResourceKind& kind,
                                                      const Json& object) {
  RETURN_IF_ERROR(RequireServed(kind));
  return CreateOnce(kind, object, /*dry_run=*/true);
}

absl::StatusOr<bool> EmbeddedKubeClient::Serves(const ResourceKind& kind) {
  const auto& served = options_.optional_kinds;
  return !kind.optional || std::find(served.begin(), served.end(), kind) != served.end();
}

absl::Status EmbeddedKubeClient::RequireServed(const ResourceKind& kind) const {
  const auto& served = options_.optional_kinds;
  if (!kind.optional || std::find(served.begin(), served.end(), kind) != served.end()) {
    return absl::OkStatus();
  }
  return absl::NotFoundError(absl::StrCat(std::string(kind.plural), ".", std::string(kind.group),
                                          ": this store serves no such kind"));
}

absl::StatusOr<Json> EmbeddedKubeClient::Modify(const ResourceKind& kind, const ObjectKey& key,
                                                const Change& change) {
  Json result;
  const auto modify = [&](ObjectStore::Transaction& transaction) -> absl::Status {
    ASSIGN_OR_RETURN(const std::optional<Json> old, transaction.Find(TableKey(kind), key));
    if (!old) return NotFound(kind, key);
    ASSIGN_OR_RETURN(result, change(*old));
    TakeOwnership(*old, result);
    if (MayRemove(result)) {
      ASSIGN_OR_RETURN(result, transaction.Remove(TableKey(kind), std::move(result)));
    } else if (result != *old) {
      ASSIGN_OR_RETURN(result, transaction.Put(TableKey(kind), &*old, std::move(result)));
    }
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(store_->Write(modify, DurabilityOf(kind)));
  return result;
}

absl::StatusOr<Json> EmbeddedKubeClient::Replace(const ResourceKind& kind, const Json& old,
                                                 const Json& wanted) const {
  ASSIGN_OR_RETURN(Json object, PrepareUpdate(kind, old, wanted));
  RETURN_IF_ERROR(Admit(kind, &old, object));
  RETURN_IF_ERROR(CheckObject(kind, &old, object));
  BumpGeneration(kind, old, object);
  return object;
}

absl::Status EmbeddedKubeClient::CheckApply(const ResourceKind& kind, const Json& object,
                                            const ApplyOptions& options) const {
  RETURN_IF_ERROR(RequireServed(kind));
  if (options.field_manager.empty()) {
    return absl::InvalidArgumentError("apply: a field manager must be given");
  }
  if (StringAt(object, "/apiVersion").empty() || StringAt(object, "/kind").empty() ||
      NameOf(object).empty()) {
    return absl::InvalidArgumentError("apply: apiVersion, kind and metadata.name must be given");
  }
  if (!At(object, "/metadata/managedFields").is_null()) {
    return absl::InvalidArgumentError("apply: metadata.managedFields must not be given");
  }
  return absl::OkStatus();
}

absl::StatusOr<Json> EmbeddedKubeClient::CreateApplied(const ResourceKind& kind, const Json& object,
                                                       const ApplyOptions& options) {
  ASSIGN_OR_RETURN(const Json merged, MergeApplied(kind, nullptr, object, options));
  ASSIGN_OR_RETURN(Json wanted, PrepareCreate(kind, object, clock_.WallNow()));
  wanted["metadata"]["managedFields"] = merged["metadata"]["managedFields"];
  RETURN_IF_ERROR(Admit(kind, nullptr, wanted));
  RETURN_IF_ERROR(CheckObject(kind, nullptr, wanted));
  return wanted;
}

absl::StatusOr<Json> EmbeddedKubeClient::Apply(const ResourceKind& kind, const Json& object,
                                               const ApplyOptions& options) {
  RETURN_IF_ERROR(CheckApply(kind, object, options));
  ObjectKey key = KeyOf(object);
  if (kind.namespaced && key.ns.empty()) key.ns = "default";
  Json result;
  const auto apply = [&](ObjectStore::Transaction& transaction) -> absl::Status {
    ASSIGN_OR_RETURN(const std::optional<Json> old, transaction.Find(TableKey(kind), key));
    if (!old) {
      if (!UidOf(object).empty()) {
        return absl::AbortedError(absl::StrCat("conflict on ", Describe(kind, key),
                                               ": the object with that UID is gone"));
      }
      ASSIGN_OR_RETURN(result, CreateApplied(kind, object, options));
    } else {
      RETURN_IF_ERROR(CheckPreconditions(kind, *old, UidOf(object), ResourceVersionOf(object)));
      ASSIGN_OR_RETURN(const Json merged, MergeApplied(kind, &*old, object, options));
      ASSIGN_OR_RETURN(result, Replace(kind, *old, merged));
      result["metadata"]["managedFields"] = merged["metadata"]["managedFields"];
      if (result == *old) return absl::OkStatus();
    }
    if (options.dry_run) return absl::OkStatus();
    ASSIGN_OR_RETURN(result,
                     transaction.Put(TableKey(kind), old ? &*old : nullptr, std::move(result)));
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(store_->Write(apply, DurabilityOf(kind)));
  return result;
}

absl::StatusOr<Json> EmbeddedKubeClient::Update(const ResourceKind& kind, const Json& object) {
  RETURN_IF_ERROR(RequireVersion(kind, object));
  return Modify(kind, KeyOf(object), [&](const Json& old) -> absl::StatusOr<Json> {
    RETURN_IF_ERROR(CheckPreconditions(kind, old, UidOf(object), ResourceVersionOf(object)));
    return Replace(kind, old, object);
  });
}

absl::StatusOr<Json> EmbeddedKubeClient::UpdateStatus(const ResourceKind& kind,
                                                      const Json& object) {
  RETURN_IF_ERROR(RequireStatus(kind, KeyOf(object)));
  RETURN_IF_ERROR(RequireVersion(kind, object));
  return Modify(kind, KeyOf(object), [&](const Json& old) -> absl::StatusOr<Json> {
    RETURN_IF_ERROR(CheckPreconditions(kind, old, UidOf(object), ResourceVersionOf(object)));
    Json updated = PrepareStatusUpdate(old, object);
    RETURN_IF_ERROR(CheckObject(kind, &old, updated));
    return updated;
  });
}

absl::StatusOr<Json> EmbeddedKubeClient::Patch(const ResourceKind& kind, const ObjectKey& key,
                                               const Json& patch) {
  return Modify(kind, key, [&](const Json& old) -> absl::StatusOr<Json> {
    RETURN_IF_ERROR(CheckPatch(kind, old, patch));
    Json wanted = old;
    wanted.merge_patch(patch);
    return Replace(kind, old, wanted);
  });
}

absl::StatusOr<Json> EmbeddedKubeClient::PatchStatus(const ResourceKind& kind, const ObjectKey& key,
                                                     const Json& patch) {
  RETURN_IF_ERROR(RequireStatus(kind, key));
  return Modify(kind, key, [&](const Json& old) -> absl::StatusOr<Json> {
    RETURN_IF_ERROR(CheckPatch(kind, old, patch));
    Json wanted = old;
    wanted.merge_patch(patch);
    Json updated = PrepareStatusUpdate(old, wanted);
    RETURN_IF_ERROR(CheckObject(kind, &old, updated));
    return updated;
  });
}

absl::StatusOr<Json> EmbeddedKubeClient::Delete(const ResourceKind& kind, const ObjectKey& key,
                                                const DeleteOptions& options) {
  return Modify(kind, key, [&](const Json& old) -> absl::StatusOr<Json> {
    RETURN_IF_ERROR(CheckPreconditions(kind, old, options.uid, options.resource_version));
    return MarkForDeletion(kind, old, options, clock_.WallNow());
  });
}

absl::StatusOr<Json> EmbeddedKubeClient::GetScale(const ResourceKind& kind, const ObjectKey& key) {
  RETURN_IF_ERROR(RequireScale(kind, key));
  ASSIGN_OR_RETURN(const Json object, Get(kind, key));
  return ScaleOf(object);
}

absl::StatusOr<Json> EmbeddedKubeClient::UpdateScale(const ResourceKind& kind, const Json& scale) {
  const ObjectKey key = KeyOf(scale);
  RETURN_IF_ERROR(RequireScale(kind, key));
  ASSIGN_OR_RETURN(
      const Json object, Modify(kind, key, [&](const Json& old) -> absl::StatusOr<Json> {
        RETURN_IF_ERROR(CheckPreconditions(kind, old, UidOf(scale), ResourceVersionOf(scale)));
        ASSIGN_OR_RETURN(const Json wanted, WithScale(old, scale));
        return Replace(kind, old, wanted);
      }));
  return ScaleOf(object);
}

}  // namespace

absl::StatusOr<std::unique_ptr<KubeClient>> OpenEmbeddedKubeClient(const clock::Clock& clock,
                                                                   EmbeddedOptions options) {
  ASSIGN_OR_RETURN(std::unique_ptr<ObjectStore> store,
                   ObjectStore::Open(options.path, options.busy_timeout, options.change_log_limit));
  return std::make_unique<EmbeddedKubeClient>(clock, std::move(options), std::move(store));
}

}  // namespace starling::kube
