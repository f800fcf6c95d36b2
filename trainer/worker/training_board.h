// SPDX-License-Identifier: Apache-2.0
// What this worker tells its coordinator about training: the message that rides on every report.
//
// The training loop writes, the control service reads. Progress speaks of settled steps only.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "common/clock/clock.h"
#include "common/sync/mutex.h"
#include "starling/v1alpha1/membership.pb.h"
#include "trainer/membership/types.h"
#include "trainer/observe/seconds_report.h"

namespace starling::worker {

// Thread-safe.
class TrainingBoard {
 public:
  TrainingBoard(const clock::Clock& clock, const observe::Stopwatch& stopwatch)
      : clock_(clock), seconds_(stopwatch) {}

  // A step is settled; what is not filled in here (speed, remaining time) is worked out.
  void SetProgress(v1alpha1::Progress progress);
  // A stretch of steps begins (a view, a resume): speed is measured from here.
  void StartPace(int64_t samples);
  void SetCheckpoint(const v1alpha1::CheckpointStatus& checkpoint);
  void SetResult(const v1alpha1::Result& result);
  // The job cannot go on; the first reason stays.
  void SetFailure(const std::string& failure);

  // For the coordinator of this incarnation.
  membership::Training Read(std::uint64_t incarnation);
  v1alpha1::TrainingReport report(std::uint64_t incarnation = 0);
  bool has_result() const;

 private:
  const clock::Clock& clock_;
  observe::SecondsReport seconds_;
  mutable sync::Mutex mutex_;
  v1alpha1::TrainingReport report_ ABSL_GUARDED_BY(mutex_);
  absl::Time pace_since_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  int64_t pace_samples_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace starling::worker
