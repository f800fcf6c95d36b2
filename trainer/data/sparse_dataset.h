// SPDX-License-Identifier: Apache-2.0
// Sparse samples in memory: what the libsvm loader makes and sparse models read.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace starling::data {

// Sample i has the features [offsets[i], offsets[i + 1]) of `features` and `values`, ascending,
// each once, and a label: the number to be predicted, or of two classes a number above 0 or not.
struct SparseDataset {
  std::vector<std::uint64_t> offsets = {0};
  std::vector<std::uint64_t> features;  // below `hashed`
  std::vector<float> values;
  std::vector<float> labels;
  std::uint64_t hashed = 0;

  std::int64_t size() const { return static_cast<std::int64_t>(labels.size()); }
  std::span<const std::uint64_t> FeaturesOf(std::int64_t sample) const {
    const auto i = static_cast<std::size_t>(sample);
    return std::span(features).subspan(offsets[i], offsets[i + 1] - offsets[i]);
  }
  std::span<const float> ValuesOf(std::int64_t sample) const {
    const auto i = static_cast<std::size_t>(sample);
    return std::span(values).subspan(offsets[i], offsets[i + 1] - offsets[i]);
  }
};

// SHA-256 of everything above, in hexadecimal.
std::string DigestOf(const SparseDataset& dataset);

// Which of `hashed` weights feature `number` uses (Weinberger et al. 2009, without the sign).
std::uint64_t HashedFeature(std::uint64_t number, std::uint64_t hashed);

}  // namespace starling::data
