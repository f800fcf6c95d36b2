// SPDX-License-Identifier: Apache-2.0
// What the numbers of a text's symbols stand for: bytes, or the characters of one text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace starling::data {

// Immutable. Characters are Unicode's, numbered in their order; bytes are their own numbers.
class Alphabet {
 public:
  // Bytes.
  Alphabet() = default;
  // Of the characters of `text`. INVALID_ARGUMENT ("line 3 is no UTF-8; ...") where it is none, or
  // has more than kMaxClasses different ones.
  static absl::StatusOr<Alphabet> OfCharacters(std::string_view text);

  // As model files keep it: "bytes", or the characters' numbers in Unicode with commas between.
  std::string ToText() const;
  static absl::StatusOr<Alphabet> FromText(std::string_view text);

  bool bytes() const { return characters_.empty(); }
  std::int64_t size() const;

  // INVALID_ARGUMENT, with the line, where `text` is no UTF-8 or has a character that is not among
  // these. Its first line is `line`.
  absl::StatusOr<std::vector<std::uint16_t>> Encode(std::string_view text,
                                                    std::int64_t line = 1) const;
  // The symbol's bytes. `symbol` is below size().
  std::string Decode(std::uint16_t symbol) const;

 private:
  std::vector<char32_t> characters_;  // ascending; empty: bytes
};

std::int64_t LineEnds(std::string_view text);

// The first byte from `at` on where a character begins; `at` where `text` is no UTF-8.
std::size_t NextCharacter(std::string_view text, std::size_t at);

}  // namespace starling::data
