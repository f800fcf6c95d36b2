// SPDX-License-Identifier: Apache-2.0
// Whether a thread that waits for a mesh polls for a while before it sleeps. To be woken takes 30
// to 60 microseconds, to see an answer while one polls 2, but a thread that polls takes a core from
// others that compute.
//
// LimitsOf says for how long, by how many ranks of the mesh share memory (are on this machine) and
// how many cores there are for them. SpinWait says what a thread does next, and polls no longer
// than that, or less where others of the machine want the core. Both are without clocks and
// threads. To add a rule: a value of SpinRule, a row in spin_test.cc.
#pragma once

#include <cstdint>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace starling::transport {

enum class SpinRule {
  kWhereCoresSuffice,  // each rank on this machine has a core
  kWhereACoreIsLeft,   // and there is one more; where none shares memory, polling gains little
  kAlways,             // somebody has said so
};

// How long a thread of a mesh polls, as its owner wants it.
struct Spin {
  absl::Duration time = absl::ZeroDuration();
  SpinRule rule = SpinRule::kWhereCoresSuffice;
  // At least so long while no other thread of this process computes (Mesh::SetOthersIdle), where
  // some rank shares memory and each of those has a core.
  absl::Duration others_idle = absl::ZeroDuration();
  // At least so long, wherever it is, while ranks add up in memory that they share: what a thread
  // waits for then is microseconds away.
  absl::Duration at_sum = absl::Microseconds(60);
};

// The same for the ranks and the cores that there are.
struct SpinLimits {
  absl::Duration time = absl::ZeroDuration();
  absl::Duration others_idle = absl::ZeroDuration();
  absl::Duration at_sum = absl::ZeroDuration();
  // More ranks than cores: whoever is waited for may need the core of the thread that waits, so it
  // yields at once, and as well while ranks arrive at a sum. Ranks that are pinned to different
  // cores, or have control groups of one core each, count so too: this process sees its own alone.
  bool oversubscribed = false;
};

// `ranks_here` counts this rank and those with which it shares memory.
SpinLimits LimitsOf(const Spin& wanted, int ranks_here, int cores);

// What members of a job do. `text` is STARLING_SPIN, in microseconds: always so long (0: never);
// empty: kJobSpin where a core is left, and kJobSpinOthersIdle and at_sum as Spin says.
// INVALID_ARGUMENT if it is no number up to a second.
inline constexpr absl::Duration kJobSpin = absl::Microseconds(50);
inline constexpr absl::Duration kJobSpinOthersIdle = absl::Microseconds(300);
absl::StatusOr<Spin> ParseSpin(std::string_view text);
// Of this process's environment.
absl::StatusOr<Spin> SpinOfJob();

// What the thread that waits for a mesh does next. Times are monotonic nanoseconds.
//
// Where a thread gets its core back late after it has yielded, others of the machine have run, and
// probably want to again. A thread that sleeps is then served sooner than one that yields, so the
// time of others_idle is not used for a while: from kShortest to kLongest, four times as long after
// each poll that finds it so, half as long after each that yields and does not.
class SpinWait {
 public:
  enum class Next { kPoll, kYield, kSleep };

  static constexpr std::int64_t kYieldAfter = 5'000;
  static constexpr std::int64_t kLate = 20'000;
  static constexpr std::int64_t kShortest = 100'000;
  static constexpr std::int64_t kLongest = 20'000'000;

  explicit SpinWait(const SpinLimits& limits) : limits_(limits) {}

  bool oversubscribed() const { return limits_.oversubscribed; }
  bool others_idle() const { return others_idle_; }
  void SetOthersIdle(bool idle) { others_idle_ = idle; }

  // `since` is when the thread found for the first time that there is nothing to do, and `now`
  // then. `at_sum`: it waits for ranks that add up.
  Next Decide(std::int64_t since, std::int64_t now, bool at_sum = false);
  // After kYield.
  void Yielded(std::int64_t from, std::int64_t to);

 private:
  void BeginPoll();

  const SpinLimits limits_;
  bool others_idle_ = false;
  // Of the poll that runs, or the last one.
  bool yielded_ = false;
  bool late_ = false;
  std::int64_t backoff_ = kShortest;
  std::int64_t backoff_until_ = 0;
};

}  // namespace starling::transport
