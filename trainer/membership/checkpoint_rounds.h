// SPDX-License-Identifier: Apache-2.0
// When the members are asked for a checkpoint: every interval, and where somebody requests one.
// Rounds are numbered, from the coordinator's incarnation on, so that a successor's are above all
// of its predecessors'. A pure value.
//
// A request is a word, new for each one. It is told again and again until it is seen to be
// answered, so a coordinator that takes over hears of it too, and asks the members anew.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "absl/time/time.h"

namespace starling::membership {

class CheckpointRounds {
 public:
  // `settled`: at how many steps the state is that needs no checkpoint.
  explicit CheckpointRounds(std::int64_t settled) : settled_(settled) {}

  void Start(std::uint64_t incarnation) {
    number_ = first_ = static_cast<std::int64_t>(incarnation << 32);
  }
  // Empty: none is wanted any more.
  void Request(const std::string& request) {
    if (request == request_) return;
    request_ = request;
    requested_ = 0;
  }
  // Whether the next round is to be asked for: every `interval` while steps are settled, and at the
  // next settled step where one is requested. The one before may be `outstanding` for a minute,
  // then it is given up.
  bool Due(absl::Duration interval, std::int64_t settled, bool outstanding, absl::Time now) {
    constexpr absl::Duration kTimeout = absl::Seconds(60);
    since_ = outstanding ? std::min(since_, now) : absl::InfiniteFuture();
    if (due_ == absl::InfinitePast() && interval > absl::ZeroDuration()) due_ = now + interval;
    if (settled <= settled_) return false;
    if (Wanted() && (outstanding ? now >= since_ + kTimeout : requested_ == 0)) return true;
    if (interval <= absl::ZeroDuration() || now < due_) return false;
    return !outstanding || now >= due_ + kTimeout;
  }
  // Asks for the next; answers its number.
  std::int64_t Ask(std::int64_t settled, absl::Time next_due) {
    settled_ = settled;
    due_ = next_due;
    since_ = absl::InfiniteFuture();
    ++number_;
    if (Wanted()) requested_ = number_;
    return number_;
  }
  // All have written what was asked for last.
  void Saved() {
    if (!Wanted() || requested_ != number_) return;
    answered_ = request_;
    answered_settled_ = settled_;
  }
  // It was dropped: for a request the members are asked anew.
  void Dropped() { requested_ = 0; }
  bool asked() const { return number_ != first_; }
  std::int64_t number() const { return number_; }
  absl::Time due() const { return due_; }
  // When the newest was asked for.
  std::int64_t settled() const { return settled_; }
  // The newest request that was carried out; empty: none.
  const std::string& answered() const { return answered_; }
  // What was settled when the members were asked for it: what they wrote holds that or more.
  std::int64_t answered_settled() const { return answered_settled_; }

 private:
  bool Wanted() const { return !request_.empty() && request_ != answered_; }

  std::int64_t first_ = 0;
  std::int64_t number_ = 0;
  std::int64_t settled_;
  absl::Time due_ = absl::InfinitePast();
  absl::Time since_ = absl::InfiniteFuture();  // of the newest round's being outstanding
  std::string request_;
  std::int64_t requested_ = 0;  // the round that is to carry it out; 0: none yet
  std::string answered_;
  std::int64_t answered_settled_ = 0;
};

}  // namespace starling::membership
