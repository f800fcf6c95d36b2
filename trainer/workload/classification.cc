// SPDX-License-Identifier: Apache-2.0
#include "trainer/workload/classification.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "api/network/plan.h"
#include "common/status/macros.h"
#include "starling/v1alpha1/training_job.pb.h"
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
  ASSIGN_OR_RETURN(const DenseSamples::View view,
                   samples_.Gather(datasets_.train, samples, client.epoch));
  client.loaded();
  engine_->NextSamples(samples, client.epoch);
  engine_->ScaleLoss(static_cast<float>(client.loss_scale));
  ASSIGN_OR_RETURN(const engine::BatchSums sums,
                   engine_->ComputeGradients(view.features, view.labels, client.push));
  return ToSums(sums, samples.size(), declaration().metrics.size());
}

void Classification::Expect(std::span<const std::int64_t> samples, std::int64_t epoch) {
  if (datasets_.train.reader != nullptr) datasets_.train.reader->Expect(samples, epoch);
}

absl::StatusOr<Sums> Classification::Evaluate(std::int64_t begin, std::int64_t end) {
  ASSIGN_OR_RETURN(const DenseSamples::View view,
                   samples_.Range(*datasets_.validation, begin, end));
  ASSIGN_OR_RETURN(const engine::BatchSums sums, engine_->Evaluate(view.features, view.labels));
  return ToSums(sums, view.labels.size(), declaration().metrics.size());
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
