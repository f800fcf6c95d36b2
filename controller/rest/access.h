// SPDX-License-Identifier: Apache-2.0
// Who may ask what of the service of one machine.
//
// Only programs of this machine reach it, but they include browsers that show pages of strangers
// and other users' programs: so each request must name this server as its host (a stranger's name
// that resolves to 127.0.0.1 is refused), a write must not come from a page of another server, and
// all but the public routes need the token that only the home's owner can read. Pure but for the
// token's file. To add a way to prove who one is: another function beside Admit.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "api/rest/problem.h"
#include "api/rest/routes.h"
#include "common/http/message.h"

namespace starling::service {

struct Caller {
  std::string name;  // empty: unknown, which is enough for the public routes
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

// The token in the file `path`, made with a new one (mode 0600) where there is none. A file that
// others can read, or that holds no token, is replaced.
absl::StatusOr<std::string> EnsureToken(const std::string& path);

}  // namespace starling::service
