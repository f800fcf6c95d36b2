// SPDX-License-Identifier: Apache-2.0
// The two questions that an API server answers about a caller: who a token is of, and whether that
// one may do something.
//
// Both are asked as this service itself, which needs the right to create TokenReviews and
// SubjectAccessReviews and no other: nobody is impersonated, so no right of the service's grows
// with its callers. No error has a token in it.
#pragma once

#include <compare>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "controller/kube/kube_client.h"

namespace starling::service {

// Who a token is of, as an API server sees it.
struct Person {
  std::string name;
  std::string uid;
  kube::Json groups = kube::Json::array();
  kube::Json extra = kube::Json::object();
  // The token was made for this service alone: the API server itself would not take it.
  bool ours_alone = false;
};

// Something that a person may or may not do.
struct Action {
  std::string verb;
  std::string group;
  std::string resource;
  std::string subresource;
  std::string ns;    // empty: in all namespaces
  std::string name;  // empty: any

  friend auto operator<=>(const Action&, const Action&) = default;  // NOLINT(*-use-nullptr)
  std::string ToString() const;  // get trainingjobs/model in namespace "a"
};

// Nothing: the token is nobody's, or has expired. An error: nobody could judge. A token counts that
// is for the API server itself or for `audience`.
absl::StatusOr<std::optional<Person>> ReviewToken(kube::KubeClient& client,
                                                  const std::string& token,
                                                  const std::string& audience);

absl::StatusOr<bool> ReviewAccess(kube::KubeClient& client, const Person& person,
                                  const Action& action);

}  // namespace starling::service
