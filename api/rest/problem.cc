// SPDX-License-Identifier: Apache-2.0
#include "api/rest/problem.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "common/status/check.h"
#include "nlohmann/json.hpp"

namespace starling::rest {
namespace {

// InvalidJob in the form that goes into a tag: invalid-job.
std::string Dashed(std::string_view code) {
  std::string text;
  for (const char c : code) {
    if (absl::ascii_isupper(static_cast<unsigned char>(c)) && !text.empty()) text += '-';
    text += absl::ascii_tolower(static_cast<unsigned char>(c));
  }
  return text;
}

// The lines of spec::Format; nothing if this is no such text.
spec::FieldErrors ParseFieldErrors(const std::string& text) {
  spec::FieldErrors errors;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    const std::size_t colon = line.find(": ");
    const absl::string_view path = line.substr(0, colon);
    const bool a_path = path.substr(0, 4) == "spec" || path.substr(0, 8) == "metadata" ||
                        path == "apiVersion" || path == "kind";
    if (colon == absl::string_view::npos || !a_path) return {};
    errors.push_back({std::string(path), std::string(line.substr(colon + 2))});
  }
  return errors;
}

std::string_view CodeOf(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kNotFound:
      return "NotFound";
    case absl::StatusCode::kAlreadyExists:
      return "AlreadyExists";
    case absl::StatusCode::kAborted:
      return "Conflict";
    case absl::StatusCode::kOutOfRange:
      return "Expired";
    case absl::StatusCode::kInvalidArgument:
      return "InvalidRequest";
    case absl::StatusCode::kFailedPrecondition:
      return "NotPossibleNow";
    case absl::StatusCode::kPermissionDenied:
      return "Forbidden";
    case absl::StatusCode::kResourceExhausted:
      return "TooManyRequests";
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kCancelled:
      return "Unavailable";
    default:
      return "Internal";
  }
}

}  // namespace

const std::vector<ProblemKind>& ProblemKinds() {
  static const auto& kinds = *new std::vector<ProblemKind>{
      {"MalformedRequest", 400, "The request is malformed",
       "send what docs/reference/rest.md describes"},
      {"Unauthorized", 401, "Who asks is not known",
       "send the header `Authorization: Bearer TOKEN`; on one machine the token is in api.token of "
       "STARLING_HOME"},
      {"Forbidden", 403, "This is not allowed", "ask whoever runs this service for the right"},
      {"ForeignHost", 403, "The Host header names another server",
       "ask 127.0.0.1 or localhost, with this server's port"},
      {"ForeignOrigin", 403, "A page of another server asks",
       "send writes without an Origin header, or from this server's own page"},
      {"NotFound", 404, "There is no such object", "see what there is: GET /v1/jobs"},
      {"NoSuchRoute", 404, "There is no such path", "see GET /openapi.json for those there are"},
      {"MethodNotAllowed", 405, "The path does not take this method",
       "use one of those in the Allow header"},
      {"AlreadyExists", 409, "The name is taken", "choose another name, or delete the other first"},
      {"Conflict", 409, "Somebody else has changed the object", "read it again and decide again"},
      {"NotPossibleNow", 409, "The job's state does not allow it", "see the job's status"},
      {"ModelNotKept", 409, "The model cannot be had from here",
       "give checkpoint.uri a place that outlives the pods, below the job's folder"},
      {"Expired", 410, "The place in the list is too old", "list again, without continue"},
      {"PreconditionFailed", 412, "The object is not as the request expects it",
       "read it again; its ETag is what If-Match must say"},
      {"BodyTooLarge", 413, "The body is too large", "send at most 1 MiB"},
      {"UnsupportedMediaType", 415, "The body has a form that is not read here",
       "send application/json, without Content-Encoding"},
      {"RangeNotSatisfiable", 416, "The range cannot be given",
       "ask for one range within the length that Content-Range names"},
      {"InvalidJob", 422, "The job is invalid",
       "correct the fields in errors; `starling explain FIELD` describes them"},
      {"InvalidRequest", 422, "The request cannot be carried out", "change it as the detail says"},
      {"IdempotencyKeyReused", 422, "The Idempotency-Key was used for another request",
       "use a new key for a new request"},
      {"TooManyRequests", 429, "Too many requests", "wait as long as Retry-After says"},
      {"HeadersTooLarge", 431, "The headers are too large", "send at most 8 KiB of headers"},
      {"Internal", 500, "Something went wrong here", "see the log of starling-controller"},
      {"Unavailable", 503, "Not reachable or too busy",
       "try again after Retry-After; a write may or may not have happened"},
      {"UnsupportedVersion", 505, "This version of HTTP is not spoken", "speak HTTP/1.1"}};
  return kinds;
}

