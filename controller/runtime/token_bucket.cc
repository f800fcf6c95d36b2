// SPDX-License-Identifier: Apache-2.0
#include "controller/runtime/token_bucket.h"

#include <algorithm>

namespace starling::runtime {

absl::Duration TokenBucket::Take(absl::Time now) {
  if (per_second_ <= 0) return absl::ZeroDuration();
  if (filled_ == absl::InfinitePast()) {
    tokens_ = burst_;
  } else if (now > filled_) {
    tokens_ = std::min(burst_, tokens_ + absl::ToDoubleSeconds(now - filled_) * per_second_);
  }
  filled_ = std::max(filled_, now);
  tokens_ -= 1;
  if (tokens_ >= 0) return absl::ZeroDuration();
  return absl::Seconds(-tokens_ / per_second_);
}

}  // namespace starling::runtime
