// SPDX-License-Identifier: Apache-2.0
#include "trainer/workload/regression.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "api/network/plan.h"
#include "api/spec/contract.h"
#include "common/json/json.h"
#include "common/status/macros.h"
#include "nlohmann/json.hpp"
#include "starling/v1alpha1/training_job.pb.h"
#include "trainer/workload/dense.h"
#include "trainer/workload/number_loss.h"

namespace starling::workload {
namespace {

Declaration DeclareNumbers(const data::Datasets& datasets, const engine::Engine& engine,
                           std::string numeric_identity, Description description) {
  Declaration declaration = DeclareDense(datasets);
  declaration.model_metadata.merge(std::move(description));
  declaration.metrics = {"loss", "rmse", "r2"};
  declaration.roots = {"rmse"};
  declaration.tensors.assign(engine.tensors().begin(), engine.tensors().end());
  declaration.buckets.assign(engine.buckets().begin(), engine.buckets().end());
  declaration.numeric_identity = std::move(numeric_identity);
  declaration.model_metadata["starling.outputs"] = absl::StrCat(datasets.train.outputs);
  if (!datasets.train.target_names.empty()) {
    declaration.model_metadata["starling.outputNames"] =
        json::Dump(nlohmann::json(datasets.train.target_names));
  }
  return declaration;
}

Sums SumsOfNumbers(const engine::BatchSums& sums, std::span<const double> variances,
                   std::size_t samples) {
  const auto count = static_cast<double>(samples);
  if (samples == 0) return Sums(3);
  const double squares = std::accumulate(sums.squares.begin(), sums.squares.end(), 0.0);
  return {{sums.loss, count},
          {squares / static_cast<double>(variances.size()), count},
          {Explained(sums.squares, variances, count), count}};
}

std::string LossNameOf(const v1alpha1::Regression& regression) {
  if (!regression.has_loss()) return std::string(kDefaultLoss);
  return spec::EnumText(
      *v1alpha1::RegressionLoss_descriptor()->FindValueByNumber(regression.loss()));
}

}  // namespace

std::vector<double> VariancesOf(const data::Dataset& set) {
  const auto outputs = static_cast<std::size_t>(set.outputs);
  const auto samples = static_cast<double>(set.size());
  std::vector<double> means(outputs), variances(outputs);
  for (std::size_t i = 0; i < set.targets.size(); ++i) {
    means[i % outputs] += double{set.targets[i]} / samples;
  }
  for (std::size_t i = 0; i < set.targets.size(); ++i) {
    const double off = double{set.targets[i]} - means[i % outputs];
    variances[i % outputs] += off * off / samples;
  }
  return variances;
}

double Explained(std::span<const double> squares, std::span<const double> variances,
                 double samples) {
  double sum = 0;
  for (std::size_t i = 0; i < variances.size(); ++i) {
    if (variances[i] > 0) sum += samples - squares[i] / variances[i];
  }
  return sum / static_cast<double>(variances.size());
}

Regression::Regression(data::Datasets datasets, std::unique_ptr<engine::Engine> engine,
                       std::string numeric_identity, Description description)
    : Workload(
          DeclareNumbers(datasets, *engine, std::move(numeric_identity), std::move(description))),
      datasets_(std::move(datasets)),
      engine_(std::move(engine)),
      train_variances_(VariancesOf(datasets_.train)),
      validation_variances_(datasets_.validation ? VariancesOf(*datasets_.validation)
                                                 : std::vector<double>()) {}

absl::StatusOr<Sums> Regression::Compute(std::span<const std::int64_t> samples,
                                         const Client& client) {
  const data::Dataset& set = datasets_.train;
  features_.resize(samples.size() * static_cast<std::size_t>(set.SampleSize()));
  targets_.resize(samples.size() * static_cast<std::size_t>(set.outputs));
  data::GatherTargets(set, samples, features_, targets_);
  client.loaded();
  engine_->NextSamples(samples, client.epoch);
  ASSIGN_OR_RETURN(const engine::BatchSums sums,
                   engine_->FitNumbers(features_, targets_, client.push));
  return SumsOfNumbers(sums, train_variances_, samples.size());
}

absl::StatusOr<Sums> Regression::Evaluate(std::int64_t begin, std::int64_t end) {
  const data::Dataset& set = *datasets_.validation;
  const auto part = [&](std::span<const float> all, std::int64_t each) {
    return all.subspan(static_cast<std::size_t>(begin * each),
                       static_cast<std::size_t>((end - begin) * each));
  };
  ASSIGN_OR_RETURN(const engine::BatchSums sums,
                   engine_->EvaluateNumbers(part(set.features, set.SampleSize()),
                                            part(set.targets, set.outputs)));
  return SumsOfNumbers(sums, validation_variances_, static_cast<std::size_t>(end - begin));
}

data::Form RegressionForm(const v1alpha1::TrainingJobSpec& /*spec*/) {
  return {.kind = data::Form::Kind::kNumbers};
}

Opener BeginRegression(const v1alpha1::TrainingJobSpec& spec) {
  return [&spec, library = BeginToLoadEngine()]() -> absl::StatusOr<std::unique_ptr<Workload>> {
    ASSIGN_OR_RETURN(data::Datasets datasets, data::LoadDatasets(spec, RegressionForm(spec)));
    network::Described described = network::ModelOf(spec.workload());
    described.task.classes = datasets.train.outputs;
    engine::EngineConfig config;
    ASSIGN_OR_RETURN(config.network,
                     network::PlanNetwork(described.model, datasets.train.shape, described.task));
    const std::string loss = LossNameOf(spec.workload().regression());
    config.loss = LossOf(loss).value();
    ASSIGN_OR_RETURN(OpenedNetwork opened,
                     OpenNetwork(spec, library, std::move(config), datasets.digest));
    opened.description["starling.loss"] = loss;
    return std::make_unique<Regression>(std::move(datasets), std::move(opened.engine),
                                        std::move(opened.numeric_identity),
                                        std::move(opened.description));
  };
}

}  // namespace starling::workload
