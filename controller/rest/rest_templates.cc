// SPDX-License-Identifier: Apache-2.0
// Templates of administrators: which there are, and what a job means with the one that it names.
#include <nlohmann/json.hpp>
#include <utility>

#include "api/spec/admission.h"
#include "controller/kube/objects.h"
#include "controller/rest/rest_service.h"

namespace starling::service {

using kube::Json;

// As the service itself: who may list a namespace's jobs may see what they can be made from.
RestService::Outcome RestService::ListTemplates(const Asked& asked) {
  if (options_.templates == nullptr) return JsonResponse(200, {{"items", Json::array()}});
  absl::StatusOr<std::vector<Json>> found = options_.templates->List(asked.call.ns);
  if (!found.ok()) return rest::FromStatus(found.status());
  return JsonResponse(200, {{"items", *std::move(found)}});
}

spec::FieldErrors RestService::TryTemplate(Json& job) const {
  if (options_.templates == nullptr || kube::At(job, "/spec/templateRef").is_null()) return {};
  if (kube::NamespaceOf(job).empty()) job["metadata"]["namespace"] = "default";
  spec::FieldErrors errors =
      spec::ApplyTemplate(job, nullptr, templates::Finder(options_.templates));
  return errors.empty() ? spec::CheckAdmission(job, nullptr) : errors;
}

}  // namespace starling::service
