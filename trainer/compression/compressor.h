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
//
// Two things more may stand around a codec:
//
//   momentum   Momentum correction (Lin et al. 2018). What is kept is not gradients but velocities:
//              u = momentum * u + g is added to the residual. Where an element of a tensor that is
//              encoded was sent its u becomes 0 as well, or it would go on pushing in a direction
//              that was followed already (masking). Whoever applies the updates has no momentum.
//   warm-up    The first steps lose less: nothing, or of a codec that chooses a share of a quarter,
//              which is divided by four three times. Gradients change fastest at first.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "trainer/compression/codec.h"

namespace starling::compression {

// Of the flat gradient: consecutive ones from `first` on, or the named ones.
struct Elements {
  std::size_t first = 0;
  std::span<const std::uint64_t> rows = {};
};

struct CompressorOptions {
  bool error_feedback = false;
  Layout layout = {};
  double momentum = 0;  // from 0 to 1; above 0 it keeps what is not sent, as with error feedback
  bool masking = true;  // off in negative controls alone
  std::int64_t warmup_steps = 0;
  std::uint64_t seed = 0;  // of codecs that draw
};

// Confined to one thread at a time.
class Compressor {
 public:
  // `codec` outlives it. `elements` is the length of the flat gradient.
  Compressor(const Codec& codec, std::size_t elements, CompressorOptions options)
      : codec_(codec),
        options_(std::move(options)),
        elements_(elements),
        settled_(elements * PlanesOf(options_)),
        newest_(settled_.size()) {}
  Compressor(const Codec& codec, std::size_t elements, bool error_feedback)
      : Compressor(codec, elements, CompressorOptions{.error_feedback = error_feedback}) {}

  const Codec& codec() const { return codec_; }
  // What is encoded from now on belongs to this step, from 1: warm-up and draws go by it.
  void OnStep(std::int64_t step) { step_ = step; }

  // As Codec::Encode, of `values` plus their residual. Each element at most once for one `update`.
  // The codec's errors; then the update is to be discarded. `scales`: see Manner.
  absl::StatusOr<std::size_t> Encode(std::uint64_t update, const Elements& elements,
                                     std::span<const float> values, std::span<std::byte> bytes,
                                     std::span<const float> scales = {});
  // Those that Encode of the same asks for. The codec has level sums.
  absl::StatusOr<std::vector<float>> Scales(const Elements& elements,
                                            std::span<const float> values);
  // The residual is added to `values`, which need not be encoded: nothing of it is left.
  void Release(std::uint64_t update, const Elements& elements, std::span<float> values);

  void Commit(std::uint64_t update);
  void Discard(std::uint64_t update);
  // All updates that are pending.
  void DiscardAll();
  void Clear();

  // Without what is pending; empty without error feedback; with momentum the velocities follow, one
  // for each element. It stays where it is, and changes at
  // Commit and Clear only, unless it is overwritten while nothing is pending: then either what was
  // written is taken over (Restore), or what was there is put back (Keep).
  std::span<float> residual() { return settled_; }
  void Restore() { newest_ = settled_; }
  void Keep() { std::ranges::copy(newest_, settled_.begin()); }

 private:
  // What an update has changed: the residuals of these elements, then their velocities.
  struct Change {
    std::size_t first = 0;
    std::size_t count = 0;
    std::vector<std::uint64_t> rows;
    // Empty while no other update is pending: then it is what newest_ is beyond settled_.
    std::vector<float> by;
  };

  static std::size_t PlanesOf(const CompressorOptions& options) {
    return options.momentum > 0 ? 2 : options.error_feedback ? 1 : 0;
  }
  bool keeps() const { return !settled_.empty(); }
  bool has_momentum() const { return options_.momentum > 0; }
  bool WarmsUp() const { return step_ > 0 && step_ <= options_.warmup_steps; }
  // Numbers that are encoded together, and from which on of an encoding's pieces they are.
  struct Tile {
    Elements elements;
    std::span<const float> values;
    std::span<const Piece> pieces;
    std::size_t piece = 0;
  };
  template <typename Visit>
  absl::Status ForEachTile(const Elements& elements, std::span<const float> values,
                           std::span<const Piece> pieces, const Visit& visit) const;
  // Calls `visit(at, place, count)` for each stretch of consecutive numbers: in Change::by, and in
  // settled_ and newest_.
  template <typename Visit>
  void ForEachStretch(const Change& change, const Visit& visit) const;
  Change NewChange(const Elements& elements, std::size_t count) const;
  // `values` and what was kept of them, to sums_ and velocities_.
  void AddKept(const Change& change, std::span<const float> values);
  // Of velocities_, what was sent is forgotten.
  void Mask(std::span<const Piece> pieces);
  // What was not sent of sums_, and velocities_, are kept of these elements from now on.
  void KeepTheRest(std::uint64_t update, Change change, std::span<const float> sent);
  // Each change of another update has its difference, for what is at its elements will not be all
  // its own.
  void RecordOthersThan(std::uint64_t update);
  std::vector<Piece> PiecesOf(const Elements& elements, std::size_t count) const;
  Manner MannerOf(std::span<const Piece> pieces, const Elements& elements,
                  std::span<const float> values) const;
  // `update` is pending no more, and each of its changes is made good in `to`: as in `from` where
  // nothing else is pending, else by its difference times `sign`.
  void Settle(std::uint64_t update, std::span<const float> from, std::span<float> to, float sign);

  const Codec& codec_;
  const CompressorOptions options_;
  const std::size_t elements_;
  std::int64_t step_ = 0;
  std::vector<float> settled_;
  std::vector<float> newest_;  // as if all that is pending counted
  std::map<std::uint64_t, std::vector<Change>> pending_;
  std::vector<float> sums_;
  std::vector<float> velocities_;
  std::vector<float> arrived_;
};

}  // namespace starling::compression
