// SPDX-License-Identifier: Apache-2.0
// predict, evaluate and export: what a model file is good for once its job is done. They need no
// control plane: the model computes in this process.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "cli/commands.h"
#include "common/json/json.h"
#include "common/status/macros.h"
#include "common/storage/blob_store.h"
#include "trainer/workload/saved_model.h"

namespace starling::cli {
namespace {

using workload::SavedModel;

// A path starts at the working directory.
std::string Place(const Arguments& arguments, const char* flag) {
  const std::string value = arguments.Get(flag);
  if (value.empty() || value.find(':') != std::string::npos) return value;
  return std::filesystem::absolute(value).string();
}

absl::StatusOr<std::string> Needed(const Arguments& arguments, const char* flag) {
  if (arguments.Get(flag).empty()) {
    return absl::InvalidArgumentError(absl::StrCat("--", flag, " is missing; name a file"));
  }
  return Place(arguments, flag);
}

absl::StatusOr<std::unique_ptr<SavedModel>> OpenModel(const Arguments& arguments) {
  ASSIGN_OR_RETURN(const std::string uri, Needed(arguments, "model"));
  return SavedModel::Open(uri, "--model");
}

template <typename Number>
absl::Status ReadNumber(const Arguments& arguments, const char* flag, double least, double most,
                        Number& value) {
  if (!arguments.Has(flag)) return absl::OkStatus();
  double number = 0;
  const bool reads = absl::SimpleAtod(arguments.Get(flag), &number);
  if (reads && number >= least && number <= most &&
      (std::is_floating_point_v<Number> || number == std::floor(number))) {
    value = static_cast<Number>(number);
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("--", flag, " ", arguments.Get(flag), ": write a ",
                                                 std::is_floating_point_v<Number> ? "" : "whole ",
                                                 "number from ", least, " to ", most));
}

absl::Status WriteOn(Session& session, const Arguments& arguments, SavedModel& model) {
  constexpr double kMost = 1e9;
  if (model.description().kind != workload::ModelKind::kLanguageModel) {
    return absl::InvalidArgumentError("--prompt: this model reads no text; give it --data");
  }
  workload::Sampling sampling;
  RETURN_IF_ERROR(ReadNumber(arguments, "symbols", 1, kMost, sampling.symbols));
  RETURN_IF_ERROR(ReadNumber(arguments, "temperature", 0, 100, sampling.temperature));
  RETURN_IF_ERROR(ReadNumber(arguments, "seed", 0, kMost, sampling.seed));
  const std::string prompt = arguments.Get("prompt");
  session.terminal().Print(prompt);
  const absl::Status status = model.Continue(
      prompt, sampling, [&](const std::string& symbol) { session.terminal().Print(symbol); });
  session.terminal().Print("\n");
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat("--prompt: ", std::string(status.message())));
}

// A field of CSV: names of files hold whatever their owners like.
std::string Quoted(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  return absl::StrCat("\"", absl::StrReplaceAll(text, {{"\"", "\"\""}}), "\"");
}

// A row for each answer; of images it begins with their names.
std::string Table(const std::vector<workload::Answer>& answers,
                  const std::vector<std::string>& images, const std::vector<std::string>& classes) {
  std::string rows = absl::StrCat(images.empty() ? "" : "image,", "class,probability\n");
  for (std::size_t i = 0; i < answers.size(); ++i) {
    const workload::Answer& answer = answers[i];
    if (!images.empty()) absl::StrAppend(&rows, Quoted(images[i]), ",");
    absl::StrAppend(&rows, classes.empty()
                               ? absl::StrCat(answer.number)
                               : Quoted(classes[static_cast<std::size_t>(answer.number)]));
    absl::StrAppendFormat(&rows, ",%.6g\n", answer.probability);
  }
  return rows;
}

// The same of numbers in as many columns, `names` theirs.
std::string Table(const std::vector<float>& numbers, const std::vector<std::string>& names,
                  const std::vector<std::string>& images) {
  const std::size_t columns = names.size();
  std::string rows = images.empty() ? "" : "image,";
  for (std::size_t i = 0; i < columns; ++i) {
    absl::StrAppend(&rows, i == 0 ? "" : ",", Quoted(names[i]));
  }
  rows += "\n";
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const bool first = i % columns == 0;
    if (first && !images.empty()) absl::StrAppend(&rows, Quoted(images[i / columns]), ",");
    absl::StrAppendFormat(&rows, "%s%.9g%s", first ? "" : ",", numbers[i],
                          (i + 1) % columns == 0 ? "\n" : "");
  }
  return rows;
}

