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
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "api/network/kinds.h"
#include "api/network/plan.h"
#include "api/spec/reader.h"
#include "common/json/json.h"
#include "common/random/philox.h"
#include "common/status/macros.h"
#include "common/storage/place.h"
#include "nlohmann/json.hpp"
#include "starling/v1alpha1/training_job.pb.h"
#include "trainer/checkpoint/safetensors.h"
#include "trainer/data/image_folder.h"
#include "trainer/data/source.h"
#include "trainer/data/tar_source.h"
#include "trainer/workload/initial_model.h"
#include "trainer/workload/network_engine.h"

namespace starling::workload {
namespace {

constexpr std::int64_t kMostValues = std::int64_t{1} << 24;  // in one sample, as in job files
constexpr std::int64_t kMostContext = 65536;
constexpr std::int64_t kNumbersAtOnce = 1 << 20;  // of one forward pass
constexpr std::int64_t kTop = 5;                  // of top5Accuracy

// What the file says under "starling.<name>".
absl::StatusOr<std::string> Said(const std::map<std::string, std::string>& metadata,
                                 const std::string& name) {
  const auto found = metadata.find("starling." + name);
  if (found != metadata.end()) return found->second;
  return absl::InvalidArgumentError(
      absl::StrCat("does not say its starling.", name,
                   "; give the model file of a classification or a language model that this "
                   "version trained"));
}

absl::Status Wrong(const std::string& name) {
  return absl::InvalidArgumentError(
      absl::StrCat("says something impossible under starling.", name, "; train it anew"));
}

absl::StatusOr<std::int64_t> Integer(const std::map<std::string, std::string>& metadata,
                                     const std::string& name, std::int64_t most) {
  ASSIGN_OR_RETURN(const std::string text, Said(metadata, name));
  std::int64_t value = 0;
  if (!absl::SimpleAtoi(text, &value) || value < 1 || value > most) return Wrong(name);
  return value;
}

absl::StatusOr<network::Shape> InputShape(const std::map<std::string, std::string>& metadata) {
  constexpr char kName[] = "inputShape";
  ASSIGN_OR_RETURN(const std::string text, Said(metadata, kName));
  network::Shape shape;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    std::int64_t side = 0;
    if (!absl::SimpleAtoi(part, &side) || side < 1 || shape.size() == 4) return Wrong(kName);
    shape.push_back(side);
  }
  if (network::NumbersOf(shape) > kMostValues) return Wrong(kName);
  return shape;
}

absl::StatusOr<std::vector<float>> Floats(const std::map<std::string, std::string>& metadata,
                                          const std::string& name) {
  ASSIGN_OR_RETURN(const std::string text, Said(metadata, name));
  std::vector<float> values;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    float value = 0;
    if (!absl::SimpleAtof(part, &value) || !std::isfinite(value)) return Wrong(name);
    values.push_back(value);
  }
  return values;
}

absl::StatusOr<std::optional<data::Normalization>> NormalizationOf(
    const std::map<std::string, std::string>& metadata, std::size_t width) {
  constexpr char kMean[] = "normalization.mean", kStd[] = "normalization.std";
  if (!metadata.contains(absl::StrCat("starling.", kMean))) return std::nullopt;
  data::Normalization scale;
  ASSIGN_OR_RETURN(scale.mean, Floats(metadata, kMean));
  ASSIGN_OR_RETURN(scale.std, Floats(metadata, kStd));
  const bool fits = scale.mean.size() == 1 || scale.mean.size() == width;
  if (!fits || scale.std.size() != scale.mean.size()) return Wrong(kMean);
  if (std::ranges::any_of(scale.std, [](float value) { return value <= 0; })) return Wrong(kStd);
  return scale;
}

// Names of folders, which hold no slash.
absl::StatusOr<std::vector<std::string>> ClassNames(
    const std::map<std::string, std::string>& metadata, std::int64_t classes) {
  constexpr char kName[] = "classNames";
  if (!metadata.contains(absl::StrCat("starling.", kName))) return std::vector<std::string>();
  ASSIGN_OR_RETURN(const std::string text, Said(metadata, kName));
  std::vector<std::string> names = absl::StrSplit(text, '/');
  // They are sorted, for folders are looked up among them.
  const bool fit =
      static_cast<std::int64_t>(names.size()) == classes && std::ranges::is_sorted(names);
  if (!fit) return Wrong(kName);
  return names;
}

