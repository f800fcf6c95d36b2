// SPDX-License-Identifier: Apache-2.0
#include "cli/format.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace starling::cli {

std::string Thousands(std::int64_t number) {
  const bool negative = number < 0;
  std::string digits = absl::StrCat(number);
  if (negative) digits.erase(0, 1);
  std::string text;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) text += ' ';
    text += digits[i];
  }
  return negative ? "-" + text : text;
}

std::string Significant(double number, int digits) {
  if (!std::isfinite(number)) return std::isnan(number) ? "nan" : number > 0 ? "inf" : "-inf";
  return absl::StrFormat("%.*g", digits, number);
}

std::string Seconds(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) return "?";
  if (seconds < 0.0095) return absl::StrFormat("%.1f ms", seconds * 1e3);
  if (seconds < 0.9995) return absl::StrFormat("%.0f ms", seconds * 1e3);
  if (seconds < 9.95) return absl::StrFormat("%.1f s", seconds);
  const auto whole = std::llround(seconds);
  if (whole < 60) return absl::StrCat(whole, " s");
  if (whole < 3600) return absl::StrCat(whole / 60, " min ", whole % 60, " s");
  return absl::StrCat(whole / 3600, " h ", whole % 3600 / 60, " min");
}

std::string Age(absl::Duration age) {
  const std::int64_t seconds = std::max<std::int64_t>(0, absl::ToInt64Seconds(age));
  if (seconds < 120) return absl::StrCat(seconds, "s");
  if (seconds < 600) return absl::StrCat(seconds / 60, "m", seconds % 60, "s");
  if (seconds < 3 * 3600) return absl::StrCat(seconds / 60, "m");
  if (seconds < 48 * 3600) return absl::StrCat(seconds / 3600, "h");
  return absl::StrCat(seconds / 86400, "d");
}

std::string Count(std::int64_t number, std::string_view one, std::string_view many) {
  return absl::StrCat(number, " ", std::string(number == 1 ? one : many));
}

}  // namespace starling::cli
