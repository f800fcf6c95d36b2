// SPDX-License-Identifier: Apache-2.0
// Validation, shared by all workers, with sums that do not depend on how many there are.
//
// The validation set is cut into 16 fixed groups. Each is summed by one worker, into a column of
// its own of the statistics that ride on a reduction; adding zeros is exact, and the 16 sums are
// added in order by everyone. So every worker gets the same score, bit by bit, whatever the view.
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "trainer/data/dataset.h"
#include "trainer/engine/engine.h"
#include "trainer/worker/course.h"

namespace starling::worker {

inline constexpr int64_t kValidationGroups = 16;
// Of the statistics: for each group the summed loss, then for each group the correct answers.
inline constexpr int kValidationColumns = 2 * kValidationGroups;

// Adds the sums of the groups that share `index` of `shares` computes to their places in `columns`
// (kValidationColumns long).
absl::Status ValidateShare(engine::Engine& engine, const data::Dataset& dataset, int64_t index,
                           int64_t shares, std::span<double> columns);

// From the columns summed over all workers.
Score ScoreOf(std::span<const double> columns, int64_t samples);

}  // namespace starling::worker
