// SPDX-License-Identifier: Apache-2.0
#include "controller/kube/http_kube_client.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/json/json.h"
#include "common/status/macros.h"
#include "controller/kube/cluster_http.h"
#include "controller/kube/http_path.h"
#include "controller/kube/http_status.h"
#include "controller/kube/messages.h"
#include "controller/kube/object_rules.h"
#include "controller/kube/objects.h"
#include "controller/kube/protobuf_wire.h"

namespace starling::kube {
namespace {

constexpr const char* kJson = "application/json";
constexpr const char* kMergePatch = "application/merge-patch+json";
constexpr const char* kApplyPatch = "application/apply-patch+yaml";  // JSON is YAML

// Not for us, and long.
Json Trimmed(Json object) {
  const auto metadata = object.find("metadata");
  if (metadata != object.end() && metadata->is_object()) metadata->erase("managedFields");
  return object;
}

absl::Status RequireName(const ResourceKind& kind, const ObjectKey& key) {
  if (!key.name.empty() && key.name != "." && key.name != "..") return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(Describe(kind, key), " is invalid: metadata.name: must be given"));
}

// Of a kind that a definition brings, the server takes all but the status from what it has; of its
// own kinds it would take labels too.
Json StatusAlone(const Json& object) {
  Json said = Json::object();
  for (const char* field : {"apiVersion", "kind", "status"}) {
    if (object.contains(field)) said[field] = object[field];
  }
  const Json& metadata = object["metadata"];
  for (const char* field : {"name", "namespace", "uid", "resourceVersion"}) {
    if (metadata.contains(field)) said["metadata"][field] = metadata[field];
  }
  return said;
}

absl::Status RequireSubresource(bool has, const ResourceKind& kind, const ObjectKey& key,
                                std::string_view subresource) {
  if (has) return absl::OkStatus();
  return absl::NotFoundError(
      absl::StrCat(Describe(kind, key), " has no ", std::string(subresource), " subresource"));
}

// Thread-safe.
class RemoteKubeClient final : public HttpKubeClient {
 public:
  RemoteKubeClient(std::unique_ptr<http::HttpClient> http, std::string default_namespace,
                   HttpKubeClientOptions options)
      : http_(std::move(http)),
        default_namespace_(std::move(default_namespace)),
        options_(std::move(options)) {}

  const std::string& default_namespace() const override { return default_namespace_; }

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
  absl::StatusOr<MessagePtr> CreateMessage(const ResourceKind& kind,
                                           const Message& object) override;
  absl::StatusOr<MessagePtr> CreateFromJson(const ResourceKind& kind, const Json& object) override;
  absl::StatusOr<MessagePtr> DeleteMessage(const ResourceKind& kind, const ObjectKey& key,
                                           const DeleteOptions& options) override;

  absl::StatusOr<std::unique_ptr<LogStream>> ReadLogs(const ObjectKey& pod,
                                                      const LogOptions& options) override;

 private:
  absl::StatusOr<Json> Read(std::string target);
  absl::StatusOr<Json> Write(const char* method, std::string target, const char* content_type,
                             std::string body);
  // The body of an answer in protobuf. `body` empty: there is none.
  absl::StatusOr<std::string> AskForProtobuf(const char* method, std::string target,
                                             std::string body = "",
                                             const char* content_type = kProtobuf);
  absl::StatusOr<Json> CreateIn(const ResourceKind& kind, const Json& object, bool dry_run);
  absl::StatusOr<Json> Replace(const ResourceKind& kind, const Json& object,
                               std::string_view subresource);
  absl::StatusOr<Json> Merge(const ResourceKind& kind, const ObjectKey& key, const Json& patch,
                             std::string_view subresource);
  template <typename Item>
  absl::StatusOr<ListOf<Item>> Page(const ResourceKind& kind, std::string_view ns,
                                    const ListOptions& options);
  // All pages.
  template <typename Item>
  absl::StatusOr<ListOf<Item>> Pages(const ResourceKind& kind, std::string_view ns,
                                     const ListOptions& options);
  std::string CreatePath(const ResourceKind& kind, const std::string& ns, bool dry_run) const;
  ObjectKey Placed(const ResourceKind& kind, ObjectKey key) const;

