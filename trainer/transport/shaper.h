// SPDX-License-Identifier: Apache-2.0
// Emulates a slower network: when would this frame have arrived?
//
// Nobody is held up while sending. The sender stamps each frame with the instant at which its last
// byte would have left its network card; the receiver hands the frame over once it would have
// arrived. Both read the same machine's monotonic clock.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>

#include "trainer/transport/transport.h"

namespace starling::transport {

inline std::int64_t MonotonicNanoseconds() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// One rank's network card. Thread-compatible.
class Shaper {
 public:
  Shaper() = default;
  explicit Shaper(const Shaping& shaping)
      : enabled_(shaping.enabled()),
        delay_(absl::ToInt64Nanoseconds(shaping.delay)),
        nanoseconds_per_byte_(shaping.bytes_per_second > 0 ? 1e9 / shaping.bytes_per_second : 0) {}

  // When the last of `bytes` has left, if they are handed over now. 0 when nothing is emulated.
  std::int64_t Depart(std::size_t bytes) {
    return enabled_ ? Depart(bytes, MonotonicNanoseconds()) : 0;
  }
  // The same at another time than now.
  std::int64_t Depart(std::size_t bytes, std::int64_t now) {
    send_free_ = std::max(send_free_, now) + Duration(bytes);
    return send_free_;
  }

  // When the receiver has them all, which is not before `earliest`. 0 when nothing is emulated.
  // Frames of several peers may be told in any order: each takes the first time at which its bytes
  // fit between those of the others, so the order in which this process reads its sockets does not
  // matter.
  std::int64_t Arrive(std::int64_t departed, std::size_t bytes, std::int64_t earliest) {
    if (!enabled_) return 0;
    const std::int64_t takes = Duration(bytes);
    std::int64_t begin = std::max(departed + delay_, earliest) - takes;
    if (takes == 0) return begin;
    auto next = receives_.begin();
    for (; next != receives_.end() && next->begin < begin + takes; ++next) {
      begin = std::max(begin, next->end);
    }
    receives_.insert(next, {begin, begin + takes});
    // What is long past need not be known: gaps there are closed.
    if (receives_.size() > kMostReceives) {
      receives_[1].begin = receives_[0].begin;
      receives_.pop_front();
    }
    return begin + takes;
  }

 private:
  // Nanoseconds in which the card receives; disjoint and in order.
  struct Busy {
    std::int64_t begin = 0;
    std::int64_t end = 0;
  };
  static constexpr std::size_t kMostReceives = 256;

  std::int64_t Duration(std::size_t bytes) const {
    return static_cast<std::int64_t>(static_cast<double>(bytes) * nanoseconds_per_byte_);
  }

  bool enabled_ = false;
  std::int64_t delay_ = 0;
  double nanoseconds_per_byte_ = 0;
  std::int64_t send_free_ = 0;
  std::deque<Busy> receives_;
};

}  // namespace starling::transport
