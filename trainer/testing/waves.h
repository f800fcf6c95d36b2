// SPDX-License-Identifier: Apache-2.0
// For tests: samples of which each class has a wave of its own, for layers with many inputs.
#pragma once

#include <cmath>
#include <cstdint>

#include "trainer/data/load_datasets.h"

namespace starling::worker {

inline data::Datasets Waves(std::int64_t inputs, std::int64_t classes, std::int64_t rows) {
  data::Datasets datasets;
  for (std::int64_t i = 0; i < rows; ++i) {
    const std::int64_t label = i * 7 % classes;
    for (std::int64_t k = 0; k < inputs; ++k) {
      datasets.train.features.push_back(
          std::sin(static_cast<float>(k * (label + 1)) / 40.0F + static_cast<float>(i) * 0.01F));
    }
    datasets.train.labels.push_back(label);
  }
  datasets.train.shape = {inputs};
  datasets.train.classes = classes;
  datasets.digest = "0123456789abcdef0123456789abcdef";
  return datasets;
}

}  // namespace starling::worker
