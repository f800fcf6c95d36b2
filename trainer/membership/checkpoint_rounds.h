// SPDX-License-Identifier: Apache-2.0
// When the members are asked for a checkpoint. Rounds are numbered, from the coordinator's
// incarnation on, so that a successor's are above all of its predecessors'. A pure value.
#pragma once

#include <cstdint>

#include "absl/time/time.h"

namespace starling::membership {

class CheckpointRounds {
 public:
  // `settled`: at how many steps the state is that needs no checkpoint.
  explicit CheckpointRounds(std::int64_t settled) : settled_(settled) {}

  void Start(std::uint64_t incarnation) {
    number_ = first_ = static_cast<std::int64_t>(incarnation << 32);
  }
  // Whether the next round is to be asked for: every `interval` while steps are settled. The one
  // before may be `outstanding` for a minute, then it is given up.
  bool Due(absl::Duration interval, std::int64_t settled, bool outstanding, absl::Time now) {
    constexpr absl::Duration kTimeout = absl::Seconds(60);
    if (interval <= absl::ZeroDuration()) return false;
    if (due_ == absl::InfinitePast()) due_ = now + interval;
    if (now < due_ || settled <= settled_) return false;
    return !outstanding || now >= due_ + kTimeout;
  }
  // Asks for the next; answers its number.
  std::int64_t Ask(std::int64_t settled, absl::Time next_due) {
    settled_ = settled;
    due_ = next_due;
    return ++number_;
  }
  bool asked() const { return number_ != first_; }
  std::int64_t number() const { return number_; }
  absl::Time due() const { return due_; }
  // When the newest was asked for.
  std::int64_t settled() const { return settled_; }

 private:
  std::int64_t first_ = 0;
  std::int64_t number_ = 0;
  std::int64_t settled_;
  absl::Time due_ = absl::InfinitePast();
};

}  // namespace starling::membership
