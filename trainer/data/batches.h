// SPDX-License-Identifier: Apache-2.0
// Which samples a step uses, and which of them are whose: pure functions of the step's number.
//
// Steps and epochs count from 1. Epoch e visits the samples in the keyed permutation of (seed, e),
// `batch` at a time; the last batch of an epoch is short, never dropped. So the step number is the
// whole ledger: after any restart, with any number of workers, step k uses the same samples.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/ranges/ranges.h"

namespace starling::data {

using Range = ranges::Range<std::int64_t>;

// What member `index` of `members` computes of a batch of `batch` samples: positions
// [floor(i b / n), floor((i + 1) b / n)), perhaps none.
Range Share(std::int64_t batch, std::int64_t index, std::int64_t members);

// Reproducible mode: a batch of b samples is cut into G = min(b, 16) groups whose gradients are
// added in order, whoever computed them.
std::int64_t GroupCount(std::int64_t batch);
// The positions of group g: [floor(g b / G), floor((g + 1) b / G)).
Range Group(std::int64_t batch, std::int64_t group);

// Thread-safe: immutable.
class Batches {
 public:
  // `samples` and `batch` are at least 1.
  Batches(std::int64_t samples, std::int64_t batch, std::uint64_t seed);

  struct Position {
    std::int64_t epoch = 0;  // from 1
    Range positions;         // of the epoch's order
  };

  std::int64_t samples() const { return samples_; }
  // Samples of a step; an epoch's last may have fewer.
  std::int64_t batch() const { return batch_; }
  std::int64_t StepsPerEpoch() const;

  // Where step `step` (from 1) lies.
  Position At(std::int64_t step) const;

  // Samples in the batch of `step`.
  std::int64_t BatchSize(std::int64_t step) const { return At(step).positions.size(); }

  // Samples used by steps 1 to `step`, every epoch's counted anew.
  std::int64_t SamplesUpTo(std::int64_t step) const;

  // The ids of the samples at `positions` of the batch of `step` (0 is the batch's first).
  std::vector<std::int64_t> SampleIds(std::int64_t step, Range positions) const;
  // All of them.
  std::vector<std::int64_t> SampleIds(std::int64_t step) const;

  // {"epoch":1,"step":7,"samples":[3,1,4]}, without a newline.
  std::string AuditLine(std::int64_t step) const;

 private:
  const std::int64_t samples_;
  const std::int64_t batch_;
  const std::uint64_t seed_;
};

}  // namespace starling::data
