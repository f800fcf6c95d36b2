// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/libsvm_source.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/bytes/bytes.h"
#include "common/status/macros.h"
#include "starling/v1alpha1/training_job.pb.h"
#include "trainer/data/source.h"

namespace starling::data {
namespace {

constexpr std::size_t kMostPairs = std::size_t{1} << 30;  // 12 GiB in memory

template <typename Number>
bool Parse(std::string_view text, Number& number) {
  if (!text.empty() && text.front() == '+') text.remove_prefix(1);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() && !text.empty();
}

// The next word of `line`, which is cut off it; empty at the end.
std::string_view NextWord(std::string_view& line) {
  while (!line.empty() && IsBlank(line.front())) line.remove_prefix(1);
  std::size_t end = 0;
  while (end < line.size() && !IsBlank(line[end])) ++end;
  const std::string_view word = line.substr(0, end);
  line.remove_prefix(end);
  return word;
}

struct Feature {
  std::uint64_t feature = 0;
  std::uint32_t order = 0;  // in its line
  float value = 0;
};

// Confined to ParseLibsvm.
class Parser {
 public:
  Parser(std::uint64_t hashed, BadRecords* bad) : bad_(bad) { set_.hashed = hashed; }

  absl::Status Line(std::string_view line) {
    ++number_;
    const absl::Status read = Read(line);
    if (!read.ok()) return bad_ == nullptr ? read : bad_->Pass(number_, read);
    if (set_.features.size() > kMostPairs || set_.size() > kMaxSamples) {
      return Wrong("the file holds more than this reader takes; split it");
    }
    return absl::OkStatus();
  }
  SparseDataset Take() { return std::move(set_); }

 private:
  // All of a sample or nothing.
  absl::Status Read(std::string_view line) {
    line = line.substr(0, line.find('#'));
    const std::string_view label = NextWord(line);
    if (label.empty()) return absl::OkStatus();
    double side = 0;
    if (!Parse(label, side) || !std::isfinite(static_cast<float>(side))) {
      return Wrong(absl::StrCat("the label ", Quote(label),
                                " is not a finite 32-bit number; give 1 or -1 for a class, or the "
                                "number to be predicted"));
    }
    pairs_.clear();
    std::int64_t last = -1;
    for (std::string_view word = NextWord(line); !word.empty(); word = NextWord(line)) {
      RETURN_IF_ERROR(Take(word, last));
    }
    Keep(static_cast<float>(side));
    return absl::OkStatus();
  }
  absl::Status Take(std::string_view word, std::int64_t& last) {
    const std::size_t colon = word.find(':');
    std::int64_t number = 0;
    float value = 0;
    if (colon == std::string_view::npos || !Parse(word.substr(0, colon), number) ||
        !Parse(word.substr(colon + 1), value) || !std::isfinite(value)) {
      return Wrong(absl::StrCat(Quote(word),
                                " is not number:value; write features as 12:0.5, with blanks "
                                "between them"));
    }
    if (number < 0) return Wrong(absl::StrCat("feature ", number, " is negative; count from 1"));
    if (number <= last) {
      return Wrong(absl::StrCat("feature ", number, " follows ", last,
                                "; name each feature once, in ascending order"));
    }
    last = number;
    if (value != 0) {
      pairs_.push_back({HashedFeature(static_cast<std::uint64_t>(number), set_.hashed),
                        static_cast<std::uint32_t>(pairs_.size()), value});
    }
    return absl::OkStatus();
  }
  void Keep(float label) {
    // In their line's order where features share a weight: sums depend on it.
    std::sort(pairs_.begin(), pairs_.end(), [](const Feature& a, const Feature& b) {
      return a.feature != b.feature ? a.feature < b.feature : a.order < b.order;
    });
    const std::size_t begin = set_.features.size();
    for (const Feature& pair : pairs_) {
      if (set_.features.size() > begin && set_.features.back() == pair.feature) {
        set_.values.back() += pair.value;
        continue;
      }
      set_.features.push_back(pair.feature);
      set_.values.push_back(pair.value);
    }
    set_.offsets.push_back(set_.features.size());
    set_.labels.push_back(label);
  }
  absl::Status Wrong(std::string_view what) const {
    return absl::InvalidArgumentError(
        absl::StrCat("line ", number_, ": ", absl::string_view(what.data(), what.size())));
  }

  BadRecords* const bad_;
  SparseDataset set_;
  std::vector<Feature> pairs_;
  std::int64_t number_ = 0;
};

}  // namespace

std::uint64_t HashedFeature(std::uint64_t number, std::uint64_t hashed) {
  // The finalizer of SplitMix64: every bit of the number moves every bit of the hash.
  std::uint64_t mixed = number + 0x9e3779b97f4a7c15ULL;
  mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9ULL;
  mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebULL;
  mixed ^= mixed >> 31;
  return std::has_single_bit(hashed) ? mixed & (hashed - 1) : mixed % hashed;  // divisions are slow
}

std::string DigestOf(const SparseDataset& dataset) {
  const auto digest = [](const auto& values) {
    return bytes::Sha256Hex(
        {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(*values.data())});
  };
  return bytes::Sha256Hex(absl::StrCat(dataset.hashed, digest(dataset.offsets),
                                       digest(dataset.features), digest(dataset.values),
                                       digest(dataset.labels)));
}

absl::StatusOr<SparseDataset> ParseLibsvm(std::string_view text, std::uint64_t hashed, bool whole,
                                          BadRecords* bad) {
  Parser parser(hashed, bad);
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    if (end == std::string_view::npos && !whole) break;
    RETURN_IF_ERROR(parser.Line(text.substr(0, end)));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return parser.Take();
}

absl::StatusOr<SparseDataset> LoadLibsvm(const v1alpha1::LibsvmSource& source, std::uint64_t hashed,
                                         const LoadOptions& options) {
  const std::string field = options.path + ".uri";
  ASSIGN_OR_RETURN(const FileInfo file, Inspect(source.uri(), field));
  ASSIGN_OR_RETURN(const std::string text, ReadStart(file, options.max_bytes, field));
  BadRecords bad(options.dataset, file.path + ": ");
  absl::StatusOr<SparseDataset> set = ParseLibsvm(text, hashed, text.size() == file.size, &bad);
  if (!set.ok()) {
    return FieldError(set.status().code(), field,
                      absl::StrCat(file.path, ": ", std::string(set.status().message())));
  }
  if (set->size() == 0) {
    return FieldError(absl::StatusCode::kInvalidArgument, field,
                      absl::StrCat(file.path,
                                   ": there is no sample in it; each line is a label "
                                   "and number:value pairs"));
  }
  return set;
}

}  // namespace starling::data
