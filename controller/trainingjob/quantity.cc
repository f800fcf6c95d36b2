// SPDX-License-Identifier: Apache-2.0
#include "controller/trainingjob/quantity.h"

#include <cmath>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace starling::trainingjob {
namespace {

constexpr double kMost = 9e15;  // beyond which a double is no exact number of bytes

// A unit and what it is worth; longer ones first.
constexpr std::pair<std::string_view, double> kUnits[] = {
    {"Ki", 1024.0},
    {"Mi", 1048576.0},
    {"Gi", 1073741824.0},
    {"Ti", 1099511627776.0},
    {"Pi", 1125899906842624.0},
    {"Ei", 1152921504606846976.0},
    {"m", 1e-3},
    {"k", 1e3},
    {"M", 1e6},
    {"G", 1e9},
    {"T", 1e12},
    {"P", 1e15},
    {"E", 1e18},
    {"", 1.0},
};

}  // namespace

std::int64_t ParseBytes(std::string_view quantity) {
  for (const auto& [unit, worth] : kUnits) {
    if (!quantity.ends_with(unit)) continue;
    double number = 0;
    const std::string_view digits = quantity.substr(0, quantity.size() - unit.size());
    if (!absl::SimpleAtod(absl::string_view(digits.data(), digits.size()), &number)) return 0;
    const double bytes = std::ceil(number * worth);
    return std::isfinite(bytes) && bytes > 0 && bytes < kMost ? static_cast<std::int64_t>(bytes)
                                                              : 0;
  }
  return 0;
}

std::string FormatBytes(std::int64_t bytes) {
  static constexpr const char* kBinary[] = {"", "Ki", "Mi", "Gi"};
  int unit = 0;
  while (unit < 3 && bytes != 0 && bytes % 1024 == 0) {
    bytes /= 1024;
    ++unit;
  }
  return absl::StrCat(bytes, kBinary[unit]);
}

}  // namespace starling::trainingjob
