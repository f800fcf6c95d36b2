// SPDX-License-Identifier: Apache-2.0
// Lessons that are learned in numbers of fewer than 32 bits, or by an optimizer that sees whole
// tensors: workers that each hold the training state of jobs (worker/training_state.h) add up their
// gradients and apply the sum.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "starling/v1alpha1/training_job.pb.h"
#include "tests/techniques/lesson.h"

namespace starling::techniques {

struct NumericWay {
  v1alpha1::Numerics numerics = {};
  v1alpha1::Optimizer optimizer = {};  // its learning rate is `rate`
  double rate = 0;                     // of the mean gradient; 0: the lesson's
  std::int64_t batch = 64;             // of all workers together
  // At this step an element of the second worker's gradient is infinite.
  std::int64_t infinite_at = 0;
  // Each decides by its own gradient whether it skips a step, not by the sum.
  bool judged_alone = false;
};

struct NumericLearned {
  double accuracy = 0;         // in points
  double loss = 0;             // over the training set
  double skipped = 0;          // steps, by the first worker
  double different = 0;        // weights that are not the same bits at all workers, or no numbers
  std::vector<float> weights;  // of the first
  std::map<std::string, double> told;  // Numerics::Told, of the first
};

inline constexpr int kNumericWorkers = 4;

// The digits, or MNIST, for so many samples; 0: the lesson's.
Lesson NumericLesson(const Setting& setting);
NumericLearned LearnIn(const Lesson& lesson, std::uint64_t seed, const NumericWay& way,
                       std::int64_t samples = 0);

}  // namespace starling::techniques