  const std::unique_ptr<http::HttpClient> http_;
  const std::string default_namespace_;
  const HttpKubeClientOptions options_;
};

// Objects without a namespace belong to "default", as the door says.
ObjectKey RemoteKubeClient::Placed(const ResourceKind& kind, ObjectKey key) const {
  if (kind.namespaced && key.ns.empty()) key.ns = "default";
  return key;
}

absl::StatusOr<Json> RemoteKubeClient::Read(std::string target) {
  ASSIGN_OR_RETURN(const http::Response answer,
                   http_->Exchange({"GET", std::move(target), "", {{"Accept", kJson}}}));
  ASSIGN_OR_RETURN(Json object, ObjectOfAnswer(answer));
  return Trimmed(std::move(object));
}

absl::StatusOr<Json> RemoteKubeClient::Write(const char* method, std::string target,
                                             const char* content_type, std::string body) {
  ASSIGN_OR_RETURN(const http::Response answer,
                   http_->Exchange({method,
                                    std::move(target),
                                    std::move(body),
                                    {{"Accept", kJson}, {"Content-Type", content_type}}}));
  ASSIGN_OR_RETURN(Json object, ObjectOfAnswer(answer));
  return Trimmed(std::move(object));
}

absl::StatusOr<std::string> RemoteKubeClient::AskForProtobuf(const char* method, std::string target,
                                                             std::string body,
                                                             const char* content_type) {
  http::Request request{method, std::move(target), std::move(body), {{"Accept", kProtobuf}}};
  if (!request.body.empty()) request.headers.emplace_back("Content-Type", content_type);
  ASSIGN_OR_RETURN(http::Response answer, http_->Exchange(request));
  return ProtobufOfAnswer(std::move(answer));
}

absl::StatusOr<Json> RemoteKubeClient::Get(const ResourceKind& kind, const ObjectKey& key) {
  RETURN_IF_ERROR(RequireName(kind, key));
  return Read(ObjectPath(kind, Placed(kind, key)));
}

absl::StatusOr<MessagePtr> RemoteKubeClient::GetMessage(const ResourceKind& kind,
                                                        const ObjectKey& key) {
  RETURN_IF_ERROR(RequireMessages(kind));
  RETURN_IF_ERROR(RequireName(kind, key));
  ASSIGN_OR_RETURN(const std::string body,
                   AskForProtobuf("GET", ObjectPath(kind, Placed(kind, key))));
  return DecodeObject(kind, body);
}

std::string PagePath(const ResourceKind& kind, std::string_view ns, const ListOptions& options) {
  return CollectionPath(kind, ns) +
         Query({{"labelSelector", options.selection.labels},
                {"fieldSelector", options.selection.fields},
                {"limit", options.limit > 0 ? absl::StrCat(options.limit) : ""},
                {"continue", options.continue_token}});
}

template <>
absl::StatusOr<ObjectList> RemoteKubeClient::Page<Json>(const ResourceKind& kind,
                                                        std::string_view ns,
                                                        const ListOptions& options) {
  ASSIGN_OR_RETURN(Json list, Read(PagePath(kind, ns, options)));
  ObjectList page;
  page.resource_version = ResourceVersionOf(list);
  page.continue_token = StringAt(list, "/metadata/continue");
  const auto items = list.find("items");
  if (page.resource_version.empty() || items == list.end() ||
      !(items->is_array() || items->is_null())) {
    return absl::UnavailableError(
        absl::StrCat("API server: the list of ", std::string(kind.plural), " is none"));
  }
  page.items.reserve(items->size());
  for (Json& item : *items) {
    if (!item.is_object()) continue;
    // Lists of built-in kinds leave out what all items have in common.
    item["apiVersion"] = kind.ApiVersion();
    item["kind"] = std::string(kind.kind);
    page.items.push_back(Trimmed(std::move(item)));
  }
  return page;
}

template <>
absl::StatusOr<MessageList> RemoteKubeClient::Page<MessagePtr>(const ResourceKind& kind,
                                                               std::string_view ns,
                                                               const ListOptions& options) {
  RETURN_IF_ERROR(RequireMessages(kind));
  ASSIGN_OR_RETURN(const std::string body, AskForProtobuf("GET", PagePath(kind, ns, options)));
  return DecodeList(kind, body);
}

template <typename Item>
absl::StatusOr<ListOf<Item>> RemoteKubeClient::Pages(const ResourceKind& kind, std::string_view ns,
                                                     const ListOptions& options) {
  if (options.limit > 0 || !options.continue_token.empty()) return Page<Item>(kind, ns, options);
  ListOptions next = options;
  next.limit = options_.page;
  ListOf<Item> whole;
  while (true) {
    auto page = Page<Item>(kind, ns, next);
    if (absl::IsOutOfRange(page.status()) && !next.continue_token.empty()) {
      // It took too long; all in one answer then, which is of one version whatever it takes.
      return Page<Item>(kind, ns, options);
    }
    RETURN_IF_ERROR(page.status());
    whole.resource_version = page->resource_version;
    for (Item& item : page->items) whole.items.push_back(std::move(item));
    if (page->continue_token.empty()) return whole;
    next.continue_token = std::move(page->continue_token);
  }
}

absl::StatusOr<ObjectList> RemoteKubeClient::List(const ResourceKind& kind, std::string_view ns,
                                                  const ListOptions& options) {
  return Pages<Json>(kind, ns, options);
}

absl::StatusOr<MessageList> RemoteKubeClient::ListMessages(const ResourceKind& kind,
                                                           std::string_view ns,
                                                           const ListOptions& options) {
  return Pages<MessagePtr>(kind, ns, options);
}

absl::StatusOr<std::unique_ptr<WatchStream>> RemoteKubeClient::Watch(const ResourceKind& kind,
                                                                     std::string_view ns,
                                                                     const WatchOptions& options) {
  std::vector<std::shared_ptr<const Json>> present;
  std::string version = options.resource_version;
  if (version.empty()) {
    ASSIGN_OR_RETURN(ObjectList list, List(kind, ns, {options.selection, 0, ""}));
    for (Json& item : list.items) {
      present.push_back(std::make_shared<const Json>(std::move(item)));
    }
    version = std::move(list.resource_version);
  }
  auto watch = std::make_unique<HttpWatch<Json>>(*http_, kind, std::string(ns), options.selection,
                                                 std::move(version), options_.watch);
  RETURN_IF_ERROR(watch->Start(std::move(present)));
  return watch;
}

absl::StatusOr<std::unique_ptr<MessageStream>> RemoteKubeClient::WatchMessages(
    const ResourceKind& kind, std::string_view ns, const WatchOptions& options) {
  RETURN_IF_ERROR(RequireMessages(kind));
  MessageList list;
  list.resource_version = options.resource_version;
  if (list.resource_version.empty()) {
    ASSIGN_OR_RETURN(list, ListMessages(kind, ns, {options.selection, 0, ""}));
  }
  auto watch =
      std::make_unique<HttpWatch<Message>>(*http_, kind, std::string(ns), options.selection,
                                           std::move(list.resource_version), options_.watch);
  RETURN_IF_ERROR(watch->Start(std::move(list.items)));
  return watch;
}

std::string RemoteKubeClient::CreatePath(const ResourceKind& kind, const std::string& ns,
                                         bool dry_run) const {
  return CollectionPath(kind, ns) +
         Query({{"fieldManager", options_.field_manager}, {"dryRun", dry_run ? "All" : ""}});
}

// The object's text, named, if it is not: of what is sent to a collection the server guesses
// nothing.
std::string TypedText(const ResourceKind& kind, const Json& object) {
  const bool named = !StringAt(object, "/apiVersion").empty() && !StringAt(object, "/kind").empty();
  if (named || !object.is_object()) return json::Dump(object);
  Json typed = object;
  if (StringAt(object, "/apiVersion").empty()) typed["apiVersion"] = kind.ApiVersion();
  if (StringAt(object, "/kind").empty()) typed["kind"] = std::string(kind.kind);
  return json::Dump(typed);
}

absl::StatusOr<Json> RemoteKubeClient::CreateIn(const ResourceKind& kind, const Json& object,
                                                bool dry_run) {
  const ObjectKey key = Placed(kind, KeyOf(object));
  return Write("POST", CreatePath(kind, key.ns, dry_run), kJson, TypedText(kind, object));
}

absl::StatusOr<MessagePtr> RemoteKubeClient::CreateMessage(const ResourceKind& kind,
                                                           const Message& object) {
  RETURN_IF_ERROR(RequireMessages(kind));
  const ObjectKey key = Placed(kind, KeyOf(object));
  ASSIGN_OR_RETURN(const std::string body,
                   AskForProtobuf("POST", CreatePath(kind, key.ns, /*dry_run=*/false),
                                  EncodeObject(kind, object)));
  return DecodeObject(kind, body);
}

absl::StatusOr<MessagePtr> RemoteKubeClient::CreateFromJson(const ResourceKind& kind,
                                                            const Json& object) {
  RETURN_IF_ERROR(RequireMessages(kind));
  const ObjectKey key = Placed(kind, KeyOf(object));
  ASSIGN_OR_RETURN(const std::string body,
                   AskForProtobuf("POST", CreatePath(kind, key.ns, /*dry_run=*/false),
                                  TypedText(kind, object), kJson));
  return DecodeObject(kind, body);
}

absl::StatusOr<Json> RemoteKubeClient::Create(const ResourceKind& kind, const Json& object) {
  return CreateIn(kind, object, /*dry_run=*/false);
}

absl::StatusOr<Json> RemoteKubeClient::DryRunCreate(const ResourceKind& kind, const Json& object) {
  return CreateIn(kind, object, /*dry_run=*/true);
}

absl::StatusOr<Json> RemoteKubeClient::Replace(const ResourceKind& kind, const Json& object,
                                               std::string_view subresource) {
  const ObjectKey key = Placed(kind, KeyOf(object));
  RETURN_IF_ERROR(RequireName(kind, key));
  return Write(
      "PUT", ObjectPath(kind, key, subresource) + Query({{"fieldManager", options_.field_manager}}),
      kJson, json::Dump(object));
}

absl::StatusOr<Json> RemoteKubeClient::Update(const ResourceKind& kind, const Json& object) {
  RETURN_IF_ERROR(RequireVersion(kind, object));
  return Replace(kind, object, "");
}

absl::StatusOr<Json> RemoteKubeClient::UpdateStatus(const ResourceKind& kind, const Json& object) {
  RETURN_IF_ERROR(RequireSubresource(kind.has_status, kind, KeyOf(object), "status"));
  RETURN_IF_ERROR(RequireVersion(kind, object));
  return Replace(kind, kind == kTrainingJob ? StatusAlone(object) : object, "status");
}

absl::StatusOr<Json> RemoteKubeClient::Merge(const ResourceKind& kind, const ObjectKey& key,
                                             const Json& patch, std::string_view subresource) {
  RETURN_IF_ERROR(RequireName(kind, key));
  return Write("PATCH",
               ObjectPath(kind, Placed(kind, key), subresource) +
                   Query({{"fieldManager", options_.field_manager}}),
               kMergePatch, json::Dump(patch));
}

absl::StatusOr<Json> RemoteKubeClient::Patch(const ResourceKind& kind, const ObjectKey& key,
                                             const Json& patch) {
  return Merge(kind, key, patch, "");
}

absl::StatusOr<Json> RemoteKubeClient::PatchStatus(const ResourceKind& kind, const ObjectKey& key,
                                                   const Json& patch) {
  RETURN_IF_ERROR(RequireSubresource(kind.has_status, kind, key, "status"));
  return Merge(kind, key, patch, "status");
}

absl::StatusOr<Json> RemoteKubeClient::Apply(const ResourceKind& kind, const Json& object,
                                             const ApplyOptions& options) {
  const ObjectKey key = Placed(kind, KeyOf(object));
  RETURN_IF_ERROR(RequireName(kind, key));
  if (options.field_manager.empty()) {
    return absl::InvalidArgumentError("apply: a field manager must be given");
  }
  return Write("PATCH",
               ObjectPath(kind, key) + Query({{"fieldManager", options.field_manager},
                                              {"force", options.force ? "true" : "false"},
                                              {"dryRun", options.dry_run ? "All" : ""}}),
               kApplyPatch, json::Dump(object));
}

absl::StatusOr<bool> RemoteKubeClient::Serves(const ResourceKind& kind) {
  const auto list = Read(GroupPath(kind));
  if (absl::IsNotFound(list.status())) return false;
  RETURN_IF_ERROR(list.status());
  for (const Json& resource : At(*list, "/resources")) {
    if (StringAt(resource, "/name") == kind.plural) return true;
  }
  return false;
}

absl::StatusOr<Json> RemoteKubeClient::Delete(const ResourceKind& kind, const ObjectKey& key,
                                              const DeleteOptions& options) {
  RETURN_IF_ERROR(RequireName(kind, key));
  const ObjectKey place = Placed(kind, key);
  Json body = {
      {"apiVersion", "v1"}, {"kind", "DeleteOptions"}, {"propagationPolicy", "Background"}};
  if (!options.uid.empty()) body["preconditions"]["uid"] = options.uid;
  if (!options.resource_version.empty()) {
    body["preconditions"]["resourceVersion"] = options.resource_version;
  }
  if (options.grace_period_seconds) body["gracePeriodSeconds"] = *options.grace_period_seconds;
  ASSIGN_OR_RETURN(Json last, Write("DELETE", ObjectPath(kind, place), kJson, json::Dump(body)));
  if (StringAt(last, "/kind") != "Status") return last;
  // It is gone, and of what it was the server tells no more than this.
  return Json{
      {"apiVersion", kind.ApiVersion()},
      {"kind", std::string(kind.kind)},
      {"metadata",
       {{"name", place.name}, {"namespace", place.ns}, {"uid", StringAt(last, "/details/uid")}}}};
}

absl::StatusOr<MessagePtr> RemoteKubeClient::DeleteMessage(const ResourceKind& kind,
                                                           const ObjectKey& key,
                                                           const DeleteOptions& options) {
  RETURN_IF_ERROR(RequireMessages(kind));
  RETURN_IF_ERROR(RequireName(kind, key));
  const ObjectKey place = Placed(kind, key);
  kubernetes::DeleteOptions wanted;
  wanted.set_propagation_policy("Background");
  if (!options.uid.empty()) wanted.mutable_preconditions()->set_uid(options.uid);
  if (!options.resource_version.empty()) {
    wanted.mutable_preconditions()->set_resource_version(options.resource_version);
  }
  if (options.grace_period_seconds) {
    wanted.set_grace_period_seconds(*options.grace_period_seconds);
  }
  ASSIGN_OR_RETURN(
      const std::string body,
      AskForProtobuf("DELETE", ObjectPath(kind, place), EncodeBody("v1", "DeleteOptions", wanted)));
  return DecodeDeleted(kind, place, body);
}

absl::StatusOr<Json> RemoteKubeClient::GetScale(const ResourceKind& kind, const ObjectKey& key) {
  RETURN_IF_ERROR(RequireSubresource(kind.has_scale, kind, key, "scale"));
  RETURN_IF_ERROR(RequireName(kind, key));
  return Read(ObjectPath(kind, Placed(kind, key), "scale"));
}

absl::StatusOr<Json> RemoteKubeClient::UpdateScale(const ResourceKind& kind, const Json& scale) {
  RETURN_IF_ERROR(RequireSubresource(kind.has_scale, kind, KeyOf(scale), "scale"));
  return Replace(kind, scale, "scale");
}

class RemoteLog final : public LogStream {
 public:
  explicit RemoteLog(std::unique_ptr<http::HttpStream> stream) : stream_(std::move(stream)) {}

