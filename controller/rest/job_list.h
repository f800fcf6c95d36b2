// SPDX-License-Identifier: Apache-2.0
// One page of the list of jobs, newest first, and the place where the next one begins.
//
// The place is a job's time and UID, not a number: what is created or deleted meanwhile shifts no
// page. It is signed, so that nobody makes up places that were never given out.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "api/rest/problem.h"
#include "controller/rest/job_hub.h"

namespace starling::service {

// Pure. `key` signs; `states` in any order, all of one filter. `next` empty: from the beginning.
std::variant<kube::Json, rest::Problem> ListPage(std::vector<JobStatePtr> states, std::size_t limit,
                                                 const std::string& next, const std::string& key);

}  // namespace starling::service
