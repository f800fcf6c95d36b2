// SPDX-License-Identifier: Apache-2.0
#include "controller/kube/field_ownership.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "controller/kube/object_rules.h"
#include "controller/kube/objects.h"

namespace starling::kube {
namespace {

constexpr const char* kWriter = "starling";  // of all writes that apply nothing

// The tree of an object's fields; a leaf is an empty object.
Json FieldsOf(const Json& value) {
  Json fields = Json::object();
  if (!value.is_object()) return fields;
  for (const auto& [name, child] : value.items()) {
    if (!child.is_null()) fields["f:" + name] = FieldsOf(child);
  }
  return fields;
}

// The field of that name; a null if there is none.
const Json& ChildOf(const Json& value, const std::string& name) {
  static const Json& null = *new Json();
  const auto found = value.find(name);
  return found == value.end() ? null : *found;
}

std::string NameOfField(const std::string& key) { return key.substr(2); }

// Leaves of `fields` that `taken` has too, removed; branches that are left empty go with them.
void Subtract(Json& fields, const Json& taken) {
  for (const auto& [key, branch] : taken.items()) {
    const auto mine = fields.find(key);
    if (mine == fields.end()) continue;
    Subtract(*mine, branch);
    if (branch.empty() || mine->empty()) fields.erase(mine);
  }
}

void Unite(Json& fields, const Json& more) {
  for (const auto& [key, branch] : more.items()) {
    Json& mine = fields[key];
    if (mine.is_null()) mine = Json::object();
    Unite(mine, branch);
  }
}

// The fields whose values differ between two objects, those of only one of them included.
Json Difference(const Json& a, const Json& b) {
  Json changed = Json::object();
  for (const auto& [name, value] : a.items()) {
    const auto found = b.find(name);
    if (found == b.end()) {
      changed["f:" + name] = Json::object();
    } else if (*found != value) {
      const bool maps = value.is_object() && found->is_object();
      changed["f:" + name] = maps ? Difference(value, *found) : Json::object();
    }
  }
  for (const auto& [name, value] : b.items()) {
    if (!a.contains(name)) changed["f:" + name] = Json::object();
  }
  return changed;
}

// The fields that can have an owner: all but identity and what the server sets.
Json Ownable(const ResourceKind& kind, const Json& object) {
  Json rest = object;
  for (const char* field : {"apiVersion", "kind"}) rest.erase(field);
  if (kind.has_status) rest.erase("status");
  Json& metadata = rest["metadata"];
  if (metadata.is_null()) metadata = Json::object();
  for (const char* field :
       {"name", "namespace", "uid", "creationTimestamp", "generation", "deletionTimestamp",
        "deletionGracePeriodSeconds", "resourceVersion", "managedFields", "generateName"}) {
    metadata.erase(field);
  }
  if (metadata.empty()) rest.erase("metadata");
  return rest;
}

bool IsOf(const Json& entry, const std::string& manager, std::string_view operation) {
  return StringAt(entry, "/manager") == manager && StringAt(entry, "/operation") == operation;
}

Json OwnershipEntry(const ResourceKind& kind, const std::string& manager,
                    std::string_view operation, Json fields) {
  return {{"manager", manager},
          {"operation", std::string(operation)},
          {"apiVersion", kind.ApiVersion()},
          {"fieldsType", "FieldsV1"},
          {"fieldsV1", std::move(fields)}};
}

// Leaves that both trees have and whose value would change.
void CollectConflicts(const Json& wanted_fields, const Json& owned, const Json& wanted,
                      const Json& live, const std::string& path, std::vector<std::string>& paths) {
  for (const auto& [key, branch] : wanted_fields.items()) {
    const auto theirs = owned.find(key);
    if (theirs == owned.end()) continue;
    const std::string name = NameOfField(key);
    const Json& mine = ChildOf(wanted, name);
    const Json& there = ChildOf(live, name);
    if (!branch.empty() && !theirs->empty() && !there.is_null()) {
      CollectConflicts(branch, *theirs, mine, there, absl::StrCat(path, ".", name), paths);
    } else if (there != mine) {
      paths.push_back(absl::StrCat(path, ".", name));
    }
  }
}

void Merge(Json& object, const Json& applied) {
  for (const auto& [name, value] : applied.items()) {
    if (value.is_null()) continue;
    Json& mine = object[name];
    if (value.is_object() && mine.is_object()) {
      Merge(mine, value);
    } else {
      mine = value;
    }
  }
}

// Removes fields from an object; maps that are left empty go too, but for `kept` ones.
void Remove(Json& object, const Json& fields, const Json& kept) {
  for (const auto& [key, branch] : fields.items()) {
    const auto found = object.find(NameOfField(key));
    if (found == object.end()) continue;
    const Json& keep = ChildOf(kept, key);
    const bool descend = !branch.empty() && found->is_object();
    if (descend) Remove(*found, branch, keep);
    if (keep.is_null() && (!descend || found->empty())) object.erase(found);
  }
}

// Everything, where nothing was tracked before.
void BeginTracking(const ResourceKind& kind, Json& object) {
  if (!At(object, "/metadata/managedFields").empty()) return;
  object["metadata"]["managedFields"] =
      Json::array({OwnershipEntry(kind, kWriter, "Update", FieldsOf(Ownable(kind, object)))});
}

absl::Status FindConflicts(const ResourceKind& kind, const Json& live, const Json& wanted,
                           const Json& fields, const ApplyOptions& options) {
  std::vector<std::string> conflicts;
  for (const Json& entry : live["metadata"]["managedFields"]) {
    if (IsOf(entry, options.field_manager, "Apply")) continue;
    std::vector<std::string> paths;
    CollectConflicts(fields, entry["fieldsV1"], wanted, live, "", paths);
    for (const std::string& path : paths) {
      conflicts.push_back(
          absl::StrCat("conflict with \"", StringAt(entry, "/manager"), "\": ", path));
    }
  }
  if (conflicts.empty()) return absl::OkStatus();
  return absl::AbortedError(absl::StrCat("apply of ", Describe(kind, KeyOf(live)), " as \"",
                                         options.field_manager, "\": ", conflicts.size(),
                                         " conflicts: ", absl::StrJoin(conflicts, ", "),
                                         "; leave these fields out, or take them with force"));
}

// The list of managers after the apply; `others` is united from all but the one who applies.
Json NewManagers(const ResourceKind& kind, const Json& live, const Json& wanted, Json fields,
                 const ApplyOptions& options, Json& others) {
  // With force, what others own and would change is taken from them.
  Json taken = Json::object();
  if (options.force) {
    taken = fields;
    Json same = fields;
    Subtract(same, Difference(wanted, Ownable(kind, live)));
    Subtract(taken, same);
  }
  Json managers = Json::array();
  for (Json entry : live["metadata"]["managedFields"]) {
    if (IsOf(entry, options.field_manager, "Apply")) continue;
    Subtract(entry["fieldsV1"], taken);
    Unite(others, entry["fieldsV1"]);
    if (!entry["fieldsV1"].empty()) managers.push_back(std::move(entry));
  }
  managers.push_back(OwnershipEntry(kind, options.field_manager, "Apply", std::move(fields)));
  return managers;
}

Json Previous(const Json& live, const std::string& manager) {
  for (const Json& entry : live["metadata"]["managedFields"]) {
    if (IsOf(entry, manager, "Apply")) return entry["fieldsV1"];
  }
  return Json::object();
}

}  // namespace

absl::StatusOr<Json> MergeApplied(const ResourceKind& kind, const Json* live, const Json& applied,
                                  const ApplyOptions& options) {
  const Json wanted = Ownable(kind, applied);
  const Json fields = FieldsOf(wanted);
  if (live == nullptr) {
    Json object = applied;
    object["metadata"]["managedFields"] =
        Json::array({OwnershipEntry(kind, options.field_manager, "Apply", fields)});
    return object;
  }
  Json object = *live;
  BeginTracking(kind, object);
  if (!options.force) {
    const absl::Status free = FindConflicts(kind, object, wanted, fields, options);
    if (!free.ok()) return free;
  }
  Json others = Json::object();
  Json managers = NewManagers(kind, object, wanted, fields, options, others);
  const Json removed = Previous(object, options.field_manager);
  Json kept = fields;
  Unite(kept, others);
  Remove(object, removed, kept);
  Merge(object, wanted);
  object["metadata"]["managedFields"] = std::move(managers);
  return object;
}

void TakeOwnership(const Json& old, Json& object) {
  const Json& managers = At(old, "/metadata/managedFields");
  if (managers.empty()) return;
  const ResourceKind kind{.group = "", .version = "", .kind = "", .plural = "", .has_status = true};
  const Json before = Ownable(kind, old);
  const Json after = Ownable(kind, object);
  Json changed = Difference(before, after);
  if (changed.empty()) return;
  Json mine = FieldsOf(after);
  Json same = mine;
  Subtract(same, changed);
  Subtract(mine, same);  // what is there now and was not, or was otherwise
  Json updated = Json::array();
  bool found = false;
  for (Json entry : managers) {
    if (IsOf(entry, kWriter, "Update")) {
      Subtract(entry["fieldsV1"], changed);
      Unite(entry["fieldsV1"], mine);
      found = true;
    } else {
      Subtract(entry["fieldsV1"], changed);
    }
    if (!entry["fieldsV1"].empty()) updated.push_back(std::move(entry));
  }
  if (!found && !mine.empty()) {
    Json entry = managers.front();
    entry["manager"] = kWriter;
    entry["operation"] = "Update";
    entry["fieldsV1"] = std::move(mine);
    updated.push_back(std::move(entry));
  }
  object["metadata"]["managedFields"] = std::move(updated);
}

}  // namespace starling::kube
