// SPDX-License-Identifier: Apache-2.0
// A model file of a job, opened for use without the job: its network is rebuilt from what the file
// says of itself (network_engine.h), and computes in this process.
//
// It is for files of workloads that are networks; what else is in a file of tensors is not told by
// it. A file is foreign: whatever it says is held against the bounds of job files.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "trainer/data/load_datasets.h"
#include "trainer/engine/engine_library.h"
#include "trainer/onnx/onnx_model.h"
#include "trainer/workload/model_description.h"

namespace starling::workload {

// What is thought of a sample: the class that is most likely, and how likely it is.
struct Answer {
  std::int64_t number = 0;
  double probability = 0;
};

// How a text goes on.
struct Sampling {
  std::int64_t symbols = 200;
  double temperature = 1;  // above 1: bolder; 0: always the most likely symbol
  std::uint64_t seed = 1;
};

// Confined to one thread.
class SavedModel {
 public:
  // Of the model file at `uri`. Errors name `field`.
  static absl::StatusOr<std::unique_ptr<SavedModel>> Open(const std::string& uri,
                                                          const std::string& field);
  // Of a description and an engine that holds its tensors.
  SavedModel(ModelDescription description, std::unique_ptr<engine::Engine> engine);

  const ModelDescription& description() const { return description_; }

  // Samples for the model, scaled as those that it learnt from. By its name `uri` is
  //   - images: one (.jpg, .jpeg, .png), a folder of them (it ends in "/", or is one on this
  //     machine), which for `labels` has a folder for each class, or archives (.tar; several by
  //     their numbers in braces), which for `labels` hold a class beside each image;
  //   - images as MNIST has them (a name that ends in -ubyte, -ubyte.gz or .idx), whose classes are
  //     at `labels_uri`;
  //   - else a table. Without labels each column is a feature; otherwise the column of that name or
  //     number is the class, by default "label" or the last; of a regression such columns are what
  //     is to be predicted, by default those of the training set by name.
  struct Source {
    std::string uri;
    std::string field;  // for errors
    bool labels = false;
    std::string label_column = {};  // of several that are predicted: with commas between
    std::string labels_uri = {};
    std::string labels_field = {};  // for errors: how somebody says labels_uri
  };
  struct Samples {
    data::Dataset set;
    std::vector<std::string> names = {};  // of images without labels, by number; else empty
    std::string field = {};               // for errors of those that are read when they are used
  };
  absl::StatusOr<Samples> ReadSamples(const Source& source) const;

  absl::StatusOr<std::vector<Answer>> Predict(const Samples& samples);
  // Of a regression: the numbers of one sample after another. Of an autoencoder: one number, how
  // far what it rebuilds is from the sample (the mean of the squares, as it was scaled).
  absl::StatusOr<std::vector<float>> PredictNumbers(const Samples& samples);

  // The workload's metrics by name, and of a classification how well each class is known.
  using Metrics = std::map<std::string, double>;
  struct ClassCounts {
    std::int64_t samples = 0;  // of the class
    std::int64_t told = 0;     // that the model takes for it
    std::int64_t right = 0;    // of the class, and taken for it
  };
  struct Evaluation {
    Metrics metrics;
    std::vector<ClassCounts> classes = {};
  };
  // Of samples with labels, or of the text at `uri`.
  absl::StatusOr<Evaluation> Evaluate(const Samples& samples);
  absl::StatusOr<Metrics> EvaluateText(const std::string& uri, const std::string& field);

  // What comes after `prompt`, which may be empty; each symbol is handed out as it is drawn.
  // INVALID_ARGUMENT where the model does not know one of the prompt's characters.
  absl::Status Continue(std::string_view prompt, const Sampling& sampling,
                        const std::function<void(const std::string& symbol)>& on_symbol);

  // The model as an ONNX file (trainer/onnx), which scales samples itself. INVALID_ARGUMENT where
  // that format cannot hold it.
  absl::StatusOr<std::string> ToOnnx(onnx::Weights weights);

 private:
  absl::StatusOr<Samples> ReadUnscaled(const Source& source) const;
  struct Part {
    std::int64_t begin = 0;  // the first of its samples
    std::span<const float> features;
    std::span<const std::int64_t> labels = {};
  };
  // Of a part of `samples` after another.
  absl::Status ForEachPart(const Samples& samples,
                           const std::function<absl::Status(const Part& part)>& use) const;
  absl::StatusOr<Evaluation> EvaluateNumbers(const Samples& samples);
  absl::StatusOr<std::uint16_t> NextSymbol(const std::vector<std::uint16_t>& text,
                                           const Sampling& sampling, std::uint64_t draw);

  const ModelDescription description_;
  const std::unique_ptr<engine::Engine> engine_;
};

}  // namespace starling::workload
