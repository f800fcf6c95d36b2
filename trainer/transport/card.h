// SPDX-License-Identifier: Apache-2.0
// An emulated network card: when it is busy. Times are nanoseconds of any one clock.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace starling::transport {

// Plain data, so that it may lie in memory that processes share. Thread-compatible.
class Card {
 public:
  // When what takes so long has left, if it is handed over `now`.
  std::int64_t Send(std::int64_t now, std::int64_t takes) {
    send_free_ = std::max(send_free_, now) + takes;
    return send_free_;
  }

  // When what takes so long has come, if its first byte can come at `begin`. Frames may be told in
  // any order: each takes the first time at which it fits between the others, so it does not matter
  // which process, or which of its sockets, is read first.
  std::int64_t Receive(std::int64_t begin, std::int64_t takes) {
    if (takes == 0) return begin;
    // What is known is disjoint and in order: only what ends later can be in the way.
    Busy* const end = busy_.data() + count_;
    Busy* next = std::upper_bound(busy_.data(), end, begin, [](std::int64_t time, const Busy& one) {
      return time < one.end;
    });
    for (; next != end && next->begin < begin + takes; ++next) begin = next->end;
    Insert(next, {begin, begin + takes});
    return begin + takes;
  }

 private:
  struct Busy {
    std::int64_t begin = 0;
    std::int64_t end = 0;
  };
  static constexpr std::size_t kMost = 256;

  void Insert(Busy* place, Busy busy) {
    if (place != busy_.data() && place[-1].end == busy.begin) {
      place[-1].end = busy.end;
      return;
    }
    if (count_ == kMost) {  // what is long past need not be known: gaps there are closed
      busy_[1].begin = std::min(busy_[0].begin, busy_[1].begin);
      std::copy(busy_.begin() + 1, busy_.end(), busy_.begin());
      --count_;
      if (place <= busy_.data() + 1) return;  // it lies there, or before all of them
      --place;
    }
    std::copy_backward(place, busy_.data() + count_, busy_.data() + count_ + 1);
    *place = busy;
    ++count_;
  }

  std::int64_t send_free_ = 0;
  std::size_t count_ = 0;
  std::array<Busy, kMost> busy_ = {};
};
static_assert(std::is_trivially_copyable_v<Card>);

// One way of a link that is slower than the cards at its ends, or longer than the others. What
// leaves the card goes on at the wire's own rate, one after another. Thread-compatible.
class Wire {
 public:
  // One that is as fast and as long as any.
  Wire() = default;
  // `longer`: by so much than the network's delay, or less than 0.
  Wire(double nanoseconds_per_byte, std::int64_t longer)
      : nanoseconds_per_byte_(nanoseconds_per_byte), longer_(longer) {}

  // When the last of `bytes` is out of it, if the card, which took so long, was done at `left`: by
  // a clock that is `longer` ahead, so that whoever receives knows of the network's delay alone.
  std::int64_t Pass(std::int64_t left, std::int64_t took, std::size_t bytes) {
    if (nanoseconds_per_byte_ > 0) {
      const auto takes =
          static_cast<std::int64_t>(static_cast<double>(bytes) * nanoseconds_per_byte_);
      free_ = std::max(left, std::max(free_, left - took) + takes);
      left = free_;
    }
    return left + longer_;
  }

 private:
  double nanoseconds_per_byte_ = 0;
  std::int64_t longer_ = 0;
  std::int64_t free_ = 0;
};

}  // namespace starling::transport
