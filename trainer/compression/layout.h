// SPDX-License-Identifier: Apache-2.0
// Which tensors the elements of a flat gradient belong to, for codecs that encode numbers of one
// tensor together: scales, means and thresholds of a layer say nothing of another.
//
// A row is the consecutive elements that one output has, so a matrix [outputs, inputs] has rows of
// `inputs` numbers. (CNTK keeps matrices column by column and calls the same a column.) Vectors,
// which are biases and the like, and tensors of fewer than kSmallTensor numbers have no rows: they
// travel as they are, for they are few and every number of them matters.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace starling::compression {

inline constexpr std::size_t kSmallTensor = 512;  // numbers
// What is left of a tensor where a bucket, a part or a shard ends in it is not worth a scale of its
// own below this.
inline constexpr std::size_t kSmallPiece = 64;

// Consecutive elements of one tensor.
struct Piece {
  std::size_t count = 0;
  std::size_t width = 0;  // of a row; 0: they travel as they are
  std::size_t first = 0;  // of its first row, so many are here, from 1 to width

  bool operator==(const Piece&) const = default;
};

// How many numbers are encoded at a time where a codec lets that be (Codec::by_tiles): so many, and
// what becomes of them, fit into a second-level cache.
inline constexpr std::size_t kTile = std::size_t{1} << 16;

// The same numbers in pieces of about `most` at most, cut between rows where rows are no longer.
std::vector<Piece> Tiles(std::span<const Piece> pieces, std::size_t most = kTile);

// Calls `visit(begin, length)` for each row.
template <typename Visit>
void ForEachRow(const Piece& piece, const Visit& visit) {
  std::size_t begin = 0, length = piece.first;
  while (begin < piece.count) {
    if (length > piece.count - begin) length = piece.count - begin;
    visit(begin, length);
    begin += length;
    length = piece.width;
  }
}

// Thread-safe: immutable.
class Layout {
 public:
  // One tensor, one row, however long.
  Layout() = default;
  // The shapes of the tensors, one after another, without gaps.
  explicit Layout(std::span<const std::vector<std::int64_t>> shapes);

  // Elements [first, first + count), in pieces that follow one another.
  std::vector<Piece> Cut(std::size_t first, std::size_t count) const;

 private:
  struct Tensor {
    std::size_t begin = 0, end = 0;
    std::size_t width = 0;  // 0: as it is
  };
  std::vector<Tensor> tensors_;
};

}  // namespace starling::compression
