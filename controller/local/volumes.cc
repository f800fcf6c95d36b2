// SPDX-License-Identifier: Apache-2.0
#include "controller/local/volumes.h"

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/status/macros.h"
#include "controller/kube/objects.h"
#include "controller/local/folders.h"

namespace starling::local {
namespace {

using kube::Json;
using kube::StringAt;
using Files = std::map<std::string, std::string>;  // relative path to content

// Keeps what a manifest names inside the volume.
bool StaysInside(const std::string& path) {
  const std::filesystem::path relative(path);
  if (relative.is_absolute() || relative.empty()) return false;
  for (const std::filesystem::path& part : relative) {
    if (part == "..") return false;
  }
  return true;
}

absl::Status AddFile(Files& files, const std::string& path, std::string content) {
  if (!StaysInside(path)) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", path, "\" leads out of its volume; use a path without \"..\""));
  }
  files[path] = std::move(content);
  return absl::OkStatus();
}

absl::Status AddItems(Files& files, const Json& source, const Json& object,
                      const std::string& what) {
  const auto data = DataOf(object);
  const Json& items = kube::At(source, "/items");
  if (!items.is_array()) {
    for (const auto& [key, value] : data) RETURN_IF_ERROR(AddFile(files, key, value));
    return absl::OkStatus();
  }
  for (const Json& item : items) {
    const std::string key = StringAt(item, "/key");
    bool found = false;
    for (const auto& [name, value] : data) {
      if (name != key) continue;
      found = true;
      RETURN_IF_ERROR(AddFile(files, StringAt(item, "/path"), value));
    }
    if (!found && !kube::BoolAt(source, "/optional")) {
      return absl::NotFoundError(absl::StrCat(what, " has no key \"", key, "\""));
    }
  }
  return absl::OkStatus();
}

absl::Status AddObject(Files& files, const Json& source, const kube::ResourceKind& kind,
                       const std::string& name, const ObjectReader& read) {
  const auto object = read(kind, name);
  if (absl::IsNotFound(object.status()) && kube::BoolAt(source, "/optional")) {
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(object.status());
  return AddItems(files, source, *object, absl::StrCat(std::string(kind.kind), " ", name));
}

absl::Status AddDownward(Files& files, const Json& source, const PodFacts& facts) {
  for (const Json& item : kube::At(source, "/items")) {
    ASSIGN_OR_RETURN(std::string value, ResolveField(facts, StringAt(item, "/fieldRef/fieldPath")));
    RETURN_IF_ERROR(AddFile(files, StringAt(item, "/path"), std::move(value)));
  }
  return absl::OkStatus();
}

// `source` is one volume, or one source of a projected one. Returns whether it is of a kind whose
// content is files.
absl::StatusOr<bool> AddSource(Files& files, const Json& source, const PodFacts& facts,
                               const ObjectReader& read) {
  if (source.contains("secret")) {
    const Json& secret = source["secret"];
    const std::string name =
        StringAt(secret, secret.contains("secretName") ? "/secretName" : "/name");
    RETURN_IF_ERROR(AddObject(files, secret, kube::kSecret, name, read));
  } else if (source.contains("configMap")) {
    const Json& map = source["configMap"];
    RETURN_IF_ERROR(AddObject(files, map, kube::kConfigMap, StringAt(map, "/name"), read));
  } else if (source.contains("downwardAPI")) {
    RETURN_IF_ERROR(AddDownward(files, source["downwardAPI"], facts));
  } else if (source.contains("projected")) {
    for (const Json& part : kube::At(source, "/projected/sources")) {
      ASSIGN_OR_RETURN(const bool known, AddSource(files, part, facts, read));
      if (!known) return false;
    }
  } else {
    return false;
  }
  return true;
}

absl::StatusOr<std::string> PrepareHostPath(const Json& source) {
  const std::string path = StringAt(source, "/path");
  const std::string type = StringAt(source, "/type");
  if (path.empty() || path[0] != '/') {
    return absl::InvalidArgumentError(absl::StrCat("hostPath \"", path, "\" is not absolute"));
  }
  if (type == "DirectoryOrCreate") RETURN_IF_ERROR(MakeFolder(path));
  std::error_code ignored;
  if (!type.empty() && !std::filesystem::exists(path, ignored) && type != "FileOrCreate") {
    return absl::NotFoundError(absl::StrCat("hostPath ", path, " is not there"));
  }
  return path;
}

// Returns where the volume's content lies.
absl::StatusOr<std::string> ProjectVolume(const Json& volume, const PodFacts& facts,
                                          const std::string& folder, const ObjectReader& read) {
  const std::string name = StringAt(volume, "/name");
  if (!StaysInside(name) || name.find('/') != std::string::npos) {
    return absl::InvalidArgumentError(absl::StrCat("\"", name, "\" cannot name a volume"));
  }
  if (volume.contains("hostPath")) return PrepareHostPath(volume["hostPath"]);
  const std::string root = absl::StrCat(folder, "/", name);
  RETURN_IF_ERROR(MakeFolder(root));
  if (volume.contains("emptyDir")) return root;
  Files files;
  ASSIGN_OR_RETURN(const bool known, AddSource(files, volume, facts, read));
  if (!known) {
    return absl::InvalidArgumentError(absl::StrCat(
        "volume ", name,
        " is of a kind that local mode lacks; it has secret, configMap, downwardAPI, projected, "
        "emptyDir and hostPath"));
  }
  for (const auto& [path, content] : files) {
    const std::string file = absl::StrCat(root, "/", path);
    RETURN_IF_ERROR(MakeFolder(std::filesystem::path(file).parent_path().string()));
    RETURN_IF_ERROR(WriteFile(file, content, 0600));
  }
  return root;
}

// The key that `path` names in the map `map`, as metadata.labels['role'] does; nothing if it is not
// of this form.
std::optional<std::string> KeyIn(std::string_view map, std::string_view path) {
  const std::string opening = absl::StrCat(std::string(map), "['");
  if (!path.starts_with(opening) || !path.ends_with("']") || path.size() <= opening.size() + 2) {
    return std::nullopt;
  }
  return std::string(path.substr(opening.size(), path.size() - opening.size() - 2));
}

// As the downward API writes all labels or annotations: key="value" lines.
std::string AllOf(const Json& map) {
  std::string text;
  for (const auto& [key, value] : map.items()) {
    const std::string content = value.is_string() ? value.get<std::string>() : std::string();
    absl::StrAppend(&text, key, "=\"", absl::CEscape(content), "\"\n");
  }
  return text;
}

}  // namespace

