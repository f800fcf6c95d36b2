// SPDX-License-Identifier: Apache-2.0
#include "trainer/worker/course.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "starling/v1alpha1/training_job.pb.h"

namespace starling::worker {
namespace {

constexpr char kValidation[] = "validation/";

// The place of `validation/<name>` among the names.
std::optional<size_t> Find(std::string_view metric, Names names) {
  if (!metric.starts_with(kValidation)) return std::nullopt;
  const auto found = std::ranges::find(names, metric.substr(sizeof(kValidation) - 1));
  if (found == names.end()) return std::nullopt;
  return found - names.begin();
}

}  // namespace

int64_t TotalSteps(const v1alpha1::Stop& stop, const data::Batches& batches) {
  int64_t total = std::numeric_limits<int64_t>::max();
  const int64_t per_epoch = batches.StepsPerEpoch();
  if (stop.has_epochs() && stop.epochs() < total / per_epoch) total = stop.epochs() * per_epoch;
  if (stop.has_steps()) total = std::min(total, stop.steps());
  return total;
}

bool ValidationDue(const Course& course, int64_t total_steps,
                   const v1alpha1::Validation& validation, const data::Batches& batches) {
  if (course.step < 1) return false;
  if (course.step >= total_steps) return true;
  const int64_t every = std::max<int64_t>(1, validation.every_epochs()) * batches.StepsPerEpoch();
  return course.validated_step < course.step / every * every;
}

Validated AfterValidation(Course course, const Values& means, const v1alpha1::Stop& stop,
                          Names names) {
  course.validated_step = course.step;
  course.validation = means;
  const double lowest =
      course.best_step == 0 ? std::numeric_limits<double>::infinity() : course.best[0];
  const bool best = means[0] < lowest || TargetReached(course, stop, names);
  if (best) {
    course.best = means;
    course.best_step = course.step;
    course.without_gain = 0;
  } else {
    ++course.without_gain;
  }
  return {course, best};
}

absl::Status CheckTarget(const v1alpha1::Stop& stop, Names names) {
  if (!stop.has_target() || Find(stop.target().metric(), names)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "spec.stop.target.metric: the workload has no metric ", stop.target().metric(), "; it has ",
      absl::StrJoin(names, ", ", [](std::string* out, const std::string& name) {
        absl::StrAppend(out, kValidation, name);
      })));
}

bool TargetReached(const Course& course, const v1alpha1::Stop& stop, Names names) {
  if (!stop.has_target() || course.validated_step == 0) return false;
  const v1alpha1::Target& target = stop.target();
  const std::optional<size_t> metric = Find(target.metric(), names);
  if (!metric) return false;
  const double value = course.validation[*metric];
  if (target.bound_case() == v1alpha1::Target::kAtLeast) return value >= target.at_least();
  return target.bound_case() == v1alpha1::Target::kAtMost && value <= target.at_most();
}

bool EndsTraining(const Course& course, const v1alpha1::Stop& stop,
                  const v1alpha1::Validation& validation, Names names) {
  if (TargetReached(course, stop, names)) return true;
  return validation.patience() > 0 && course.without_gain >= validation.patience();
}

std::map<std::string, double> Metrics(const Course& course, Names names, bool best) {
  std::map<std::string, double> metrics;
  const Values& validation = best ? course.best : course.validation;
  for (size_t i = 0; i < names.size(); ++i) {
    if (course.step > 0) metrics[names[i]] = course.training[i];
    if (course.validated_step > 0) metrics[absl::StrCat(kValidation, names[i])] = validation[i];
  }
  return metrics;
}

}  // namespace starling::worker
