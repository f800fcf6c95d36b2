// SPDX-License-Identifier: Apache-2.0
// Bits of floats as bits of float16, and back: what number_format.h says of float16, once for each
// kind of machine. All give the same bits for each of the 2^32 floats and of the 2^16 float16s.
//
// To add one: its two functions, and a line in the table of float16_conversion.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace starling::buffer {

struct Float16Conversion {
  std::string_view name;
  bool (*runs_here)();
  void (*encode)(const std::uint32_t* floats, std::uint16_t* halves, std::size_t count);
  void (*decode)(const std::uint16_t* halves, std::uint32_t* floats, std::size_t count);
};
// The fastest first; the last runs everywhere.
std::span<const Float16Conversion> Float16Conversions();
const Float16Conversion& FastestFloat16Conversion();

}  // namespace starling::buffer
