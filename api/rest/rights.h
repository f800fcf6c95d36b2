// SPDX-License-Identifier: Apache-2.0
// Which questions an API server is asked before a request is carried out, from the route table.
//
// A route names one right. A route that shows something of a job by a right over something else
// (its pods, its logs) asks for the job too, so that whoever may not read the job does not learn
// from an answer whether there is one. The matrix of who is answered what comes from the same
// function, and a test holds a running service against it, row by row.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "api/rest/routes.h"

namespace starling::rest {

// A right as an API server names it.
struct AccessRight {
  std::string_view verb;
  std::string_view group;  // empty: the core group
  std::string_view resource;
  std::string_view subresource = {};
};

// All of these must hold. None: it is enough to be known, or nobody is asked.
std::vector<AccessRight> AccessRightsOf(const Route& route);

// Whether it is carried out with the caller's own token: it writes, or reads what the service
// itself may not.
bool NeedsOwnToken(const Route& route);

// The page docs/reference/rest-rights.md.
std::string RightsPage();

}  // namespace starling::rest
