// SPDX-License-Identifier: Apache-2.0
#include "controller/runtime/cached_kube_client.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status/macros.h"
#include "controller/kube/objects.h"
#include "controller/kube/selector.h"

namespace starling::runtime {
namespace {

using kube::Json;

// After these errors the object may be in any state; after all others the write changed nothing.
bool LeavesDoubt(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kCancelled:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kInternal:
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kUnknown:
      return true;
    default:
      return false;
  }
}

// The value in a selector that asks for nothing but "label=value"; empty: it asks for more.
std::string ValueOf(const std::string& selector, const std::string& label) {
  if (label.empty() || selector.find_first_of(",!()") != std::string::npos) return "";
  const std::string beginning = absl::StrCat(label, "=");
  if (!selector.starts_with(beginning)) return "";
  const std::string value = selector.substr(beginning.size());
  return value.find('=') == std::string::npos ? value : "";
}

absl::StatusOr<std::vector<Json>> Find(const kube::ResourceKind& kind, const Informer& informer,
                                       std::string_view ns, const kube::Selection& selection) {
  const std::string value = ValueOf(selection.labels, informer.options().index_label);
  if (!ns.empty() && !value.empty()) return informer.ReadByLabel(std::string(ns), value);
  ASSIGN_OR_RETURN(const kube::Selector selector, kube::Selector::Parse(kind, selection));
  std::vector<Json> found;
  for (const Informer::Object& object : informer.List()) {
    if (!ns.empty() && kube::NamespaceOf(*object) != ns) continue;
    if (selector.Matches(*object)) found.push_back(*object);
  }
  return found;
}

}  // namespace

void CachedKubeClient::Serve(const kube::ResourceKind& kind, Informer& informer) {
  informers_[{kind.group, kind.plural}] = &informer;
}

Informer* CachedKubeClient::CopyOf(const kube::ResourceKind& kind) const {
  const auto found = informers_.find({kind.group, kind.plural});
  if (found == informers_.end() || !found->second->HasSynced()) return nullptr;
  return found->second;
}

void CachedKubeClient::Doubt(const kube::ResourceKind& kind, const kube::ObjectKey& key) {
  if (key.name.empty()) return;
  sync::MutexLock lock(mutex_);
  doubts_[{kind.group, kind.plural}].insert(key);
}

absl::Status CachedKubeClient::SettleDoubts(const kube::ResourceKind& kind, std::string_view ns,
                                            Informer& informer) {
  std::vector<kube::ObjectKey> doubtful;
  {
    sync::MutexLock lock(mutex_);
    const auto found = doubts_.find({kind.group, kind.plural});
    if (found == doubts_.end()) return absl::OkStatus();
    for (const kube::ObjectKey& key : found->second) {
      if (ns.empty() || key.ns == ns) doubtful.push_back(key);
    }
  }
  for (const kube::ObjectKey& key : doubtful) {
    absl::StatusOr<Json> object = inner().Get(kind, key);
    // Not there: the watch will tell, and writes to it are refused until then.
    if (!object.ok() && !absl::IsNotFound(object.status())) return object.status();
    if (object.ok()) informer.Learn(*std::move(object));
    sync::MutexLock lock(mutex_);
    doubts_[{kind.group, kind.plural}].erase(key);
  }
  return absl::OkStatus();
}

absl::StatusOr<Json> CachedKubeClient::Get(const kube::ResourceKind& kind,
                                           const kube::ObjectKey& key) {
  Informer* informer = CopyOf(kind);
  if (informer == nullptr) return inner().Get(kind, key);
  RETURN_IF_ERROR(SettleDoubts(kind, key.ns, *informer));
  if (std::optional<Json> object = informer->Read(key)) return *std::move(object);
  return absl::NotFoundError(
      absl::StrCat(std::string(kind.plural), " \"", key.ToString(), "\" not found"));
}

absl::StatusOr<kube::ObjectList> CachedKubeClient::List(const kube::ResourceKind& kind,
                                                        std::string_view ns,
                                                        const kube::ListOptions& options) {
  Informer* informer = CopyOf(kind);
  const bool whole =
      options.limit == 0 && options.continue_token.empty() && options.selection.fields.empty();
  if (informer == nullptr || !whole) return inner().List(kind, ns, options);
  RETURN_IF_ERROR(SettleDoubts(kind, ns, *informer));
  kube::ObjectList list;
  ASSIGN_OR_RETURN(list.items, Find(kind, *informer, ns, options.selection));
  return list;
}

absl::StatusOr<Json> CachedKubeClient::Write(const kube::ResourceKind& kind,
                                             const kube::ObjectKey& key, std::string_view verb,
                                             const Call& call) {
  absl::StatusOr<Json> result = call();
  Informer* informer = CopyOf(kind);
  if (informer == nullptr) return result;
  if (!result.ok()) {
    if (LeavesDoubt(result.status())) Doubt(kind, key);
    return result;
  }
  // An object that is gone will be reported by the watch; one that is only marked is stored in the
  // copy.
  if (verb != "delete") {
    informer->Learn(*result, Informer::Source::kOwnWrite);
  } else if (kube::IsBeingDeleted(*result)) {
    informer->Learn(*result);  // when it will be gone is for the next look
  }
  return result;
}

}  // namespace starling::runtime
