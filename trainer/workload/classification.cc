// SPDX-License-Identifier: Apache-2.0
#include "trainer/workload/classification.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <future>
#include <numeric>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "api/network/plan.h"
#include "common/bytes/bytes.h"
#include "common/status/macros.h"
#include "starling/v1alpha1/training_job.pb.h"
#include "trainer/workload/dense.h"
#include "trainer/workload/initial_model.h"

namespace starling::workload {
namespace {

std::string BesideTheProgram() {
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::filesystem::path library = program.parent_path() / engine::kEngineLibrary;
  if (error || !std::filesystem::exists(library, error)) return engine::kEngineLibrary;
  return library.string();
}

Declaration DeclarationOf(const data::Datasets& datasets, const engine::Engine& engine,
                          std::string numeric_identity) {
  Declaration declaration = DeclareDense(datasets);
  declaration.reads_ahead = datasets.train.reader != nullptr;
  declaration.metrics = {"loss", "accuracy"};
  declaration.tensors.assign(engine.tensors().begin(), engine.tensors().end());
  declaration.buckets.assign(engine.buckets().begin(), engine.buckets().end());
  declaration.numeric_identity = std::move(numeric_identity);
  declaration.model_metadata["starling.classes"] = absl::StrCat(datasets.train.classes);
  return declaration;
}

Sums ToSums(const engine::BatchSums& sums, std::size_t samples) {
  const auto count = static_cast<double>(samples);
  return {{sums.loss, count}, {static_cast<double>(sums.correct), count}};
}

}  // namespace

Classification::Classification(data::Datasets datasets, std::unique_ptr<engine::Engine> engine,
                               std::string numeric_identity)
    : Workload(DeclarationOf(datasets, *engine, std::move(numeric_identity))),
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
  return ToSums(sums, samples.size());
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
  return ToSums(sums, ids.size());
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
  return ToSums(sums, count);
}

data::Form ClassificationForm(const v1alpha1::TrainingJobSpec& /*spec*/) {
  return {.kind = data::Form::Kind::kClasses};
}

Opener BeginClassification(const v1alpha1::TrainingJobSpec& spec) {
  using Library = std::future<absl::StatusOr<engine::OpenEngineFunction>>;
  const auto library = std::make_shared<Library>(std::async(std::launch::async, LoadEngineLibrary));
  return [&spec, library]() -> absl::StatusOr<std::unique_ptr<Workload>> {
    ASSIGN_OR_RETURN(data::Datasets datasets, data::LoadDatasets(spec, ClassificationForm(spec)));
    ASSIGN_OR_RETURN(const engine::OpenEngineFunction open, library->get());
    ASSIGN_OR_RETURN(const engine::EngineConfig config, EngineConfigOf(spec, datasets.train));
    engine::OpenedEngine opened;
    open(config, &opened);
    ASSIGN_OR_RETURN(std::unique_ptr<engine::Engine> engine, std::move(opened.engine));
    const v1alpha1::Classification& classification = spec.workload().classification();
    if (classification.has_initial_model()) {
      ASSIGN_OR_RETURN(const std::string digest,
                       ReadInitialModel(classification.initial_model().uri(), engine->tensors(),
                                        engine->parameters()));
      // Workers that begin differently must not train together, as those with other data.
      datasets.digest = bytes::Sha256Hex(datasets.digest + digest);
    }
    return std::make_unique<Classification>(std::move(datasets), std::move(engine),
                                            std::move(opened.numeric_identity));
  };
}

absl::StatusOr<engine::OpenEngineFunction> LoadEngineLibrary() {
  const std::string path = BesideTheProgram();
  // Lazy: binding all symbols of libtorch's 300 libraries would cost another 80 ms. Global, so that
  // the engine can ask the BLAS library for its name. It is never closed.
  void* library = dlopen(path.c_str(), RTLD_LAZY | RTLD_GLOBAL);
  if (library == nullptr) {
    return absl::NotFoundError(absl::StrCat("cannot load the engine: ", dlerror()));
  }
  void* symbol = dlsym(library, engine::kOpenEngineSymbol);
  if (symbol == nullptr) {
    return absl::NotFoundError(absl::StrCat("not an engine: ", dlerror()));
  }
  return reinterpret_cast<engine::OpenEngineFunction>(symbol);
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
  config.seed = static_cast<uint64_t>(spec.seed());
  const v1alpha1::AllReduce& exchange = spec.exchange().all_reduce();
  if (exchange.has_bucket_bytes()) config.bucket_bytes = exchange.bucket_bytes();
  return config;
}

}  // namespace starling::workload
