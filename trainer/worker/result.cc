// SPDX-License-Identifier: Apache-2.0
#include "trainer/worker/result.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/status/macros.h"

namespace starling::worker {
namespace {

// Nine digits give a float back bit by bit.
std::string Join(const std::vector<float>& values) {
  return absl::StrJoin(values, ",", [](std::string* out, float value) {
    absl::StrAppendFormat(out, "%.9g", static_cast<double>(value));
  });
}

}  // namespace

std::map<std::string, std::string> ModelMetadata(const data::Dataset& train,
                                                 const std::optional<data::Normalization>& scale) {
  std::map<std::string, std::string> metadata = {
      {"format", "pt"},
      {"starling.inputShape", absl::StrJoin(train.shape, ",")},
      {"starling.classes", absl::StrCat(train.classes)},
  };
  if (scale) {
    metadata["starling.normalization.mean"] = Join(scale->mean);
    metadata["starling.normalization.std"] = Join(scale->std);
  }
  return metadata;
}

absl::StatusOr<v1alpha1::Result> WriteResult(storage::BlobStore& storage,
                                             const TrainingState& state, const Course& course,
                                             const v1alpha1::Stop& stop,
                                             const data::Batches& batches,
                                             const std::map<std::string, std::string>& metadata) {
  const bool best = state.keeps_best();
  // The newest parameters are the best ones when no validation was better.
  const bool newest_is_best = course.best_step == 0 || course.best_step == course.step;
  return WriteResult(storage, state.ModelView(best && !newest_is_best), best, course, stop, batches,
                     metadata);
}

absl::StatusOr<v1alpha1::Result> WriteResult(storage::BlobStore& storage,
                                             const std::vector<checkpoint::TensorView>& tensors,
                                             bool best, const Course& course,
                                             const v1alpha1::Stop& stop,
                                             const data::Batches& batches,
                                             const std::map<std::string, std::string>& metadata) {
  ASSIGN_OR_RETURN(const std::string digest,
                   checkpoint::WriteModel(storage, checkpoint::kModel, tensors, metadata));
  v1alpha1::Result result;
  for (const auto& [name, value] : Metrics(course, best)) (*result.mutable_metrics())[name] = value;
  result.set_steps(course.step);
  result.set_samples(batches.SamplesUpTo(course.step));
  result.set_epochs(course.step / batches.StepsPerEpoch());
  if (stop.has_target()) result.set_target_reached(TargetReached(course, stop));
  result.mutable_model()->set_uri(storage.UriOf(checkpoint::kModel));
  result.mutable_model()->set_sha256(digest);
  return result;
}

}  // namespace starling::worker
