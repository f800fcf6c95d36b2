// SPDX-License-Identifier: Apache-2.0
#include "api/rest/rights.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "common/status/check.h"

namespace starling::rest {
namespace {

constexpr const char* kRightsIntroduction = R"(# Who may do what by REST in a cluster

Generated from the route table in `api/rest` by `make generate`; a test asks a running service every row
with a token of every column (`tests/install/rest_rights_test.py`).

Who asks is judged by the API server: the token by a TokenReview, the right by a SubjectAccessReview. What
is found out counts for ten seconds; a stream is judged again each minute. What writes, and what
reads pods, events and logs, is carried out with the caller's own token besides, so that admission, quotas and
the audit log see the caller. A refusal is the same whether or not there is such an object.

`view` and `edit` are Kubernetes' own roles, bound in the job's namespace (for `/v1/jobs` in all of them); the
chart adds Starling's rights to them. `admin` may what `edit` may.

- **no token**, **unknown**: without a token; with one that is forged, has expired or was withdrawn
- **no rights**: an account that is known, and bound to nothing here
- **starling**: a token that was made for the audience `starling` (`kubectl create token NAME
  --audience=starling`), of an account that may do everything: it reads what this service itself shows, and
  nothing else; stolen, it is of no use before the API server

)";

struct ResourceGroup {
  std::string_view resource;
  std::string_view group;
};
// To add a resource: its group, by which the API server knows it.
constexpr ResourceGroup kResourceGroups[] = {{"trainingjobs", "starling.dev"},
                                             {"pods", ""},
                                             {"configmaps", ""},
                                             {"events", "events.k8s.io"}};

constexpr AccessRight kReadsJob{"get", "starling.dev", "trainingjobs"};

AccessRight Parse(const Right& right) {
  const std::size_t slash = std::min(right.resource.find('/'), right.resource.size());
  const std::string_view resource = right.resource.substr(0, slash);
  const auto found =
      std::find_if(std::begin(kResourceGroups), std::end(kResourceGroups),
                   [&](const ResourceGroup& known) { return known.resource == resource; });
  STARLING_CHECK(found != std::end(kResourceGroups), "a right's resource has a group in rights.cc");
  return {right.verb, found->group, resource,
          slash < right.resource.size() ? right.resource.substr(slash + 1) : ""};
}

std::string TextOf(const AccessRight& right) {
  const auto text = [](std::string_view part) { return std::string(part); };
  return absl::StrCat(text(right.verb), " ", text(right.resource),
                      right.subresource.empty() ? "" : "/", text(right.subresource));
}

std::string RightsText(const Route& route) {
  if (route.right.everybody()) return "everybody";
  if (route.right.resource.empty()) return "signed in";
  std::string text;
  for (const AccessRight& right : AccessRightsOf(route)) {
    absl::StrAppend(&text, text.empty() ? "" : ", ", TextOf(right));
  }
  return text;
}

}  // namespace

std::vector<AccessRight> AccessRightsOf(const Route& route) {
  if (route.right.everybody() || route.right.resource.empty()) return {};
  std::vector<AccessRight> rights = {Parse(route.right)};
  if (rights[0].resource != kReadsJob.resource) rights.push_back(kReadsJob);
  return rights;
}

bool NeedsOwnToken(const Route& route) {
  return !route.right.resource.empty() &&
         (route.writes() || !route.right.resource.starts_with("trainingjobs"));
}

std::string RightsPage() {
  std::string page = kRightsIntroduction;
  absl::StrAppend(&page,
                  "| Request | Right | no token | unknown | no rights | view | edit | starling |\n"
                  "| --- | --- | --- | --- | --- | --- | --- | --- |\n");
  for (const Route& route : Routes()) {
    const bool open = route.right.everybody();
    const bool signed_in = !open && route.right.resource.empty();
    const int success = route.success;
    absl::StrAppend(&page, "| `", std::string(route.id), "` | ", RightsText(route), " | ",
                    open ? success : 401, " | ", open ? success : 401, " | ",
                    open || signed_in ? success : 403, " | ",
                    route.writes() && !signed_in ? 403 : success, " | ", success, " | ",
                    NeedsOwnToken(route) ? 403 : success, " |\n");
  }
  return page;
}

}  // namespace starling::rest
