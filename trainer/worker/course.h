// SPDX-License-Identifier: Apache-2.0
// The course of training: counters that belong to the replicated state, and the pure rules that
// decide from them what comes next (validate? learn on? stop?).
//
// Every member decides alike, since it decides from equal states and equal sums. To add a stop
// rule: a function here, its place in Judge, its test.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <string>

#include "trainer/data/batches.h"

namespace starling::v1alpha1 {
class Stop;
class Validation;
}  // namespace starling::v1alpha1

namespace starling::worker {

// Plain bytes: it travels with the parameters (every field has 8 bytes; there is no padding).
struct Course {
  int64_t step = 0;            // updates applied
  double loss = 0;             // mean over the batch of that step
  int64_t validated_step = 0;  // the newest state that was validated; 0 none
  double validation_loss = 0;  // mean over its samples
  double validation_accuracy = 0;
  double best_loss = std::numeric_limits<double>::infinity();  // of all validations
  double best_accuracy = 0;                                    // at the same state
  int64_t best_step = 0;
  int64_t without_gain = 0;  // validations since then
};

// Mean loss and share of correct answers of one validation.
struct Score {
  double loss = 0;
  double accuracy = 0;
};

// The step after which training ends if nothing ends it sooner: `stop`'s epochs and steps,
// whichever comes first.
int64_t TotalSteps(const v1alpha1::Stop& stop, const data::Batches& batches);

// Whether state `step` is to be validated: at the end of every so many epochs, and at the end.
bool ValidationDue(int64_t step, int64_t total_steps, const v1alpha1::Validation& validation,
                   const data::Batches& batches);

// `course` after its state was validated with this outcome. True as `best` when no earlier state
// had a lower loss.
struct Validated {
  Course course;
  bool best = false;
};
Validated AfterValidation(Course course, const Score& score);

// Whether the target of `stop`, if any, is met by the newest validation.
bool TargetReached(const Course& course, const v1alpha1::Stop& stop);

// Whether this state, just validated, ends training: target met or patience exhausted.
bool EndsTraining(const Course& course, const v1alpha1::Stop& stop,
                  const v1alpha1::Validation& validation);

// What people see, by name: loss and, if validated, validation/loss and validation/accuracy.
// `best`: of the best state instead of the newest.
std::map<std::string, double> Metrics(const Course& course, bool best);

}  // namespace starling::worker
