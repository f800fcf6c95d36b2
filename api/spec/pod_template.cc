// SPDX-License-Identifier: Apache-2.0
#include "api/spec/pod_template.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "api/spec/contract.h"
#include "common/json/json.h"
#include "nlohmann/json.hpp"

namespace starling::spec {
namespace {

using Json = nlohmann::json;
using Names = std::vector<std::string>;

const Json* Find(const Json& object, const char* name) {
  const auto found = object.find(name);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

// Whether `value` is an object; every key of it that is not in `known` is an error.
bool CheckObject(const Json& value, const std::string& path, const Names& known,
                 FieldErrors& errors) {
  if (!value.is_object()) {
    errors.push_back({path, "must be an object, not " + json::Describe(value)});
    return false;
  }
  for (const auto& [name, member] : value.items()) {
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      errors.push_back({JoinPath(path, name),
                        absl::StrCat("unknown field of a pod template", DidYouMean(name, known))});
    }
  }
  return true;
}

void CheckContainers(const Json& spec, const char* field, const std::string& spec_path,
                     FieldErrors& errors) {
  const Json* containers = Find(spec, field);
  if (containers == nullptr) return;
  const std::string path = JoinPath(spec_path, field);
  if (!containers->is_array()) {
    errors.push_back({path, "must be a list, not " + json::Describe(*containers)});
    return;
  }
  Names names;
  for (std::size_t i = 0; i < containers->size(); ++i) {
    const Json& container = (*containers)[i];
    const std::string container_path = JoinPath(path, i);
    if (!container.is_object()) {
      errors.push_back({container_path, "must be an object, not " + json::Describe(container)});
      continue;
    }
    const Json* name = Find(container, "name");
    const std::string name_path = JoinPath(container_path, "name");
    if (name == nullptr) {
      errors.push_back({name_path, "is required and missing; our own container is \"trainer\""});
    } else if (!name->is_string() ||
               !FullMatch(name->get_ref<const std::string&>(), FindFormat("dnsLabel")->pattern)) {
      errors.push_back(
          {name_path, absl::StrCat("must be ", std::string(FindFormat("dnsLabel")->hint))});
    } else if (std::find(names.begin(), names.end(), name->get<std::string>()) != names.end()) {
      errors.push_back({name_path, absl::StrCat("another container of this pod is called ",
                                                json::Dump(*name), " too")});
    } else {
      names.push_back(name->get<std::string>());
    }
  }
}

void CheckPodSpec(const Json& spec, const std::string& path, FieldErrors& errors) {
  if (!spec.is_object()) {
    errors.push_back({path, "must be an object, not " + json::Describe(spec)});
    return;
  }
  CheckContainers(spec, "containers", path, errors);
  CheckContainers(spec, "initContainers", path, errors);
  const Json* restart = Find(spec, "restartPolicy");
  if (restart != nullptr && *restart != Json("Never")) {
    errors.push_back({JoinPath(path, "restartPolicy"),
                      "must be Never or left out: pods are replaced, not restarted; what an exit "
                      "means is said by spec.replicaSpecs.worker.restartPolicy"});
  }
}

}  // namespace

FieldErrors CheckOwnContainer(const std::string& text, std::string_view path) {
  const std::string spec_path = JoinPath(std::string(path), "spec");
  const FieldError missing = {JoinPath(spec_path, "containers"),
                              "needs a container called \"trainer\" with your image: "
                              "spec.workload.container runs it unchanged"};
  const auto value = json::Parse(text);
  const Json* spec = value.ok() && value->is_object() ? Find(*value, "spec") : nullptr;
  const Json* containers =
      spec != nullptr && spec->is_object() ? Find(*spec, "containers") : nullptr;
  if (containers == nullptr || !containers->is_array()) return {missing};
  for (std::size_t i = 0; i < containers->size(); ++i) {
    const Json& container = (*containers)[i];
    if (!container.is_object() || container.value("name", Json()) != Json("trainer")) continue;
    const Json* image = Find(container, "image");
    const Json* command = Find(container, "command");
    const std::string at = JoinPath(missing.path, i);
    FieldErrors errors;
    if (image == nullptr || !image->is_string() || *image == Json("")) {
      errors.push_back(
          {JoinPath(at, "image"), "is required and missing: the image of your own program"});
    }
    if (command == nullptr || !command->is_array() || command->empty()) {
      errors.push_back({JoinPath(at, "command"),
                        "is required and missing: the program to run, such as [\"torchrun\", "
                        "\"train.py\"]; our supervisor runs it and cannot see the image's own"});
    }
    return errors;
  }
  return {missing};
}

FieldErrors CheckPodTemplate(const std::string& text, std::string_view path) {
  const std::string at(path);
  const auto value = json::Parse(text);
  if (!value.ok()) return {{at, std::string(value.status().message())}};
  FieldErrors errors;
  if (!CheckObject(*value, at, {"metadata", "spec"}, errors)) return errors;
  if (const Json* metadata = Find(*value, "metadata")) {
    CheckObject(*metadata, JoinPath(at, "metadata"), {"labels", "annotations"}, errors);
  }
  if (const Json* spec = Find(*value, "spec")) CheckPodSpec(*spec, JoinPath(at, "spec"), errors);
  return errors;
}

}  // namespace starling::spec
