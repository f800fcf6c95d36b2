// SPDX-License-Identifier: Apache-2.0
// Numbers, times and names as people like to read them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/time/time.h"

namespace starling::cli {

std::string Thousands(std::int64_t number);              // 12 345
std::string Significant(double number, int digits = 4);  // 0.9639, 12.35, 1.2e-07
std::string Seconds(double seconds);                     // 12 ms, 4.2 s, 3 min 20 s, 2 h 5 min
std::string Age(absl::Duration age);                     // 12s, 5m, 3h, 2d: kubectl's
std::string Count(std::int64_t number, std::string_view one, std::string_view many);

}  // namespace starling::cli
