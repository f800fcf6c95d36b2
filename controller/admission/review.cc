// SPDX-License-Identifier: Apache-2.0
#include "controller/admission/review.h"

#include <optional>
#include <string>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "api/spec/admission.h"
#include "api/spec/template.h"
#include "common/json/json.h"
#include "common/status/macros.h"
#include "controller/kube/objects.h"
#include "nlohmann/json.hpp"

namespace starling::admission {
namespace {

using kube::Json;

constexpr char kApiVersion[] = "admission.k8s.io/v1";
constexpr std::size_t kLongestUid = 128;

struct Reviewed {
  const char* group;
  const char* version;
  const char* kind;
  spec::FieldErrors (*check)(const Json& object, const Json* old);
};
constexpr Reviewed kReviewed[] = {
    {"starling.dev", "v1alpha1", "TrainingJob", spec::CheckAdmission},
    {"starling.dev", "v1alpha1", spec::kTrainingTemplate, spec::CheckTemplate},
    {"starling.dev", "v1alpha1", spec::kClusterTrainingTemplate, spec::CheckTemplate}};

// The object at a JSON pointer; null: there is none.
const Json* ObjectAt(const Json& object, std::string_view pointer) {
  const Json& found = kube::At(object, pointer);
  return found.is_object() ? &found : nullptr;
}

Json Allowed() { return {{"allowed", true}}; }

Json Denied(int code, const char* reason, std::string message) {
  return {{"allowed", false},
          {"status",
           {{"apiVersion", "v1"},
            {"kind", "Status"},
            {"status", "Failure"},
            {"code", code},
            {"reason", reason},
            {"message", std::move(message)}}}};
}

}  // namespace

Json RefusalOf(const spec::FieldErrors& errors) {
  Json response = Denied(422, "Invalid", spec::Format(errors));
  Json causes = Json::array();
  for (const spec::FieldError& error : errors) {
    causes.push_back(
        {{"reason", "FieldValueInvalid"}, {"field", error.path}, {"message", error.message}});
  }
  response["status"]["details"] = {{"causes", std::move(causes)}};
  return response;
}

namespace {

Json Answer(const Json& request) {
  const std::string operation = kube::StringAt(request, "/operation");
  // Deletions are nobody's business here; status and scale have their own, narrower schemas.
  if (operation == "DELETE" || operation == "CONNECT" ||
      !kube::StringAt(request, "/subResource").empty()) {
    return Allowed();
  }
  if (operation != "CREATE" && operation != "UPDATE") {
    return Denied(
        400, "BadRequest",
        absl::StrCat("request.operation must be CREATE, UPDATE, DELETE or CONNECT, not \"",
                     operation.substr(0, 32), "\""));
  }
  const Json* kind = ObjectAt(request, "/kind");
  const Json* object = ObjectAt(request, "/object");
  const Json* old = ObjectAt(request, "/oldObject");
  if (kind == nullptr || object == nullptr || (operation == "UPDATE" && old == nullptr)) {
    return Denied(
        400, "BadRequest",
        "request.kind, request.object and, of an UPDATE, request.oldObject must be objects");
  }
  for (const Reviewed& known : kReviewed) {
    if (kube::StringAt(*kind, "/group") != known.group ||
        kube::StringAt(*kind, "/kind") != known.kind)
      continue;
    if (kube::StringAt(*kind, "/version") != known.version) {
      return Denied(400, "BadRequest",
                    absl::StrCat(known.group, "/", kube::StringAt(*kind, "/version").substr(0, 32),
                                 " is not known to this controller, only ", known.version,
                                 "; upgrade the controller with the CRD"));
    }
    // An object that waits for its finalizers must stay editable, whatever its spec.
    if (kube::IsBeingDeleted(*object)) return Allowed();
    const spec::FieldErrors errors = known.check(*object, operation == "UPDATE" ? old : nullptr);
    return errors.empty() ? Allowed() : RefusalOf(errors);
  }
  return Denied(400, "BadRequest",
                "this webhook reviews TrainingJobs and their templates of starling.dev only; "
                "correct the rules of the "
                "ValidatingWebhookConfiguration");
}

}  // namespace

absl::StatusOr<Json> AnswerTo(const Json& review) {
  if (kube::StringAt(review, "/kind") != "AdmissionReview") {
    return absl::InvalidArgumentError("send an AdmissionReview");
  }
  if (kube::StringAt(review, "/apiVersion") != kApiVersion) {
    return absl::InvalidArgumentError(absl::StrCat("send an AdmissionReview of ", kApiVersion));
  }
  const std::string uid = kube::StringAt(review, "/request/uid");
  if (uid.empty() || uid.size() > kLongestUid) {
    return absl::InvalidArgumentError("an AdmissionReview needs a request with a uid");
  }
  Json response = Allowed();
  response["uid"] = uid;
  return Json{
      {"apiVersion", kApiVersion}, {"kind", "AdmissionReview"}, {"response", std::move(response)}};
}

const Json* WrittenObject(const Json& request) {
  const std::string operation = kube::StringAt(request, "/operation");
  if (operation != "CREATE" && operation != "UPDATE") return nullptr;
  return kube::StringAt(request, "/subResource").empty() ? ObjectAt(request, "/object") : nullptr;
}

void AddPatch(const Json& patch, Json& answer) {
  if (patch.empty()) return;
  answer["response"]["patchType"] = "JSONPatch";
  answer["response"]["patch"] = absl::Base64Escape(json::Dump(patch));
}

absl::StatusOr<Json> Review(const Json& review) {
  ASSIGN_OR_RETURN(Json answer, AnswerTo(review));
  answer["response"].update(Answer(review["request"]));
  return answer;
}

absl::StatusOr<Json> ReviewText(std::string_view text, const Reviewer& reviewer) {
  // Deeper than a job may be, so that a job that is too deep is refused with its path.
  ASSIGN_OR_RETURN(const Json review,
                   json::Parse(text, {.bytes = kLargestReview, .depth = 200, .nodes = 400'000}));
  return reviewer(review);
}

}  // namespace starling::admission
