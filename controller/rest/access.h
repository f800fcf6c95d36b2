// SPDX-License-Identifier: Apache-2.0
// Who may ask what of the service of one machine.
//
// Only programs of this machine reach it, but they include browsers that show pages of strangers
// and other users' programs: so each request must name this server as its host (a stranger's name
// that resolves to 127.0.0.1 is refused), a write must not come from a page of another server, and
// all but the public routes need the token that only the home's owner can read. Pure but for the
// token's file. In a cluster a Door is asked instead (cluster_access.h); to add another way to
// prove who one is, implement it.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "api/rest/problem.h"
#include "api/rest/router.h"
#include "api/rest/routes.h"
#include "common/http/message.h"
#include "controller/kube/http_kube_client.h"
#include "controller/rest/permit.h"

namespace starling::service {

// As whom a request is carried out.
struct Caller {
  std::string name = {};  // empty: unknown, which is enough for the public routes
  // The store as this caller sees it. Null: as the service itself does.
  std::shared_ptr<kube::HttpKubeClient> client = nullptr;
  // Of a stream. Null: it is allowed for as long as it goes on.
  std::shared_ptr<const Permit> permit = nullptr;
};

// What this caller is told that asks for too much; nothing: it may go on.
using CheckCaller = std::function<std::optional<rest::Problem>(const std::string& name)>;

// Who may ask what, where more than one token is known. Thread-safe, all implementations.
class Door {
 public:
  virtual ~Door() = default;
  // Nothing is looked up on behalf of a caller that `check` refuses, but who it is: without that,
  // one caller could have the API server asked about as many names as it can send.
  virtual std::variant<Caller, rest::Problem> Admit(const http::Request& request,
                                                    const rest::Call& call,
                                                    const CheckCaller& check) = 0;
};

struct AccessRules {
  std::string token;
  int port = 0;  // of this server: hosts are 127.0.0.1, localhost and [::1] with it
};

// Refusals that need no route: a Host header of somebody else.
std::variant<std::monostate, rest::Problem> CheckHost(const http::Request& request,
                                                      const AccessRules& rules);

std::variant<Caller, rest::Problem> Admit(const http::Request& request, const rest::Route& route,
                                          const AccessRules& rules);

// 401, with what would be right.
rest::Problem Unauthorized(std::string detail);

// What follows "Bearer " in the Authorization header.
std::variant<std::string, rest::Problem> BearerToken(const http::Request& request);

// The token in the file `path`, made with a new one (mode 0600) where there is none. A file that
// others can read, or that holds no token, is replaced.
absl::StatusOr<std::string> EnsureToken(const std::string& path);

}  // namespace starling::service