const ProblemKind* FindProblem(std::string_view code) {
  const auto& kinds = ProblemKinds();
  const auto found = std::find_if(kinds.begin(), kinds.end(),
                                  [&](const ProblemKind& kind) { return kind.code == code; });
  return found == kinds.end() ? nullptr : &*found;
}

Problem MakeProblem(std::string_view code, std::string detail, std::string remedy) {
  const ProblemKind* kind = FindProblem(code);
  STARLING_CHECK(kind != nullptr, "a problem's code stands in the table of problem.cc");
  return {kind, std::move(detail), std::move(remedy), {}, {}};
}

Problem InvalidJob(spec::FieldErrors errors) {
  Problem problem = MakeProblem("InvalidJob", spec::Format(errors));
  problem.errors = std::move(errors);
  return problem;
}

Problem FromStatus(const absl::Status& status) {
  const std::string text(status.message());
  if (absl::IsInvalidArgument(status)) {
    if (spec::FieldErrors errors = ParseFieldErrors(text); !errors.empty()) {
      return InvalidJob(std::move(errors));
    }
  }
  Problem problem = MakeProblem(CodeOf(status.code()), text);
  if (problem.status() == 503 || problem.status() == 429) {
    problem.headers.emplace_back("Retry-After", "1");
  }
  return problem;
}

std::string_view CodeOfHttpStatus(int status) {
  switch (status) {
    case 413:
      return "BodyTooLarge";
    case 415:
      return "UnsupportedMediaType";
    case 431:
      return "HeadersTooLarge";
    case 500:
      return "Internal";
    case 503:
      return "Unavailable";
    case 505:
      return "UnsupportedVersion";
    default:
      return "MalformedRequest";
  }
}

nlohmann::json ToJson(const Problem& problem, std::string_view request_id) {
  const ProblemKind& kind = *problem.kind;
  nlohmann::json body = {
      {"type", "tag:starling.dev,2026:problem/" + Dashed(kind.code)},
      {"title", std::string(kind.title)},
      {"status", kind.status},
      {"code", std::string(kind.code)},
      {"detail", problem.detail},
      {"remedy", problem.remedy.empty() ? std::string(kind.remedy) : problem.remedy},
      {"requestId", std::string(request_id)}};
  for (const spec::FieldError& error : problem.errors) {
    body["errors"].push_back({{"path", error.path},
                              {"pointer", "#" + PointerOf(error.path)},
                              {"detail", error.message}});
  }
  return body;
}

std::string PointerOf(std::string_view path) {
  std::string pointer;
  for (std::size_t at = 0; at < path.size();) {
    const bool bracketed = path[at] == '[';
    if (bracketed || path[at] == '.') ++at;
    const std::size_t end = std::min(path.find_first_of(bracketed ? "]" : ".[", at), path.size());
    const std::string part(path.substr(at, end - at));
    absl::StrAppend(&pointer, "/", absl::StrReplaceAll(part, {{"~", "~0"}, {"/", "~1"}}));
    at = bracketed ? end + 1 : end;
  }
  return pointer;
}

}  // namespace starling::rest
