// SPDX-License-Identifier: Apache-2.0
#include "controller/admission/creator.h"

#include <string>
#include <utility>

#include "common/status/macros.h"
#include "controller/admission/review.h"
#include "controller/kube/objects.h"
#include "nlohmann/json.hpp"

namespace starling::admission {
namespace {

using kube::Json;

constexpr char kPointer[] = "/metadata/annotations/starling.dev~1created-by";

// From what the object has to what it should have; empty: nothing.
Json PatchOf(const Json& object, const std::string& wanted) {
  const Json& annotations = kube::At(object, "/metadata/annotations");
  const bool has = annotations.contains(kCreatedBy);
  if (has ? annotations[kCreatedBy] == wanted : wanted.empty()) return Json::array();
  if (wanted.empty()) return Json::array({{{"op", "remove"}, {"path", kPointer}}});
  if (!annotations.is_object()) {
    return Json::array(
        {{{"op", "add"}, {"path", "/metadata/annotations"}, {"value", {{kCreatedBy, wanted}}}}});
  }
  return Json::array({{{"op", "add"}, {"path", kPointer}, {"value", wanted}}});
}

}  // namespace

absl::StatusOr<Json> NoteCreator(const Json& review) {
  ASSIGN_OR_RETURN(Json answer, AnswerTo(review));
  const Json& request = review["request"];
  const std::string operation = kube::StringAt(request, "/operation");
  const Json* const object = WrittenObject(request);
  if (object == nullptr) return answer;
  const std::string wanted = operation == "CREATE"
                                 ? kube::StringAt(request, "/userInfo/username")
                                 : kube::AnnotationOf(kube::At(request, "/oldObject"), kCreatedBy);
  AddPatch(PatchOf(*object, wanted), answer);
  return answer;
}

}  // namespace starling::admission
