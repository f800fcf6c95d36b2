// SPDX-License-Identifier: Apache-2.0
#include "common/clock/clock.h"

#include <chrono>

namespace starling::clock {

absl::Time SystemClock::Now() const {
  return absl::UnixEpoch() + absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch());
}

}  // namespace starling::clock
