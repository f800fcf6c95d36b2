// SPDX-License-Identifier: Apache-2.0
// Kubernetes' quantities as numbers, to be added and compared.
#pragma once

#include <optional>
#include <string_view>

namespace starling::spec {

// 0.5 of "500m", 67108864 of "64Mi", 1500 of "1.5k"; nothing: it is no quantity, or negative.
std::optional<double> ParseQuantity(std::string_view quantity);

}  // namespace starling::spec
