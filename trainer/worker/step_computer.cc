// SPDX-License-Identifier: Apache-2.0
#include "trainer/worker/step_computer.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "absl/cleanup/cleanup.h"
#include "common/status/macros.h"

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
  layout.columns = request.validate ? 1 + kValidationColumns : 1;
  return layout;
}

absl::Status StepComputer::ComputeGroup(int64_t step, data::Range positions, int group,
                                        double& loss) {
  parts_.stopwatch.Enter(Activity::kInput);
  const std::vector<int64_t> ids = parts_.batches.SampleIds(step, positions);
  features_.resize(ids.size() * static_cast<size_t>(parts_.train.SampleSize()));
  labels_.resize(ids.size());
  data::Gather(parts_.train, ids, features_, labels_);
  parts_.stopwatch.Enter(Activity::kCompute);
  ASSIGN_OR_RETURN(const engine::BatchSums sums,
                   parts_.engine.ComputeGradients(features_, labels_, [&](int64_t bucket) {
                     parts_.exchange.Add(group, static_cast<int>(bucket));
                   }));
  loss = sums.loss;
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
  return ValidateShare(parts_.engine, *parts_.validation, index, shares,
                       statistics.subspan(1, kValidationColumns));
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
    RETURN_IF_ERROR(ComputeGroup(request.step, positions, group, statistics[row]));
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
       .gradients = request.empty ? std::span<float>() : parts_.engine.gradients(),
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
  if (layout.batch > 0) {
    outcome.mean_loss = reduced->statistics[0] / static_cast<double>(layout.batch);
    outcome.finite = std::isfinite(outcome.mean_loss) && AllFinite(parts_.engine.gradients());
  }
  if (request.validate) {
    outcome.score = ScoreOf(std::span(reduced->statistics).subspan(1), parts_.validation->size());
  }
  return outcome;
}

}  // namespace starling::worker
