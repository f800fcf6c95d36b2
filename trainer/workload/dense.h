// SPDX-License-Identifier: Apache-2.0
// What all workloads over dense samples do alike: declare them, and read them wherever they lie.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "trainer/data/load_datasets.h"
#include "trainer/workload/workload.h"

namespace starling::workload {

// Numbers of samples, the data's digest, and for the model file the samples' shape and how they
// were scaled.
Declaration DeclareDense(const data::Datasets& datasets);

// Features and labels of samples, valid until the next call. Confined to one thread.
class DenseSamples {
 public:
  struct View {
    std::span<const float> features;
    std::span<const std::int64_t> labels;
  };
  // These samples as they are in pass `epoch`, from 1. The reader's errors.
  absl::StatusOr<View> Gather(const data::Dataset& set, std::span<const std::int64_t> samples,
                              std::int64_t epoch);
  // [begin, end) as they lie there; where they are read, those that follow are meanwhile.
  absl::StatusOr<View> Range(const data::Dataset& set, std::int64_t begin, std::int64_t end);

 private:
  std::vector<float> features_;
  std::vector<std::int64_t> labels_;
};

}  // namespace starling::workload
