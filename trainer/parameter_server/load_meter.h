// SPDX-License-Identifier: Apache-2.0
// How busy a shard keeps its server, in bytes a second: what was pushed to it and read from it,
// smoothed over some seconds. Pure: whoever counts says what time it is.
#pragma once

#include <cmath>
#include <cstdint>

namespace starling::parameter_server {

// A message costs something even if little is in it.
inline constexpr double kBytesOfAMessage = 1024;

// Thread-compatible.
class LoadMeter {
 public:
  // `now`: seconds on a clock that does not go back.
  void Add(double bytes, double now) {
    bytes_ = At(now) + bytes;
    at_ = now;
  }
  // Of a steady flow its rate. What has not been used for long counts for nothing.
  std::int64_t PerSecond(double now) const {
    const double rate = At(now) / kSeconds;
    return rate < 1 ? 0 : static_cast<std::int64_t>(rate);
  }

 private:
  static constexpr double kSeconds = 2;

  double At(double now) const { return bytes_ * std::exp(-(now > at_ ? now - at_ : 0) / kSeconds); }

  double bytes_ = 0;  // counted, of each what the time since has left of it
  double at_ = 0;
};

}  // namespace starling::parameter_server
