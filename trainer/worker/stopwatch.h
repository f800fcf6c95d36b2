// SPDX-License-Identifier: Apache-2.0
// Where every second of a worker went, by state: compute, exchange, input, checkpoint, recovery,
// idle. The sum over the states is the time since the start.
//
// It is also what tells the coordinator whether this worker stands still (membership/pulse.h):
// input and compute are work that others wait for, exchange and idle are waits, and checkpoint and
// recovery take as long as they take. What else may take long is announced: see Announce().
#pragma once

#include <array>
#include <map>
#include <string>

#include "absl/cleanup/cleanup.h"
#include "common/clock/clock.h"
#include "common/sync/mutex.h"
#include "trainer/membership/pulse.h"

namespace starling::worker {

enum class Activity { kIdle, kInput, kCompute, kExchange, kCheckpoint, kRecovery };
inline constexpr std::array<const char*, 6> kActivityNames = {"idle",     "input",      "compute",
                                                              "exchange", "checkpoint", "recovery"};

// Thread-safe; one thread at a time is what it watches.
class Stopwatch {
 public:
  explicit Stopwatch(const clock::Clock& clock) : clock_(clock), since_(clock.Now()) {}

  // From now on time counts as `activity`. By the thread that is watched.
  void Enter(Activity activity);
  Activity activity() const;
  // Until the result is destroyed, what would be work may take long; `what` is a literal.
  [[nodiscard]] auto Announce(const char* what) {
    SetAnnounced(what);
    return absl::MakeCleanup([this] { SetAnnounced(nullptr); });
  }
  // The work of a view begins.
  void BeginView();
  // What the thread does now; to be asked several times a second.
  membership::Standing Look();
  // Up to now, by name.
  std::map<std::string, double> Seconds() const;

 private:
  void SetAnnounced(const char* what);
  void Tell(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const clock::Clock& clock_;
  mutable sync::Mutex mutex_;
  Activity activity_ ABSL_GUARDED_BY(mutex_) = Activity::kIdle;
  absl::Time since_ ABSL_GUARDED_BY(mutex_);
  std::array<absl::Duration, kActivityNames.size()> spent_ ABSL_GUARDED_BY(mutex_) = {};
  const char* announced_ ABSL_GUARDED_BY(mutex_) = nullptr;
  membership::Pulse pulse_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace starling::worker
