// SPDX-License-Identifier: Apache-2.0
#include "trainer/worker/step_computer.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "absl/cleanup/cleanup.h"
#include "common/status/macros.h"
#include "trainer/worker/validation.h"

namespace starling::worker {
namespace {

// The groups of a reduction without a batch: as many as a batch may have, so that every worker has
// one for its validation sums.
constexpr int kEmptyGroups = 16;

bool AllFinite(std::span<const float> values) {
  // Without branches, so that it runs at the memory's speed.
  constexpr uint32_t kExponent = 0x7f800000U;
  uint32_t bad = 0;
  for (float value : values) {
    bad |= (std::bit_cast<uint32_t>(value) & kExponent) == kExponent ? 1U : 0U;
  }
  return bad == 0;
}

}  // namespace

int StepComputer::MetricColumns() const {
  return ColumnsOf(parts_.workload.declaration().metrics.size());
}

StepComputer::Layout StepComputer::LayOut(const StepRequest& request) const {
  Layout layout;
  if (request.mesh != nullptr) {
    layout.rank = request.mesh->rank();
    layout.size = request.mesh->size();
  }
  if (!request.empty) layout.batch = parts_.batches.BatchSize(request.step);
  layout.groups = kEmptyGroups;
  if (layout.batch > 0) layout.groups = static_cast<int>(data::GroupCount(layout.batch));
  layout.mine = parts_.exchange.Groups(layout.rank, layout.size, layout.groups);
  layout.columns = MetricColumns();
  if (request.validate) {
    layout.columns += ValidationColumns(parts_.workload.declaration().metrics.size());
  }
  return layout;
}

absl::Status StepComputer::ComputeGroup(int64_t step, data::Range positions, int group,
                                        std::span<double> columns) {
  parts_.stopwatch.Enter(Activity::kInput);
  const workload::Client client = {
      .loaded = [this] { parts_.stopwatch.Enter(Activity::kCompute); },
      .push = [this,
               group](int64_t bucket) { parts_.exchange.Add(group, static_cast<int>(bucket)); }};
  ASSIGN_OR_RETURN(const workload::Sums sums,
                   parts_.workload.Compute(parts_.batches.SampleIds(step, positions), client));
  AddTo(columns, sums);
  return absl::OkStatus();
}

absl::Status StepComputer::ValidateMine(const Layout& layout, std::span<double> statistics) {
  if (layout.mine.size() == 0) return absl::OkStatus();
  // Only workers with a row of statistics can contribute.
  int64_t index = 0;
  int64_t shares = 0;
  for (int rank = 0; rank < layout.size; ++rank) {
    if (rank == layout.rank) index = shares;
    if (parts_.exchange.Groups(rank, layout.size, layout.groups).size() > 0) ++shares;
  }
  const auto columns = static_cast<size_t>(layout.columns);
  const auto first = static_cast<size_t>(MetricColumns());
  return ValidateShare(parts_.workload, index, shares, statistics.subspan(first, columns - first));
}

absl::Status StepComputer::ComputeMine(const StepRequest& request, const Layout& layout,
                                       std::span<double> statistics) {
  if (request.validate) {
    parts_.stopwatch.Enter(Activity::kCompute);
    RETURN_IF_ERROR(ValidateMine(layout, statistics));
  }
  if (request.empty) return absl::OkStatus();
  const auto columns = static_cast<size_t>(layout.columns);
  for (int group = layout.mine.begin; group < layout.mine.end; ++group) {
    const data::Range positions = parts_.reproducible
                                      ? data::Group(layout.batch, group)
                                      : data::Share(layout.batch, layout.rank, layout.size);
    const auto row = static_cast<size_t>(group - layout.mine.begin) * columns;
    RETURN_IF_ERROR(ComputeGroup(request.step, positions, group, statistics.subspan(row, columns)));
  }
  return absl::OkStatus();
}

absl::StatusOr<StepOutcome> StepComputer::Run(const StepRequest& request) {
  compute_failed_ = false;
  const absl::Cleanup idle = [this] { parts_.stopwatch.Enter(Activity::kIdle); };
  const Layout layout = LayOut(request);
  std::vector<double> statistics(static_cast<size_t>(layout.mine.size()) *
                                 static_cast<size_t>(layout.columns));

  RETURN_IF_ERROR(parts_.exchange.Begin(
      {.mesh = request.mesh,
       .number = static_cast<uint64_t>(request.step),
       .gradients = request.empty ? std::span<float>() : parts_.workload.gradients(),
       .control = request.control,
       .groups = layout.groups,
       .deadline = request.deadline}));
  const absl::Status computed = ComputeMine(request, layout, statistics);
  compute_failed_ = !computed.ok();
  if (compute_failed_) parts_.exchange.Cancel(computed);
  parts_.stopwatch.Enter(Activity::kExchange);
  absl::StatusOr<exchange::Outcome> reduced = parts_.exchange.Finish(statistics, layout.columns);
  RETURN_IF_ERROR(computed);
  if (!reduced.ok()) return reduced.status();

  StepOutcome outcome;
  outcome.control_min = std::move(reduced->min);
  outcome.control_max = std::move(reduced->max);
  outcome.batch = layout.batch;
  const std::span<const double> sums = reduced->statistics;
  const auto metrics = static_cast<size_t>(MetricColumns());
  if (layout.batch > 0) {
    outcome.training = MeansOf(FromColumns(sums.first(metrics)));
    outcome.finite = std::isfinite(outcome.training[0]) && AllFinite(parts_.workload.gradients());
  }
  if (request.validate) outcome.validation = ValidationMeans(sums.subspan(metrics));
  return outcome;
}

}  // namespace starling::worker
