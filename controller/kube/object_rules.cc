// SPDX-License-Identifier: Apache-2.0
#include "controller/kube/object_rules.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/bytes/bytes.h"
#include "common/json/json.h"
#include "common/status/macros.h"
#include "controller/kube/objects.h"

namespace starling::kube {
namespace {

constexpr std::size_t kLargestObject = 1'500'000;  // bytes, as etcd bounds it
constexpr const char* kServersMetadata[] = {"uid",
                                            "creationTimestamp",
                                            "generation",
                                            "deletionTimestamp",
                                            "deletionGracePeriodSeconds",
                                            "resourceVersion"};

absl::Status Invalid(const ResourceKind& kind, const ObjectKey& key, std::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat(Describe(kind, key), " is invalid: ", std::string(what)));
}

// RFC 1123 subdomain.
bool IsName(const std::string& name) {
  const auto legal = [](unsigned char c) {
    return absl::ascii_islower(c) || absl::ascii_isdigit(c) || c == '-' || c == '.';
  };
  return !name.empty() && name.size() <= 253 && absl::ascii_isalnum(name.front()) &&
         absl::ascii_isalnum(name.back()) && std::all_of(name.begin(), name.end(), legal);
}

std::string RandomSuffix() {
  constexpr std::string_view kAlphabet = "bcdfghjklmnpqrstvwxz2456789";
  std::string suffix;
  for (const char byte : bytes::RandomBytes(5)) {
    suffix += kAlphabet[static_cast<unsigned char>(byte) % kAlphabet.size()];
  }
  return suffix;
}

absl::Status CheckTextMap(const ResourceKind& kind, const Json& object, const std::string& field) {
  const Json& map = At(object, "/metadata/" + field);
  if (map.is_null()) return absl::OkStatus();
  if (!map.is_object()) return Invalid(kind, KeyOf(object), "metadata." + field + ": not a map");
  for (const auto& [name, value] : map.items()) {
    if (!value.is_string() || (field == "labels" && value.get<std::string>().size() > 63)) {
      return Invalid(kind, KeyOf(object),
                     absl::StrCat("metadata.", field, "[", name, "]: must be text",
                                  field == "labels" ? " of at most 63 characters" : ""));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckOwners(const ResourceKind& kind, const Json& object) {
  int controllers = 0;
  for (const Json& owner : At(object, "/metadata/ownerReferences")) {
    for (const char* field : {"/apiVersion", "/kind", "/name", "/uid"}) {
      if (StringAt(owner, field).empty()) {
        return Invalid(
            kind, KeyOf(object),
            absl::StrCat("metadata.ownerReferences: each needs ", std::string(field + 1)));
      }
    }
    controllers += BoolAt(owner, "/controller") ? 1 : 0;
  }
  if (controllers > 1) {
    return Invalid(kind, KeyOf(object), "metadata.ownerReferences: only one may be the controller");
  }
  return absl::OkStatus();
}

absl::Status CheckMetadata(const ResourceKind& kind, const Json& object) {
  const ObjectKey key = KeyOf(object);
  if (!IsName(key.name)) {
    return Invalid(kind, key,
                   "metadata.name: must be given and consist of lower case letters, digits, '-' "
                   "and '.', beginning and ending with a letter or digit");
  }
  if (kind.namespaced && (!IsName(key.ns) || key.ns.size() > 63)) {
    return Invalid(kind, key, "metadata.namespace: is no legal name");
  }
  for (const char* list : {"finalizers", "ownerReferences"}) {
    const Json& value = At(object, absl::StrCat("/metadata/", list));
    if (!value.is_null() && !value.is_array()) {
      return Invalid(kind, key, absl::StrCat("metadata.", list, ": not a list"));
    }
  }
  RETURN_IF_ERROR(CheckTextMap(kind, object, "labels"));
  RETURN_IF_ERROR(CheckTextMap(kind, object, "annotations"));
  return CheckOwners(kind, object);
}

absl::Status CheckType(const ResourceKind& kind, const Json& object) {
  if (!object.is_object()) return absl::InvalidArgumentError("an object must be a JSON object");
  const Json& metadata = At(object, "/metadata");
  if (!metadata.is_null() && !metadata.is_object()) {
    return absl::InvalidArgumentError("metadata must be a JSON object");
  }
  const std::string api_version = StringAt(object, "/apiVersion");
  const std::string name = StringAt(object, "/kind");
  if ((!api_version.empty() && api_version != kind.ApiVersion()) ||
      (!name.empty() && name != kind.kind)) {
    return absl::InvalidArgumentError(absl::StrCat("the object is a ", api_version, " ", name,
                                                   ", not a ", kind.ApiVersion(), " ",
                                                   std::string(kind.kind)));
  }
  return absl::OkStatus();
}

// A Secret may be written with plain text; it is stored with base64 only, as Kubernetes does.
void EncodeStringData(Json& secret) {
  const auto plain = secret.find("stringData");
  if (plain == secret.end() || !plain->is_object()) return;
  for (const auto& [name, value] : plain->items()) {
    if (value.is_string()) secret["data"][name] = absl::Base64Escape(value.get<std::string>());
  }
  secret.erase("stringData");
}

// A pod's spec stays, but it may be bound to a node once.
absl::Status CheckPod(const Json& old, const Json& object) {
  Json before = At(old, "/spec");
  if (StringAt(before, "/nodeName").empty() && !StringAt(object, "/spec/nodeName").empty()) {
    before["nodeName"] = At(object, "/spec/nodeName");
  }
  if (before == At(object, "/spec")) return absl::OkStatus();
  return Invalid(kPod, KeyOf(object), "spec: may not be changed, except for an empty nodeName");
}

absl::Status CheckKind(const ResourceKind& kind, const Json* old, const Json& object) {
  if (old == nullptr) return absl::OkStatus();
  if (kind == kPod) return CheckPod(*old, object);
  const bool frozen = (kind == kSecret || kind == kConfigMap) && BoolAt(*old, "/immutable");
  if (frozen && SpecChanged(*old, object)) {
    return Invalid(kind, KeyOf(object), "it is immutable; create another one");
  }
  return absl::OkStatus();
}

// Absent means default; what does not exist without a name has none.
void Normalize(Json& object) {
  Json& metadata = object["metadata"];
  for (const char* field : {"labels", "annotations", "finalizers", "ownerReferences"}) {
    const auto found = metadata.find(field);
    if (found != metadata.end() && (found->is_null() || found->empty())) metadata.erase(found);
  }
  metadata.erase("selfLink");
}

// No process of it can be running: it was never bound nor started, or it has ended.
bool HasNoProcess(const Json& pod) {
  const std::string phase = StringAt(pod, "/status/phase");
  if (phase == "Succeeded" || phase == "Failed") return true;
  return StringAt(pod, "/spec/nodeName").empty() && phase == "Pending";
}

std::int64_t GracePeriod(const ResourceKind& kind, const Json& object,
                         const DeleteOptions& options) {
  if (!(kind == kPod)) return 0;
  if (HasNoProcess(object)) return 0;
  const std::int64_t wanted = options.grace_period_seconds.value_or(
      IntAt(object, "/spec/terminationGracePeriodSeconds", 30));
  return std::max<std::int64_t>(wanted, 0);
}

}  // namespace

std::string Describe(const ResourceKind& kind, const ObjectKey& key) {
  return absl::StrCat(std::string(kind.plural), kind.group.empty() ? "" : ".",
                      std::string(kind.group), " \"", key.ToString(), "\"");
}

absl::StatusOr<Json> PrepareCreate(const ResourceKind& kind, const Json& wanted, absl::Time now) {
  RETURN_IF_ERROR(CheckType(kind, wanted));
  Json object = wanted;
  if (!ResourceVersionOf(object).empty()) {
    return absl::InvalidArgumentError("resourceVersion must not be set on objects to be created");
  }
  object["apiVersion"] = kind.ApiVersion();
  object["kind"] = std::string(kind.kind);
  Json& metadata = object["metadata"];
  if (metadata.is_null()) metadata = Json::object();
  for (const char* field : kServersMetadata) metadata.erase(field);
  metadata.erase("managedFields");
  if (kind.namespaced && NamespaceOf(object).empty()) metadata["namespace"] = "default";
  const std::string prefix = StringAt(object, "/metadata/generateName");
  if (NameOf(object).empty() && !prefix.empty()) metadata["name"] = prefix + RandomSuffix();
  metadata["uid"] = bytes::RandomUuid();
  metadata["creationTimestamp"] = FormatTimestamp(now);
  if (kind.has_status) {
    object.erase("status");
    metadata["generation"] = 1;
  }
  if (kind == kPod) object["status"] = {{"phase", "Pending"}};
  EncodeStringData(object);
  Normalize(object);
  return object;
}

absl::StatusOr<Json> PrepareUpdate(const ResourceKind& kind, const Json& old, const Json& wanted) {
  RETURN_IF_ERROR(CheckType(kind, wanted));
  Json object = wanted;
  object["apiVersion"] = kind.ApiVersion();
  object["kind"] = std::string(kind.kind);
  Json& metadata = object["metadata"];
  metadata["name"] = NameOf(old);
  if (kind.namespaced) metadata["namespace"] = NamespaceOf(old);
  for (const char* field : kServersMetadata) {
    metadata.erase(field);
    if (old["metadata"].contains(field)) metadata[field] = old["metadata"][field];
  }
  metadata.erase("managedFields");
  if (old["metadata"].contains("managedFields")) {
    metadata["managedFields"] = old["metadata"]["managedFields"];
  }
  if (kind.has_status) {
    object.erase("status");
    if (old.contains("status")) object["status"] = old["status"];
  }
  EncodeStringData(object);
  Normalize(object);
  if (IsBeingDeleted(old)) {
    for (const Json& finalizer : At(object, "/metadata/finalizers")) {
      if (!finalizer.is_string() || !HasFinalizer(old, finalizer.get<std::string>())) {
        return Invalid(kind, KeyOf(old),
                       "metadata.finalizers: none may be added while it is being deleted");
      }
    }
  }
  return object;
}

Json PrepareStatusUpdate(const Json& old, const Json& wanted) {
  Json object = old;
  const Json& status = At(wanted, "/status");
  if (status.is_null()) {
    object.erase("status");
  } else {
    object["status"] = status;
  }
  return object;
}

absl::Status CheckObject(const ResourceKind& kind, const Json* old, const Json& object) {
  RETURN_IF_ERROR(CheckMetadata(kind, object));
  RETURN_IF_ERROR(CheckKind(kind, old, object));
  if (json::Dump(object).size() > kLargestObject) {
    return Invalid(kind, KeyOf(object), "it is larger than 1500000 bytes");
  }
  return absl::OkStatus();
}

bool SpecChanged(const Json& old, const Json& object) {
  const auto rest = [](const Json& whole) {
    Json copy = whole;
    copy.erase("metadata");
    copy.erase("status");
    return copy;
  };
  return rest(old) != rest(object);
}

void BumpGeneration(const ResourceKind& kind, const Json& old, Json& object) {
  if (!kind.has_status || !SpecChanged(old, object)) return;
  object["metadata"]["generation"] = GenerationOf(old) + 1;
}

absl::Status RequireVersion(const ResourceKind& kind, const Json& object) {
  if (!ResourceVersionOf(object).empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(Describe(kind, KeyOf(object)),
                   " is invalid: metadata.resourceVersion: must be given for an update"));
}

absl::Status CheckPreconditions(const ResourceKind& kind, const Json& object,
                                const std::string& uid, const std::string& resource_version) {
  const ObjectKey key = KeyOf(object);
  if (!uid.empty() && uid != UidOf(object)) {
    return absl::AbortedError(absl::StrCat("conflict on ", Describe(kind, key),
                                           ": the UID given is ", uid, ", the object's is ",
                                           UidOf(object)));
  }
  if (!resource_version.empty() && resource_version != ResourceVersionOf(object)) {
    return absl::AbortedError(absl::StrCat(
        "conflict on ", Describe(kind, key),
        ": it has been changed; read it again and apply your changes to the newest version"));
  }
  return absl::OkStatus();
}

Json MarkForDeletion(const ResourceKind& kind, const Json& object, const DeleteOptions& options,
                     absl::Time now) {
  Json marked = object;
  Json& metadata = marked["metadata"];
  std::int64_t grace = GracePeriod(kind, object, options);
  if (IsBeingDeleted(object)) {
    // A grace period can be shortened, never lengthened.
    grace = std::min(grace, IntAt(object, "/metadata/deletionGracePeriodSeconds"));
    if (grace == IntAt(object, "/metadata/deletionGracePeriodSeconds")) return marked;
  } else if (metadata.contains("generation")) {
    metadata["generation"] = GenerationOf(object) + 1;
  }
  metadata["deletionTimestamp"] = FormatTimestamp(now + absl::Seconds(grace));
  metadata["deletionGracePeriodSeconds"] = grace;
  return marked;
}

bool MayRemove(const Json& object) {
  return IsBeingDeleted(object) && At(object, "/metadata/finalizers").empty() &&
         IntAt(object, "/metadata/deletionGracePeriodSeconds") == 0;
}

Json ScaleOf(const Json& job) {
  Json metadata = {{"name", NameOf(job)},
                   {"namespace", NamespaceOf(job)},
                   {"uid", UidOf(job)},
                   {"resourceVersion", ResourceVersionOf(job)},
                   {"creationTimestamp", StringAt(job, "/metadata/creationTimestamp")}};
  return {{"apiVersion", "autoscaling/v1"},
          {"kind", "Scale"},
          {"metadata", std::move(metadata)},
          {"spec", {{"replicas", IntAt(job, "/spec/replicaSpecs/worker/replicas", 1)}}},
          {"status",
           {{"replicas", IntAt(job, "/status/replicas")},
            {"selector", StringAt(job, "/status/selector")}}}};
}

absl::StatusOr<Json> WithScale(const Json& job, const Json& scale) {
  const Json& replicas = At(scale, "/spec/replicas");
  if (!replicas.is_number_integer() || replicas.get<std::int64_t>() < 0 ||
      replicas.get<std::int64_t>() > 0x7fffffff) {
    return absl::InvalidArgumentError(
        absl::StrCat("scale of ", Describe(kTrainingJob, KeyOf(job)),
                     ": spec.replicas must be a whole number, 0 or more"));
  }
  Json scaled = job;
  scaled["spec"]["replicaSpecs"]["worker"]["replicas"] = replicas;
  return scaled;
}

}  // namespace starling::kube
