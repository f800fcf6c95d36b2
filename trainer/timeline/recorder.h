// SPDX-License-Identifier: Apache-2.0
// What a member's time goes by with, stretch by stretch, while somebody looks at it: the member's
// side of `starling trace`.
//
// Nothing is recorded, and nothing but a flag is read, until somebody asks (TraceQuery). From then
// on events wait here for the next question, which says what has arrived; if nobody asks any more,
// recording ends by itself. So a question that is lost or repeated does no harm, and of a member
// that is killed all is known up to the last question.
//
// To record something more: a track in TraceEvent and its line in chrome_trace.cc, and the place
// where it happens: if (recorder.on()) recorder.Add({...}).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <set>
#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "common/clock/clock.h"
#include "common/sync/mutex.h"
#include "starling/v1alpha1/membership.pb.h"

namespace starling::timeline {

using Track = v1alpha1::TraceEvent::Track;

// Names are literals, or texts that the recorder keeps (Keep).
struct Event {
  Track track = v1alpha1::TraceEvent::ACTIVITY;
  std::string_view name = {};
  absl::Time begin = {};  // by the recorder's clock
  absl::Time end = {};    // as begin: a moment
  std::int64_t step = 0;  // 0: the one that was begun last
  std::int64_t bucket = 0;
  std::uint64_t bytes = 0;
  std::uint64_t dense_bytes = 0;
  std::string_view algorithm = {};
  std::string_view transport = {};
  std::uint64_t view = 0;
};

// Thread-safe.
class Recorder {
 public:
  // Of one question to the next: more are left out, and counted.
  static constexpr std::size_t kMostEvents = 16'384;
  // In one answer.
  static constexpr std::size_t kMostInAnswer = 4'096;
  // Nobody has asked for so long: recording ends.
  static constexpr absl::Duration kForgotten = absl::Seconds(5);

  // `clock` outlives it.
  explicit Recorder(const clock::Clock& clock, v1alpha1::MemberId self = {})
      : clock_(clock), self_(std::move(self)) {}

  // Whether Add keeps anything now. To be asked first: it costs nothing.
  bool on() const { return on_.load(std::memory_order_relaxed); }
  absl::Time Now() const { return clock_.Now(); }

  void Add(Event event);
  // What is added without a step from now on is of this one.
  void BeginStep(std::int64_t step, std::int64_t epoch);
  // The numbers of this member's steps are those of all workers.
  void InLockstep() { lockstep_.store(true, std::memory_order_relaxed); }
  // The same text, kept as long as the recorder. Few are: ways, not messages.
  std::string_view Keep(const std::string& text);

  v1alpha1::TraceAnswer Answer(const v1alpha1::TraceQuery& query);

 private:
  struct Recorded {
    Event event;
    std::int64_t epoch = 0;
  };
  static constexpr std::size_t kMostTexts = 64;

  void Begin(const std::string& request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void End() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const clock::Clock& clock_;
  const v1alpha1::MemberId self_;
  std::atomic<bool> on_ = false;
  std::atomic<bool> lockstep_ = false;

  sync::Mutex mutex_;
  std::string request_ ABSL_GUARDED_BY(mutex_);
  absl::Time begun_ ABSL_GUARDED_BY(mutex_);
  absl::Time asked_ ABSL_GUARDED_BY(mutex_);
  std::deque<Recorded> events_ ABSL_GUARDED_BY(mutex_);
  std::uint64_t first_ ABSL_GUARDED_BY(mutex_) = 0;  // the number of the first of events_
  std::uint64_t left_out_ ABSL_GUARDED_BY(mutex_) = 0;
  std::int64_t step_ ABSL_GUARDED_BY(mutex_) = 0;
  std::int64_t epoch_ ABSL_GUARDED_BY(mutex_) = 0;
  std::set<std::string> texts_ ABSL_GUARDED_BY(mutex_);
};

// Null-safe: whether there is a recorder, and it is on.
inline bool IsOn(const Recorder* recorder) { return recorder != nullptr && recorder->on(); }

}  // namespace starling::timeline
