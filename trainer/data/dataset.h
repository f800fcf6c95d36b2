// SPDX-License-Identifier: Apache-2.0
// Samples in memory: what every loader makes and the training loop reads.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace starling::data {

// `size()` samples of one shape, each with a class or a number to be predicted. Sample i's features
// are features[i * SampleSize(), (i + 1) * SampleSize()), row-major in `shape`.
struct Dataset {
  std::vector<float> features;
  std::vector<std::int64_t> labels;  // each in [0, classes); empty where there are targets
  std::vector<float> targets = {};   // the numbers to be predicted; empty where there are classes
  std::vector<std::int64_t> shape;   // of one sample, such as {1, 8, 8}
  std::int64_t classes = 0;

  std::int64_t size() const { return static_cast<std::int64_t>(labels.size() + targets.size()); }
  std::int64_t SampleSize() const;
};

// Copies the samples `ids`, which have classes, into `features` (ids.size() * SampleSize() floats)
// and `labels`.
void Gather(const Dataset& dataset, std::span<const std::int64_t> ids, std::span<float> features,
            std::span<std::int64_t> labels);

// SHA-256 of everything above, in hexadecimal: two workers that name the same digest train on the
// same bytes.
std::string DigestOf(const Dataset& dataset);

}  // namespace starling::data
