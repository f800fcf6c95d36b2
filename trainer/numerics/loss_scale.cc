// SPDX-License-Identifier: Apache-2.0
#include "trainer/numerics/loss_scale.h"

#include <algorithm>

namespace starling::numerics {

void LossScale::Register(checkpoint::StateParts& parts) {
  parts.AddScalar("numerics/lossScale", value_);
  parts.AddScalar("numerics/goodSteps", good_);
  parts.AddScalar("numerics/skippedSteps", skipped_);
}

void LossScale::Applied() {
  ++good_;
  if (grow_every_ == 0 || good_ < grow_every_) return;
  value_ = std::min(2 * value_, kMost);
  good_ = 0;
}

void LossScale::Skipped() {
  value_ = std::max(value_ / 2, kLeast);
  good_ = 0;
  ++skipped_;
}

}  // namespace starling::numerics
