// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "common/status/macros.h"
#include "controller/kube/objects.h"
#include "controller/templates/templates.h"

namespace starling::templates {

using kube::Json;

absl::StatusOr<Json> ClusterTemplates::Find(const spec::TemplateName& name) const {
  const bool everywhere = name.kind == spec::kClusterTrainingTemplate;
  const kube::ResourceKind& kind =
      everywhere ? kube::kClusterTrainingTemplate : kube::kTrainingTemplate;
  absl::StatusOr<Json> found = client_.Get(kind, {everywhere ? "" : name.ns, name.name});
  if (!absl::IsNotFound(found.status())) return found;
  return absl::NotFoundError(everywhere ? std::string("the cluster has none of that name")
                                        : absl::StrCat("namespace \"", name.ns, "\" has none"));
}

absl::StatusOr<std::vector<Json>> ClusterTemplates::List(const std::string& ns) const {
  std::vector<Json> all;
  const auto add = [&](const kube::ResourceKind& kind, const std::string& of) -> absl::Status {
    ASSIGN_OR_RETURN(kube::ObjectList list, client_.List(kind, of, {}));
    std::sort(list.items.begin(), list.items.end(),
              [](const Json& a, const Json& b) { return kube::NameOf(a) < kube::NameOf(b); });
    for (Json& object : list.items) {
      // Items of a list do not say what they are.
      object["apiVersion"] = kind.ApiVersion();
      object["kind"] = std::string(kind.kind);
      object["metadata"].erase("managedFields");
      all.push_back(std::move(object));
    }
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(add(kube::kClusterTrainingTemplate, ""));
  RETURN_IF_ERROR(add(kube::kTrainingTemplate, ns));
  return all;
}

}  // namespace starling::templates
