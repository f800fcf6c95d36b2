// SPDX-License-Identifier: Apache-2.0
// One page of the list of jobs, newest first, and the place where the next one begins.
//
// The place is a job's time and UID, not a number: what is created or deleted meanwhile shifts no
// page. It is signed, so that nobody makes up places that were never given out.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "api/rest/problem.h"
#include "controller/history/history.h"
#include "controller/rest/job_hub.h"

namespace starling::service {

// When a job was created, and its UID: newest first, and of one second by the UID.
using Place = std::pair<std::string, std::string>;

// The place behind which a page begins; nothing: `next` is empty, the list begins. Expired: it was
// not given out here. `key` is the one that signs.
std::variant<std::optional<Place>, rest::Problem> ReadPlace(const std::string& next,
                                                            const std::string& key);

// One page of the jobs that are there (in any order) and of past ones (those behind `after`, one
// more than `limit` where there are as many). Pure.
kube::Json ListPage(const std::vector<JobStatePtr>& live,
                    const std::vector<history::ListedJob>& past, std::size_t limit,
                    const std::optional<Place>& after, const std::string& key);

}  // namespace starling::service
