// SPDX-License-Identifier: Apache-2.0
// What the REST service's refusals mean.
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "cli/rest_client.h"
#include "common/json/json.h"
#include "controller/kube/objects.h"

namespace starling::cli {
namespace {

using kube::Json;

struct Meaning {
  std::string_view code;
  absl::StatusCode status;
};

// Where the HTTP status alone does not tell.
constexpr Meaning kMeanings[] = {{"AlreadyExists", absl::StatusCode::kAlreadyExists},
                                 {"Conflict", absl::StatusCode::kAborted},
                                 {"NotPossibleNow", absl::StatusCode::kFailedPrecondition},
                                 {"ModelNotKept", absl::StatusCode::kFailedPrecondition},
                                 {"IdempotencyKeyReused", absl::StatusCode::kAlreadyExists},
                                 {"MethodNotAllowed", absl::StatusCode::kUnimplemented},
                                 {"NoSuchRoute", absl::StatusCode::kUnimplemented}};

absl::StatusCode CodeOf(int status, const std::string& code) {
  for (const Meaning& meaning : kMeanings) {
    if (meaning.code == code) return meaning.status;
  }
  switch (status) {
    case 401:
    case 403:
      return absl::StatusCode::kPermissionDenied;
    case 404:
      return absl::StatusCode::kNotFound;
    case 409:
    case 412:
      return absl::StatusCode::kAborted;
    case 410:
      return absl::StatusCode::kOutOfRange;
    case 429:
      return absl::StatusCode::kResourceExhausted;
    default:
      break;
  }
  if (status >= 400 && status < 500) return absl::StatusCode::kInvalidArgument;
  return absl::StatusCode::kUnavailable;
}

std::string WordsOf(const Json& problem) {
  std::string fields;
  for (const Json& error : kube::At(problem, "/errors")) {
    absl::StrAppend(&fields, fields.empty() ? "" : "\n", kube::StringAt(error, "/path"), ": ",
                    kube::StringAt(error, "/detail"));
  }
  if (!fields.empty()) return fields;
  std::string detail = kube::StringAt(problem, "/detail");
  if (detail.empty()) detail = kube::StringAt(problem, "/title");
  const std::string remedy = kube::StringAt(problem, "/remedy");
  return remedy.empty() ? detail : absl::StrCat(detail, "; ", remedy);
}

}  // namespace

absl::Status StatusOfProblem(const http::Response& answer) {
  const auto problem = json::Parse(answer.body);
  if (!problem.ok() || !problem->is_object() || kube::StringAt(*problem, "/code").empty()) {
    const absl::Status status = http::StatusOf(answer, "the server");
    return absl::Status(status.code(),
                        absl::StrCat(std::string(status.message()),
                                     "; is this the address of Starling's REST service?"));
  }
  return absl::Status(CodeOf(answer.status, kube::StringAt(*problem, "/code")), WordsOf(*problem));
}

}  // namespace starling::cli
