// SPDX-License-Identifier: Apache-2.0
// The rows of a text table (RFC 4180, with any delimiter), one at a time.
//
// Cells may be quoted; quoted cells may hold delimiters, newlines and doubled quotes. Empty lines
// are passed over; a byte order mark and carriage returns before newlines are not part of any cell.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace starling::data {

// Thread-compatible. `text` must outlive it and the cells that it hands out.
class CsvReader {
 public:
  CsvReader(std::string_view text, char delimiter);

  // Reads the next row into `cells`, without surrounding blanks; false at the end. INVALID_ARGUMENT
  // ("line 3, column 2: ...") when quotes are wrong.
  absl::StatusOr<bool> Next(std::vector<std::string_view>& cells);

  // Where the row that Next has read begins, from 1.
  std::int64_t line() const { return line_; }

 private:
  absl::StatusOr<std::string_view> ReadCell();
  absl::StatusOr<std::string_view> ReadQuoted();
  bool AtLineEnd() const { return position_ == text_.size() || text_[position_] == '\n'; }
  void SkipBlankLines();

  const std::string_view text_;
  const char delimiter_;
  std::size_t position_ = 0;
  std::int64_t line_ = 0;
  std::int64_t next_line_ = 1;
  std::int64_t column_ = 0;
  std::deque<std::string> unescaped_;  // of the present row
};

}  // namespace starling::data