absl::StatusOr<std::string> ResolveField(const PodFacts& facts, const std::string& field_path) {
  const Json& pod = facts.pod;
  if (field_path == "metadata.name") return kube::NameOf(pod);
  if (field_path == "metadata.namespace") return kube::NamespaceOf(pod);
  if (field_path == "metadata.uid") return kube::UidOf(pod);
  if (field_path == "metadata.labels") return AllOf(kube::At(pod, "/metadata/labels"));
  if (field_path == "metadata.annotations") return AllOf(kube::At(pod, "/metadata/annotations"));
  if (const auto key = KeyIn("metadata.labels", field_path)) return kube::LabelOf(pod, *key);
  if (const auto key = KeyIn("metadata.annotations", field_path)) {
    return kube::AnnotationOf(pod, *key);
  }
  if (field_path == "status.podIP" || field_path == "status.podIPs") return facts.ip;
  if (field_path == "status.hostIP" || field_path == "status.hostIPs") return "127.0.0.1";
  if (field_path == "spec.nodeName") return "local";
  if (field_path == "spec.serviceAccountName") return "default";
  return absl::InvalidArgumentError(
      absl::StrCat("fieldRef \"", field_path, "\" is not known to local mode"));
}

std::vector<std::pair<std::string, std::string>> DataOf(const Json& object) {
  const bool secret = StringAt(object, "/kind") == "Secret";
  std::vector<std::pair<std::string, std::string>> entries;
  const auto add = [&](const char* field, bool encoded) {
    for (const auto& [key, value] : kube::At(object, field).items()) {
      if (!value.is_string()) continue;
      std::string text = value.get<std::string>();
      if (encoded && !absl::Base64Unescape(value.get<std::string>(), &text)) continue;
      entries.emplace_back(key, std::move(text));
    }
  };
  add("/data", secret);
  add("/binaryData", true);
  add("/stringData", false);
  return entries;
}

absl::StatusOr<std::vector<Mount>> ProjectVolumes(const PodFacts& facts, const Json& container,
                                                  const std::string& folder,
                                                  const ObjectReader& read) {
  std::map<std::string, std::string> roots;
  for (const Json& volume : kube::At(facts.pod, "/spec/volumes")) {
    ASSIGN_OR_RETURN(std::string root, ProjectVolume(volume, facts, folder, read));
    roots[StringAt(volume, "/name")] = std::move(root);
  }
  std::vector<Mount> mounts;
  for (const Json& entry : kube::At(container, "/volumeMounts")) {
    const std::string name = StringAt(entry, "/name");
    const auto root = roots.find(name);
    if (root == roots.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("volumeMounts: there is no volume named \"", name, "\""));
    }
    Mount mount{.mount_path = StringAt(entry, "/mountPath"), .real_path = root->second};
    while (mount.mount_path.size() > 1 && mount.mount_path.back() == '/')
      mount.mount_path.pop_back();
    if (const std::string part = StringAt(entry, "/subPath"); !part.empty()) {
      if (!StaysInside(part)) {
        return absl::InvalidArgumentError(absl::StrCat("subPath \"", part, "\" leads out"));
      }
      absl::StrAppend(&mount.real_path, "/", part);
    }
    mounts.push_back(std::move(mount));
  }
  return mounts;
}

}  // namespace starling::local
