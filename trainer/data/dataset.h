// SPDX-License-Identifier: Apache-2.0
// What every loader makes and the training loop reads: samples in memory, or a reader of samples
// that lie elsewhere (sample_reader.h).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "trainer/data/sample_reader.h"

namespace starling::data {

// x -> (x - mean) / std, kept with the model: whoever uses the model scales its inputs so. One
// value for all features (images) or one a feature (tables); a feature that never varies has std 1.
struct Normalization {
  std::vector<float> mean;
  std::vector<float> std;
};

// `size()` samples of one shape, each with a class or with numbers to be predicted. Sample i's
// features are features[i * SampleSize(), (i + 1) * SampleSize()), row-major in `shape`.
struct Dataset {
  std::vector<float> features;
  std::vector<std::int64_t> labels;  // each in [0, classes); empty where there are targets
  std::vector<float> targets = {};   // `outputs` a sample; empty where there are classes
  std::int64_t outputs = 1;          // numbers to be predicted of a sample
  std::vector<std::string> target_names = {};  // of these numbers; empty where they have none
  std::vector<std::int64_t> shape;             // of one sample, such as {1, 8, 8}
  std::int64_t classes = 0;
  std::vector<std::string> class_names = {};  // by number; empty where they have none
  // Not null: the three lists are empty, and samples, which have classes, come from here. They are
  // scaled when they are read.
  std::shared_ptr<SampleReader> reader = {};
  std::optional<Normalization> scale = {};

  std::int64_t size() const;
  std::int64_t SampleSize() const;
};

// Copies the samples `ids`, which have classes and are in memory, into `features`
// (ids.size() * SampleSize() floats) and `labels`.
void Gather(const Dataset& dataset, std::span<const std::int64_t> ids, std::span<float> features,
            std::span<std::int64_t> labels);

// The same of samples with numbers to be predicted: ids.size() * outputs of them.
void GatherTargets(const Dataset& dataset, std::span<const std::int64_t> ids,
                   std::span<float> features, std::span<float> targets);

// The same as Gather of samples wherever they are, as they are in pass `epoch` over the set, from
// 1; 0: as they lie there, for judging. The reader's errors.
absl::Status Read(const Dataset& dataset, std::span<const std::int64_t> ids, std::int64_t epoch,
                  std::span<float> features, std::span<std::int64_t> labels);

// x -> (x - mean) / std of each sample in `features`.
void Apply(const Normalization& scale, std::span<float> features);

// SHA-256 of everything above, in hexadecimal: two workers that name the same digest train on the
// same bytes, or, where a reader reads them, on what it calls the same.
std::string DigestOf(const Dataset& dataset);

}  // namespace starling::data