  absl::StatusOr<std::optional<std::string>> Next(absl::Duration timeout) override {
    return stream_->Next(timeout);
  }
  void Stop() override { stream_->Stop(); }

 private:
  const std::unique_ptr<http::HttpStream> stream_;
};

absl::StatusOr<std::unique_ptr<LogStream>> RemoteKubeClient::ReadLogs(const ObjectKey& pod,
                                                                      const LogOptions& options) {
  RETURN_IF_ERROR(RequireName(kPod, pod));
  const std::string target =
      ObjectPath(kPod, Placed(kPod, pod), "log") +
      Query({{"container", options.container},
             {"follow", options.follow ? "true" : ""},
             {"previous", options.previous ? "true" : ""},
             {"tailLines", options.tail_lines ? absl::StrCat(*options.tail_lines) : ""}});
  const absl::Duration lifetime = options.follow ? absl::Hours(24 * 365) : absl::Minutes(10);
  std::unique_ptr<http::HttpStream> stream = http_->Stream({"GET", target, "", {}}, lifetime);
  RETURN_IF_ERROR(stream->AwaitHead(options_.transport.timeout));
  return std::make_unique<RemoteLog>(std::move(stream));
}

}  // namespace

absl::StatusOr<std::unique_ptr<HttpKubeClient>> OpenHttpKubeClient(ClusterConfig config,
                                                                   HttpKubeClientOptions options) {
  ASSIGN_OR_RETURN(std::unique_ptr<http::HttpClient> http,
                   OpenClusterHttp(config, options.transport));
  return std::make_unique<RemoteKubeClient>(std::move(http), std::move(config.ns),
                                            std::move(options));
}

}  // namespace starling::kube
