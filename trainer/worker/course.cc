// SPDX-License-Identifier: Apache-2.0
#include "trainer/worker/course.h"

#include <algorithm>

#include "starling/v1alpha1/training_job.pb.h"

namespace starling::worker {

int64_t TotalSteps(const v1alpha1::Stop& stop, const data::Batches& batches) {
  int64_t total = std::numeric_limits<int64_t>::max();
  const int64_t per_epoch = batches.StepsPerEpoch();
  if (stop.has_epochs() && stop.epochs() < total / per_epoch) total = stop.epochs() * per_epoch;
  if (stop.has_steps()) total = std::min(total, stop.steps());
  return total;
}

bool ValidationDue(int64_t step, int64_t total_steps, const v1alpha1::Validation& validation,
                   const data::Batches& batches) {
  if (step < 1) return false;
  if (step >= total_steps) return true;
  const data::Batches::Position at = batches.At(step);
  const int64_t every = std::max<int64_t>(1, validation.every_epochs());
  return at.ends_epoch && at.epoch % every == 0;
}

Validated AfterValidation(Course course, const Score& score) {
  course.validated_step = course.step;
  course.validation_loss = score.loss;
  course.validation_accuracy = score.accuracy;
  const bool best = score.loss < course.best_loss;
  if (best) {
    course.best_loss = score.loss;
    course.best_accuracy = score.accuracy;
    course.best_step = course.step;
    course.without_gain = 0;
  } else {
    ++course.without_gain;
  }
  return {course, best};
}

bool TargetReached(const Course& course, const v1alpha1::Stop& stop) {
  if (!stop.has_target() || course.validated_step == 0) return false;
  const v1alpha1::Target& target = stop.target();
  const std::map<std::string, double> metrics = Metrics(course, /*best=*/false);
  const auto found = metrics.find(target.metric());
  if (found == metrics.end()) return false;
  const double value = found->second;
  if (target.bound_case() == v1alpha1::Target::kAtLeast) return value >= target.at_least();
  return target.bound_case() == v1alpha1::Target::kAtMost && value <= target.at_most();
}

bool EndsTraining(const Course& course, const v1alpha1::Stop& stop,
                  const v1alpha1::Validation& validation) {
  if (TargetReached(course, stop)) return true;
  return validation.patience() > 0 && course.without_gain >= validation.patience();
}

std::map<std::string, double> Metrics(const Course& course, bool best) {
  std::map<std::string, double> metrics;
  if (course.step > 0) metrics["loss"] = course.loss;
  if (course.validated_step == 0) return metrics;
  metrics["validation/loss"] = best ? course.best_loss : course.validation_loss;
  metrics["validation/accuracy"] = best ? course.best_accuracy : course.validation_accuracy;
  return metrics;
}

}  // namespace starling::worker
