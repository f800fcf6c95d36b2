// SPDX-License-Identifier: Apache-2.0
#include "trainer/worker/progress.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "common/log/log.h"
#include "common/status/macros.h"
#include "starling/v1alpha1/membership.pb.h"
#include "trainer/membership/convert.h"

namespace starling::worker {

Progress::Progress(Parts parts)
    : parts_(std::move(parts)),
      stop_(parts_.spec.stop()),
      keep_(std::max<std::int64_t>(1, parts_.spec.checkpoint().keep())) {}

void Progress::TakeSettings(const membership::Settings& settings) {
  const absl::StatusOr<v1alpha1::Settings> values = membership::ParseSettings(settings);
  if (!values.ok()) {
    log::Warning("settings that cannot be read are left aside",
                 {{"generation", settings.generation}});
    return;
  }
  stop_ = values->has_stop() ? values->stop() : parts_.spec.stop();
  const v1alpha1::Checkpoint& checkpoint =
      values->has_checkpoint() ? values->checkpoint() : parts_.spec.checkpoint();
  keep_ = std::max<std::int64_t>(1, checkpoint.keep());
}

void Progress::ViewEnded() {
  if (view_ended_ == absl::InfinitePast()) view_ended_ = parts_.clock.Now();
}

void Progress::ViewBegins(const membership::View& view, std::int64_t step, bool undone,
                          bool first) {
  if (started_ == absl::InfinitePast()) started_ = parts_.clock.Now();
  settled_ = step;
  workers_ = static_cast<std::int64_t>(view.workers().size());
  audits_ = first && parts_.spec.dataset().audit_use();
  audit_.reset();  // another worker may have written meanwhile
  if (undone) undone_after_ = step;
  parts_.board.StartPace(parts_.batches.SamplesUpTo(step));
  parts_.metrics.view.Set(static_cast<double>(membership::EpochOf(view.number)));
  parts_.metrics.members.Set(static_cast<double>(workers_));
  parts_.metrics.step.Set(static_cast<double>(step));
}

void Progress::Completed(std::int64_t step, std::int64_t samples, std::optional<double> loss) {
  const absl::Time now = parts_.clock.Now();
  parts_.step_files.Completed(step);
  parts_.metrics.steps.Increment();
  parts_.metrics.samples.Increment(static_cast<double>(samples));
  if (loss) parts_.metrics.loss.Set(*loss);
  if (last_done_ != absl::InfinitePast()) {
    parts_.metrics.step_seconds.Observe(absl::ToDoubleSeconds(now - last_done_));
  }
  last_done_ = now;
  if (view_ended_ == absl::InfinitePast()) return;
  const double seconds = absl::ToDoubleSeconds(now - view_ended_);
  parts_.metrics.recovery_seconds.Observe(seconds);
  log::Info("first step of the view", {{"step", step}, {"secondsSinceLastView", seconds}});
  view_ended_ = absl::InfinitePast();
}

void Progress::Settled(std::int64_t step, const Course& course) {
  settled_ = step;
  parts_.step_files.Settled(step);
  Tell(course);
  WriteAudit();
}

void Progress::Tell(const Course& course) {
  v1alpha1::Progress progress;
  progress.set_step(settled_);
  progress.set_epoch(settled_ == 0 ? 1 : parts_.batches.At(settled_).epoch);
  progress.set_samples(parts_.batches.SamplesUpTo(settled_));
  const bool known = course.step > 0 && std::isfinite(course.training[0]);
  if (known) progress.set_loss(course.training[0]);
  for (const auto& [name, value] : Metrics(course, parts_.names, /*best=*/false)) {
    if (std::isfinite(value)) (*progress.mutable_metrics())[name] = value;
  }
  (*progress.mutable_metrics())["exchange/sentBytes"] = static_cast<double>(volume_.sent);
  (*progress.mutable_metrics())["exchange/denseBytes"] = static_cast<double>(volume_.dense);
  if (volume_.merged > 0) {
    (*progress.mutable_metrics())["exchange/bucketBytes"] = static_cast<double>(volume_.merged);
  }
  for (const auto& [name, value] : numbers_) (*progress.mutable_metrics())[name] = value;
  for (const exchange::Path& path : paths_) {
    v1alpha1::ExchangePath& told = *progress.add_exchanges();
    told.set_exchange(path.exchange);
    told.set_transport(path.transport);
    told.set_algorithm(path.algorithm);
    told.set_reason(path.reason);
  }
  const std::int64_t total = Total();
  if (total < std::numeric_limits<std::int64_t>::max()) progress.set_total_steps(total);
  progress.set_workers(workers_);
  parts_.board.SetProgress(std::move(progress));
}

void Progress::TravelBy(std::vector<exchange::Path> paths) {
  paths_ = std::move(paths);
  for (const exchange::Path& path : paths_) {
    log::Info("how updates travel", {{"exchange", path.exchange},
                                     {"transport", path.transport},
                                     {"algorithm", path.algorithm},
                                     {"why", path.reason}});
  }
}

// A line is a function of its step. Nothing is lost where it cannot be written: the next call
// writes what is missing.
void Progress::WriteAudit() {
  if (!audits_ || settled_ < 1) return;
  const absl::Status written = [&]() -> absl::Status {
    if (audit_ == nullptr) {
      ASSIGN_OR_RETURN(audit_, data::AuditLog::Open(parts_.job_dir, parts_.batches));
    }
    if (undone_after_) RETURN_IF_ERROR(audit_->TruncateAfter(*undone_after_));
    undone_after_.reset();
    return audit_->AppendUpTo(settled_);
  }();
  if (!written.ok() && !audit_failing_) {
    log::Warning("the audit cannot be written", {{"why", std::string(written.message())}});
  }
  audit_failing_ = !written.ok();
}

double Progress::Seconds() const { return absl::ToDoubleSeconds(parts_.clock.Now() - started_); }

void Progress::Conclude(const v1alpha1::Result& result) {
  log::Info("training has ended", {{"steps", result.steps()}, {"model", result.model().sha256()}});
  parts_.board.SetResult(result);
  parts_.report();
}

}  // namespace starling::worker
