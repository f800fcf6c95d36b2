// SPDX-License-Identifier: Apache-2.0
#include "api/spec/field_error.h"

#include <algorithm>
#include <cctype>
#include <numeric>
#include <optional>

#include "absl/strings/str_cat.h"

namespace starling::spec {
namespace {

char Lower(char c) { return static_cast<char>(std::tolower(static_cast<unsigned char>(c))); }

// Edits (insert, delete, replace, swap of neighbours) between two words, case aside: the restricted
// Damerau-Levenshtein distance.
std::size_t Distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before_last, last(b.size() + 1), row(b.size() + 1);
  std::iota(last.begin(), last.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replace = last[j - 1] + (Lower(a[i - 1]) == Lower(b[j - 1]) ? 0 : 1);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, replace});
      if (i > 1 && j > 1 && Lower(a[i - 1]) == Lower(b[j - 2]) &&
          Lower(a[i - 2]) == Lower(b[j - 1])) {
        row[j] = std::min(row[j], before_last[j - 2] + 1);
      }
    }
    before_last = last;
    last = row;
  }
  return last[b.size()];
}

bool IsPlainKey(std::string_view key) {
  return !key.empty() && std::all_of(key.begin(), key.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '-' || c == '_';
  });
}

}  // namespace

std::string Format(const FieldErrors& errors) {
  std::string text;
  for (const FieldError& error : errors) {
    absl::StrAppend(&text, text.empty() ? "" : "\n", error.path, error.path.empty() ? "" : ": ",
                    error.message);
  }
  return text;
}

absl::Status ToStatus(const FieldErrors& errors) {
  if (errors.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(Format(errors));
}

std::string DidYouMean(std::string_view word, const std::vector<std::string>& candidates) {
  constexpr std::size_t kLongestWord = 100;  // nobody's typing error, and the cost is quadratic
  if (word.size() > kLongestWord) return "";
  const std::string* nearest = nullptr;
  std::size_t smallest = 0;
  for (const std::string& candidate : candidates) {
    const std::size_t distance = Distance(word, candidate);
    if (nearest == nullptr || distance < smallest) {
      nearest = &candidate;
      smallest = distance;
    }
  }
  if (nearest == nullptr) return "";
  const std::size_t allowed = std::max<std::size_t>(1, std::max(word.size(), nearest->size()) / 3);
  if (smallest > allowed) return "";
  return absl::StrCat(", did you mean \"", *nearest, "\"?");
}

std::string JoinPath(std::string_view parent, std::string_view child) {
  const std::string head(parent), tail(child);
  if (!IsPlainKey(child)) return absl::StrCat(head, "[", tail, "]");
  return head.empty() ? tail : absl::StrCat(head, ".", tail);
}

std::string JoinPath(std::string_view parent, std::size_t index) {
  return absl::StrCat(std::string(parent), "[", index, "]");
}

}  // namespace starling::spec
