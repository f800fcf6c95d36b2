// SPDX-License-Identifier: Apache-2.0
// How arrays are cut: into one chunk per rank, and chunks into pieces that stay in cache.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

namespace starling::collectives {

// Elements [begin, end).
struct Range {
  std::size_t begin = 0;
  std::size_t end = 0;

  std::size_t size() const { return end - begin; }
  template <typename T>
  std::span<T> Of(std::span<T> data) const {
    return data.subspan(begin, size());
  }
};

// The `index`-th of `parts` nearly equal parts of `length` elements; empty ones when parts exceed
// elements.
inline Range PartOf(std::size_t length, std::size_t index, std::size_t parts) {
  return {index * length / parts, (index + 1) * length / parts};
}

// The `index`-th piece of at most `piece` elements of `whole`.
inline Range PieceOf(const Range& whole, std::size_t index, std::size_t piece) {
  const std::size_t begin = std::min(whole.begin + index * piece, whole.end);
  return {begin, std::min(begin + piece, whole.end)};
}
inline std::size_t PiecesOf(const Range& whole, std::size_t piece) {
  return (whole.size() + piece - 1) / piece;
}

}  // namespace starling::collectives
