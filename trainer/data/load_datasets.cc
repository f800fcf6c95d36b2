// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/load_datasets.h"

#include <bit>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "api/network/plan.h"
#include "common/bytes/bytes.h"
#include "common/status/macros.h"
#include "common/storage/place.h"
#include "starling/v1alpha1/options.pb.h"
#include "starling/v1alpha1/training_job.pb.h"
#include "trainer/data/image_folder.h"
#include "trainer/data/libsvm_source.h"
#include "trainer/data/object_cache.h"
#include "trainer/data/source.h"
#include "trainer/data/tar_source.h"

namespace starling::data {
namespace {

constexpr std::string_view kTrain = "spec.dataset.train";
constexpr std::string_view kValidation = "spec.dataset.validation";
constexpr std::size_t kCheckedBytes = 8 << 20;  // read well within a second
constexpr double kConstant = 1e-7;              // of the mean: what float rounding makes
constexpr std::uint64_t kCacheBytes = std::uint64_t{10} << 30;  // of dataset.cache, by default
constexpr std::int64_t kMeasured = 256;  // samples that the scale of images is measured on

// What the schema allows: a worker keeps 8 bytes of each.
std::int64_t MostHashed() {
  const auto& field = *v1alpha1::SparseLogisticRegression::descriptor()->FindFieldByNumber(
      v1alpha1::SparseLogisticRegression::kHashedFeaturesFieldNumber);
  return static_cast<std::int64_t>(field.options().GetExtension(v1alpha1::rules).maximum());
}

struct Pair {
  Loaded train;
  std::optional<Loaded> validation;
};

absl::StatusOr<Loaded> LoadSource(const v1alpha1::Dataset& dataset, std::string_view path,
                                  LoadOptions options) {
  const bool validation = path == kValidation;
  const v1alpha1::DataSource& source = validation ? dataset.validation() : dataset.train();
  options.dataset = &dataset;
  const auto at = [&](std::string_view kind) {
    options.path = std::string(path) + "." + std::string(kind);
    return options;
  };
  if (options.numbers && !source.has_csv()) {
    return FieldError(absl::StatusCode::kInvalidArgument, path,
                      "must be csv with a regression, for its samples have numbers to be "
                      "predicted; write csv: {uri: ..., labelColumn: ...}");
  }
  switch (source.kind_case()) {
    case v1alpha1::DataSource::kText:
      return FieldError(absl::StatusCode::kInvalidArgument, std::string(path) + ".text",
                        "holds a text, which makes no dense set; give csv, idx or synthetic data, "
                        "or write workload: {languageModel: {}}");
    case v1alpha1::DataSource::kCsv:
      return LoadCsv(source.csv(), at("csv"));
    case v1alpha1::DataSource::kIdx:
      options.labels = !options.unlabelled;
      return LoadIdx(source.idx(), at("idx"));
    case v1alpha1::DataSource::kSynthetic:
      return LoadSynthetic(source.synthetic(), at("synthetic"), validation);
    case v1alpha1::DataSource::kImageFolder:
      return LoadImageFolder(source.image_folder(), at("imageFolder"), validation);
    case v1alpha1::DataSource::kTar:
      return LoadTar(source.tar(), at("tar"), validation);
    case v1alpha1::DataSource::kLibsvm:
      return FieldError(
          absl::StatusCode::kInvalidArgument, std::string(path) + ".libsvm",
          "holds sparse samples, which make no dense set; give csv, idx, imageFolder, "
          "tar or synthetic data, or write workload: {sparseLogisticRegression: {}}");
    case v1alpha1::DataSource::KIND_NOT_SET:
      break;
  }
  return FieldError(absl::StatusCode::kInvalidArgument, path,
                    "give exactly one of csv, idx, imageFolder, tar, synthetic");
}

std::string ShapeText(const std::vector<std::int64_t>& shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

// Who only looks at a beginning may be on another machine than the workers.
std::shared_ptr<ObjectCache> CacheOf(const v1alpha1::Dataset& dataset, std::size_t max_bytes) {
  if (!dataset.has_cache() || max_bytes < kMaxFileBytes) return nullptr;
  const auto place = storage::ParsePlace(dataset.cache().uri());
  if (!place.ok() || place->kind != storage::Place::Kind::kFile) return nullptr;
  const std::uint64_t most = dataset.cache().has_max_bytes()
                                 ? static_cast<std::uint64_t>(dataset.cache().max_bytes())
                                 : kCacheBytes;
  return std::make_shared<ObjectCache>(place->path, most);
}

absl::StatusOr<Pair> LoadPair(const v1alpha1::TrainingJobSpec& spec, const Form& form,
                              std::size_t max_bytes) {
  LoadOptions options;
  options.numbers = form.kind == Form::Kind::kNumbers;
  options.unlabelled = form.kind == Form::Kind::kSamples;
  options.shares = form.shares;
  options.seed = spec.has_seed() ? static_cast<std::uint64_t>(spec.seed()) : 1;
  options.max_bytes = max_bytes;
  options.cache = CacheOf(spec.dataset(), max_bytes);
  Pair pair;
  ASSIGN_OR_RETURN(pair.train, LoadSource(spec.dataset(), kTrain, options));
  if (!spec.dataset().has_validation()) return pair;
  // Only a beginning of the training set was read, so its classes are not known.
  if (form.kind == Form::Kind::kClasses) {
    if (pair.train.whole) options.classes = pair.train.dataset.classes;
    options.class_names = pair.train.dataset.class_names;
  }
  ASSIGN_OR_RETURN(pair.validation, LoadSource(spec.dataset(), kValidation, options));
  if (pair.validation->dataset.shape != pair.train.dataset.shape) {
    return FieldError(absl::StatusCode::kInvalidArgument, kValidation,
                      absl::StrCat("samples have shape ", ShapeText(pair.validation->dataset.shape),
                                   ", but those of the training set ",
                                   ShapeText(pair.train.dataset.shape), "; make them equal"));
  }
  if (pair.validation->dataset.outputs != pair.train.dataset.outputs) {
    return FieldError(absl::StatusCode::kInvalidArgument, kValidation,
                      absl::StrCat("has ", pair.validation->dataset.outputs,
                                   " columns to be predicted, but the training set ",
                                   pair.train.dataset.outputs, "; name the same labelColumns"));
  }
  return pair;
}

// Two passes in double, in the order of the samples: equal data give equal bits.
Normalization Measure(const Dataset& set, bool per_feature) {
  const std::size_t width = per_feature ? static_cast<std::size_t>(set.SampleSize()) : 1;
  const std::size_t samples = set.features.size() / width;
  const auto count = static_cast<double>(samples);
  std::vector<double> means(width);
  std::vector<double> variances(width);
  for (std::size_t i = 0; i < set.features.size(); ++i) means[i % width] += set.features[i];
  for (double& mean : means) mean /= count;
  for (std::size_t i = 0; i < set.features.size(); ++i) {
    const double difference = set.features[i] - means[i % width];
    variances[i % width] += difference * difference;
  }
  Normalization result;
  for (std::size_t i = 0; i < width; ++i) {
    const double deviation = std::sqrt(variances[i] / count);
    const bool constant = deviation <= kConstant * std::abs(means[i]);
    result.mean.push_back(static_cast<float>(means[i]));
    result.std.push_back(constant ? 1.0F : static_cast<float>(deviation));
  }
  return result;
}

// Of samples that are read when they are wanted: one value for all features, of at most kMeasured
// samples spread evenly over the set, so that a large one is not read for it as a whole.
absl::StatusOr<Normalization> MeasureSome(const Dataset& set) {
  const std::int64_t samples = std::min(set.size(), kMeasured);
  std::vector<float> features(static_cast<std::size_t>(set.SampleSize()));
  std::vector<std::int64_t> ids;
  for (std::int64_t i = 0; i < samples; ++i) ids.push_back(i * set.size() / samples);
  set.reader->Expect(ids, 0);
  double sum = 0;
  double squares = 0;
  for (const std::int64_t id : ids) {
    std::int64_t label = 0;
    RETURN_IF_ERROR(Read(set, std::span(&id, 1), 0, features, std::span(&label, 1)));
    for (const float value : features) {
      sum += value;
      squares += double{value} * value;
    }
  }
  const double count = static_cast<double>(samples) * static_cast<double>(features.size());
  const double mean = sum / count;
  const double deviation = std::sqrt(std::max(0.0, squares / count - mean * mean));
  const bool constant = deviation <= kConstant * std::abs(mean);
  return Normalization{{static_cast<float>(mean)},
                       {constant ? 1.0F : static_cast<float>(deviation)}};
}

void Scale(const Normalization& scale, Dataset& set) {
  if (set.reader != nullptr) set.scale = scale;
  Apply(scale, set.features);
}

absl::StatusOr<std::shared_ptr<const SparseDataset>> LoadSparseSource(
    const v1alpha1::Dataset& dataset, std::string_view path, std::size_t max_bytes,
    std::uint64_t hashed) {
  const v1alpha1::DataSource& source = path == kValidation ? dataset.validation() : dataset.train();
  if (!source.has_libsvm()) {
    return FieldError(absl::StatusCode::kInvalidArgument, path,
                      "must be libsvm, for this workload's samples are sparse; write libsvm: "
                      "{uri: ...}");
  }
  LoadOptions options;
  options.path = std::string(path) + ".libsvm";
  options.dataset = &dataset;
  options.max_bytes = max_bytes;
  ASSIGN_OR_RETURN(SparseDataset set, LoadLibsvm(source.libsvm(), hashed, options));
  return std::make_shared<const SparseDataset>(std::move(set));
}

absl::StatusOr<Datasets> LoadSparse(const v1alpha1::TrainingJobSpec& spec, const Form& form,
                                    std::size_t max_bytes) {
  if (form.hashed < 1 || form.hashed > MostHashed()) {
    return FieldError(
        absl::StatusCode::kInvalidArgument, form.hashed_field,
        absl::StrCat("is ", form.hashed, "; a worker keeps 8 bytes of each, so give 2 to ",
                     MostHashed()));
  }
  const auto hashed = static_cast<std::uint64_t>(form.hashed);
  Datasets sets;
  ASSIGN_OR_RETURN(sets.sparse_train, LoadSparseSource(spec.dataset(), kTrain, max_bytes, hashed));
  std::string digests = DigestOf(*sets.sparse_train);
  if (spec.dataset().has_validation()) {
    ASSIGN_OR_RETURN(sets.sparse_validation,
                     LoadSparseSource(spec.dataset(), kValidation, max_bytes, hashed));
    digests += DigestOf(*sets.sparse_validation);
  }
  sets.digest = bytes::Sha256Hex(digests);
  return sets;
}

absl::StatusOr<LoadedText> LoadTextSource(const v1alpha1::TrainingJobSpec& spec,
                                          const v1alpha1::DataSource& source, std::string_view path,
                                          const Alphabet* known, std::size_t max_bytes) {
  if (!source.has_text()) {
    return FieldError(absl::StatusCode::kInvalidArgument, path,
                      "must be text, for a language model predicts symbols; write text: {uri: "
                      "...}");
  }
  LoadOptions options;
  options.path = std::string(path) + ".text";
  options.max_bytes = max_bytes;
  return LoadText(source.text(), spec.workload().language_model(), known, options);
}

struct Texts {
  LoadedText train;
  std::optional<LoadedText> validation;
};

absl::StatusOr<Texts> LoadTexts(const v1alpha1::TrainingJobSpec& spec, std::size_t max_bytes) {
  Texts texts;
  ASSIGN_OR_RETURN(texts.train,
                   LoadTextSource(spec, spec.dataset().train(), kTrain, nullptr, max_bytes));
  if (!spec.dataset().has_validation()) return texts;
  // A beginning of the training set does not tell all characters.
  const Alphabet* known = texts.train.whole ? &texts.train.text.alphabet : nullptr;
  ASSIGN_OR_RETURN(texts.validation, LoadTextSource(spec, spec.dataset().validation(), kValidation,
                                                    known, max_bytes));
  return texts;
}

absl::StatusOr<Datasets> LoadTexts(const v1alpha1::TrainingJobSpec& spec) {
  ASSIGN_OR_RETURN(Texts texts, LoadTexts(spec, kMaxFileBytes));
  Datasets sets;
  std::string digests = DigestOf(texts.train.text);
  sets.text_train = std::make_shared<const Text>(std::move(texts.train.text));
  if (texts.validation) {
    digests += DigestOf(texts.validation->text);
    sets.text_validation = std::make_shared<const Text>(std::move(texts.validation->text));
  }
  sets.digest = bytes::Sha256Hex(digests);
  return sets;
}

std::vector<FieldProblem> CheckTexts(const v1alpha1::TrainingJobSpec& spec) {
  const auto texts = LoadTexts(spec, kCheckedBytes);
  if (!texts.ok()) return {ToProblem(texts.status())};
  network::Described described = network::ModelOf(spec.workload());
  const Text& train = texts->train.text;
  described.task.classes = texts->train.whole ? train.alphabet.size() : 0;
  const auto planned = network::PlanNetwork(described.model, {train.context}, described.task);
  if (!planned.ok()) return {ToProblem(planned.status())};
  return {};
}

// Whether a first sample can be read, of a set of which no other has been.
std::optional<FieldProblem> CheckFirst(const Dataset& set) {
  if (set.reader == nullptr || set.size() == 0) return std::nullopt;
  std::vector<float> features(static_cast<std::size_t>(set.SampleSize()));
  const std::int64_t first = 0;
  std::int64_t label = 0;
  const absl::Status status = Read(set, std::span(&first, 1), 0, features, std::span(&label, 1));
  if (status.ok()) return std::nullopt;
  return ToProblem(status);
}

// Whether the model takes samples as they are in the files. A beginning of them does not tell how
// many classes there are.
std::optional<FieldProblem> CheckModel(const v1alpha1::TrainingJobSpec& spec, const Loaded& train) {
  network::Described described = network::ModelOf(spec.workload());
  if (!described.given) return std::nullopt;
  if (spec.workload().has_regression()) {
    described.task.classes = train.dataset.outputs;
  } else if (train.whole) {
    described.task.classes = train.dataset.classes;
  }
  const auto planned = network::PlanNetwork(described.model, train.dataset.shape, described.task);
  if (planned.ok()) return std::nullopt;
  return ToProblem(planned.status());
}

}  // namespace

FieldProblem ToProblem(const absl::Status& status) {
  const std::string text(status.message());
  const auto colon = text.find(": ");
  if (colon == std::string::npos) return {std::string(kTrain), text};
  return {text.substr(0, colon), text.substr(colon + 2)};
}

absl::StatusOr<Datasets> LoadDatasets(const v1alpha1::TrainingJobSpec& resolved, const Form& form) {
  if (form.kind == Form::Kind::kSparse) return LoadSparse(resolved, form, kMaxFileBytes);
  if (form.kind == Form::Kind::kText) return LoadTexts(resolved);
  ASSIGN_OR_RETURN(Pair pair, LoadPair(resolved, form, kMaxFileBytes));
  Datasets sets;
  sets.train = std::move(pair.train.dataset);
  if (pair.validation.has_value()) sets.validation = std::move(pair.validation->dataset);
  sets.digest = bytes::Sha256Hex(
      absl::StrCat(DigestOf(sets.train), sets.validation ? DigestOf(*sets.validation) : ""));
  if (!resolved.dataset().has_normalize() || resolved.dataset().normalize()) {
    if (sets.train.reader != nullptr) {
      ASSIGN_OR_RETURN(sets.normalization, MeasureSome(sets.train));
      // All that is known of what the files hold.
      sets.digest = bytes::Sha256Hex(
          absl::StrCat(sets.digest, " ", std::bit_cast<std::uint32_t>(sets.normalization->mean[0]),
                       " ", std::bit_cast<std::uint32_t>(sets.normalization->std[0])));
    } else {
      sets.normalization = Measure(sets.train, pair.train.per_feature);
    }
    Scale(*sets.normalization, sets.train);
    if (sets.validation.has_value()) Scale(*sets.normalization, *sets.validation);
  }
  return sets;
}

std::vector<FieldProblem> CheckData(const v1alpha1::TrainingJobSpec& spec, const Form& form) {
  if (form.kind == Form::Kind::kSparse) {
    const auto sets = LoadSparse(spec, form, kCheckedBytes);
    if (sets.ok()) return {};
    return {ToProblem(sets.status())};
  }
  if (form.kind == Form::Kind::kText) return CheckTexts(spec);
  const auto pair = LoadPair(spec, form, kCheckedBytes);
  std::vector<FieldProblem> problems;
  if (!pair.ok()) {
    problems.push_back(ToProblem(pair.status()));
    // A second source that is wrong by itself is said at once too.
    const bool train_is_wrong = problems[0].path.rfind(kTrain, 0) == 0;
    if (train_is_wrong && spec.dataset().has_validation()) {
      LoadOptions options;
      options.max_bytes = kCheckedBytes;
      options.numbers = form.kind == Form::Kind::kNumbers;
      options.unlabelled = form.kind == Form::Kind::kSamples;
      options.shares = form.shares;
      const auto validation = LoadSource(spec.dataset(), kValidation, options);
      if (!validation.ok()) problems.push_back(ToProblem(validation.status()));
    }
    return problems;
  }
  if (auto problem = CheckFirst(pair->train.dataset)) problems.push_back(*problem);
  if (pair->validation.has_value()) {
    if (auto problem = CheckFirst(pair->validation->dataset)) problems.push_back(*problem);
  }
  if (auto problem = CheckModel(spec, pair->train)) problems.push_back(*problem);
  return problems;
}

}  // namespace starling::data
