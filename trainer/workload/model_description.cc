// SPDX-License-Identifier: Apache-2.0
#include "trainer/workload/model_description.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "api/network/kinds.h"
#include "api/network/plan.h"
#include "api/spec/reader.h"
#include "common/json/json.h"
#include "common/status/macros.h"
#include "nlohmann/json.hpp"
#include "starling/v1alpha1/training_job.pb.h"
#include "trainer/data/source.h"
#include "trainer/workload/number_loss.h"

namespace starling::workload {
namespace {

constexpr std::int64_t kMostValues = std::int64_t{1} << 24;  // in one sample, as in job files
constexpr std::int64_t kMostContext = 65536;

// What the file says under "starling.<name>".
absl::StatusOr<std::string> Said(const std::map<std::string, std::string>& metadata,
                                 const std::string& name) {
  const auto found = metadata.find("starling." + name);
  if (found != metadata.end()) return found->second;
  return absl::InvalidArgumentError(
      absl::StrCat("does not say its starling.", name,
                   "; give the model file of a network that this version trained (linear and "
                   "sparse regressions are none: their file holds the weights alone)"));
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

// Of columns, which hold whatever their owners like: JSON.
absl::StatusOr<std::vector<std::string>> OutputNames(
    const std::map<std::string, std::string>& metadata, std::int64_t outputs) {
  constexpr char kName[] = "outputNames";
  std::vector<std::string> names;
  if (!metadata.contains(absl::StrCat("starling.", kName))) return names;
  ASSIGN_OR_RETURN(const std::string text, Said(metadata, kName));
  const auto list = json::Parse(text);
  if (!list.ok() || !list->is_array() || std::ssize(*list) != outputs) return Wrong(kName);
  for (const nlohmann::json& name : *list) {
    if (!name.is_string()) return Wrong(kName);
    names.push_back(name.get<std::string>());
  }
  return names;
}

absl::StatusOr<v1alpha1::Model> ModelSaid(const std::map<std::string, std::string>& metadata) {
  ASSIGN_OR_RETURN(const std::string text, Said(metadata, "model"));
  v1alpha1::Model model;
  const auto value = json::Parse(text);
  if (!value.ok() || !spec::ReadMessage(*value, "", model).empty()) return Wrong("model");
  return model;
}

absl::Status ReadLanguageModel(const std::map<std::string, std::string>& metadata,
                               ModelDescription& description, network::Task& task,
                               network::Shape& input) {
  description.kind = ModelKind::kLanguageModel;
  ASSIGN_OR_RETURN(const std::string alphabet, Said(metadata, "alphabet"));
  auto read = data::Alphabet::FromText(alphabet);
  if (!read.ok()) return Wrong("alphabet");
  description.alphabet = *std::move(read);
  ASSIGN_OR_RETURN(const std::int64_t context, Integer(metadata, "contextLength", kMostContext));
  input = {context};
  task.classes = description.alphabet.size();
  task.each_place = true;
  return absl::OkStatus();
}

// Of a workload over dense samples.
absl::Status ReadOfSamples(const std::string& workload,
                           const std::map<std::string, std::string>& metadata,
                           ModelDescription& description, network::Task& task,
                           network::Shape& input) {
  ASSIGN_OR_RETURN(input, InputShape(metadata));
  ASSIGN_OR_RETURN(description.normalization,
                   NormalizationOf(metadata, static_cast<std::size_t>(network::NumbersOf(input))));
  if (workload == "classification") {
    ASSIGN_OR_RETURN(task.classes, Integer(metadata, "classes", data::kMaxClasses));
    ASSIGN_OR_RETURN(description.names, ClassNames(metadata, task.classes));
    return absl::OkStatus();
  }
  if (workload != "regression" && workload != "autoencoder") return Wrong("workload");
  ASSIGN_OR_RETURN(const std::string loss, Said(metadata, "loss"));
  const auto known = LossOf(loss);
  if (!known) return Wrong("loss");
  description.config.loss = *known;
  if (workload == "autoencoder") {
    description.kind = ModelKind::kAutoencoder;
    task.gives_input = true;
    task.classes = network::NumbersOf(input);
    return absl::OkStatus();
  }
  description.kind = ModelKind::kRegression;
  ASSIGN_OR_RETURN(task.classes, Integer(metadata, "outputs", data::kMaxClasses));
  ASSIGN_OR_RETURN(description.names, OutputNames(metadata, task.classes));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ModelDescription> ReadDescription(
    const std::map<std::string, std::string>& metadata) {
  ModelDescription description;
  network::Task task;
  network::Shape input;
  ASSIGN_OR_RETURN(const std::string workload, Said(metadata, "workload"));
  ASSIGN_OR_RETURN(const v1alpha1::Model model, ModelSaid(metadata));
  if (workload == "languageModel") {
    RETURN_IF_ERROR(ReadLanguageModel(metadata, description, task, input));
  } else {
    RETURN_IF_ERROR(ReadOfSamples(workload, metadata, description, task, input));
  }
  const auto planned = network::PlanNetwork(model, input, task);
  if (!planned.ok()) return Wrong("model");
  description.config.network = *planned;
  description.classes = task.classes;
  description.metadata = metadata;
  return description;
}

}  // namespace starling::workload
