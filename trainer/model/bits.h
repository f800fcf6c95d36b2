// SPDX-License-Identifier: Apache-2.0
// Sets of few processes, views or leases, as the bits of one byte.
#pragma once

#include <cstdint>

namespace starling::model {

constexpr std::uint8_t Bit(int index) { return static_cast<std::uint8_t>(1 << index); }
constexpr bool Has(int mask, int index) { return (mask >> index & 1) != 0; }
constexpr bool Covers(int mask, int part) { return (part & ~mask) == 0; }

}  // namespace starling::model
