// SPDX-License-Identifier: Apache-2.0
#include "api/spec/merge_pod_template.h"

#include <array>
#include <string>
#include <utility>

#include "nlohmann/json.hpp"

namespace starling::spec {
namespace {

using Json = nlohmann::json;

// How the items of a list are told apart, and whether one that is given again replaces the old one
// whole: of a volume's sources and a variable's values there may be only one.
struct ListRule {
  const char* list;
  const char* key;
  bool replace = false;
};

constexpr ListRule kLists[] = {
    {"containers", "name"},          {"initContainers", "name"},   {"volumes", "name", true},
    {"env", "name", true},           {"imagePullSecrets", "name"}, {"volumeMounts", "mountPath"},
    {"volumeDevices", "devicePath"}, {"ports", "containerPort"},   {"hostAliases", "ip"}};

constexpr std::array kProbes = {"readinessProbe", "livenessProbe", "startupProbe"};
constexpr std::array kHandlers = {"exec", "grpc", "httpGet", "tcpSocket"};

const ListRule* RuleOf(const std::string& list) {
  for (const ListRule& rule : kLists) {
    if (list == rule.list) return &rule;
  }
  return nullptr;
}

bool SameItem(const Json& a, const Json& b, const char* key) {
  return a.is_object() && b.is_object() && a.contains(key) && b.contains(key) && a[key] == b[key];
}

Json MergeList(Json base, const Json& patch, const ListRule& rule, Nulls nulls) {
  for (const Json& item : patch) {
    Json* same = nullptr;
    for (Json& candidate : base) {
      if (SameItem(candidate, item, rule.key)) same = &candidate;
    }
    if (same == nullptr) {
      base.push_back(item);
    } else {
      *same = rule.replace ? item : MergePodTemplate(std::move(*same), item, nulls);
    }
  }
  return base;
}

// A probe has one handler: if the patch brings one, it is that.
Json MergeProbe(Json base, const Json& patch, Nulls nulls) {
  bool brings = false;
  for (const char* handler : kHandlers) brings = brings || patch.contains(handler);
  if (brings && base.is_object()) {
    for (const char* handler : kHandlers) base.erase(handler);
  }
  return MergePodTemplate(std::move(base), patch, nulls);
}

bool IsProbe(const std::string& key) {
  for (const char* probe : kProbes) {
    if (key == probe) return true;
  }
  return false;
}

}  // namespace

Json MergePodTemplate(Json base, const Json& patch, Nulls nulls) {
  if (!patch.is_object()) return patch;
  if (!base.is_object()) base = Json::object();
  for (const auto& [key, value] : patch.items()) {
    const ListRule* rule = RuleOf(key);
    const auto old = base.find(key);
    if (value.is_null() && nulls == Nulls::kRemove) {
      base.erase(key);
    } else if (value.is_array() && rule != nullptr && old != base.end() && old->is_array()) {
      *old = MergeList(std::move(*old), value, *rule, nulls);
    } else if (value.is_object()) {
      Json before = old == base.end() ? Json::object() : std::move(*old);
      base[key] = IsProbe(key) ? MergeProbe(std::move(before), value, nulls)
                               : MergePodTemplate(std::move(before), value, nulls);
    } else {
      base[key] = value;
    }
  }
  return base;
}

}  // namespace starling::spec
