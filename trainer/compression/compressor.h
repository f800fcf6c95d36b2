// SPDX-License-Identifier: Apache-2.0
// Error feedback around any codec (Seide et al. 2014): what encoding loses is kept, and added to
// what is encoded next. So rounding delays a part of a gradient and never drops it: at every moment
// the sum of what was sent, plus the residual, is the sum of what was given.
//
// The residual has one number for each element of the flat gradient, by the element's index and not
// by the peer that it was sent to, so it stays right when the exchange is cut differently. It is
// this member's own state ("Local state" in docs/design/protocol.md): what a step has left in it is
// pending until the step is known to count.
//
//   Encode   the residual of these elements is used and replaced; the change belongs to `update`
//   Release  the same, where nothing is encoded: the residual is delivered whole
//   Commit   what was encoded was applied: the change stays
//   Discard  it was not: another does this work, or it is done again. The change is undone, for
//            what was encoded of the residual has not arrived either
//   Clear    this member missed a step, or starts over: its residual belongs to another history
//
// Without error feedback it encodes, and has nothing to commit.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "trainer/compression/codec.h"

namespace starling::compression {

// Of the flat gradient: consecutive ones from `first` on, or the named ones.
struct Elements {
  std::size_t first = 0;
  std::span<const std::uint64_t> rows = {};
};

// Confined to one thread at a time.
class Compressor {
 public:
  // `codec` outlives it. `elements` is the length of the flat gradient.
  Compressor(const Codec& codec, std::size_t elements, bool error_feedback)
      : codec_(codec), settled_(error_feedback ? elements : 0), newest_(settled_.size()) {}

  const Codec& codec() const { return codec_; }

  // As Codec::Encode, of `values` plus their residual. Each element at most once for one `update`.
  // The codec's errors; then the residual is as it was.
  absl::StatusOr<std::size_t> Encode(std::uint64_t update, const Elements& elements,
                                     std::span<const float> values, std::span<std::byte> bytes);
  // The residual is added to `values`, which need not be encoded: nothing of it is left.
  void Release(std::uint64_t update, const Elements& elements, std::span<float> values);

  void Commit(std::uint64_t update);
  void Discard(std::uint64_t update);
  // All updates that are pending.
  void DiscardAll();
  void Clear();

  // Without what is pending; empty without error feedback. It stays where it is, and changes at
  // Commit and Clear only, unless it is overwritten while nothing is pending: then either what was
  // written is taken over (Restore), or what was there is put back (Keep).
  std::span<float> residual() { return settled_; }
  void Restore() { newest_ = settled_; }
  void Keep() { std::ranges::copy(newest_, settled_.begin()); }

 private:
  // What an update has changed.
  struct Change {
    std::size_t first = 0;
    std::vector<std::uint64_t> rows;
    std::vector<float> by;
  };

  bool keeps() const { return !settled_.empty(); }
  static std::size_t PlaceOf(const Change& change, std::size_t i) {
    return change.rows.empty() ? change.first + i : change.rows[i];
  }
  Change& NewChange(std::uint64_t update, const Elements& elements, std::size_t count);
  std::vector<Change> Take(std::uint64_t update);

  const Codec& codec_;
  std::vector<float> settled_;
  std::vector<float> newest_;  // as if all that is pending counted
  std::map<std::uint64_t, std::vector<Change>> pending_;
  std::vector<float> sums_;
  std::vector<float> arrived_;
};

}  // namespace starling::compression
