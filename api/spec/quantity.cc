// SPDX-License-Identifier: Apache-2.0
#include "api/spec/quantity.h"

#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "api/spec/contract.h"

namespace starling::spec {
namespace {

// A unit and what it is worth; longer ones first, so that Mi is no M.
constexpr std::pair<std::string_view, double> kUnits[] = {
    {"Ki", 1024.0},
    {"Mi", 1048576.0},
    {"Gi", 1073741824.0},
    {"Ti", 1099511627776.0},
    {"Pi", 1125899906842624.0},
    {"Ei", 1152921504606846976.0},
    {"n", 1e-9},
    {"u", 1e-6},
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

std::optional<double> ParseQuantity(std::string_view quantity) {
  if (!FullMatch(quantity, FindFormat("quantity")->pattern)) return std::nullopt;
  for (const auto& [unit, worth] : kUnits) {
    if (!quantity.ends_with(unit)) continue;
    double number = 0;
    const std::string digits(quantity.substr(0, quantity.size() - unit.size()));
    if (!absl::SimpleAtod(digits, &number) || !(number >= 0)) return std::nullopt;
    return number * worth;
  }
  return std::nullopt;
}

}  // namespace starling::spec
