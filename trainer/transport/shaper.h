// SPDX-License-Identifier: Apache-2.0
// Emulates a slower network: when would this frame have arrived?
//
// Nobody is held up while sending. The sender stamps each frame with the instant at which its last
// byte would have left its network card; the receiver hands the frame over once it would have
// arrived. Both read the same machine's monotonic clock.
//
// A card is a token bucket that holds nothing: bytes leave and come at its rate, one after another,
// and what it did not do while it was idle it cannot make up for.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>

#include "trainer/transport/card.h"
#include "trainer/transport/host_card.h"
#include "trainer/transport/shaping.h"

namespace starling::transport {

inline std::int64_t MonotonicNanoseconds() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// What is on the way from `self` to `peer`, which are pods.
inline Wire WireBetween(std::string_view self, std::string_view peer, const Shaping& shaping) {
  const LinkShaping* const link = LinkBetween(self, peer, shaping);
  if (link == nullptr) return {};
  return {link->bytes_per_second > 0 ? 1e9 / link->bytes_per_second : 0,
          absl::ToInt64Nanoseconds(link->delay.value_or(shaping.delay) - shaping.delay)};
}

// What one rank sends and receives, by a card of its own or one that its host's processes share.
// Thread-compatible.
class Shaper {
 public:
  Shaper() = default;
  explicit Shaper(const Shaping& shaping, std::shared_ptr<HostCard> shared = nullptr)
      : enabled_(shaping.enabled()),
        delay_(absl::ToInt64Nanoseconds(shaping.delay)),
        nanoseconds_per_byte_(shaping.bytes_per_second > 0 ? 1e9 / shaping.bytes_per_second : 0),
        shared_(std::move(shared)) {}

  // When the last of `bytes` has left, if they are handed over now. 0 when nothing is emulated.
  std::int64_t Depart(std::size_t bytes) {
    return enabled_ ? Depart(bytes, MonotonicNanoseconds()) : 0;
  }
  // The same at another time than now.
  std::int64_t Depart(std::size_t bytes, std::int64_t now) {
    const std::int64_t takes = Duration(bytes);
    return shared_ != nullptr ? shared_->Send(now, takes) : card_.Send(now, takes);
  }

  // The same through a link of this card.
  std::int64_t Depart(std::size_t bytes, Wire& wire) {
    return enabled_ ? wire.Pass(Depart(bytes), Duration(bytes), bytes) : 0;
  }

  // When the receiver has them all, which is not before `earliest`. 0 when nothing is emulated.
  std::int64_t Arrive(std::int64_t departed, std::size_t bytes, std::int64_t earliest) {
    if (!enabled_) return 0;
    const std::int64_t takes = Duration(bytes);
    const std::int64_t begin = std::max(departed + delay_, earliest) - takes;
    return shared_ != nullptr ? shared_->Receive(begin, takes) : card_.Receive(begin, takes);
  }

 private:
  std::int64_t Duration(std::size_t bytes) const {
    return static_cast<std::int64_t>(static_cast<double>(bytes) * nanoseconds_per_byte_);
  }

  bool enabled_ = false;
  std::int64_t delay_ = 0;
  double nanoseconds_per_byte_ = 0;
  Card card_;
  std::shared_ptr<HostCard> shared_;  // in place of card_
};

}  // namespace starling::transport
