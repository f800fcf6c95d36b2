// SPDX-License-Identifier: Apache-2.0
// Losses of numbers by the names that they have in job files and in model files. To add one: a
// value of engine::NumberLoss, a row in number_loss.cc, and of the enum of a workload's block.
#pragma once

#include <optional>
#include <string_view>

#include "trainer/engine/engine_library.h"

namespace starling::workload {

inline constexpr std::string_view kDefaultLoss = "SquaredError";

std::optional<engine::NumberLoss> LossOf(std::string_view name);

}  // namespace starling::workload
