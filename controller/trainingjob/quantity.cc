// SPDX-License-Identifier: Apache-2.0
#include "controller/trainingjob/quantity.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "api/spec/quantity.h"

namespace starling::trainingjob {
namespace {

constexpr double kMost = 9e15;  // beyond which a double is no exact number of bytes

}  // namespace

std::int64_t ParseBytes(std::string_view quantity) {
  const double bytes = std::ceil(spec::ParseQuantity(quantity).value_or(0));
  return bytes > 0 && bytes < kMost ? static_cast<std::int64_t>(bytes) : 0;
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
