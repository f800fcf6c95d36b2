// SPDX-License-Identifier: Apache-2.0
#include "trainer/compression/layout.h"

#include <algorithm>

namespace starling::compression {
namespace {

// What travels as it is needs no border.
void Append(const Piece& piece, std::vector<Piece>& pieces) {
  if (!pieces.empty() && piece.width == 0 && pieces.back().width == 0) {
    pieces.back().count += piece.count;
  } else {
    pieces.push_back(piece);
  }
}

}  // namespace

std::vector<Piece> Tiles(std::span<const Piece> pieces, std::size_t most) {
  std::vector<Piece> tiles;
  for (Piece piece : pieces) {
    while (piece.width > 0 && piece.count > most + kSmallPiece) {
      std::size_t count = most;
      if (piece.first <= most) {
        count = piece.first + (most - piece.first) / piece.width * piece.width;
      }
      tiles.push_back({count, piece.width, piece.first});
      piece.count -= count;
      piece.first = count < piece.first ? piece.first - count : piece.width;
    }
    tiles.push_back(piece);
  }
  return tiles;
}

Layout::Layout(std::span<const std::vector<std::int64_t>> shapes) {
  std::size_t begin = 0;
  for (const std::vector<std::int64_t>& shape : shapes) {
    std::size_t size = 1;
    for (const std::int64_t length : shape) size *= static_cast<std::size_t>(length);
    const bool whole = shape.size() < 2 || size < kSmallTensor;
    tensors_.push_back(
        {begin, begin + size, whole ? 0 : size / static_cast<std::size_t>(shape.front())});
    begin += size;
  }
}

std::vector<Piece> Layout::Cut(std::size_t first, std::size_t count) const {
  if (count == 0) return {};
  if (tensors_.empty()) return {{count, count, count}};
  std::vector<Piece> pieces;
  auto tensor = std::ranges::upper_bound(tensors_, first, {}, &Tensor::end);
  for (std::size_t at = first; at < first + count && tensor != tensors_.end(); ++tensor) {
    const std::size_t end = std::min(tensor->end, first + count);
    Piece piece{end - at, 0, 0};
    if (tensor->width > 0 && piece.count >= kSmallPiece) {
      piece.width = tensor->width;
      piece.first = tensor->width - (at - tensor->begin) % tensor->width;
    }
    Append(piece, pieces);
    at = end;
  }
  return pieces;
}

}  // namespace starling::compression
