// SPDX-License-Identifier: Apache-2.0
// For tests: sparse samples that can be learned.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <set>
#include <vector>

#include "trainer/data/sparse_dataset.h"

namespace starling::workload {

// `count` samples of `per_sample` of `features` features each, told apart by weights that are to be
// learned. The same ones each time.
inline std::shared_ptr<const data::SparseDataset> RandomSamples(std::size_t count,
                                                                std::uint64_t features,
                                                                std::size_t per_sample) {
  std::mt19937 random(11);
  std::normal_distribution<float> normal;
  std::vector<float> truth(features);
  for (float& value : truth) value = normal(random);
  auto samples = std::make_shared<data::SparseDataset>();
  samples->hashed = features;
  for (std::size_t i = 0; i < count; ++i) {
    std::set<std::uint64_t> used;
    while (used.size() < per_sample) used.insert(random() % features);
    double score = 0;
    for (const std::uint64_t feature : used) {
      samples->features.push_back(feature);
      samples->values.push_back(normal(random));
      score += double{truth[feature]} * double{samples->values.back()};
    }
    samples->offsets.push_back(samples->features.size());
    samples->labels.push_back(score > 0 ? 1 : -1);
  }
  return samples;
}

}  // namespace starling::workload