// Loaders name the field of a job file: here it is `field` that says it all.
absl::Status AtField(const absl::Status& status, const std::string& field) {
  const data::FieldProblem problem = data::ToProblem(status);
  return data::FieldError(status.code(), field, problem.message);
}

absl::StatusOr<v1alpha1::Model> ModelSaid(const std::map<std::string, std::string>& metadata) {
  ASSIGN_OR_RETURN(const std::string text, Said(metadata, "model"));
  v1alpha1::Model model;
  const auto value = json::Parse(text);
  if (!value.ok() || !spec::ReadMessage(*value, "", model).empty()) return Wrong("model");
  return model;
}

enum class Kind { kTable, kImages, kArchive, kIdx };

// By its name, which is all that one knows of a place before it is read; a folder of this machine
// is looked at.
Kind KindOf(const std::string& uri) {
  const std::string name = absl::AsciiStrToLower(uri.substr(uri.rfind('/') + 1));
  const auto ends_in = [&](std::initializer_list<std::string_view> endings) {
    return std::ranges::any_of(endings,
                               [&](std::string_view ending) { return name.ends_with(ending); });
  };
  if (ends_in({".tar"})) return Kind::kArchive;
  if (ends_in({"-ubyte", "-ubyte.gz", ".idx", ".idx.gz"})) return Kind::kIdx;
  std::error_code none;
  const auto place = storage::ParsePlace(uri);
  const bool folder = place.ok() && place->kind == storage::Place::Kind::kFile &&
                      std::filesystem::is_directory(place->path, none);
  return name.empty() || folder || data::IsImage(name) ? Kind::kImages : Kind::kTable;
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

absl::StatusOr<ModelDescription> ReadDescription(
    const std::map<std::string, std::string>& metadata) {
  ModelDescription description;
  ASSIGN_OR_RETURN(const std::string workload, Said(metadata, "workload"));
  ASSIGN_OR_RETURN(const v1alpha1::Model model, ModelSaid(metadata));
  description.language = workload == "languageModel";
  network::Task task{.each_place = description.language};
  network::Shape input;
  if (description.language) {
    ASSIGN_OR_RETURN(const std::string alphabet, Said(metadata, "alphabet"));
    auto read = data::Alphabet::FromText(alphabet);
    if (!read.ok()) return Wrong("alphabet");
    description.alphabet = *std::move(read);
    ASSIGN_OR_RETURN(const std::int64_t context, Integer(metadata, "contextLength", kMostContext));
    input = {context};
    task.classes = description.alphabet.size();
  } else if (workload == "classification") {
    ASSIGN_OR_RETURN(input, InputShape(metadata));
    ASSIGN_OR_RETURN(task.classes, Integer(metadata, "classes", data::kMaxClasses));
    ASSIGN_OR_RETURN(
        description.normalization,
        NormalizationOf(metadata, static_cast<std::size_t>(network::NumbersOf(input))));
    ASSIGN_OR_RETURN(description.class_names, ClassNames(metadata, task.classes));
  } else {
    return Wrong("workload");
  }
  const auto planned = network::PlanNetwork(model, input, task);
  if (!planned.ok()) return Wrong("model");
  description.config.network = *planned;
  description.classes = task.classes;
  return description;
}

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
  options.class_names = description_.class_names;
  options.labels = source.labels;
  const auto as_they_are = [](data::Loaded loaded) { return Samples{std::move(loaded.dataset)}; };
  const Kind kind = KindOf(source.uri);
  const auto of_names = [](data::LooseImages images) {
    return Samples{std::move(images.loaded.dataset), std::move(images.names)};
  };
  if (kind == Kind::kArchive) {
    v1alpha1::TarSource tar;
    tar.set_uri(source.uri);
    tar.mutable_shape()->Assign(shape.begin(), shape.end());
    if (!source.labels) {
      ASSIGN_OR_RETURN(data::LooseImages images, data::LoadLooseTar(tar, options));
      return of_names(std::move(images));
    }
    ASSIGN_OR_RETURN(data::Loaded loaded, data::LoadTar(tar, options, /*validation=*/true));
    return as_they_are(std::move(loaded));
  }
  if (kind == Kind::kImages && source.labels) {
    v1alpha1::ImageFolderSource folder;
    folder.set_uri(source.uri);
    folder.mutable_shape()->Assign(shape.begin(), shape.end());
    ASSIGN_OR_RETURN(data::Loaded loaded, data::LoadImageFolder(folder, options, true));
    return as_they_are(std::move(loaded));
  }
  if (kind == Kind::kImages) {
    ASSIGN_OR_RETURN(data::LooseImages images,
                     data::LoadLooseImages(source.uri, source.field, shape));
    return of_names(std::move(images));
  }
  if (kind == Kind::kIdx) {
    v1alpha1::IdxSource idx;
    idx.set_images_uri(source.uri);
    idx.set_labels_uri(source.labels_uri);
    ASSIGN_OR_RETURN(data::Loaded loaded, data::LoadIdx(idx, options));
    return as_they_are(std::move(loaded));
  }
  v1alpha1::CsvSource table;
  table.set_uri(source.uri);
  table.mutable_shape()->Assign(shape.begin(), shape.end());
  if (!source.label_column.empty()) table.set_label_column(source.label_column);
  ASSIGN_OR_RETURN(data::Loaded loaded, data::LoadCsv(table, options));
  return as_they_are(std::move(loaded));
}

