// SPDX-License-Identifier: Apache-2.0
#include "trainer/compression/compressor.h"

#include <cmath>
#include <utility>

#include "common/status/macros.h"

namespace starling::compression {

Compressor::Change& Compressor::NewChange(std::uint64_t update, const Elements& elements,
                                          std::size_t count) {
  Change& change = pending_[update].emplace_back();
  change.first = elements.first;
  change.rows.assign(elements.rows.begin(), elements.rows.end());
  change.by.resize(count);
  return change;
}

absl::StatusOr<std::size_t> Compressor::Encode(std::uint64_t update, const Elements& elements,
                                               std::span<const float> values,
                                               std::span<std::byte> bytes) {
  if (!keeps()) return codec_.Encode(values, bytes);
  const std::size_t count = values.size();
  sums_.resize(count);
  arrived_.resize(count);
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t place = elements.rows.empty() ? elements.first + i : elements.rows[i];
    sums_[i] = values[i] + newest_[place];
  }
  ASSIGN_OR_RETURN(const std::size_t size, codec_.Encode(sums_, bytes));
  RETURN_IF_ERROR(codec_.Decode(bytes.first(size), arrived_));
  Change& change = NewChange(update, elements, count);
  for (std::size_t i = 0; i < count; ++i) {
    float& residual = newest_[PlaceOf(change, i)];
    // What is not finite ends the job; it must not stay in the residual of one that is restored.
    const float lost = sums_[i] - arrived_[i];
    const float kept = std::isfinite(lost) ? lost : 0;
    change.by[i] = kept - residual;
    residual = kept;
  }
  return size;
}

void Compressor::Release(std::uint64_t update, const Elements& elements, std::span<float> values) {
  if (!keeps()) return;
  Change& change = NewChange(update, elements, values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    float& residual = newest_[PlaceOf(change, i)];
    values[i] += residual;
    change.by[i] = -std::exchange(residual, 0.0F);
  }
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
