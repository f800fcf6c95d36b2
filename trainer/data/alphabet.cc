// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/alphabet.h"

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/json/json.h"
#include "common/status/check.h"
#include "common/status/macros.h"
#include "trainer/data/source.h"

namespace starling::data {
namespace {

constexpr char kBytes[] = "bytes";
constexpr std::int64_t kByteValues = 256;
constexpr char32_t kLastCharacter = 0x10FFFF;

bool Continues(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; }

// The character at the front of `text`, which is UTF-8 and not empty; it is cut off.
char32_t TakeCharacter(std::string_view& text) {
  const auto first = static_cast<unsigned char>(text.front());
  const std::size_t length = first < 0x80 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  constexpr unsigned kMasks[] = {0, 0x7F, 0x1F, 0x0F, 0x07};
  char32_t character = first & kMasks[length];
  for (std::size_t i = 1; i < length; ++i) {
    character = character << 6 | (static_cast<unsigned char>(text[i]) & 0x3F);
  }
  text.remove_prefix(length);
  return character;
}

void AppendUtf8(char32_t character, std::string& out) {
  const auto tail = [&](int shift) {
    out.push_back(static_cast<char>(0x80 | ((character >> shift) & 0x3F)));
  };
  if (character < 0x80) {
    out.push_back(static_cast<char>(character));
    return;
  }
  const int tails = character < 0x800 ? 1 : character < 0x10000 ? 2 : 3;
  constexpr unsigned kHeads[] = {0, 0xC0, 0xE0, 0xF0};
  out.push_back(static_cast<char>(kHeads[tails] | (character >> (6 * tails))));
  for (int i = tails; i-- > 0;) tail(6 * i);
}

absl::Status CheckUtf8(std::string_view text, std::int64_t line) {
  if (json::IsUtf8(text)) return absl::OkStatus();
  for (std::string_view rest = text;; ++line) {
    const std::size_t end = rest.find('\n');
    if (!json::IsUtf8(rest.substr(0, end)) || end == std::string_view::npos) break;
    rest.remove_prefix(end + 1);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("line ", line, " is no UTF-8; convert the file, or write symbols: Bytes"));
}

}  // namespace

absl::StatusOr<Alphabet> Alphabet::OfCharacters(std::string_view text) {
  RETURN_IF_ERROR(CheckUtf8(text, 1));
  std::vector<bool> seen(kLastCharacter + 1);
  for (std::string_view rest = text; !rest.empty();) seen[TakeCharacter(rest)] = true;
  Alphabet alphabet;
  for (char32_t character = 0; character <= kLastCharacter; ++character) {
    if (seen[character]) alphabet.characters_.push_back(character);
  }
  if (std::ssize(alphabet.characters_) > kMaxClasses) {
    return absl::InvalidArgumentError(absl::StrCat("has ", alphabet.characters_.size(),
                                                   " different characters, more than ", kMaxClasses,
                                                   "; write symbols: Bytes"));
  }
  return alphabet;
}

std::string Alphabet::ToText() const {
  if (bytes()) return kBytes;
  return absl::StrJoin(characters_, ",", [](std::string* out, char32_t character) {
    absl::StrAppend(out, static_cast<std::uint32_t>(character));
  });
}

absl::StatusOr<Alphabet> Alphabet::FromText(std::string_view text) {
  Alphabet alphabet;
  if (text == kBytes) return alphabet;
  for (const absl::string_view part :
       absl::StrSplit(absl::string_view(text.data(), text.size()), ',')) {
    std::uint32_t number = 0;
    const bool ascends = absl::SimpleAtoi(part, &number) && number <= kLastCharacter &&
                         (alphabet.characters_.empty() || number > alphabet.characters_.back());
    if (!ascends || std::ssize(alphabet.characters_) == kMaxClasses) {
      return absl::InvalidArgumentError("is no list of ascending characters");
    }
    alphabet.characters_.push_back(number);
  }
  return alphabet;
}

std::int64_t Alphabet::size() const { return bytes() ? kByteValues : std::ssize(characters_); }

absl::StatusOr<std::vector<std::uint16_t>> Alphabet::Encode(std::string_view text,
                                                            std::int64_t line) const {
  std::vector<std::uint16_t> symbols;
  symbols.reserve(text.size());
  if (bytes()) {
    for (const char byte : text) symbols.push_back(static_cast<unsigned char>(byte));
    return symbols;
  }
  RETURN_IF_ERROR(CheckUtf8(text, line));
  for (std::string_view rest = text; !rest.empty();) {
    const std::size_t at = text.size() - rest.size();
    const char32_t character = TakeCharacter(rest);
    const auto found = std::ranges::lower_bound(characters_, character);
    if (found == characters_.end() || *found != character) {
      const std::string_view shown = text.substr(at, text.size() - rest.size() - at);
      return absl::InvalidArgumentError(absl::StrFormat(
          "line %d: the character %s (U+%04X) does not occur in the training text; leave it out, "
          "or train with symbols: Bytes, which knows all",
          line + LineEnds(text.substr(0, at)), Quote(shown),
          static_cast<std::uint32_t>(character)));
    }
    symbols.push_back(static_cast<std::uint16_t>(found - characters_.begin()));
  }
  return symbols;
}

std::string Alphabet::Decode(std::uint16_t symbol) const {
  STARLING_CHECK(symbol < size(), "a symbol is one of its alphabet");
  std::string text;
  if (bytes()) {
    text.push_back(static_cast<char>(symbol));
  } else {
    AppendUtf8(characters_[symbol], text);
  }
  return text;
}

std::int64_t LineEnds(std::string_view text) { return std::count(text.begin(), text.end(), '\n'); }

std::size_t NextCharacter(std::string_view text, std::size_t at) {
  constexpr std::size_t kMostTail = 3;
  std::size_t next = at;
  while (next < text.size() && next < at + kMostTail && Continues(text[next])) ++next;
  return next < text.size() && Continues(text[next]) ? at : next;
}

}  // namespace starling::data
