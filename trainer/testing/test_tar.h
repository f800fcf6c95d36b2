// SPDX-License-Identifier: Apache-2.0
// Tar archives for tests: members and end marks as the format has them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"

namespace starling::data {

// A header with its sum.
inline std::string TarHeader(std::string_view name, std::uint64_t size, char type = '0',
                             std::string_view prefix = {}) {
  std::string header(512, '\0');
  const auto put = [&header](std::size_t at, std::string_view text) {
    header.replace(at, text.size(), text);
  };
  put(0, name);
  put(100, "0000644");
  put(108, "0001750");
  put(116, "0001750");
  put(124, absl::StrFormat("%011o", size));
  put(136, "00000000000");
  put(148, "        ");
  header[156] = type;
  put(257, std::string_view("ustar\0"
                            "00",
                            8));
  put(345, prefix);
  unsigned sum = 0;
  for (const char c : header) sum += static_cast<unsigned char>(c);
  put(148, absl::StrFormat("%06o", sum) + std::string("\0 ", 2));
  return header;
}

// A member with its content, padded.
inline std::string TarMemberOf(std::string_view name, std::string_view content, char type = '0') {
  std::string member = TarHeader(name, content.size(), type);
  member += content;
  member.resize((member.size() + 511) / 512 * 512);
  return member;
}

inline std::string TarEnd() { return std::string(1024, '\0'); }

// Plain files, one behind another.
inline std::string TarOf(const std::vector<std::pair<std::string, std::string>>& files) {
  std::string archive;
  for (const auto& [name, content] : files) archive += TarMemberOf(name, content);
  return archive + TarEnd();
}

}  // namespace starling::data
