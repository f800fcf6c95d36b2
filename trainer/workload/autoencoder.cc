// SPDX-License-Identifier: Apache-2.0
#include "trainer/workload/autoencoder.h"

#include <numeric>
#include <utility>

#include "api/network/plan.h"
#include "api/spec/contract.h"
#include "common/status/macros.h"
#include "starling/v1alpha1/training_job.pb.h"
#include "trainer/workload/number_loss.h"

namespace starling::workload {
namespace {

Declaration DeclareRebuilt(const data::Datasets& datasets, const engine::Engine& engine,
                           std::string numeric_identity, Description description) {
  Declaration declaration = DeclareDense(datasets);
  declaration.reads_ahead = datasets.train.reader != nullptr;
  declaration.model_metadata.merge(std::move(description));
  declaration.metrics = {"loss", "rmse"};
  declaration.roots = {"rmse"};
  declaration.tensors.assign(engine.tensors().begin(), engine.tensors().end());
  declaration.buckets.assign(engine.buckets().begin(), engine.buckets().end());
  declaration.numeric_identity = std::move(numeric_identity);
  return declaration;
}

Sums SumsOfRebuilt(const engine::BatchSums& sums, std::size_t samples) {
  if (samples == 0) return Sums(2);
  const auto count = static_cast<double>(samples);
  const double squares = std::accumulate(sums.squares.begin(), sums.squares.end(), 0.0);
  return {{sums.loss, count}, {squares / static_cast<double>(sums.squares.size()), count}};
}

std::string LossNameOf(const v1alpha1::Autoencoder& autoencoder) {
  if (!autoencoder.has_loss()) return std::string(kDefaultLoss);
  return spec::EnumText(
      *v1alpha1::ReconstructionLoss_descriptor()->FindValueByNumber(autoencoder.loss()));
}

}  // namespace

Autoencoder::Autoencoder(data::Datasets datasets, std::unique_ptr<engine::Engine> engine,
                         std::string numeric_identity, Description description)
    : Workload(
          DeclareRebuilt(datasets, *engine, std::move(numeric_identity), std::move(description))),
      datasets_(std::move(datasets)),
      engine_(std::move(engine)) {}

absl::StatusOr<Sums> Autoencoder::Compute(std::span<const std::int64_t> samples,
                                          const Client& client) {
  ASSIGN_OR_RETURN(const DenseSamples::View view,
                   samples_.Gather(datasets_.train, samples, client.epoch));
  client.loaded();
  engine_->NextSamples(samples, client.epoch);
  ASSIGN_OR_RETURN(const engine::BatchSums sums,
                   engine_->FitNumbers(view.features, view.features, client.push));
  return SumsOfRebuilt(sums, samples.size());
}

absl::StatusOr<Sums> Autoencoder::Evaluate(std::int64_t begin, std::int64_t end) {
  ASSIGN_OR_RETURN(const DenseSamples::View view,
                   samples_.Range(*datasets_.validation, begin, end));
  ASSIGN_OR_RETURN(const engine::BatchSums sums,
                   engine_->EvaluateNumbers(view.features, view.features));
  return SumsOfRebuilt(sums, static_cast<std::size_t>(end - begin));
}

void Autoencoder::Expect(std::span<const std::int64_t> samples, std::int64_t epoch) {
  if (datasets_.train.reader != nullptr) datasets_.train.reader->Expect(samples, epoch);
}

// Images are from 0 to 1 where nobody scales them.
data::Form AutoencoderForm(const v1alpha1::TrainingJobSpec& spec) {
  return {.kind = data::Form::Kind::kSamples,
          .shares = LossOf(LossNameOf(spec.workload().autoencoder())) ==
                    engine::NumberLoss::kBinaryCrossEntropy};
}

Opener BeginAutoencoder(const v1alpha1::TrainingJobSpec& spec) {
  return [&spec, library = BeginToLoadEngine()]() -> absl::StatusOr<std::unique_ptr<Workload>> {
    ASSIGN_OR_RETURN(data::Datasets datasets, data::LoadDatasets(spec, AutoencoderForm(spec)));
    const network::Described described = network::ModelOf(spec.workload());
    engine::EngineConfig config;
    ASSIGN_OR_RETURN(config.network,
                     network::PlanNetwork(described.model, datasets.train.shape, described.task));
    const std::string loss = LossNameOf(spec.workload().autoencoder());
    config.loss = LossOf(loss).value();
    ASSIGN_OR_RETURN(OpenedNetwork opened,
                     OpenNetwork(spec, library, std::move(config), datasets.digest));
    opened.description["starling.loss"] = loss;
    return std::make_unique<Autoencoder>(std::move(datasets), std::move(opened.engine),
                                         std::move(opened.numeric_identity),
                                         std::move(opened.description));
  };
}

}  // namespace starling::workload
