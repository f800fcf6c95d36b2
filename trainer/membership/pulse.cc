// SPDX-License-Identifier: Apache-2.0
#include "trainer/membership/pulse.h"

#include <algorithm>

namespace starling::membership {

void Pulse::Enter(Standing::Kind kind, const char* where, absl::Time now) {
  Count(now);
  where_ = where;
  const bool worked = kind_ == Standing::Kind::kWorks;
  if (worked && kind == kind_) return;
  if (worked) {
    const bool measures = ++stretches_ > kWarmUp && since_ >= kShortest;
    if (measures) lengths_[measured_++ % kKept] = since_;
  }
  kind_ = kind;
  since_ = absl::ZeroDuration();
}

Standing Pulse::Look(absl::Time now) {
  Count(now);
  return {.kind = kind_,
          .where = where_,
          .since = since_,
          .usual = Usual(),
          .stretches = stretches_,
          .thread = thread_};
}

void Pulse::Count(absl::Time now) {
  since_ += std::clamp(now - counted_, absl::ZeroDuration(), kBetweenLooks);
  counted_ = now;
}

absl::Duration Pulse::Usual() const {
  const std::size_t count = std::min(measured_, kKept);
  if (count == 0) return absl::ZeroDuration();
  std::array<absl::Duration, kKept> lengths = lengths_;
  const auto at = lengths.begin() + static_cast<std::ptrdiff_t>(count - 1 - count / 100);
  std::nth_element(lengths.begin(), at, lengths.begin() + static_cast<std::ptrdiff_t>(count));
  return *at;
}

}  // namespace starling::membership
