// SPDX-License-Identifier: Apache-2.0
// Where time comes from: the system, or a test.
//
// Whatever waits for time or compares times takes a Clock, so that its tests need not sleep. Two
// readings serve two ends: Now() never jumps and measures durations, deadlines and silence;
// WallNow() is for what people and other machines read.
#pragma once

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/sync/mutex.h"

namespace starling::clock {

// Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;

  // Monotonic; its origin means nothing, only differences do.
  virtual absl::Time Now() const = 0;

  virtual absl::Time WallNow() const = 0;
};

class SystemClock final : public Clock {
 public:
  absl::Time Now() const override;
  absl::Time WallNow() const override { return absl::Now(); }
};

// Stands still until it is told to move. Both readings start at `start` and move together.
class FakeClock final : public Clock {
 public:
  explicit FakeClock(absl::Time start = absl::FromUnixSeconds(1'700'000'000)) : now_(start) {}

  absl::Time Now() const override {
    sync::MutexLock lock(mutex_);
    return now_;
  }
  absl::Time WallNow() const override { return Now(); }
  void Advance(absl::Duration by) {
    sync::MutexLock lock(mutex_);
    now_ += by;
  }

 private:
  mutable sync::Mutex mutex_;
  absl::Time now_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace starling::clock
