// SPDX-License-Identifier: Apache-2.0
#include "trainer/workload/number_loss.h"

#include <algorithm>
#include <iterator>

namespace starling::workload {
namespace {

struct NamedLoss {
  std::string_view name;
  engine::NumberLoss loss;
};

constexpr NamedLoss kLosses[] = {
    {kDefaultLoss, engine::NumberLoss::kSquared},
    {"Huber", engine::NumberLoss::kHuber},
    {"AbsoluteError", engine::NumberLoss::kAbsolute},
    {"BinaryCrossEntropy", engine::NumberLoss::kBinaryCrossEntropy},
};

}  // namespace

std::optional<engine::NumberLoss> LossOf(std::string_view name) {
  const auto* const known = std::ranges::find(kLosses, name, &NamedLoss::name);
  if (known == std::end(kLosses)) return std::nullopt;
  return known->loss;
}

}  // namespace starling::workload
