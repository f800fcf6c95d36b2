// SPDX-License-Identifier: Apache-2.0
#include "controller/admission/template_review.h"

#include <string>
#include <utility>

#include "common/status/macros.h"
#include "controller/admission/review.h"
#include "controller/kube/objects.h"
#include "nlohmann/json.hpp"

namespace starling::admission {
namespace {

using kube::Json;

// A write of one whole part: what is in it is nobody else's to merge.
void AddPart(const char* pointer, const Json& before, const Json& after, Json& patch) {
  const Json::json_pointer part(pointer);
  const bool was = before.contains(part), is = after.contains(part);
  if (!is && was) patch.push_back({{"op", "remove"}, {"path", pointer}});
  if (!is || (was && before[part] == after[part])) return;
  patch.push_back({{"op", was ? "replace" : "add"}, {"path", pointer}, {"value", after[part]}});
}

}  // namespace

absl::StatusOr<Json> LayTemplate(const Json& review, const spec::FindTemplate& find) {
  ASSIGN_OR_RETURN(Json answer, AnswerTo(review));
  const Json& request = review["request"];
  const std::string operation = kube::StringAt(request, "/operation");
  const Json* const object = WrittenObject(request);
  if (object == nullptr || kube::IsBeingDeleted(*object)) return answer;
  if (!kube::At(*object, "/metadata").is_object()) return answer;  // nobody stores it
  Json job = *object;
  // Where the object is to be made is said beside it, and only perhaps in it.
  const std::string ns = kube::StringAt(request, "/namespace");
  if (!ns.empty()) job["metadata"]["namespace"] = ns;
  const Json& old = kube::At(request, "/oldObject");
  const spec::FieldErrors errors =
      spec::ApplyTemplate(job, operation == "UPDATE" ? &old : nullptr, find);
  if (!errors.empty()) {
    answer["response"].update(RefusalOf(errors));
    return answer;
  }
  Json patch = Json::array();
  AddPart("/spec", *object, job, patch);
  AddPart("/metadata/annotations", *object, job, patch);
  AddPatch(patch, answer);
  return answer;
}

}  // namespace starling::admission
