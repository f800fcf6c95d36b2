// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/csv_reader.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/macros.h"
#include "trainer/data/source.h"

namespace starling::data {
namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

std::string_view Trim(std::string_view text) {
  while (!text.empty() && IsBlank(text.front())) text.remove_prefix(1);
  while (!text.empty() && IsBlank(text.back())) text.remove_suffix(1);
  return text;
}

}  // namespace

CsvReader::CsvReader(std::string_view text, char delimiter) : text_(text), delimiter_(delimiter) {
  if (text_.substr(0, kByteOrderMark.size()) == kByteOrderMark) position_ = kByteOrderMark.size();
}

absl::StatusOr<bool> CsvReader::Next(std::vector<std::string_view>& cells) {
  cells.clear();
  unescaped_.clear();
  SkipBlankLines();
  line_ = next_line_;
  column_ = 0;
  if (position_ == text_.size()) return false;
  while (true) {
    ++column_;
    ASSIGN_OR_RETURN(const std::string_view cell, ReadCell());
    cells.push_back(cell);
    if (AtLineEnd()) break;
    ++position_;  // the delimiter
  }
  if (position_ < text_.size()) ++position_;  // the newline
  ++next_line_;
  return true;
}

void CsvReader::SkipBlankLines() {
  std::size_t end = position_;
  while (end < text_.size() && (text_[end] == '\n' || text_[end] == '\r')) {
    if (text_[end++] == '\n') {
      ++next_line_;
      position_ = end;
    }
  }
  if (end == text_.size()) position_ = end;
}

absl::StatusOr<std::string_view> CsvReader::ReadCell() {
  const std::size_t start = position_;
  std::size_t first = start;
  while (first < text_.size() && text_[first] == ' ' && delimiter_ != ' ') ++first;
  if (first < text_.size() && text_[first] == '"') {
    position_ = first + 1;
    return ReadQuoted();
  }
  while (!AtLineEnd() && text_[position_] != delimiter_) ++position_;
  return Trim(text_.substr(start, position_ - start));
}

// After the opening quote.
absl::StatusOr<std::string_view> CsvReader::ReadQuoted() {
  const auto wrong = [&](std::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat("line ", line_, ", column ", column_, ": ",
                                                   absl::string_view(what.data(), what.size())));
  };
  std::string cell;
  while (true) {
    const std::size_t quote = text_.find('"', position_);
    if (quote == std::string_view::npos) {
      return wrong("a quote is opened but never closed; close it, or double it to mean a quote");
    }
    cell += text_.substr(position_, quote - position_);
    position_ = quote + 1;
    if (position_ < text_.size() && text_[position_] == '"') {
      cell += '"';
      ++position_;
      continue;
    }
    break;
  }
  next_line_ += std::count(cell.begin(), cell.end(), '\n');
  while (!AtLineEnd() && text_[position_] != delimiter_ && IsBlank(text_[position_])) ++position_;
  if (!AtLineEnd() && text_[position_] != delimiter_) {
    return wrong("there is text after the closing quote; quote the whole cell");
  }
  unescaped_.push_back(std::move(cell));
  return Trim(unescaped_.back());
}

}  // namespace starling::data
