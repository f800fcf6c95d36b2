// SPDX-License-Identifier: Apache-2.0
#include "trainer/worker/validation.h"

#include <algorithm>

#include "common/status/macros.h"
#include "trainer/data/batches.h"

namespace starling::worker {
namespace {

// Samples of one forward pass: bounds the memory, and is a part of the result's bits.
constexpr std::int64_t kChunk = 256;

absl::Status SumGroup(workload::Workload& workload, data::Range samples,
                      std::span<double> columns) {
  workload::Sums sums;
  for (std::int64_t begin = samples.begin; begin < samples.end; begin += kChunk) {
    const auto part = workload.Evaluate(begin, std::min(begin + kChunk, samples.end));
    if (!part.ok()) return workload::OfTheJob(part.status());
    Add(*part, sums);
  }
  AddTo(columns, sums);
  return absl::OkStatus();
}

}  // namespace

void AddTo(std::span<double> columns, const workload::Sums& sums) {
  for (std::size_t i = 0; i < sums.size(); ++i) {
    columns[2 * i] += sums[i].sum;
    columns[2 * i + 1] += sums[i].count;
  }
}

workload::Sums FromColumns(std::span<const double> columns) {
  workload::Sums sums;
  for (std::size_t i = 0; i < columns.size(); i += 2) sums.push_back({columns[i], columns[i + 1]});
  return sums;
}

absl::Status ValidateShare(workload::Workload& workload, std::int64_t index, std::int64_t shares,
                           std::span<double> columns) {
  const workload::Declaration& declared = workload.declaration();
  const auto width = static_cast<std::size_t>(ColumnsOf(declared.metrics.size()));
  const data::Range groups = data::Share(kValidationGroups, index, shares);
  for (std::int64_t g = groups.begin; g < groups.end; ++g) {
    RETURN_IF_ERROR(SumGroup(workload,
                             data::Share(declared.validation_samples, g, kValidationGroups),
                             columns.subspan(static_cast<std::size_t>(g) * width, width)));
  }
  return absl::OkStatus();
}

workload::Values ValidationMeans(std::span<const double> columns,
                                 const workload::Declaration& declared) {
  const std::size_t width = columns.size() / kValidationGroups;
  workload::Sums sums;
  for (std::size_t g = 0; g < kValidationGroups; ++g) {
    Add(FromColumns(columns.subspan(g * width, width)), sums);
  }
  return MeansOf(sums, declared);
}

}  // namespace starling::worker
