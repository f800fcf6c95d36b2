// SPDX-License-Identifier: Apache-2.0
#include "controller/runtime/back_off.h"

#include <algorithm>
#include <cmath>

namespace starling::runtime {

absl::Duration DelayAfter(const BackOff& back_off, int failures, double share) {
  const double growth = std::pow(back_off.factor, std::clamp(failures, 0, 64));
  return std::min(back_off.first * growth, back_off.longest) * (1.0 + back_off.jitter * share);
}

// SplitMix64 (Steele et al. 2014).
double Jitter::Next() {
  std::uint64_t z = state_ += 0x9e3779b97f4a7c15U;
  z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9U;
  z = (z ^ (z >> 27U)) * 0x94d049bb133111ebU;
  return static_cast<double>((z ^ (z >> 31U)) >> 11U) * 0x1p-53;
}

}  // namespace starling::runtime
