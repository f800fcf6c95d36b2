// SPDX-License-Identifier: Apache-2.0
// What a process tells its coordinator of its seconds, so that they are counted once although
// coordinators come and go: all since its begin, and how much of that it had told earlier ones.
#pragma once

#include <cstdint>

#include "common/sync/mutex.h"
#include "starling/v1alpha1/membership.pb.h"
#include "trainer/observe/stopwatch.h"

namespace starling::observe {

// Thread-safe.
class SecondsReport {
 public:
  // `stopwatch` outlives it.
  explicit SecondsReport(const Stopwatch& stopwatch) : stopwatch_(stopwatch) {}

  // Into a report to the coordinator of this incarnation; 0: none has spoken yet.
  void Fill(std::uint64_t incarnation, v1alpha1::TrainingReport& report);

 private:
  const Stopwatch& stopwatch_;
  sync::Mutex mutex_;
  std::uint64_t incarnation_ ABSL_GUARDED_BY(mutex_) = 0;
  Seconds last_ ABSL_GUARDED_BY(mutex_);    // told to that incarnation
  Seconds before_ ABSL_GUARDED_BY(mutex_);  // told to earlier ones
};

}  // namespace starling::observe
