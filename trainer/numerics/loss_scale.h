// SPDX-License-Identifier: Apache-2.0
// Dynamic loss scaling (Micikevicius et al. 2018): the loss is multiplied by a number before
// backward, so that small gradients are not lost in narrow numbers, and gradients are divided by it
// afterwards. Where that makes a gradient infinite the step is skipped and the number halved; after
// so many steps in a row it is doubled.
//
// Whether a step is skipped is decided by the sum of all workers' gradients, which is the same bits
// at each of them: an infinity at one makes the sum infinite, or no number, at all. So all skip the
// same step, and the scale is replicated state like the parameters.
#pragma once

#include <cstdint>

#include "trainer/checkpoint/state_parts.h"

namespace starling::numerics {

class LossScale {
 public:
  // Doubled after `grow_every` steps without an infinity; 0: never.
  LossScale(double initial, std::int64_t grow_every) : value_(initial), grow_every_(grow_every) {}

  double value() const { return value_; }
  std::int64_t skipped() const { return skipped_; }
  void Register(checkpoint::StateParts& parts);

  // False when it is as small as it gets: what is infinite then is so without it.
  bool CanSkip() const { return value_ > kLeast; }
  // A step was applied, or skipped.
  void Applied();
  void Skipped();

 private:
  static constexpr double kLeast = 1;
  static constexpr double kMost = 1 << 24;

  double value_;
  const std::int64_t grow_every_;
  std::int64_t good_ = 0;  // steps since it was last changed
  std::int64_t skipped_ = 0;
};

}  // namespace starling::numerics
