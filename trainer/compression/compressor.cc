// SPDX-License-Identifier: Apache-2.0
#include "trainer/compression/compressor.h"

#include <bit>
#include <cmath>
#include <utility>

#include "common/status/macros.h"
#include "trainer/kernels/span_math.h"

namespace starling::compression {

namespace {

// The share of the numbers that a codec which chooses sends at first: in four stages of a warm-up a
// quarter, a sixteenth and so on.
double DensityAt(std::int64_t step, std::int64_t warmup_steps) {
  constexpr std::int64_t kStages = 4;
  return std::pow(0.25, 1 + static_cast<double>((step - 1) * kStages / warmup_steps));
}

// Draws differ by step, by where the numbers lie and by the numbers: those of two members too, and
// a step that is made again draws the same.
std::uint64_t DrawOf(std::uint64_t seed, std::int64_t step, std::size_t first,
                     std::span<const float> values) {
  constexpr std::size_t kLooked = 32;
  constexpr std::uint64_t kPrime = 0x100000001b3ULL;  // of FNV-1a
  std::uint64_t hash = 0xcbf29ce484222325ULL ^ seed;
  const auto mix = [&](std::uint64_t word) {
    hash = (hash ^ word) * kPrime;
    hash ^= hash >> 29;
  };
  mix(static_cast<std::uint64_t>(step));
  mix(first);
  for (std::size_t i = 0; i < values.size(); i += 1 + values.size() / kLooked) {
    mix(std::bit_cast<std::uint32_t>(values[i]));
  }
  return hash;
}

}  // namespace

template <typename Visit>
void Compressor::ForEachStretch(const Change& change, const Visit& visit) const {
  for (std::size_t plane = 0; plane < PlanesOf(options_); ++plane) {
    const std::size_t at = plane * change.count, begin = plane * elements_;
    if (change.rows.empty()) visit(at, begin + change.first, change.count);
    for (std::size_t i = 0; i < change.rows.size(); ++i) visit(at + i, begin + change.rows[i], 1);
  }
}

Compressor::Change Compressor::NewChange(const Elements& elements, std::size_t count) const {
  return {elements.first, count, {elements.rows.begin(), elements.rows.end()}, {}};
}

std::vector<Piece> Compressor::PiecesOf(const Elements& elements, std::size_t count) const {
  if (count == 0 || codec_.fixed_size()) return {};
  if (!elements.rows.empty()) return {{count, count, count}};
  std::vector<Piece> pieces = options_.layout.Cut(elements.first, count);
  if (codec_.by_tiles()) pieces = Tiles(pieces);
  if (WarmsUp() && !codec_.chooses()) pieces = {{count, 0, 0}};
  return pieces;
}

Manner Compressor::MannerOf(std::span<const Piece> pieces, const Elements& elements,
                            std::span<const float> values) const {
  Manner manner{pieces, DrawOf(options_.seed, step_, elements.first, values)};
  if (WarmsUp()) {
    manner.least_density = DensityAt(step_, options_.warmup_steps);
  }
  return manner;
}

void Compressor::AddKept(const Change& change, std::span<const float> values) {
  sums_.resize(values.size());
  if (has_momentum()) velocities_.assign(values.begin(), values.end());
  const auto momentum = static_cast<float>(options_.momentum);
  ForEachStretch(change, [&](std::size_t at, std::size_t place, std::size_t count) {
    const std::span<const float> kept = std::span<const float>(newest_).subspan(place, count);
    if (at >= change.count) {
      const std::span<float> velocities = std::span(velocities_).subspan(at - change.count, count);
      kernels::Axpy(momentum, kept, velocities);
      kernels::Add(velocities, std::span(sums_).subspan(at - change.count, count));
    } else if (has_momentum()) {
      kernels::Copy(kept, std::span(sums_).subspan(at, count));
    } else {
      kernels::SumOf(kept, values.subspan(at, count), std::span(sums_).subspan(at, count));
    }
  });
}

void Compressor::KeepTheRest(std::uint64_t update, Change change, std::span<const float> sent) {
  RecordOthersThan(update);
  const bool alone = pending_.empty() || (pending_.size() == 1 && pending_.contains(update));
  if (!alone) change.by.resize(change.count * PlanesOf(options_));
  ForEachStretch(change, [&](std::size_t at, std::size_t place, std::size_t count) {
    const std::span<float> kept = std::span(newest_).subspan(place, count);
    const std::span<float> by =
        alone ? std::span<float>() : std::span(change.by).subspan(at, count);
    if (!alone) kernels::Copy(kept, by);
    if (at < change.count) {
      kernels::DifferenceOf(std::span<const float>(sums_).subspan(at, count),
                            sent.subspan(at, count), kept);
    } else {
      kernels::Copy(std::span<const float>(velocities_).subspan(at - change.count, count), kept);
    }
    // What is not finite ends the job; it must not stay in the residual of one that is restored.
    if (!kernels::AllFinite(kept)) {
      for (float& value : kept) value = std::isfinite(value) ? value : 0;
    }
    if (!alone) {
      kernels::Scale(-1, by);
      kernels::Add(kept, by);
    }
  });
  pending_[update].push_back(std::move(change));
}

void Compressor::RecordOthersThan(std::uint64_t update) {
  for (auto& [other, changes] : pending_) {
    if (other == update) continue;
    for (Change& change : changes) {
      if (!change.by.empty()) continue;
      change.by.resize(change.count * PlanesOf(options_));
      ForEachStretch(change, [&](std::size_t at, std::size_t place, std::size_t count) {
        const std::span<float> by = std::span(change.by).subspan(at, count);
        kernels::Copy(std::span<const float>(newest_).subspan(place, count), by);
        kernels::Subtract(std::span<const float>(settled_).subspan(place, count), by);
      });
    }
  }
}

template <typename Visit>
absl::Status Compressor::ForEachTile(const Elements& elements, std::span<const float> values,
                                     std::span<const Piece> pieces, const Visit& visit) const {
  if (!codec_.by_tiles() || !elements.rows.empty()) return visit(Tile{elements, values, pieces, 0});
  std::size_t at = 0;
  for (std::size_t i = 0; at < values.size(); ++i) {
    const std::size_t count =
        pieces.empty() ? std::min(kTile, values.size() - at) : pieces[i].count;
    const auto some = pieces.empty() ? pieces : pieces.subspan(i, 1);
    RETURN_IF_ERROR(visit(Tile{{elements.first + at}, values.subspan(at, count), some, i}));
    at += count;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::size_t> Compressor::Encode(std::uint64_t update, const Elements& elements,
                                               std::span<const float> values,
                                               std::span<std::byte> bytes,
                                               std::span<const float> scales) {
  const std::vector<Piece> pieces = PiecesOf(elements, values.size());
  if (!keeps()) {
    Manner manner = MannerOf(pieces, elements, values);
    manner.scales = scales;
    return codec_.EncodeIn(manner, values, bytes);
  }
  std::size_t size = 0;
  const auto encode = [&](const Tile& tile) -> absl::Status {
    Change change = NewChange(tile.elements, tile.values.size());
    AddKept(change, tile.values);
    Manner manner = MannerOf(tile.pieces, tile.elements, sums_);
    if (!scales.empty()) manner.scales = scales.subspan(tile.piece, tile.pieces.size());
    const std::span<std::byte> room = bytes.subspan(size);
    ASSIGN_OR_RETURN(const std::size_t written, codec_.EncodeIn(manner, sums_, room));
    arrived_.resize(tile.values.size());
    RETURN_IF_ERROR(codec_.Decode(room.first(written), arrived_));
    if (has_momentum() && options_.masking) Mask(tile.pieces);
    KeepTheRest(update, std::move(change), arrived_);
    size += written;
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(ForEachTile(elements, values, pieces, encode));
  return size;
}

void Compressor::Mask(std::span<const Piece> pieces) {
  std::size_t at = 0;
  for (const Piece& piece : pieces) {
    if (piece.width > 0) {
      kernels::ClearWhereNonZero(std::span<const float>(arrived_).subspan(at, piece.count),
                                 std::span(velocities_).subspan(at, piece.count));
    }
    at += piece.count;
  }
}

absl::StatusOr<std::vector<float>> Compressor::Scales(const Elements& elements,
                                                      std::span<const float> values) {
  const std::vector<Piece> pieces = PiecesOf(elements, values.size());
  const LevelSums& sums = *codec_.level_sums();
  if (!keeps()) return sums.Scales({.pieces = pieces}, values);
  std::vector<float> scales;
  const auto ask = [&](const Tile& tile) -> absl::Status {
    AddKept(NewChange(tile.elements, tile.values.size()), tile.values);
    ASSIGN_OR_RETURN(const std::vector<float> some, sums.Scales({.pieces = tile.pieces}, sums_));
    scales.insert(scales.end(), some.begin(), some.end());
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(ForEachTile(elements, values, pieces, ask));
  return scales;
}

void Compressor::Release(std::uint64_t update, const Elements& elements, std::span<float> values) {
  if (!keeps()) return;
  Change change = NewChange(elements, values.size());
  AddKept(change, values);
  kernels::Copy(sums_, values);
  KeepTheRest(update, std::move(change), sums_);
}

void Compressor::Settle(std::uint64_t update, std::span<const float> from, std::span<float> to,
                        float sign) {
  const auto found = pending_.find(update);
  if (found == pending_.end()) return;
  const std::vector<Change> changes = std::move(found->second);
  pending_.erase(found);
  for (const Change& change : changes) {
    ForEachStretch(change, [&](std::size_t at, std::size_t place, std::size_t count) {
      const std::span<float> target = to.subspan(place, count);
      if (pending_.empty()) {
        kernels::Copy(from.subspan(place, count), target);
      } else {
        kernels::Axpy(sign, std::span(change.by).subspan(at, count), target);
      }
    });
  }
}

// Where nothing else is pending the two are equal afterwards, bit for bit.
void Compressor::Commit(std::uint64_t update) { Settle(update, newest_, settled_, 1); }
void Compressor::Discard(std::uint64_t update) { Settle(update, settled_, newest_, -1); }

void Compressor::DiscardAll() {
  while (!pending_.empty()) Discard(pending_.begin()->first);
}

void Compressor::Clear() {
  pending_.clear();
  settled_.assign(settled_.size(), 0);
  newest_.assign(newest_.size(), 0);
}

}  // namespace starling::compression
