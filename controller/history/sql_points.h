// SPDX-License-Identifier: Apache-2.0
// Curves in a SQL database: pieces of some tens of points, of which only the last one is rewritten
// when a point comes, until the curve is full and thinned.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "common/sql/sql.h"
#include "controller/history/curves.h"

namespace starling::history {

// Adds `points` to the job's curves, as AddPoint does. By how many bytes they grew.
absl::StatusOr<std::int64_t> AppendPoints(sql::Transaction& transaction, const std::string& uid,
                                          const std::map<std::string, Points>& points);

// Of one metric, or of all if it is empty.
absl::StatusOr<std::map<std::string, Points>> ReadPoints(sql::Transaction& transaction,
                                                         const std::string& uid,
                                                         const std::string& metric);

}  // namespace starling::history
