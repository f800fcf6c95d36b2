// SPDX-License-Identifier: Apache-2.0
// Stretches of numbers, and how they are cut: samples over workers, arrays over ranks and into
// pieces that stay in cache. All members of a job must cut alike, so they cut here.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <type_traits>

namespace starling::ranges {

// [begin, end)
template <typename Index>
struct Range {
  Index begin = 0;
  Index end = 0;

  Index size() const { return end - begin; }
  bool Holds(Index index) const { return index >= begin && index < end; }
  template <typename T>
  std::span<T> Of(std::span<T> data) const {
    return data.subspan(begin, size());
  }
  auto operator<=>(const Range&) const = default;  // NOLINT(modernize-use-nullptr)
};

// The `index`-th of `parts` nearly equal parts of [0, length): [floor(index * length / parts),
// floor((index + 1) * length / parts)). Empty ones when parts exceed length, which times parts must
// not overflow.
template <typename Index>
Range<Index> PartOf(Index length, std::type_identity_t<Index> index,
                    std::type_identity_t<Index> parts) {
  return {index * length / parts, (index + 1) * length / parts};
}

// The `index`-th piece of at most `piece` numbers of `whole`.
template <typename Index>
Range<Index> PieceOf(const Range<Index>& whole, std::type_identity_t<Index> index,
                     std::type_identity_t<Index> piece) {
  const Index begin = std::min<Index>(whole.begin + index * piece, whole.end);
  return {begin, std::min<Index>(begin + piece, whole.end)};
}
template <typename Index>
Index PiecesOf(const Range<Index>& whole, std::type_identity_t<Index> piece) {
  return (whole.size() + piece - 1) / piece;
}

}  // namespace starling::ranges
