// SPDX-License-Identifier: Apache-2.0
#include "trainer/compression/compressor.h"

#include <bit>
#include <cmath>
#include <utility>

#include "common/status/macros.h"

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

std::size_t Compressor::PlaceOf(const Change& change, std::size_t i) const {
  const std::size_t plane = i < change.count ? 0 : elements_;
  const std::size_t of = i < change.count ? i : i - change.count;
  return plane + (change.rows.empty() ? change.first + of : change.rows[of]);
}

Compressor::Change Compressor::NewChange(const Elements& elements, std::size_t count) const {
  return {elements.first,
          count,
          {elements.rows.begin(), elements.rows.end()},
          std::vector<float>(count * PlanesOf(options_))};
}

void Compressor::Set(Change& change, std::size_t i, float value) {
  float& kept = newest_[PlaceOf(change, i)];
  // What is not finite ends the job; it must not stay in the residual of one that is restored.
  const float next = std::isfinite(value) ? value : 0;
  change.by[i] = next - kept;
  kept = next;
}

std::vector<Piece> Compressor::PiecesOf(const Elements& elements, std::size_t count) const {
  if (count == 0 || codec_.fixed_size()) return {};
  if (!elements.rows.empty()) return {{count, count, count}};
  std::vector<Piece> pieces = options_.layout.Cut(elements.first, count);
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
  velocities_.assign(values.begin(), values.end());
  const auto momentum = static_cast<float>(options_.momentum);
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (has_momentum()) velocities_[i] += momentum * newest_[PlaceOf(change, values.size() + i)];
    sums_[i] = newest_[PlaceOf(change, i)] + velocities_[i];
  }
}

void Compressor::KeepTheRest(Change& change, std::span<const Piece> pieces) {
  for (std::size_t i = 0; i < change.count; ++i) Set(change, i, sums_[i] - arrived_[i]);
  if (!has_momentum()) return;
  std::size_t i = 0;
  for (const Piece& piece : pieces) {
    const bool masks = options_.masking && piece.width > 0;
    for (const std::size_t end = i + piece.count; i < end; ++i) {
      Set(change, change.count + i, masks && arrived_[i] != 0 ? 0 : velocities_[i]);
    }
  }
}

absl::StatusOr<std::size_t> Compressor::Encode(std::uint64_t update, const Elements& elements,
                                               std::span<const float> values,
                                               std::span<std::byte> bytes) {
  const std::vector<Piece> pieces = PiecesOf(elements, values.size());
  if (!keeps()) return codec_.EncodeIn(MannerOf(pieces, elements, values), values, bytes);
  Change change = NewChange(elements, values.size());
  AddKept(change, values);
  ASSIGN_OR_RETURN(const std::size_t size,
                   codec_.EncodeIn(MannerOf(pieces, elements, sums_), sums_, bytes));
  arrived_.resize(values.size());
  RETURN_IF_ERROR(codec_.Decode(bytes.first(size), arrived_));
  KeepTheRest(change, pieces);
  pending_[update].push_back(std::move(change));
  return size;
}

void Compressor::Release(std::uint64_t update, const Elements& elements, std::span<float> values) {
  if (!keeps()) return;
  Change change = NewChange(elements, values.size());
  AddKept(change, values);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = sums_[i];
    Set(change, i, 0);
    if (has_momentum()) Set(change, values.size() + i, velocities_[i]);
  }
  pending_[update].push_back(std::move(change));
}

std::vector<Compressor::Change> Compressor::Take(std::uint64_t update) {
  const auto found = pending_.find(update);
  if (found == pending_.end()) return {};
  std::vector<Change> changes = std::move(found->second);
  pending_.erase(found);
  return changes;
}

// Where nothing else is pending the two are equal afterwards, bit for bit.
void Compressor::Commit(std::uint64_t update) {
  for (const Change& change : Take(update)) {
    for (std::size_t i = 0; i < change.by.size(); ++i) {
      const std::size_t place = PlaceOf(change, i);
      settled_[place] = pending_.empty() ? newest_[place] : settled_[place] + change.by[i];
    }
  }
}

void Compressor::Discard(std::uint64_t update) {
  for (const Change& change : Take(update)) {
    for (std::size_t i = 0; i < change.by.size(); ++i) {
      const std::size_t place = PlaceOf(change, i);
      newest_[place] = pending_.empty() ? settled_[place] : newest_[place] - change.by[i];
    }
  }
}

void Compressor::DiscardAll() {
  while (!pending_.empty()) Discard(pending_.begin()->first);
}

void Compressor::Clear() {
  pending_.clear();
  settled_.assign(settled_.size(), 0);
  newest_.assign(newest_.size(), 0);
}

}  // namespace starling::compression
