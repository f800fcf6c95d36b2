// SPDX-License-Identifier: Apache-2.0
// A checksum of 128 bits, XXH3's, at the speed of memory: it notices damage, and that two do not
// have the same. Whoever means to can make other bytes of the same checksum; where that matters,
// SHA-256 (bytes.h) is a tenth as fast, or less.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace starling::bytes {

// In pieces: however they are cut, it is that of all bytes. Thread-compatible.
class Checksum {
 public:
  using Value = std::array<std::uint8_t, 16>;

  Checksum();
  ~Checksum();
  void Update(std::span<const std::byte> data);
  Value Finish() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace starling::bytes
