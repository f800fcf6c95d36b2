// SPDX-License-Identifier: Apache-2.0
// The last lines that a role wrote, for whoever must know why it ended.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace starling::supervisor {

// Thread-compatible. Holds at most about twice kBytes.
class LogTail {
 public:
  static constexpr std::size_t kBytes = 4096;
  static constexpr std::size_t kLines = 20;

  void Append(std::string_view text);
  void Clear() { text_.clear(); }

  // At most the last kLines lines and kBytes bytes, from the start of a line where one fits.
  std::string Text() const;

 private:
  std::string text_;
};

}  // namespace starling::supervisor
