// SPDX-License-Identifier: Apache-2.0
#include "controller/rest/token_review.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/macros.h"
#include "controller/kube/objects.h"

namespace starling::service {
namespace {

using kube::Json;

constexpr kube::ResourceKind kTokenReview{.group = "authentication.k8s.io",
                                          .version = "v1",
                                          .kind = "TokenReview",
                                          .plural = "tokenreviews",
                                          .namespaced = false};
constexpr kube::ResourceKind kSubjectAccessReview{.group = "authorization.k8s.io",
                                                  .version = "v1",
                                                  .kind = "SubjectAccessReview",
                                                  .plural = "subjectaccessreviews",
                                                  .namespaced = false};

// The words of an error that may hold what was sent are left out.
absl::Status Unjudged(const char* review, const absl::Status& status) {
  if (absl::IsPermissionDenied(status)) {
    return absl::UnavailableError(absl::StrCat("this service may not create ", review,
                                               "s; give its service account the ClusterRole of "
                                               "the chart"));
  }
  return absl::UnavailableError(absl::StrCat("the API server gives no ", review, ": ",
                                             std::string(absl::StatusCodeToString(status.code()))));
}

// `audience` empty: that of the API server.
absl::StatusOr<std::optional<Person>> ReviewFor(kube::KubeClient& client, const std::string& token,
                                                const std::string& audience) {
  Json spec = {{"token", token}};
  if (!audience.empty()) spec["audiences"] = Json::array({audience});
  const auto review = client.Create(kTokenReview, {{"spec", std::move(spec)}});
  if (!review.ok()) return Unjudged("TokenReview", review.status());
  const Json& status = kube::At(*review, "/status");
  if (!kube::BoolAt(status, "/authenticated")) return std::optional<Person>();
  const Json& audiences = kube::At(status, "/audiences");
  const bool meant = audience.empty() || std::find(audiences.begin(), audiences.end(),
                                                   Json(audience)) != audiences.end();
  Person person;
  person.name = kube::StringAt(status, "/user/username");
  if (!meant || person.name.empty()) return std::optional<Person>();
  person.uid = kube::StringAt(status, "/user/uid");
  if (const Json& groups = kube::At(status, "/user/groups"); groups.is_array()) {
    person.groups = groups;
  }
  if (const Json& extra = kube::At(status, "/user/extra"); extra.is_object()) person.extra = extra;
  person.ours_alone = !audience.empty();
  return std::optional<Person>(std::move(person));
}

}  // namespace

std::string Action::ToString() const {
  return absl::StrCat(
      verb, " ", resource, subresource.empty() ? "" : "/", subresource,
      ns.empty() ? " in all namespaces" : absl::StrCat(" in namespace \"", ns, "\""));
}

absl::StatusOr<std::optional<Person>> ReviewToken(kube::KubeClient& client,
                                                  const std::string& token,
                                                  const std::string& audience) {
  ASSIGN_OR_RETURN(std::optional<Person> person, ReviewFor(client, token, ""));
  if (person || audience.empty()) return person;
  return ReviewFor(client, token, audience);
}

absl::StatusOr<bool> ReviewAccess(kube::KubeClient& client, const Person& person,
                                  const Action& action) {
  Json attributes = {{"verb", action.verb}, {"group", action.group}, {"resource", action.resource}};
  const std::pair<const char*, const std::string*> others[] = {
      {"subresource", &action.subresource}, {"namespace", &action.ns}, {"name", &action.name}};
  for (const auto& [name, value] : others) {
    if (!value->empty()) attributes[name] = *value;
  }
  const auto review = client.Create(kSubjectAccessReview, {{"spec",
                                                            {{"user", person.name},
                                                             {"uid", person.uid},
                                                             {"groups", person.groups},
                                                             {"extra", person.extra},
                                                             {"resourceAttributes", attributes}}}});
  if (!review.ok()) return Unjudged("SubjectAccessReview", review.status());
  return kube::BoolAt(*review, "/status/allowed") && !kube::BoolAt(*review, "/status/denied");
}

}  // namespace starling::service
