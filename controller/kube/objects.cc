// SPDX-License-Identifier: Apache-2.0
#include "controller/kube/objects.h"

#include <nlohmann/json.hpp>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "controller/kube/selector.h"

namespace starling::kube {
namespace {

const Json& Null() {
  static const Json& null = *new Json();
  return null;
}

// One step of a JSON pointer, with ~1 and ~0 decoded.
std::string Unescape(std::string_view token) {
  std::string name;
  for (std::size_t i = 0; i < token.size(); ++i) {
    const bool escape = token[i] == '~' && i + 1 < token.size();
    name += !escape ? token[i] : token[i + 1] == '1' ? '/' : '~';
    if (escape) ++i;
  }
  return name;
}

const Json& Child(const Json& value, const std::string& name) {
  if (value.is_object()) {
    const auto found = value.find(name);
    return found == value.end() ? Null() : *found;
  }
  std::size_t index = 0;
  if (value.is_array() && absl::SimpleAtoi(name, &index) && index < value.size()) {
    return value[index];
  }
  return Null();
}

std::string MetadataString(const Json& object, std::string_view field) {
  const Json& value = Child(Child(object, "metadata"), std::string(field));
  return value.is_string() ? value.get<std::string>() : "";
}

std::string TextOf(const Json& value) {
  return value.is_string() ? value.get<std::string>() : std::string();
}

}  // namespace

const Json& At(const Json& object, std::string_view pointer) {
  const Json* value = &object;
  while (!pointer.empty()) {
    pointer.remove_prefix(1);  // the slash
    const std::size_t end = pointer.find('/');
    value = &Child(*value, Unescape(pointer.substr(0, end)));
    pointer.remove_prefix(end == std::string_view::npos ? pointer.size() : end);
  }
  return *value;
}

std::string StringAt(const Json& object, std::string_view pointer) {
  return TextOf(At(object, pointer));
}

std::int64_t IntAt(const Json& object, std::string_view pointer, std::int64_t otherwise) {
  const Json& value = At(object, pointer);
  return value.is_number_integer() ? value.get<std::int64_t>() : otherwise;
}

bool BoolAt(const Json& object, std::string_view pointer, bool otherwise) {
  const Json& value = At(object, pointer);
  return value.is_boolean() ? value.get<bool>() : otherwise;
}

std::string NameOf(const Json& object) { return MetadataString(object, "name"); }
std::string NamespaceOf(const Json& object) { return MetadataString(object, "namespace"); }
std::string UidOf(const Json& object) { return MetadataString(object, "uid"); }
std::string ResourceVersionOf(const Json& object) {
  return MetadataString(object, "resourceVersion");
}
ObjectKey KeyOf(const Json& object) { return {NamespaceOf(object), NameOf(object)}; }
std::int64_t GenerationOf(const Json& object) { return IntAt(object, "/metadata/generation"); }
std::string LabelOf(const Json& object, std::string_view name) {
  return TextOf(Child(At(object, "/metadata/labels"), std::string(name)));
}
std::string AnnotationOf(const Json& object, std::string_view name) {
  return TextOf(Child(At(object, "/metadata/annotations"), std::string(name)));
}
bool IsBeingDeleted(const Json& object) {
  return !MetadataString(object, "deletionTimestamp").empty();
}
std::optional<absl::Time> CreationTimeOf(const Json& object) {
  return ParseTimestamp(MetadataString(object, "creationTimestamp"));
}

std::string ControllerUidOf(const Json& object) {
  for (const Json& owner : At(object, "/metadata/ownerReferences")) {
    if (BoolAt(owner, "/controller")) return StringAt(owner, "/uid");
  }
  return "";
}

Json ControllerReference(const Json& owner) {
  return {{"apiVersion", StringAt(owner, "/apiVersion")},
          {"kind", StringAt(owner, "/kind")},
          {"name", NameOf(owner)},
          {"uid", UidOf(owner)},
          {"controller", true},
          {"blockOwnerDeletion", true}};
}

bool HasFinalizer(const Json& object, std::string_view name) {
  for (const Json& finalizer : At(object, "/metadata/finalizers")) {
    if (TextOf(finalizer) == name) return true;
  }
  return false;
}

std::string FormatTimestamp(absl::Time time) {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", time, absl::UTCTimeZone());
}

std::string FormatMicroTimestamp(absl::Time time) {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%E6SZ", time, absl::UTCTimeZone());
}

std::optional<absl::Time> ParseTimestamp(std::string_view text) {
  absl::Time time;
  std::string error;
  if (text.empty() || !absl::ParseTime(absl::RFC3339_full, std::string(text), &time, &error)) {
    return std::nullopt;
  }
  return time;
}

const Json& FindCondition(const Json& object, std::string_view type) {
  for (const Json& condition : At(object, "/status/conditions")) {
    if (StringAt(condition, "/type") == type) return condition;
  }
  return Null();
}

bool IsConditionTrue(const Json& object, std::string_view type) {
  return StringAt(FindCondition(object, type), "/status") == "True";
}

bool SetCondition(Json& conditions, const Condition& condition, absl::Time now) {
  Json wanted = {{"type", condition.type},
                 {"status", condition.status},
                 {"reason", condition.reason},
                 {"message", condition.message},
                 {"observedGeneration", condition.observed_generation},
                 {"lastTransitionTime", FormatTimestamp(now)}};
  if (!conditions.is_array()) conditions = Json::array();
  for (Json& present : conditions) {
    if (StringAt(present, "/type") != condition.type) continue;
    if (StringAt(present, "/status") == condition.status) {
      wanted["lastTransitionTime"] = At(present, "/lastTransitionTime");
    }
    if (present == wanted) return false;
    present = std::move(wanted);
    return true;
  }
  conditions.push_back(std::move(wanted));
  return true;
}

}  // namespace starling::kube
