// SPDX-License-Identifier: Apache-2.0
// What the thread of a process does, for others of its threads that tell it, in two readings.
//
// Where every second went: each belongs to one activity, and the sum over the activities is the
// time since the process began. What is exported, reported and shown of it all comes from here.
//
// Whether it stands still (membership/pulse.h): each activity is work that others wait for, a wait,
// or takes as long as it takes. What else may take long is announced: see Announce().
//
// To add an activity: a name and a row here, and the place that enters it.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <string>

#include "absl/cleanup/cleanup.h"
#include "common/clock/clock.h"
#include "common/sync/mutex.h"
#include "trainer/membership/pulse.h"
#include "trainer/timeline/recorder.h"

namespace starling::observe {

enum class Activity {
  kStarting,    // from the process's begin until it can take part: programs, model, data
  kJoining,     // until it is in a view that runs, and while a planned view is entered
  kInput,       // reading samples
  kCompute,     // forward, backward, validation
  kExchange,    // bytes on their way; at a server: messages other than updates
  kWaiting,     // of the exchange, for workers that came later to it
  kOptimizer,   // applying updates
  kCheckpoint,  // the stall of a checkpoint, not its writing in the background
  kRecovery,    // from a lost member to the next view that runs
  kRepeated,    // steps that this process had worked on before
  kIdle,        // nothing to do: paused, paced, or nobody asks for anything
};
inline constexpr std::array<const char*, 11> kActivityNames = {
    "starting",  "joining",    "input",    "compute",  "exchange", "waiting",
    "optimizer", "checkpoint", "recovery", "repeated", "idle"};

// Seconds by the activity's name.
using Seconds = std::map<std::string, double>;

// One activity, and what it says of whether the thread stands still.
struct Doing {
  Activity activity = Activity::kIdle;
  membership::Standing::Kind kind = membership::Standing::Kind::kWaits;
  const char* where = "idle";  // a literal
};
// As a worker does it.
Doing DoingOf(Activity activity);

// Thread-safe; one thread at a time is what it watches.
class Stopwatch {
 public:
  // The process began at `since`, of `clock`'s Now(); if that is later: now.
  // Each stretch of an activity is recorded there too; null: nowhere. It outlives this.
  explicit Stopwatch(const clock::Clock& clock, absl::Time since = absl::InfiniteFuture(),
                     timeline::Recorder* recorder = nullptr);

  // From now on the thread does this. Returns now. By the thread that is watched.
  absl::Time Enter(Activity activity) { return Enter(DoingOf(activity)); }
  absl::Time Enter(const Doing& doing);
  // From the next Enter on, until the next call: all seconds count as this activity, whatever is
  // done; as kRepeated only those of input, compute, exchange and optimizer do.
  void CountAs(std::optional<Activity> activity);
  // So much that was counted as `from`, or all of it if that is less, was `to`.
  void Move(Activity from, Activity to, absl::Duration duration);
  // Until the result is destroyed, what would be work may take long; `what` is a literal.
  [[nodiscard]] auto Announce(const char* what) {
    SetAnnounced(what);
    return absl::MakeCleanup([this] { SetAnnounced(nullptr); });
  }
  // The work of a view begins.
  void BeginView();

  // As which seconds are counted now.
  Activity activity() const;
  Doing doing() const;
  absl::Time Now() const { return clock_.Now(); }
  // Up to now; all activities.
  Seconds Read() const;
  // What the thread does now; to be asked several times a second.
  membership::Standing Look();

 private:
  void SetAnnounced(const char* what);
  void Tell(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const clock::Clock& clock_;
  timeline::Recorder* const recorder_;
  mutable sync::Mutex mutex_;
  Doing doing_ ABSL_GUARDED_BY(mutex_);
  Activity activity_ ABSL_GUARDED_BY(mutex_) = Activity::kStarting;  // counted
  std::optional<Activity> counts_as_ ABSL_GUARDED_BY(mutex_);
  absl::Time since_ ABSL_GUARDED_BY(mutex_);
  std::array<absl::Duration, kActivityNames.size()> spent_ ABSL_GUARDED_BY(mutex_) = {};
  const char* announced_ ABSL_GUARDED_BY(mutex_) = nullptr;
  membership::Pulse pulse_ ABSL_GUARDED_BY(mutex_);
};

// While it lives, the thread does this; then what it did before.
class While {
 public:
  While(Stopwatch& stopwatch, const Doing& doing)
      : stopwatch_(stopwatch), before_(stopwatch.doing()) {
    stopwatch_.Enter(doing);
  }
  ~While() { stopwatch_.Enter(before_); }
  While(const While&) = delete;
  While& operator=(const While&) = delete;

 private:
  Stopwatch& stopwatch_;
  const Doing before_;
};

}  // namespace starling::observe
