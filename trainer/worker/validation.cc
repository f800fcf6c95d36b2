// SPDX-License-Identifier: Apache-2.0
#include "trainer/worker/validation.h"

#include <algorithm>

#include "common/status/macros.h"
#include "trainer/data/batches.h"

namespace starling::worker {
namespace {

// Samples of one forward pass: bounds the memory, and is a part of the result's bits.
constexpr int64_t kChunk = 256;

absl::StatusOr<engine::BatchSums> SumGroup(engine::Engine& engine, const data::Dataset& dataset,
                                           data::Range rows) {
  const auto sample = static_cast<size_t>(dataset.SampleSize());
  engine::BatchSums sums;
  for (int64_t begin = rows.begin; begin < rows.end; begin += kChunk) {
    const auto first = static_cast<size_t>(begin);
    const auto count = static_cast<size_t>(std::min(kChunk, rows.end - begin));
    ASSIGN_OR_RETURN(
        const engine::BatchSums part,
        engine.Evaluate(std::span(dataset.features).subspan(first * sample, count * sample),
                        std::span(dataset.labels).subspan(first, count)));
    sums.loss += part.loss;
    sums.correct += part.correct;
  }
  return sums;
}

}  // namespace

absl::Status ValidateShare(engine::Engine& engine, const data::Dataset& dataset, int64_t index,
                           int64_t shares, std::span<double> columns) {
  const data::Range groups = data::Share(kValidationGroups, index, shares);
  for (int64_t g = groups.begin; g < groups.end; ++g) {
    ASSIGN_OR_RETURN(const engine::BatchSums sums,
                     SumGroup(engine, dataset, data::Share(dataset.size(), g, kValidationGroups)));
    columns[static_cast<size_t>(g)] += sums.loss;
    columns[static_cast<size_t>(kValidationGroups + g)] += static_cast<double>(sums.correct);
  }
  return absl::OkStatus();
}

Score ScoreOf(std::span<const double> columns, int64_t samples) {
  Score score;
  for (size_t g = 0; g < kValidationGroups; ++g) {
    score.loss += columns[g];
    score.accuracy += columns[kValidationGroups + g];
  }
  score.loss /= static_cast<double>(samples);
  score.accuracy /= static_cast<double>(samples);
  return score;
}

}  // namespace starling::worker
