// SPDX-License-Identifier: Apache-2.0
// Validation, shared by all workers, with sums that do not depend on how many there are.
//
// The validation set is cut into 16 fixed groups. Each is summed by one worker, into columns of its
// own of the statistics that ride on a reduction; adding zeros is exact, and the 16 sums are added
// in order by everyone. So every worker gets the same values, bit by bit, whatever the view.
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "trainer/workload/workload.h"

namespace starling::worker {

// Sums as columns of statistics: two for each metric, its sum and its count.
constexpr int ColumnsOf(std::size_t metrics) { return 2 * static_cast<int>(metrics); }
void AddTo(std::span<double> columns, const workload::Sums& sums);
workload::Sums FromColumns(std::span<const double> columns);

inline constexpr std::int64_t kValidationGroups = 16;
// The columns of each group, one group after another.
constexpr int ValidationColumns(std::size_t metrics) {
  return static_cast<int>(kValidationGroups) * ColumnsOf(metrics);
}

// Adds the sums of the groups that share `index` of `shares` computes to their places in `columns`.
absl::Status ValidateShare(workload::Workload& workload, std::int64_t index, std::int64_t shares,
                           std::span<double> columns);

// The metrics' means, from the columns summed over all workers.
workload::Values ValidationMeans(std::span<const double> columns,
                                 const workload::Declaration& declared);

}  // namespace starling::worker
