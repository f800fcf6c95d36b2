// SPDX-License-Identifier: Apache-2.0
// The course of training: counters that belong to the replicated state, and the pure rules that
// decide from them what comes next (validate? learn on? stop?).
//
// Every member decides alike, since it decides from equal states and equal sums. To add a stop
// rule: a function here, its place in Judge, its test.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "trainer/data/batches.h"
#include "trainer/workload/workload.h"

namespace starling::v1alpha1 {
class Stop;
class Validation;
}  // namespace starling::v1alpha1

namespace starling::worker {

using workload::Values;

// Plain bytes: it travels with the parameters (every number has 8 bytes; there is no padding). The
// values of metrics stand in the order in which the workload names them: loss first.
struct Course {
  int64_t step = 0;            // updates applied
  Values training = {};        // means over the batch of that step
  int64_t validated_step = 0;  // the newest state that was validated; 0 none
  Values validation = {};      // means over the validation set
  Values best = {};            // of the validation with the lowest loss, or at the target
  int64_t best_step = 0;       // when that was; 0: none was made
  int64_t without_gain = 0;    // validations since then
};

// The step after which training ends if nothing ends it sooner: `stop`'s epochs and steps,
// whichever comes first.
int64_t TotalSteps(const v1alpha1::Stop& stop, const data::Batches& batches);

// Whether this state is to be validated: at the end of every so many epochs, and at the end. What
// could not be validated then is due until it was (Outcome::of_state_before).
bool ValidationDue(const Course& course, int64_t total_steps,
                   const v1alpha1::Validation& validation, const data::Batches& batches);

// Names of a workload's metrics.
using Names = std::span<const std::string>;

// `course` after its state was validated with these means. True as `best` when no earlier state had
// a lower loss, and when it reaches the target: it is what was asked for, whatever its loss.
struct Validated {
  Course course;
  bool best = false;
};
Validated AfterValidation(Course course, const Values& means, const v1alpha1::Stop& stop,
                          Names names);

// INVALID_ARGUMENT when the target of `stop` names no metric of the workload.
absl::Status CheckTarget(const v1alpha1::Stop& stop, Names names);

// Whether the target of `stop`, if any, is met by the newest validation.
bool TargetReached(const Course& course, const v1alpha1::Stop& stop, Names names);

// Whether this state, just validated, ends training: target met or patience exhausted.
bool EndsTraining(const Course& course, const v1alpha1::Stop& stop,
                  const v1alpha1::Validation& validation, Names names);

// What people see: the training metrics by their names and, if validated, each as validation/<name>
// too. `best`: of the best validation instead of the newest.
std::map<std::string, double> Metrics(const Course& course, Names names, bool best);

}  // namespace starling::worker
