// SPDX-License-Identifier: Apache-2.0
#include "trainer/workload/classification.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "api/network/plan.h"
#include "common/status/macros.h"
#include "starling/v1alpha1/training_job.pb.h"
#include "trainer/workload/dense.h"
#include "trainer/workload/network_engine.h"

namespace starling::workload {
namespace {

constexpr std::int64_t kTop = 5;  // of so few classes each is always among them

Declaration DeclareClasses(const data::Datasets& datasets, const engine::Engine& engine,
                           std::string numeric_identity, Description description) {
  Declaration declaration = DeclareDense(datasets);
  declaration.reads_ahead = datasets.train.reader != nullptr;
  declaration.model_metadata.merge(std::move(description));
  declaration.metrics = {"loss", "accuracy"};
  if (datasets.train.classes > kTop) declaration.metrics.emplace_back("top5Accuracy");
  declaration.tensors.assign(engine.tensors().begin(), engine.tensors().end());
  declaration.buckets.assign(engine.buckets().begin(), engine.buckets().end());
  declaration.numeric_identity = std::move(numeric_identity);
  declaration.model_metadata["starling.classes"] = absl::StrCat(datasets.train.classes);
  if (!datasets.train.class_names.empty()) {
    // Names of folders, which hold no slash.
    declaration.model_metadata["starling.classNames"] =
        absl::StrJoin(datasets.train.class_names, "/");
  }
  return declaration;
}

// The first `metrics` of loss, accuracy and top5Accuracy.
Sums ToSums(const engine::BatchSums& sums, std::size_t samples, std::size_t metrics) {
  const auto count = static_cast<double>(samples);
  Sums all = {{sums.loss, count},
              {static_cast<double>(sums.correct), count},
              {static_cast<double>(sums.in_top), count}};
  all.resize(metrics);
  return all;
}

}  // namespace

Classification::Classification(data::Datasets datasets, std::unique_ptr<engine::Engine> engine,
                               std::string numeric_identity, Description description)
    : Workload(
          DeclareClasses(datasets, *engine, std::move(numeric_identity), std::move(description))),
      datasets_(std::move(datasets)),
      engine_(std::move(engine)) {}

absl::StatusOr<Sums> Classification::Compute(std::span<const std::int64_t> samples,
                                             const Client& client) {
  features_.resize(samples.size() * static_cast<std::size_t>(datasets_.train.SampleSize()));
  labels_.resize(samples.size());
  RETURN_IF_ERROR(data::Read(datasets_.train, samples, client.epoch, features_, labels_));
  client.loaded();
  engine_->NextSamples(samples, client.epoch);
  ASSIGN_OR_RETURN(const engine::BatchSums sums,
                   engine_->ComputeGradients(features_, labels_, client.push));
  return ToSums(sums, samples.size(), declaration().metrics.size());
}

void Classification::Expect(std::span<const std::int64_t> samples, std::int64_t epoch) {
  if (datasets_.train.reader != nullptr) datasets_.train.reader->Expect(samples, epoch);
}

// While these are computed, those that follow are read.
absl::StatusOr<Sums> Classification::EvaluateRead(std::int64_t begin, std::int64_t end) {
  const data::Dataset& set = *datasets_.validation;
  std::vector<std::int64_t> ids(static_cast<std::size_t>(end - begin));
  std::iota(ids.begin(), ids.end(), begin);
  features_.resize(ids.size() * static_cast<std::size_t>(set.SampleSize()));
  labels_.resize(ids.size());
  std::vector<std::int64_t> next(static_cast<std::size_t>(std::min(end - begin, set.size() - end)));
  std::iota(next.begin(), next.end(), end);
  set.reader->Expect(ids, 0);
  set.reader->Expect(next, 0);
  RETURN_IF_ERROR(data::Read(set, ids, 0, features_, labels_));
  ASSIGN_OR_RETURN(const engine::BatchSums sums, engine_->Evaluate(features_, labels_));
  return ToSums(sums, ids.size(), declaration().metrics.size());
}

absl::StatusOr<Sums> Classification::Evaluate(std::int64_t begin, std::int64_t end) {
  const data::Dataset& set = *datasets_.validation;
  if (set.reader != nullptr) return EvaluateRead(begin, end);
  const auto sample = static_cast<std::size_t>(set.SampleSize());
  const auto first = static_cast<std::size_t>(begin);
  const auto count = static_cast<std::size_t>(end - begin);
  ASSIGN_OR_RETURN(
      const engine::BatchSums sums,
      engine_->Evaluate(std::span(set.features).subspan(first * sample, count * sample),
                        std::span(set.labels).subspan(first, count)));
  return ToSums(sums, count, declaration().metrics.size());
}

data::Form ClassificationForm(const v1alpha1::TrainingJobSpec& /*spec*/) {
  return {.kind = data::Form::Kind::kClasses};
}

Opener BeginClassification(const v1alpha1::TrainingJobSpec& spec) {
  return [&spec, library = BeginToLoadEngine()]() -> absl::StatusOr<std::unique_ptr<Workload>> {
    ASSIGN_OR_RETURN(data::Datasets datasets, data::LoadDatasets(spec, ClassificationForm(spec)));
    ASSIGN_OR_RETURN(const engine::EngineConfig config, EngineConfigOf(spec, datasets.train));
    ASSIGN_OR_RETURN(OpenedNetwork opened, OpenNetwork(spec, library, config, datasets.digest));
    return std::make_unique<Classification>(std::move(datasets), std::move(opened.engine),
                                            std::move(opened.numeric_identity),
                                            std::move(opened.description));
  };
}

absl::StatusOr<engine::EngineConfig> EngineConfigOf(const v1alpha1::TrainingJobSpec& spec,
                                                    const data::Dataset& train) {
  engine::EngineConfig config;
  ASSIGN_OR_RETURN(config.network, network::PlanNetwork(spec.workload().classification().model(),
                                                        train.shape, train.classes));
  const v1alpha1::Classification& classification = spec.workload().classification();
  const int weights = classification.class_weights_size();
  if (weights > 0 && weights != train.classes) {
    return absl::InvalidArgumentError(
        absl::StrCat("spec.workload.classification.classWeights: has ", weights,
                     " weights, but the data have ", train.classes, " classes; give one for each"));
  }
  config.class_weights.assign(classification.class_weights().begin(),
                              classification.class_weights().end());
  config.label_smoothing = classification.label_smoothing();
  if (train.classes > kTop) config.top = kTop;
  return config;
}

}  // namespace starling::workload
