// SPDX-License-Identifier: Apache-2.0
// Randomness as a pure function of (seed, stream, counter).
//
// Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel Random Numbers: As Easy as 1, 2, 3", SC
// 2011) has no state that workers could disagree about: whoever needs the draw of sample 17 in
// epoch 3 computes it, on any worker, in any order, before or after a restart, with the same bits
// on any processor. Everything random in training is keyed by what it is for, never by a rank. To
// add a use: give it a stream number of its own in Stream.
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace starling::random {

// What the numbers are for; two uses of one seed never share a stream.
enum class Stream : std::uint64_t {
  kSampleOrder = 1,
  kParameters = 2,
  kSyntheticTrain = 3,
  kSyntheticValidation = 4,
  kSyntheticCentres = 5,
  kDropout = 6,
  kAugmentation = 7,
  kRounding = 8,
  kSampledText = 20,
  kTest = 99,
};

using Block = std::array<std::uint32_t, 4>;

// Ten rounds of Philox4x32 on `counter` under `key`: the paper's function, bit for bit.
Block Philox4x32(const Block& counter, const std::array<std::uint32_t, 2>& key);

// One (seed, stream) pair; every draw names its counter. Thread-safe: it has no state but its key.
class Philox {
 public:
  Philox(std::uint64_t seed, Stream stream, std::uint64_t substream = 0);

  // 128 random bits, those of `counter`.
  Block At(std::uint64_t counter) const;

  std::uint64_t Bits64(std::uint64_t counter) const;

  // In [0, 1), 53 bits.
  double Uniform(std::uint64_t counter) const;

  // In [0, bound), without bias worth speaking of (2^-64 * bound). `bound` > 0.
  std::uint64_t Below(std::uint64_t counter, std::uint64_t bound) const;

  // Mean 0, variance 1 (Box and Muller 1958).
  double Normal(std::uint64_t counter) const;

  // Those of the counters from `first` on, the same bits, in a fraction of the time where there are
  // hundreds.
  void Uniforms(std::uint64_t first, std::span<double> out) const;
  void Normals(std::uint64_t first, std::span<double> out) const;

 private:
  std::array<std::uint32_t, 2> key_;
  std::uint64_t high_;
};

}  // namespace starling::random
