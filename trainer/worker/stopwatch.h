// SPDX-License-Identifier: Apache-2.0
// Where every second of a worker went, by state: compute, exchange, input, checkpoint, recovery,
// idle. The sum over the states is the time since the start.
#pragma once

#include <array>
#include <map>
#include <string>

#include "common/clock/clock.h"
#include "common/sync/mutex.h"

namespace starling::worker {

enum class Activity { kIdle, kInput, kCompute, kExchange, kCheckpoint, kRecovery };
inline constexpr std::array<const char*, 6> kActivityNames = {"idle",     "input",      "compute",
                                                              "exchange", "checkpoint", "recovery"};

// Thread-safe; one thread at a time is what it watches.
class Stopwatch {
 public:
  explicit Stopwatch(const clock::Clock& clock) : clock_(clock), since_(clock.Now()) {}

  // From now on time counts as `activity`.
  void Enter(Activity activity);
  Activity activity() const;
  // Up to now, by name.
  std::map<std::string, double> Seconds() const;

 private:
  const clock::Clock& clock_;
  mutable sync::Mutex mutex_;
  Activity activity_ ABSL_GUARDED_BY(mutex_) = Activity::kIdle;
  absl::Time since_ ABSL_GUARDED_BY(mutex_);
  std::array<absl::Duration, kActivityNames.size()> spent_ ABSL_GUARDED_BY(mutex_) = {};
};

}  // namespace starling::worker
