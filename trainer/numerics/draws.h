// SPDX-License-Identifier: Apache-2.0
// Rounding by draws: one of 32 bits for each weight, that of its place in the flat parameters, so
// that whoever rounds it in whatever company draws the same.
#pragma once

#include <cstdint>
#include <span>

#include "trainer/kernels/rounding.h"

namespace starling::numerics {

// `values` lie from place `first` on.
void RoundByDraws(std::uint64_t seed, std::int64_t step, std::int64_t first,
                  const kernels::FixedPointGrid& grid, std::span<float> values);

}  // namespace starling::numerics