std::vector<std::string> ColumnsOf(const workload::ModelDescription& description) {
  if (description.kind == workload::ModelKind::kAutoencoder) return {"error"};
  if (!description.names.empty()) return description.names;
  if (description.classes == 1) return {"prediction"};
  std::vector<std::string> names;
  for (std::int64_t i = 0; i < description.classes; ++i) {
    names.push_back(absl::StrCat("prediction", i));
  }
  return names;
}

absl::Status Predict(Session& session, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const std::unique_ptr<SavedModel> model, OpenModel(arguments));
  if (arguments.Has("prompt")) return WriteOn(session, arguments, *model);
  ASSIGN_OR_RETURN(const std::string data, Needed(arguments, "data"));
  const workload::ModelDescription& description = model->description();
  if (description.kind == workload::ModelKind::kLanguageModel) {
    return absl::InvalidArgumentError(
        "--data: this model predicts what comes next in a text; give it --prompt");
  }
  ASSIGN_OR_RETURN(const SavedModel::Samples samples,
                   model->ReadSamples({.uri = data,
                                       .field = "--data",
                                       .labels = arguments.Has("label-column"),
                                       .label_column = arguments.Get("label-column")}));
  if (description.kind != workload::ModelKind::kClassification) {
    ASSIGN_OR_RETURN(const std::vector<float> numbers, model->PredictNumbers(samples));
    session.terminal().Print(Table(numbers, ColumnsOf(description), samples.names));
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const std::vector<workload::Answer> answers, model->Predict(samples));
  session.terminal().Print(Table(answers, samples.names, description.names));
  return absl::OkStatus();
}

// Of `whole`; none of nothing.
std::optional<double> ShareOf(std::int64_t part, std::int64_t whole) {
  if (whole == 0) return std::nullopt;
  return static_cast<double>(part) / static_cast<double>(whole);
}

std::string NameOf(std::size_t number, const std::vector<std::string>& classes) {
  return classes.empty() ? absl::StrCat(number) : classes[number];
}

nlohmann::json ToJson(const SavedModel::Evaluation& found,
                      const std::vector<std::string>& classes) {
  nlohmann::json json(found.metrics);
  const auto share = [](std::optional<double> value) {
    return value ? nlohmann::json(*value) : nlohmann::json();
  };
  for (std::size_t i = 0; i < found.classes.size(); ++i) {
    const SavedModel::ClassCounts& counts = found.classes[i];
    json["classes"].push_back({{"class", NameOf(i, classes)},
                               {"samples", counts.samples},
                               {"recall", share(ShareOf(counts.right, counts.samples))},
                               {"precision", share(ShareOf(counts.right, counts.told))}});
  }
  return json;
}

