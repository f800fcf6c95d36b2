// SPDX-License-Identifier: Apache-2.0
#include "trainer/worker/step_computer.h"

#include <algorithm>
#include <cmath>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "common/status/macros.h"
#include "trainer/optimizer/optimizer.h"
#include "trainer/worker/validation.h"

namespace starling::worker {

using observe::Activity;

namespace {

// The groups of a reduction without a batch: as many as a batch may have, so that every worker has
// one for its validation sums.
constexpr int kEmptyGroups = 16;

}  // namespace

absl::Status Diverged(int64_t step, const StepOutcome& outcome) {
  return absl::FailedPreconditionError(absl::StrCat(
      "step ", step, ": the loss or a gradient is not a finite number (loss ", outcome.training[0],
      "): training has diverged; lower spec.optimizer's learningRate or normalize the data"));
}

int StepComputer::MetricColumns() const {
  return ColumnsOf(parts_.workload.declaration().metrics.size());
}

StepComputer::Layout StepComputer::LayOut(const StepRequest& request) const {
  Layout layout;
  layout.rank = static_cast<int>(request.portions.begin);
  layout.size = static_cast<int>(request.of);
  if (!request.empty) layout.batch = parts_.batches.BatchSize(request.step);
  layout.groups = kEmptyGroups;
  if (layout.batch > 0) {
    layout.groups =
        static_cast<int>(parts_.portions > 0 ? parts_.portions : data::GroupCount(layout.batch));
  }
  layout.mine = parts_.exchange.Groups(layout.rank, layout.size, layout.groups);
  for (int group = layout.mine.begin; group < layout.mine.end && !request.empty; ++group) {
    const auto part = [&](int64_t portion) {
      return data::Share(layout.batch, portion, request.of);
    };
    if (parts_.portions > 0) {
      layout.positions.push_back(data::Share(layout.batch, group, parts_.portions));
    } else if (parts_.spec.reproducible()) {
      layout.positions.push_back(data::Group(layout.batch, group));
    } else {
      layout.positions.push_back(
          {part(request.portions.begin).begin, part(request.portions.end - 1).end});
    }
  }
  layout.columns = MetricColumns();
  if (request.validate) {
    layout.columns += ValidationColumns(parts_.workload.declaration().metrics.size());
  }
  return layout;
}

absl::Status StepComputer::ComputeGroup(const StepRequest& request,
                                        std::span<const int64_t> samples, int group,
                                        std::span<double> columns) {
  absl::Status prepared;
  const auto prepare = [&]() -> absl::StatusOr<double> {
    parts_.stopwatch.Enter(Activity::kExchange);
    const absl::StatusOr<int64_t> update = parts_.exchange.Prepare();
    parts_.stopwatch.Enter(Activity::kInput);
    prepared = update.status();
    if (!update.ok()) return prepared;
    return optimizer::LearningRate(parts_.spec.optimizer(), *update);
  };
  const absl::StatusOr<workload::Sums> sums = local_steps_->Compute(
      samples, prepare,
      {.loaded = [this] { parts_.stopwatch.Enter(Activity::kCompute); },
       .push = [this,
                group](int64_t bucket) { parts_.exchange.Add(group, static_cast<int>(bucket)); },
       .epoch = parts_.batches.At(request.step).epoch,
       .loss_scale = request.loss_scale});
  RETURN_IF_ERROR(prepared);
  if (!sums.ok()) return workload::OfTheJob(sums.status());
  AddTo(columns, *sums);
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
                                       std::span<const int64_t> samples,
                                       std::span<double> statistics) {
  if (request.validate) {
    RETURN_IF_ERROR(parts_.exchange.Prepare().status());
    parts_.stopwatch.Enter(Activity::kCompute);
    const auto announced = parts_.stopwatch.Announce("validation");
    RETURN_IF_ERROR(ValidateMine(layout, statistics));
  }
  const auto columns = static_cast<size_t>(layout.columns);
  for (size_t i = 0; i < layout.positions.size(); ++i) {
    const auto count = static_cast<size_t>(layout.positions[i].size());
    RETURN_IF_ERROR(ComputeGroup(request, samples.first(count),
                                 layout.mine.begin + static_cast<int>(i),
                                 statistics.subspan(i * columns, columns)));
    samples = samples.subspan(count);
  }
  return absl::OkStatus();
}

std::vector<int64_t> StepComputer::ControlOf(const StepRequest& request) const {
  std::vector<int64_t> control = request.control;
  if (!control.empty()) control.push_back(absl::ToInt64Microseconds(lap_.own));
  return control;
}

// The laps of the step before, beside this step's control words.
void StepComputer::TakeLaps(exchange::Outcome& reduced) {
  if (reduced.max.empty()) return;
  const absl::Duration slowest = absl::Microseconds(reduced.max.back());
  reduced.max.pop_back();
  reduced.min.pop_back();
  const absl::Duration waited = std::min(slowest - lap_.own, lap_.exchange);
  parts_.stopwatch.Move(Activity::kExchange, Activity::kWaiting, waited);
  if (!timeline::IsOn(parts_.recorder) || waited <= absl::ZeroDuration()) return;
  const absl::Time came = lap_.ended - lap_.exchange;
  parts_.recorder->Add({.track = v1alpha1::TraceEvent::WAITING,
                        .name = "waiting",
                        .begin = came,
                        .end = came + waited});
}

void StepComputer::ExpectNext(const StepRequest& request) {
  const bool reads_ahead = parts_.workload.declaration().reads_ahead;
  if (!reads_ahead || request.empty || !request.next_is_alike) return;
  StepRequest next = request;
  ++next.step;
  const Layout layout = LayOut(next);
  if (layout.positions.empty()) return;
  parts_.workload.Expect(parts_.batches.SampleIds(next.step, {layout.positions.front().begin,
                                                              layout.positions.back().end}),
                         parts_.batches.At(next.step).epoch);
}

// Recorded is a step that was looked at from its begin to its end.
absl::StatusOr<StepOutcome> StepComputer::Run(const StepRequest& request) {
  if (request.empty || !timeline::IsOn(parts_.recorder)) return RunStep(request);
  parts_.recorder->BeginStep(request.step, parts_.batches.At(request.step).epoch);
  const absl::Time begin = parts_.recorder->Now();
  absl::StatusOr<StepOutcome> outcome = RunStep(request);
  if (outcome.ok()) {
    parts_.recorder->Add({.track = v1alpha1::TraceEvent::STEP,
                          .name = "step",
                          .begin = begin,
                          .end = parts_.recorder->Now(),
                          .step = request.step});
  }
  return outcome;
}

absl::StatusOr<StepOutcome> StepComputer::RunStep(const StepRequest& request) {
  const absl::Cleanup idle = [this] { parts_.stopwatch.Enter(Activity::kIdle); };
  const Layout layout = LayOut(request);
  std::vector<double> statistics(static_cast<size_t>(layout.mine.size()) *
                                 static_cast<size_t>(layout.columns));

  std::vector<int64_t> samples;
  if (!layout.positions.empty()) {
    samples = parts_.batches.SampleIds(
        request.step, {layout.positions.front().begin, layout.positions.back().end});
  }
  ExpectNext(request);
  const std::vector<int64_t> control = ControlOf(request);
  parts_.stopwatch.Enter(Activity::kExchange);
  RETURN_IF_ERROR(parts_.exchange.Begin(
      {.number = static_cast<uint64_t>(request.step),
       .gradients = request.empty ? std::span<float>() : local_steps_->update(),
       .control = control,
       .groups = layout.groups,
       .deadline = request.deadline,
       .samples = samples,
       .scale = local_steps_->Scale(samples.size()),
       .leases = request.leases}));
  const absl::Status computed = ComputeMine(request, layout, samples, statistics);
  if (!computed.ok()) parts_.exchange.Cancel(computed);
  const absl::Time came = parts_.stopwatch.Enter(Activity::kExchange);
  const bool counted = parts_.stopwatch.activity() == Activity::kExchange;  // not as repeated
  absl::StatusOr<exchange::Outcome> reduced = parts_.exchange.Finish(statistics, layout.columns);
  const absl::Time ended = parts_.stopwatch.Enter(Activity::kIdle);
  if (absl::IsCancelled(computed)) return exchange::ViewEnded(computed);
  RETURN_IF_ERROR(computed);
  if (!reduced.ok()) return reduced.status();
  TakeLaps(*reduced);
  const bool first = lap_.ended == absl::InfinitePast();
  lap_ = {.ended = ended,
          .own = first ? absl::ZeroDuration() : came - lap_.ended,
          .exchange = first || !counted ? absl::ZeroDuration() : ended - came};

  StepOutcome outcome;
  outcome.own = static_cast<int64_t>(samples.size());
  outcome.exchange = ended - came;
  outcome.control_min = std::move(reduced->min);
  outcome.control_max = std::move(reduced->max);
  outcome.batch = layout.batch;
  const std::span<const double> sums = reduced->statistics;
  const auto metrics = static_cast<size_t>(MetricColumns());
  if (layout.batch > 0) {
    outcome.sums = FromColumns(sums.first(metrics));
    outcome.training = MeansOf(outcome.sums, parts_.workload.declaration());
    outcome.finite = std::isfinite(outcome.training[0]) && reduced->finite;
  }
  if (request.validate && reduced->of_state_before) {
    outcome.validation = ValidationMeans(sums.subspan(metrics), parts_.workload.declaration());
  }
  return outcome;
}

}  // namespace starling::worker
