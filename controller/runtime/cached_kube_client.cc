// SPDX-License-Identifier: Apache-2.0
#include "controller/runtime/cached_kube_client.h"

#include <memory>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status/macros.h"
#include "controller/kube/message_json.h"
#include "controller/kube/messages.h"
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

// The objects of `informer` in that namespace, or in all, that are selected.
template <typename T>
absl::StatusOr<std::vector<std::shared_ptr<const T>>> Find(const kube::ResourceKind& kind,
                                                           const InformerOf<T>& informer,
                                                           std::string_view ns,
                                                           const kube::Selection& selection) {
  const std::string value = ValueOf(selection.labels, informer.options().index_label);
  if (!ns.empty() && !value.empty()) return informer.ListByLabel(std::string(ns), value);
  ASSIGN_OR_RETURN(const kube::Selector selector, kube::Selector::Parse(kind, selection));
  std::vector<std::shared_ptr<const T>> found = informer.List();
  std::erase_if(found, [&](const auto& object) {
    return (!ns.empty() && kube::NamespaceOf(*object) != ns) || !selector.Matches(*object);
  });
  return found;
}

// Whether a copy can answer it.
bool IsWhole(const kube::ListOptions& options) {
  return options.limit == 0 && options.continue_token.empty() && options.selection.fields.empty();
}

absl::Status NotFound(const kube::ResourceKind& kind, const kube::ObjectKey& key) {
  return absl::NotFoundError(
      absl::StrCat(std::string(kind.plural), " \"", key.ToString(), "\" not found"));
}

// An object to be changed. What is kept packed was unpacked for this reader alone.
Json Own(const Informer& informer, const Informer::Object& object) {
  if (!informer.options().packed) return *object;
  return std::move(*std::const_pointer_cast<Json>(object));
}

// What a write returned, into the copy.
template <typename T>
void LearnWritten(InformerOf<T>& informer, std::string_view verb, std::shared_ptr<const T> object) {
  // An object that is gone will be reported by the watch; one that is only marked is stored in the
  // copy, and when it will be gone is for the next look.
  if (verb != "delete") {
    informer.Learn(std::move(object), InformerOf<T>::Source::kOwnWrite);
  } else if (kube::IsBeingDeleted(*object)) {
    informer.Learn(std::move(object));
  }
}

}  // namespace

void CachedKubeClient::Serve(const kube::ResourceKind& kind, Informer& informer) {
  copies_[{kind.group, kind.plural}] = {&informer, nullptr};
}

void CachedKubeClient::Serve(const kube::ResourceKind& kind, MessageInformer& informer) {
  copies_[{kind.group, kind.plural}] = {nullptr, &informer};
}

CachedKubeClient::Copy CachedKubeClient::CopyOf(const kube::ResourceKind& kind) const {
  const auto found = copies_.find({kind.group, kind.plural});
  if (found == copies_.end()) return {};
  const Copy& copy = found->second;
  const Copying& informer =
      copy.json != nullptr ? static_cast<const Copying&>(*copy.json) : *copy.messages;
  return informer.HasSynced() ? copy : Copy();
}

void CachedKubeClient::Doubt(const kube::ResourceKind& kind, const kube::ObjectKey& key) {
  if (key.name.empty()) return;
  sync::MutexLock lock(mutex_);
  doubts_[{kind.group, kind.plural}].insert(key);
}

absl::Status CachedKubeClient::ReadAnew(const kube::ResourceKind& kind,
                                        const kube::ObjectKey& key) {
  const Copy copy = CopyOf(kind);
  if (copy.messages != nullptr) {
    ASSIGN_OR_RETURN(kube::MessagePtr object, inner().GetMessage(kind, key));
    copy.messages->Learn(std::move(object));
  }
  if (copy.json != nullptr) {
    ASSIGN_OR_RETURN(Json object, inner().Get(kind, key));
    copy.json->Learn(std::make_shared<const Json>(std::move(object)));
  }
  return absl::OkStatus();
}

absl::Status CachedKubeClient::SettleDoubts(const kube::ResourceKind& kind, std::string_view ns) {
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
    const absl::Status status = ReadAnew(kind, key);
    // Not there: the watch will tell, and writes to it are refused until then.
    if (!status.ok() && !absl::IsNotFound(status)) return status;
    sync::MutexLock lock(mutex_);
    doubts_[{kind.group, kind.plural}].erase(key);
  }
  return absl::OkStatus();
}

absl::StatusOr<Json> CachedKubeClient::Get(const kube::ResourceKind& kind,
                                           const kube::ObjectKey& key) {
  const Informer* informer = CopyOf(kind).json;
  if (informer == nullptr) return inner().Get(kind, key);
  RETURN_IF_ERROR(SettleDoubts(kind, key.ns));
  const Informer::Object object = informer->Get(key);
  return object == nullptr ? absl::StatusOr<Json>(NotFound(kind, key)) : Own(*informer, object);
}

absl::StatusOr<kube::MessagePtr> CachedKubeClient::GetMessage(const kube::ResourceKind& kind,
                                                              const kube::ObjectKey& key) {
  const MessageInformer* informer = CopyOf(kind).messages;
  if (informer == nullptr) return inner().GetMessage(kind, key);
  RETURN_IF_ERROR(SettleDoubts(kind, key.ns));
  kube::MessagePtr object = informer->Get(key);
  if (object == nullptr) return NotFound(kind, key);
  return object;
}

absl::StatusOr<kube::ObjectList> CachedKubeClient::List(const kube::ResourceKind& kind,
                                                        std::string_view ns,
                                                        const kube::ListOptions& options) {
  const Informer* informer = CopyOf(kind).json;
  if (informer == nullptr || !IsWhole(options)) return inner().List(kind, ns, options);
  RETURN_IF_ERROR(SettleDoubts(kind, ns));
  ASSIGN_OR_RETURN(const auto found, Find(kind, *informer, ns, options.selection));
  kube::ObjectList list;
  for (const Informer::Object& object : found) list.items.push_back(Own(*informer, object));
  return list;
}

absl::StatusOr<kube::MessageList> CachedKubeClient::ListMessages(const kube::ResourceKind& kind,
                                                                 std::string_view ns,
                                                                 const kube::ListOptions& options) {
  const MessageInformer* informer = CopyOf(kind).messages;
  if (informer == nullptr || !IsWhole(options)) return inner().ListMessages(kind, ns, options);
  RETURN_IF_ERROR(SettleDoubts(kind, ns));
  kube::MessageList list;
  ASSIGN_OR_RETURN(list.items, Find(kind, *informer, ns, options.selection));
  return list;
}

absl::StatusOr<CachedKubeClient::Written> CachedKubeClient::Write(const kube::ResourceKind& kind,
                                                                  const kube::ObjectKey& key,
                                                                  std::string_view verb,
                                                                  const Call& call) {
  absl::StatusOr<Written> result = call();
  const Copy copy = CopyOf(kind);
  if (copy.json == nullptr && copy.messages == nullptr) return result;
  if (!result.ok()) {
    if (LeavesDoubt(result.status())) Doubt(kind, key);
    return result;
  }
  if (copy.messages != nullptr) {
    LearnWritten(
        *copy.messages, verb,
        result->message != nullptr ? result->message : kube::FromJson(kind, *result->json));
  } else if (result->json != nullptr) {
    LearnWritten<Json>(*copy.json, verb, result->json);
  } else {
    Doubt(kind, key);  // a message is only a part of what the copy holds
  }
  return result;
}

}  // namespace starling::runtime