// The metrics one a line, and a row for each class.
std::string ToText(const SavedModel::Evaluation& found, const std::vector<std::string>& classes) {
  std::string text;
  for (const auto& [name, value] : found.metrics) {
    absl::StrAppendFormat(&text, "%-12s %.6g\n", name, value);
  }
  if (found.classes.empty()) return text;
  std::size_t width = std::string_view("class").size();
  for (const std::string& name : classes) width = std::max(width, name.size());
  const auto row = [&](const std::string& name, const std::string& samples,
                       const std::string& recall, const std::string& precision) {
    absl::StrAppendFormat(&text, "%-*s  %9s  %9s  %9s\n", static_cast<int>(width), name, samples,
                          recall, precision);
  };
  const auto share = [](std::optional<double> value) {
    return value ? absl::StrFormat("%.4f", *value) : "-";
  };
  text += "\n";
  row("class", "samples", "recall", "precision");
  for (std::size_t i = 0; i < found.classes.size(); ++i) {
    const SavedModel::ClassCounts& counts = found.classes[i];
    row(NameOf(i, classes), absl::StrCat(counts.samples),
        share(ShareOf(counts.right, counts.samples)), share(ShareOf(counts.right, counts.told)));
  }
  return text;
}

absl::Status Evaluate(Session& session, const Arguments& arguments) {
  const std::string output = arguments.Get("output");
  if (!output.empty() && output != "json") {
    return absl::InvalidArgumentError(absl::StrCat("-o ", output, ": only json is known here"));
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<SavedModel> model, OpenModel(arguments));
  ASSIGN_OR_RETURN(const std::string data, Needed(arguments, "data"));
  SavedModel::Evaluation found;
  if (model->description().kind == workload::ModelKind::kLanguageModel) {
    ASSIGN_OR_RETURN(found.metrics, model->EvaluateText(data, "--data"));
  } else {
    ASSIGN_OR_RETURN(const SavedModel::Samples samples,
                     model->ReadSamples({.uri = data,
                                         .field = "--data",
                                         .labels = true,
                                         .label_column = arguments.Get("label-column"),
                                         .labels_uri = Place(arguments, "labels"),
                                         .labels_field = "--labels"}));
    ASSIGN_OR_RETURN(found, model->Evaluate(samples));
  }
  const std::vector<std::string>& names = model->description().names;
  session.terminal().Print(output == "json" ? json::Dump(ToJson(found, names)) + "\n"
                                            : ToText(found, names));
  return absl::OkStatus();
}

absl::Status Export(Session& session, const Arguments& arguments) {
  constexpr std::string_view kEnding = ".onnx";
  ASSIGN_OR_RETURN(const std::string output, Needed(arguments, "output"));
  const auto wrong = [&](const absl::Status& status) {
    return absl::Status(status.code(), absl::StrCat("--output ", arguments.Get("output"), ": ",
                                                    std::string(status.message())));
  };
  if (!output.ends_with(kEnding)) {
    return wrong(absl::InvalidArgumentError(
        "the end of its name says in which format; .onnx is the one that is known"));
  }
  const std::string weights = arguments.Get("weights");
  if (!weights.empty() && weights != "float32" && weights != "int8") {
    return absl::InvalidArgumentError(
        absl::StrCat("--weights ", weights, ": must be float32 or int8"));
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<SavedModel> model, OpenModel(arguments));
  const absl::StatusOr<std::string> file =
      model->ToOnnx(weights == "int8" ? onnx::Weights::kInt8 : onnx::Weights::kFloat32);
  if (!file.ok()) {
    return absl::Status(file.status().code(),
                        absl::StrCat("--model: ", std::string(file.status().message())));
  }
  const auto place = storage::Locate(output);
  if (!place.ok()) return wrong(place.status());
  const absl::Status written =
      storage::Put(*place->store, place->name, *file, storage::IfPresent::kReplace);
  if (!written.ok()) return wrong(written);
  session.terminal().Say(
      absl::StrCat("wrote ", place->store->UriOf(place->name), " (", file->size(), " bytes)"));
  return absl::OkStatus();
}

}  // namespace

int PredictCommand(Session& session, const Arguments& arguments) {
  return session.Fail(Predict(session, arguments));
}

int EvaluateCommand(Session& session, const Arguments& arguments) {
  return session.Fail(Evaluate(session, arguments));
}

int ExportCommand(Session& session, const Arguments& arguments) {
  return session.Fail(Export(session, arguments));
}

}  // namespace starling::cli
