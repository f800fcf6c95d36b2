// SPDX-License-Identifier: Apache-2.0
#include "trainer/worker/result.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/status/macros.h"

namespace starling::worker {

absl::StatusOr<v1alpha1::Result> WriteResult(storage::BlobStore& storage,
                                             const TrainingState& state, const Course& course,
                                             const v1alpha1::Stop& stop,
                                             const data::Batches& batches,
                                             const std::map<std::string, std::string>& metadata) {
  const bool best = state.keeps_best();
  // The newest parameters are the best ones when no validation was better.
  const bool newest_is_best = course.best_step == 0 || course.best_step == course.step;
  return WriteResult(storage, state.ModelView(best && !newest_is_best), best, course,
                     state.metrics(), stop, batches, metadata);
}

absl::StatusOr<v1alpha1::Result> WriteResult(storage::BlobStore& storage,
                                             const std::vector<checkpoint::TensorView>& tensors,
                                             bool best, const Course& course, Names metrics,
                                             const v1alpha1::Stop& stop,
                                             const data::Batches& batches,
                                             const std::map<std::string, std::string>& metadata) {
  ASSIGN_OR_RETURN(const std::string digest,
                   checkpoint::WriteModel(storage, checkpoint::kModel, tensors, metadata));
  v1alpha1::Result result;
  for (const auto& [name, value] : Metrics(course, metrics, best)) {
    if (std::isfinite(value)) (*result.mutable_metrics())[name] = value;
  }
  result.set_steps(course.step);
  result.set_samples(batches.SamplesUpTo(course.step));
  result.set_epochs(course.step / batches.StepsPerEpoch());
  if (stop.has_target()) result.set_target_reached(TargetReached(course, stop, metrics));
  result.mutable_model()->set_uri(storage.UriOf(checkpoint::kModel));
  result.mutable_model()->set_sha256(digest);
  return result;
}

}  // namespace starling::worker
