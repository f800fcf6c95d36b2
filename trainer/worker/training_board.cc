// SPDX-License-Identifier: Apache-2.0
#include "trainer/worker/training_board.h"

#include <utility>

namespace starling::worker {
namespace {

// The measured stretch is halved when it is this long, so that the speed follows changes.
constexpr absl::Duration kPaceWindow = absl::Seconds(10);

google::protobuf::Duration ToProto(absl::Duration duration) {
  google::protobuf::Duration message;
  const int64_t nanos = absl::ToInt64Nanoseconds(duration);
  message.set_seconds(nanos / 1'000'000'000);
  message.set_nanos(static_cast<int32_t>(nanos % 1'000'000'000));
  return message;
}

}  // namespace

void TrainingBoard::StartPace(int64_t samples) {
  sync::MutexLock lock(mutex_);
  pace_since_ = clock_.Now();
  pace_samples_ = samples;
}

void TrainingBoard::SetProgress(v1alpha1::Progress progress) {
  sync::MutexLock lock(mutex_);
  const absl::Time now = clock_.Now();
  const double seconds = absl::ToDoubleSeconds(now - pace_since_);
  const auto done = static_cast<double>(progress.samples() - pace_samples_);
  if (seconds > 0 && done > 0) {
    const double speed = done / seconds;
    progress.set_samples_per_second(speed);
    if (progress.has_total_steps() && progress.step() > 0) {
      const double per_step =
          static_cast<double>(progress.samples()) / static_cast<double>(progress.step());
      // The end may have been moved to before where training is.
      const auto left =
          static_cast<double>(std::max<std::int64_t>(0, progress.total_steps() - progress.step()));
      const absl::Duration remaining = absl::Seconds(std::min(left * per_step / speed, 1e9));
      // Whole seconds: an estimate, which kubectl shows as it stands.
      *progress.mutable_estimated_remaining() = ToProto(absl::Ceil(remaining, absl::Seconds(1)));
    }
    if (now - pace_since_ > kPaceWindow) {
      pace_since_ += (now - pace_since_) / 2;
      pace_samples_ += static_cast<int64_t>(done / 2);
    }
  }
  *report_.mutable_progress() = std::move(progress);
}

void TrainingBoard::SetCheckpoint(const v1alpha1::CheckpointStatus& checkpoint) {
  sync::MutexLock lock(mutex_);
  *report_.mutable_checkpoint() = checkpoint;
}

void TrainingBoard::SetResult(const v1alpha1::Result& result) {
  sync::MutexLock lock(mutex_);
  *report_.mutable_result() = result;
}

void TrainingBoard::SetFailure(const std::string& failure) {
  sync::MutexLock lock(mutex_);
  if (report_.failure().empty()) report_.set_failure(failure);
}

v1alpha1::TrainingReport TrainingBoard::report(std::uint64_t incarnation) {
  v1alpha1::TrainingReport report;
  {
    sync::MutexLock lock(mutex_);
    report = report_;
  }
  seconds_.Fill(incarnation, report);
  return report;
}

bool TrainingBoard::has_result() const {
  sync::MutexLock lock(mutex_);
  return report_.has_result();
}

membership::Training TrainingBoard::Read(std::uint64_t incarnation) {
  const v1alpha1::TrainingReport message = report(incarnation);
  return {.bytes = message.SerializeAsString(),
          .has_result = message.has_result(),
          .failure = message.failure()};
}

}  // namespace starling::worker