absl::Status SavedModel::ForEachPart(
    const Samples& samples,
    const std::function<absl::Status(std::span<const float> features,
                                     std::span<const std::int64_t> labels)>& use) const {
  const std::int64_t width = samples.set.SampleSize();
  const std::int64_t at_once = std::max<std::int64_t>(kNumbersAtOnce / width, 1);
  const std::int64_t count = samples.set.size();
  std::vector<float> features;
  std::vector<std::int64_t> ids, labels;
  for (std::int64_t begin = 0; begin < count; begin += at_once) {
    ids.resize(static_cast<std::size_t>(std::min(at_once, count - begin)));
    std::iota(ids.begin(), ids.end(), begin);
    labels.resize(ids.size());
    features.resize(ids.size() * static_cast<std::size_t>(width));
    const absl::Status read = data::Read(samples.set, ids, 0, features, labels);
    if (!read.ok()) return AtField(read, samples.field);
    RETURN_IF_ERROR(use(features, labels));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Answer>> SavedModel::Predict(const Samples& samples) {
  const auto classes = static_cast<std::size_t>(description_.classes);
  std::vector<Answer> answers;
  std::vector<double> shares;
  const auto answer = [&](std::span<const float> features,
                          std::span<const std::int64_t>) -> absl::Status {
    ASSIGN_OR_RETURN(const std::vector<float> scores, engine_->Scores(features));
    for (std::size_t row = 0; row < scores.size(); row += classes) {
      answers.push_back(Softmax(std::span(scores).subspan(row, classes), 1, shares));
    }
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(ForEachPart(samples, answer));
  return answers;
}

absl::StatusOr<SavedModel::Evaluation> SavedModel::Evaluate(const Samples& samples) {
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
    if (std::ranges::count_if(scores, [&](float score) { return score > scores[own]; }) < kTop) {
      ++in_top;
    }
    ++found.classes[own].samples;
    ++found.classes[static_cast<std::size_t>(answer.number)].told;
    if (answer.number != label) return;
    ++found.classes[own].right;
    ++right;
  };
  const auto add = [&](std::span<const float> features,
                       std::span<const std::int64_t> labels) -> absl::Status {
    ASSIGN_OR_RETURN(const std::vector<float> scores, engine_->Scores(features));
    for (std::size_t i = 0; i < labels.size(); ++i) {
      judge(std::span(scores).subspan(i * classes, classes), labels[i]);
    }
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(ForEachPart(samples, add));
  const auto count = static_cast<double>(samples.set.size());
  found.metrics = {{"samples", count},
                   {"loss", loss / count},
                   {"accuracy", static_cast<double>(right) / count}};
  if (description_.classes > kTop) {
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
