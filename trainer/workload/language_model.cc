// SPDX-License-Identifier: Apache-2.0
#include "trainer/workload/language_model.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "api/network/plan.h"
#include "common/status/macros.h"
#include "starling/v1alpha1/training_job.pb.h"

namespace starling::workload {
namespace {

// Places of one forward pass in validation: bounds the memory of long samples.
constexpr std::int64_t kPlacesAtOnce = 1 << 14;

Declaration DeclareText(const data::Datasets& datasets, const engine::Engine& engine,
                        std::string numeric_identity, Description description) {
  Declaration declaration;
  declaration.metrics = {"loss", "perplexity"};
  declaration.exponentials = {"perplexity"};
  declaration.samples = datasets.text_train->size();
  if (datasets.text_validation) declaration.validation_samples = datasets.text_validation->size();
  declaration.data_digest = datasets.digest;
  declaration.tensors.assign(engine.tensors().begin(), engine.tensors().end());
  declaration.buckets.assign(engine.buckets().begin(), engine.buckets().end());
  declaration.numeric_identity = std::move(numeric_identity);
  declaration.model_metadata = std::move(description);
  declaration.model_metadata["format"] = "pt";
  declaration.model_metadata["starling.contextLength"] = absl::StrCat(datasets.text_train->context);
  declaration.model_metadata["starling.alphabet"] = datasets.text_train->alphabet.ToText();
  return declaration;
}

// Both metrics are of the loss.
Sums ToSums(double loss, std::int64_t samples) {
  const Sum sum{loss, static_cast<double>(samples)};
  return {sum, sum};
}

}  // namespace

LanguageModel::LanguageModel(const data::Datasets& datasets, std::unique_ptr<engine::Engine> engine,
                             std::string numeric_identity, Description description)
    : Workload(DeclareText(datasets, *engine, std::move(numeric_identity), std::move(description))),
      train_(datasets.text_train),
      validation_(datasets.text_validation),
      engine_(std::move(engine)) {}

void LanguageModel::Gather(const data::Text& text, std::span<const std::int64_t> samples) {
  given_.resize(samples.size() * static_cast<std::size_t>(text.context));
  wanted_.resize(given_.size());
  data::Gather(text, samples, given_, wanted_);
}

absl::StatusOr<Sums> LanguageModel::Compute(std::span<const std::int64_t> samples,
                                            const Client& client) {
  Gather(*train_, samples);
  client.loaded();
  engine_->NextSamples(samples, client.epoch);
  engine_->ScaleLoss(static_cast<float>(client.loss_scale));
  ASSIGN_OR_RETURN(const engine::BatchSums sums,
                   engine_->ComputeGradients(given_, wanted_, client.push));
  return ToSums(sums.loss, std::ssize(samples));
}

absl::StatusOr<Sums> LanguageModel::Evaluate(std::int64_t begin, std::int64_t end) {
  const std::int64_t at_once = std::max<std::int64_t>(kPlacesAtOnce / validation_->context, 1);
  Sums sums = ToSums(0, 0);
  for (std::int64_t first = begin; first < end; first += at_once) {
    std::vector<std::int64_t> samples(static_cast<std::size_t>(std::min(at_once, end - first)));
    std::iota(samples.begin(), samples.end(), first);
    Gather(*validation_, samples);
    ASSIGN_OR_RETURN(const engine::BatchSums part, engine_->Evaluate(given_, wanted_));
    Add(ToSums(part.loss, std::ssize(samples)), sums);
  }
  return sums;
}

data::Form LanguageModelForm(const v1alpha1::TrainingJobSpec& /*spec*/) {
  return {.kind = data::Form::Kind::kText};
}

Opener BeginLanguageModel(const v1alpha1::TrainingJobSpec& spec) {
  return [&spec, library = BeginToLoadEngine()]() -> absl::StatusOr<std::unique_ptr<Workload>> {
    ASSIGN_OR_RETURN(data::Datasets datasets, data::LoadDatasets(spec, LanguageModelForm(spec)));
    network::Described described = network::ModelOf(spec.workload());
    described.task.classes = datasets.text_train->alphabet.size();
    engine::EngineConfig config;
    ASSIGN_OR_RETURN(
        config.network,
        network::PlanNetwork(described.model, {datasets.text_train->context}, described.task));
    ASSIGN_OR_RETURN(OpenedNetwork opened,
                     OpenNetwork(spec, library, std::move(config), datasets.digest));
    return std::make_unique<LanguageModel>(datasets, std::move(opened.engine),
                                           std::move(opened.numeric_identity),
                                           std::move(opened.description));
  };
}

}  // namespace starling::workload
