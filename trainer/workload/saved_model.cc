// SPDX-License-Identifier: Apache-2.0
#include "trainer/workload/saved_model.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <initializer_list>
#include <numeric>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "api/network/kinds.h"
#include "common/random/philox.h"
#include "common/status/macros.h"
#include "common/storage/place.h"
#include "starling/v1alpha1/training_job.pb.h"
#include "trainer/checkpoint/safetensors.h"
#include "trainer/data/image_folder.h"
#include "trainer/data/source.h"
#include "trainer/data/tar_source.h"
#include "trainer/workload/initial_model.h"
#include "trainer/workload/network_engine.h"
#include "trainer/workload/regression.h"

namespace starling::workload {
namespace {

constexpr std::int64_t kNumbersAtOnce = 1 << 20;  // of one forward pass
constexpr std::int64_t kTopClasses = 5;           // of top5Accuracy

// Loaders name the field of a job file: here it is `field` that says it all.
absl::Status AtField(const absl::Status& status, const std::string& field) {
  const data::FieldProblem problem = data::ToProblem(status);
  return data::FieldError(status.code(), field, problem.message);
}

enum class SourceKind { kTable, kImages, kArchive, kIdx };

// By its name, which is all that one knows of a place before it is read; a folder of this machine
// is looked at.
SourceKind SourceKindOf(const std::string& uri) {
  const std::string name = absl::AsciiStrToLower(uri.substr(uri.rfind('/') + 1));
  const auto ends_in = [&](std::initializer_list<std::string_view> endings) {
    return std::ranges::any_of(endings,
                               [&](std::string_view ending) { return name.ends_with(ending); });
  };
  if (ends_in({".tar"})) return SourceKind::kArchive;
  if (ends_in({"-ubyte", "-ubyte.gz", ".idx", ".idx.gz"})) return SourceKind::kIdx;
  std::error_code none;
  const auto place = storage::ParsePlace(uri);
  const bool folder = place.ok() && place->kind == storage::Place::Kind::kFile &&
                      std::filesystem::is_directory(place->path, none);
  return name.empty() || folder || data::IsImage(name) ? SourceKind::kImages : SourceKind::kTable;
}

// By their names or numbers; empty: those of a table without names that says nothing of it.
std::vector<std::string> TargetColumns(const std::string& said,
                                       const ModelDescription& description) {
  if (said.empty()) return description.names;
  if (description.classes == 1) return {said};
  return absl::StrSplit(said, ',');
}

// Of each sample, the mean of the squares by which what is given differs from it.
void AddErrors(std::span<const float> given, std::span<const float> samples, std::size_t each,
               std::vector<float>& errors) {
  for (std::size_t first = 0; first < given.size(); first += each) {
    double sum = 0;
    for (std::size_t i = first; i < first + each; ++i) {
      const double off = double{given[i]} - double{samples[i]};
      sum += off * off;
    }
    errors.push_back(static_cast<float>(sum / static_cast<double>(each)));
  }
}

// The likely answer of one row of scores, and all of them as probabilities.
Answer Softmax(std::span<const float> scores, double temperature, std::vector<double>& shares) {
  const auto best = std::ranges::max_element(scores);
  double sum = 0;
  shares.resize(scores.size());
  for (std::size_t i = 0; i < scores.size(); ++i) {
    shares[i] = std::exp((double{scores[i]} - double{*best}) / temperature);
    sum += shares[i];
  }
  for (double& share : shares) share /= sum;
  return {best - scores.begin(), 1 / sum};
}

}  // namespace

absl::StatusOr<std::unique_ptr<SavedModel>> SavedModel::Open(const std::string& uri,
                                                             const std::string& field) {
  ASSIGN_OR_RETURN(const data::FileInfo file, data::Inspect(uri, field));
  std::vector<std::byte> content(file.size);
  RETURN_IF_ERROR(data::ReadRange(file, 0, content, field));
  const auto refused = [&](const absl::Status& status) {
    return data::FieldError(absl::StatusCode::kInvalidArgument, field,
                            absl::StrCat(file.path, ": ", std::string(status.message())));
  };
  const auto decoded = checkpoint::Decode(content);
  if (!decoded.ok()) return refused(decoded.status());
  auto description = ReadDescription(decoded->metadata);
  if (!description.ok()) return refused(description.status());
  std::size_t numbers = 0;  // before memory is set aside for them
  for (const network::Parameter& parameter : description->config.network.parameters) {
    numbers += static_cast<std::size_t>(network::NumbersOf(parameter.shape));
  }
  if (numbers * sizeof(float) > file.size) {
    return refused(absl::InvalidArgumentError("says a larger network than it has tensors of"));
  }
  ASSIGN_OR_RETURN(const engine::OpenEngineFunction open, LoadEngineLibrary());
  engine::OpenedEngine opened;
  open(description->config, &opened);
  ASSIGN_OR_RETURN(std::unique_ptr<engine::Engine> engine, std::move(opened.engine));
  RETURN_IF_ERROR(ReadInitialModel({uri, field}, engine->tensors(), engine->parameters()).status());
  return std::make_unique<SavedModel>(*std::move(description), std::move(engine));
}

SavedModel::SavedModel(ModelDescription description, std::unique_ptr<engine::Engine> engine)
    : description_(std::move(description)), engine_(std::move(engine)) {}

absl::StatusOr<SavedModel::Samples> SavedModel::ReadSamples(const Source& source) const {
  absl::StatusOr<Samples> samples = ReadUnscaled(source);
  if (!samples.ok()) {
    const bool of_labels = data::ToProblem(samples.status()).path.ends_with(".labelsUri");
    return AtField(samples.status(), of_labels ? source.labels_field : source.field);
  }
  samples->field = source.field;
  const network::Shape& shape = description_.config.network.input;
  if (samples->set.shape != shape) {
    return data::FieldError(
        absl::StatusCode::kInvalidArgument, source.field,
        absl::StrCat("samples have shape [", absl::StrJoin(samples->set.shape, ", "),
                     "], but the model learnt from [", absl::StrJoin(shape, ", "),
                     "]; give it samples of that shape"));
  }
  if (description_.normalization) {
    if (samples->set.reader != nullptr) samples->set.scale = description_.normalization;
    data::Apply(*description_.normalization, samples->set.features);
  }
  return samples;
}

absl::StatusOr<SavedModel::Samples> SavedModel::ReadUnscaled(const Source& source) const {
  const network::Shape& shape = description_.config.network.input;
  data::LoadOptions options;
  options.path = source.field;
  options.classes = description_.classes;
  const bool regression = description_.kind == ModelKind::kRegression;
  const bool autoencoder = description_.kind == ModelKind::kAutoencoder;
  const bool labels = source.labels && !autoencoder;
  options.labels = labels;
  options.unlabelled = autoencoder;
  options.numbers = regression && labels;
  // Such a loss is told of numbers from 0 to 1; the error that predict tells is of any.
  options.shares = source.labels && autoencoder &&
                   description_.config.loss == engine::NumberLoss::kBinaryCrossEntropy;
  if (description_.kind == ModelKind::kClassification) options.class_names = description_.names;
  const auto as_they_are = [](data::Loaded loaded) { return Samples{std::move(loaded.dataset)}; };
  const SourceKind kind = SourceKindOf(source.uri);
  const auto of_names = [](data::LooseImages images) {
    return Samples{std::move(images.loaded.dataset), std::move(images.names)};
  };
  if (options.numbers && kind != SourceKind::kTable) {
    return data::FieldError(absl::StatusCode::kInvalidArgument, source.field,
                            "must be a table (CSV), for this model predicts columns of one");
  }
  if (kind == SourceKind::kArchive) {
    v1alpha1::TarSource tar;
    tar.set_uri(source.uri);
    tar.mutable_shape()->Assign(shape.begin(), shape.end());
    if (!labels) {
      ASSIGN_OR_RETURN(data::LooseImages images, data::LoadLooseTar(tar, options));
      return of_names(std::move(images));
    }
    ASSIGN_OR_RETURN(data::Loaded loaded, data::LoadTar(tar, options, /*validation=*/true));
    return as_they_are(std::move(loaded));
  }
  if (kind == SourceKind::kImages && labels) {
    v1alpha1::ImageFolderSource folder;
    folder.set_uri(source.uri);
    folder.mutable_shape()->Assign(shape.begin(), shape.end());
    ASSIGN_OR_RETURN(data::Loaded loaded, data::LoadImageFolder(folder, options, true));
    return as_they_are(std::move(loaded));
  }
  if (kind == SourceKind::kImages) {
    ASSIGN_OR_RETURN(data::LooseImages images,
                     data::LoadLooseImages(source.uri, source.field, shape));
    return of_names(std::move(images));
  }
  if (kind == SourceKind::kIdx) {
    v1alpha1::IdxSource idx;
    idx.set_images_uri(source.uri);
    idx.set_labels_uri(source.labels_uri);
    ASSIGN_OR_RETURN(data::Loaded loaded, data::LoadIdx(idx, options));
    return as_they_are(std::move(loaded));
  }
  v1alpha1::CsvSource table;
  table.set_uri(source.uri);
  table.mutable_shape()->Assign(shape.begin(), shape.end());
  if (options.numbers) {
    for (const std::string& column : TargetColumns(source.label_column, description_)) {
      table.add_label_columns(column);
    }
  } else if (!source.label_column.empty()) {
    table.set_label_column(source.label_column);
  }
  if (autoencoder) options.labels = true;  // a column of them is left out
  ASSIGN_OR_RETURN(data::Loaded loaded, data::LoadCsv(table, options));
  return as_they_are(std::move(loaded));
}

absl::Status SavedModel::ForEachPart(
    const Samples& samples, const std::function<absl::Status(const Part& part)>& use) const {
  const data::Dataset& set = samples.set;
  const std::int64_t width = set.SampleSize();
  const std::int64_t at_once = std::max<std::int64_t>(kNumbersAtOnce / width, 1);
  const std::int64_t count = set.size();
  std::vector<float> features;
  std::vector<std::int64_t> ids, labels;
  for (std::int64_t begin = 0; begin < count; begin += at_once) {
    Part part{.begin = begin, .features = set.features};
    const auto here = static_cast<std::size_t>(std::min(at_once, count - begin));
    if (!set.targets.empty()) {
      part.features = part.features.subspan(static_cast<std::size_t>(begin * width),
                                            here * static_cast<std::size_t>(width));
    } else {
      ids.resize(here);
      std::iota(ids.begin(), ids.end(), begin);
      labels.resize(here);
      features.resize(here * static_cast<std::size_t>(width));
      const absl::Status read = data::Read(set, ids, 0, features, labels);
      if (!read.ok()) return AtField(read, samples.field);
      part.features = features;
      part.labels = labels;
    }
    RETURN_IF_ERROR(use(part));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Answer>> SavedModel::Predict(const Samples& samples) {
  const auto classes = static_cast<std::size_t>(description_.classes);
  std::vector<Answer> answers;
  std::vector<double> shares;
  const auto answer = [&](const Part& part) -> absl::Status {
    ASSIGN_OR_RETURN(const std::vector<float> scores, engine_->Scores(part.features));
    for (std::size_t row = 0; row < scores.size(); row += classes) {
      answers.push_back(Softmax(std::span(scores).subspan(row, classes), 1, shares));
    }
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(ForEachPart(samples, answer));
  return answers;
}

absl::StatusOr<std::vector<float>> SavedModel::PredictNumbers(const Samples& samples) {
  std::vector<float> numbers;
  const auto predict = [&](const Part& part) -> absl::Status {
    ASSIGN_OR_RETURN(const std::vector<float> given, engine_->Scores(part.features));
    if (description_.kind == ModelKind::kAutoencoder) {
      AddErrors(given, part.features, static_cast<std::size_t>(description_.classes), numbers);
    } else {
      numbers.insert(numbers.end(), given.begin(), given.end());
    }
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(ForEachPart(samples, predict));
  return numbers;
}

// What is wanted of a sample are its numbers to be predicted, or itself.
absl::StatusOr<SavedModel::Evaluation> SavedModel::EvaluateNumbers(const Samples& samples) {
  const data::Dataset& set = samples.set;
  const auto outputs = static_cast<std::size_t>(description_.classes);
  std::vector<double> squares(outputs);
  double loss = 0;
  const auto judge = [&](const Part& part) -> absl::Status {
    const std::int64_t here = std::ssize(part.features) / set.SampleSize();
    std::span<const float> wanted = part.features;
    if (description_.kind == ModelKind::kRegression) {
      wanted = std::span(set.targets)
                   .subspan(static_cast<std::size_t>(part.begin) * outputs,
                            static_cast<std::size_t>(here) * outputs);
    }
    ASSIGN_OR_RETURN(const engine::BatchSums sums, engine_->EvaluateNumbers(part.features, wanted));
    loss += sums.loss;
    for (std::size_t i = 0; i < outputs; ++i) squares[i] += sums.squares[i];
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(ForEachPart(samples, judge));
  const auto count = static_cast<double>(set.size());
  const double sum = std::accumulate(squares.begin(), squares.end(), 0.0);
  Evaluation found{{{"samples", count},
                    {"loss", loss / count},
                    {"rmse", std::sqrt(sum / (count * static_cast<double>(outputs)))}}};
  if (description_.kind == ModelKind::kRegression) {
    found.metrics["r2"] = Explained(squares, VariancesOf(set), count) / count;
  }
  return found;
}

absl::StatusOr<SavedModel::Evaluation> SavedModel::Evaluate(const Samples& samples) {
  if (description_.kind != ModelKind::kClassification) return EvaluateNumbers(samples);
  const auto classes = static_cast<std::size_t>(description_.classes);
  Evaluation found;
  found.classes.resize(classes);
  double loss = 0;
  std::int64_t right = 0, in_top = 0;
  std::vector<double> shares;
  const auto judge = [&](std::span<const float> scores, std::int64_t label) {
    const Answer answer = Softmax(scores, 1, shares);
    // From the scores: a share may be too small for a logarithm.
    const auto own = static_cast<std::size_t>(label);
    loss += double{scores[static_cast<std::size_t>(answer.number)]} - double{scores[own]} -
            std::log(answer.probability);
    if (std::ranges::count_if(scores, [&](float score) { return score > scores[own]; }) <
        kTopClasses) {
      ++in_top;
    }
    ++found.classes[own].samples;
    ++found.classes[static_cast<std::size_t>(answer.number)].told;
    if (answer.number != label) return;
    ++found.classes[own].right;
    ++right;
  };
  const auto add = [&](const Part& part) -> absl::Status {
    ASSIGN_OR_RETURN(const std::vector<float> scores, engine_->Scores(part.features));
    for (std::size_t i = 0; i < part.labels.size(); ++i) {
      judge(std::span(scores).subspan(i * classes, classes), part.labels[i]);
    }
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(ForEachPart(samples, add));
  const auto count = static_cast<double>(samples.set.size());
  found.metrics = {
      {"samples", count}, {"loss", loss / count}, {"accuracy", static_cast<double>(right) / count}};
  if (description_.classes > kTopClasses) {
    found.metrics["top5Accuracy"] = static_cast<double>(in_top) / count;
  }
  return found;
}

absl::StatusOr<SavedModel::Metrics> SavedModel::EvaluateText(const std::string& uri,
                                                             const std::string& field) {
  v1alpha1::TextSource source;
  source.set_uri(uri);
  const std::int64_t context = description_.config.network.places;
  v1alpha1::LanguageModel model;
  model.set_context_length(context);
  model.set_symbols(description_.alphabet.bytes() ? v1alpha1::TEXT_SYMBOLS_BYTES
                                                  : v1alpha1::TEXT_SYMBOLS_CHARACTERS);
  data::LoadOptions options;
  options.path = field;
  const absl::StatusOr<data::LoadedText> loaded =
      data::LoadText(source, model, &description_.alphabet, options);
  if (!loaded.ok()) return AtField(loaded.status(), field);
  const data::Text& text = loaded->text;
  const std::int64_t at_once =
      std::max<std::int64_t>(kNumbersAtOnce / (context * description_.classes), 1);
  double loss = 0;
  for (std::int64_t begin = 0; begin < text.size(); begin += at_once) {
    std::vector<std::int64_t> ids(static_cast<std::size_t>(std::min(at_once, text.size() - begin)));
    std::iota(ids.begin(), ids.end(), begin);
    std::vector<float> given(ids.size() * static_cast<std::size_t>(context));
    std::vector<std::int64_t> wanted(given.size());
    data::Gather(text, ids, given, wanted);
    ASSIGN_OR_RETURN(const engine::BatchSums part, engine_->Evaluate(given, wanted));
    loss += part.loss;
  }
  const auto count = static_cast<double>(text.size());
  return Metrics{
      {"samples", count}, {"loss", loss / count}, {"perplexity", std::exp(loss / count)}};
}

absl::Status SavedModel::Continue(std::string_view prompt, const Sampling& sampling,
                                  const std::function<void(const std::string& symbol)>& on_symbol) {
  ASSIGN_OR_RETURN(std::vector<std::uint16_t> text, description_.alphabet.Encode(prompt));
  if (text.empty()) {
    const auto line = description_.alphabet.Encode("\n");  // as if a line had ended
    text = line.ok() ? *line : std::vector<std::uint16_t>{0};
  }
  for (std::int64_t i = 0; i < sampling.symbols; ++i) {
    ASSIGN_OR_RETURN(const std::uint16_t next,
                     NextSymbol(text, sampling, static_cast<std::uint64_t>(i)));
    text.push_back(next);
    on_symbol(description_.alphabet.Decode(next));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::uint16_t> SavedModel::NextSymbol(const std::vector<std::uint16_t>& text,
                                                     const Sampling& sampling, std::uint64_t draw) {
  // What stands after the last symbol has no bearing on it.
  const auto context = static_cast<std::size_t>(description_.config.network.places);
  std::vector<float> given(context);
  const std::size_t seen = std::min(context, text.size());
  std::copy(text.end() - static_cast<std::ptrdiff_t>(seen), text.end(), given.begin());
  ASSIGN_OR_RETURN(const std::vector<float> scores, engine_->Scores(given));
  const auto classes = static_cast<std::size_t>(description_.classes);
  std::vector<double> shares;
  const Answer best = Softmax(std::span(scores).subspan((seen - 1) * classes, classes),
                              sampling.temperature > 0 ? sampling.temperature : 1, shares);
  if (sampling.temperature <= 0) return static_cast<std::uint16_t>(best.number);
  const random::Philox source(sampling.seed, random::Stream::kSampledText);
  double left = source.Uniform(draw);
  std::size_t symbol = 0;
  while (symbol + 1 < classes && left >= shares[symbol]) left -= shares[symbol++];
  return static_cast<std::uint16_t>(symbol);
}

}  // namespace starling::workload
