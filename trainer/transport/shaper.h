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
    if (!enabled_) return 0;
    send_free_ = std::max(send_free_, MonotonicNanoseconds()) + Duration(bytes);
    return send_free_;
  }

  // When the receiver has them all. 0 when nothing is emulated.
  std::int64_t Arrive(std::int64_t departed, std::size_t bytes) {
    if (!enabled_) return 0;
    receive_free_ = std::max(departed + delay_, receive_free_ + Duration(bytes));
    return receive_free_;
  }

 private:
  std::int64_t Duration(std::size_t bytes) const {
    return static_cast<std::int64_t>(static_cast<double>(bytes) * nanoseconds_per_byte_);
  }

  bool enabled_ = false;
  std::int64_t delay_ = 0;
  double nanoseconds_per_byte_ = 0;
  std::int64_t send_free_ = 0;
  std::int64_t receive_free_ = 0;
};

}  // namespace starling::transport
