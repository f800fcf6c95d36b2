// SPDX-License-Identifier: Apache-2.0
#include "trainer/supervisor/log_tail.h"

namespace starling::supervisor {

void LogTail::Append(std::string_view text) {
  if (text.size() > kBytes) text.remove_prefix(text.size() - kBytes);
  text_ += text;
  if (text_.size() > 2 * kBytes) text_.erase(0, text_.size() - kBytes);
}

std::string LogTail::Text() const {
  std::string_view tail = text_;
  if (tail.size() > kBytes) {
    tail.remove_prefix(tail.size() - kBytes);
    if (const auto newline = tail.find('\n'); newline + 1 < tail.size()) {
      tail.remove_prefix(newline + 1);
    }
  }
  std::size_t start = tail.size();
  if (start > 0 && tail.back() == '\n') --start;
  for (std::size_t lines = 0; lines < kLines && start != std::string_view::npos && start > 0;
       ++lines) {
    const auto newline = tail.rfind('\n', start - 1);
    start = newline == std::string_view::npos ? 0 : newline;
  }
  if (start < tail.size() && tail[start] == '\n') ++start;
  return std::string(tail.substr(start));
}

}  // namespace starling::supervisor
