// SPDX-License-Identifier: Apache-2.0
// Lessons that are learned through a codec: four workers, each with a batch of its own,
// add their gradients by the allreduce of jobs (collectives/encoded_allreduce.h), so each byte that
// is counted was sent.
#pragma once

#include <cstdint>
#include <memory>

#include "starling/v1alpha1/training_job.pb.h"
#include "tests/techniques/lesson.h"
#include "trainer/compression/codec.h"
#include "trainer/compression/compressor.h"

namespace starling::techniques {

inline constexpr int kCodecWorkers = 4;
inline constexpr std::int64_t kCodecBatch = 16;  // of each

// With the settings of `spec`, which are right.
std::unique_ptr<compression::Codec> CodecOf(const v1alpha1::Codec& spec);

// The digits with a hidden layer that is worth encoding, or MNIST.
Lesson CodecLesson(const Setting& setting);

// How the lesson is learned.
struct Way {
  v1alpha1::Codec codec = {};
  compression::CompressorOptions options = {};
  double rate = 1;         // times the lesson's
  double momentum = 0;     // of the optimizer
  std::int64_t local = 1;  // steps that a worker makes by itself between two updates
};
struct Learned {
  double accuracy = 0;  // in points
  double loss = 0;      // over the training set
  double sent = 0;      // bytes of a worker
  double dense = 0;     // of floats in a ring, an update each step
};

// After all samples of the lesson; the same seed gives the same bits.
Learned Learn(const Lesson& lesson, std::uint64_t seed, Way way);

}  // namespace starling::techniques
