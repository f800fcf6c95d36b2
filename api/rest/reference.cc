// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "api/rest/openapi.h"
#include "api/rest/problem.h"
#include "api/rest/routes.h"
#include "nlohmann/json.hpp"

namespace starling::rest {
namespace {

constexpr const char* kIntroduction = R"(# REST

Every request that Starling's REST service answers. Generated from the route table in `api/rest` by
`make generate`; [openapi.json](openapi.json) says the same to programs, and the service itself
answers it at `/openapi.json`. [How to use it](../how-to/rest.md) begins with a job.

- Bodies are JSON; a job may also be sent as YAML, as in a job file (`application/yaml`).
- Each request but those for everybody carries `Authorization: Bearer TOKEN`; in a cluster
  [rest-rights.md](rest-rights.md) says whose token may do what.
- What is unknown, stands twice or has the wrong type is an error, in paths, queries and bodies alike.
- Errors are `application/problem+json`: `code` is for programs, `detail` and `remedy` for people, and
  `errors` names each wrong field by the path that `starling validate` prints.
- A stream ends with the event `end`, whose `reason` is `Deadline`, `Shutdown` or `JobFinished`, in a cluster
  also `TokenExpired` or `Forbidden`; one that breaks off without it was cut. Each 15 s without news it says `: hb`.
- A job's `ETag` is its `resourceVersion`.
)";

std::string Cell(std::string_view text) {
  return absl::StrReplaceAll(absl::string_view(text.data(), text.size()), {{"|", "\\|"}});
}

std::string RightText(const Right& right) {
  if (right.everybody()) return "everybody";
  if (right.resource.empty()) return std::string(right.verb);
  return absl::StrCat(std::string(right.verb), " ", std::string(right.resource));
}

std::string RulesOf(const Parameter& parameter) {
  const std::string otherwise(parameter.otherwise);
  const std::string fallback = otherwise.empty() ? "" : absl::StrCat("; by default ", otherwise);
  switch (parameter.kind) {
    case ValueKind::kText:
      return "text" + fallback;
    case ValueKind::kInteger:
      return absl::StrCat("a whole number from ", parameter.minimum, " to ", parameter.maximum,
                          fallback);
    case ValueKind::kBoolean:
      return "true or false" + fallback;
    case ValueKind::kChoice:
      return absl::StrCat("one of ", std::string(parameter.choices), fallback);
    case ValueKind::kChoices:
      return absl::StrCat("some of ", std::string(parameter.choices), fallback);
  }
  return "";
}

void AddRoute(const Route& route, std::string& page) {
  absl::StrAppend(&page, "\n## ", std::string(route.id), "\n\n`", std::string(route.method), " ",
                  std::string(route.path), "`\n\n", std::string(route.summary),
                  ".\n\n- Right: ", RightText(route.right), "\n");
  if (!route.request.empty()) {
    absl::StrAppend(&page, "- Body: ", std::string(route.request), "\n");
  }
  absl::StrAppend(&page, "- Answer: ", route.success, " ",
                  route.response.empty() ? "text or bytes" : std::string(route.response), "\n");
  if (!route.stream.empty()) {
    absl::StrAppend(&page, "- Streams: ", std::string(route.stream), "\n");
  }
  if (!route.codes.empty()) {
    absl::StrAppend(
        &page, "- Problems: ", absl::StrReplaceAll(std::string(route.codes), {{",", ", "}}), "\n");
  }
  if (route.query.empty() && route.headers.empty()) return;
  absl::StrAppend(&page, "\n| Parameter | In | Rules | Meaning |\n| --- | --- | --- | --- |\n");
  const auto add = [&page](const Parameter& parameter, const char* in) {
    absl::StrAppend(&page, "| `", std::string(parameter.name), "` | ", in, " | ",
                    RulesOf(parameter), " | ", Cell(parameter.meaning), " |\n");
  };
  for (const Parameter& parameter : route.query) add(parameter, "query");
  for (const Parameter& parameter : route.headers) add(parameter, "header");
}

void AddProblems(std::string& page) {
  absl::StrAppend(&page, "\n## Problems\n\nAny request may give ",
                  absl::StrReplaceAll(std::string(kCommonCodes), {{",", ", "}}),
                  ".\n\n| Code | Status | Means | Remedy |\n| --- | --- | --- | --- |\n");
  for (const ProblemKind& kind : ProblemKinds()) {
    absl::StrAppend(&page, "| `", std::string(kind.code), "` | ", kind.status, " | ",
                    Cell(kind.title), " | ", Cell(kind.remedy), " |\n");
  }
}

// The messages that are REST's own, by their fields.
void AddMessages(std::string& page) {
  absl::StrAppend(&page, "\n## Messages\n\n[TrainingJob](trainingjob.md) is the contract's.\n");
  const nlohmann::json schemas = OpenApiSchemas();
  for (const auto& [name, schema] : schemas.items()) {
    if (!schema.contains("properties")) continue;
    absl::StrAppend(&page, "\n### ", name, "\n\n| Field | Type | Meaning |\n| --- | --- | --- |\n");
    for (const auto& [field, type] : schema["properties"].items()) {
      absl::StrAppend(&page, "| `", field, "` | ", type.value("type", "message"), " | ",
                      Cell(type.value("description", "")), " |\n");
    }
  }
}

}  // namespace

std::string ReferencePage() {
  std::string page = kIntroduction;
  for (const Route& route : Routes()) AddRoute(route, page);
  AddMessages(page);
  AddProblems(page);
  return page;
}

}  // namespace starling::rest
