// SPDX-License-Identifier: Apache-2.0
// The instant at which a blocking call gives up, on the monotonic clock.
//
// A type of its own, because an absl::Time does not say which clock it was read from, and a
// deadline on the wrong one waits for decades.
#pragma once

#include <algorithm>
#include <chrono>
#include <compare>
#include <cstdint>
#include <limits>

#include "absl/time/time.h"

namespace starling::net {

// Thread-compatible.
class Deadline {
 public:
  // Later ones than a year from now are the same as Never().
  static Deadline After(absl::Duration timeout) {
    const auto limit = std::min(std::max(timeout, absl::ZeroDuration()), absl::Hours(24 * 365));
    return Deadline(Clock::now() + absl::ToChronoNanoseconds(limit));
  }
  static Deadline Never() { return Deadline(Clock::time_point::max()); }

  bool Expired() const { return *this != Never() && Clock::now() >= at_; }

  // What is left, at least zero.
  absl::Duration Remaining() const {
    if (*this == Never()) return absl::InfiniteDuration();
    return std::max(absl::ZeroDuration(), absl::FromChrono(at_ - Clock::now()));
  }

  // For poll(2): milliseconds rounded up, -1 for ever.
  int PollTimeout() const {
    if (*this == Never()) return -1;
    const auto left = absl::ToInt64Milliseconds(Remaining() + absl::Nanoseconds(999'999));
    return static_cast<int>(std::min<std::int64_t>(left, std::numeric_limits<int>::max()));
  }

  friend auto operator<=>(const Deadline&, const Deadline&) = default;  // NOLINT(*-use-nullptr)

 private:
  using Clock = std::chrono::steady_clock;
  explicit Deadline(Clock::time_point at) : at_(at) {}
  Clock::time_point at_;
};

}  // namespace starling::net
