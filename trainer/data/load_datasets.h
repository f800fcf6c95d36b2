// SPDX-License-Identifier: Apache-2.0
// From the job's `dataset` block to samples in memory, or to the reasons why not.
//
// A source kind (csv, idx, synthetic) is one file with one Load function; this file joins the
// training and the validation set: shapes and classes must agree, labels must lie within, and the
// scale of the features is measured on the training set alone. To add a kind: write its loader and
// add it to LoadSource.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "trainer/data/dataset.h"
#include "trainer/data/sparse_dataset.h"
#include "trainer/data/text_source.h"

namespace starling::v1alpha1 {
class TrainingJobSpec;
}

namespace starling::data {

struct Datasets {
  Dataset train;
  std::optional<Dataset> validation;
  std::optional<Normalization> normalization;  // already applied to both; absent when not wanted
  std::string digest;                          // SHA-256 over both sets, hexadecimal
  // Of a form that is sparse, instead of the first two.
  std::shared_ptr<const SparseDataset> sparse_train;
  std::shared_ptr<const SparseDataset> sparse_validation;  // may be null
  // Of a form that is text, likewise.
  std::shared_ptr<const Text> text_train;
  std::shared_ptr<const Text> text_validation;  // may be null
};

// What a workload needs its samples to be.
struct Form {
  enum class Kind {
    kClasses,  // dense, each of a class
    kNumbers,  // dense, each with numbers to be predicted
    kSamples,  // dense, whatever they are of
    kSparse,   // each with a label, which is a number
    kText,     // stretches of a text
  };
  Kind kind = Kind::kClasses;
  bool shares = false;            // dense: features are from 0 to 1
  std::int64_t hashed = 0;        // sparse: weights that feature numbers are hashed to
  const char* hashed_field = "";  // sparse: the field of the job file that says so
};

// Loads what `resolved` names (URIs: absolute paths or file:///), in the form that its workload
// needs. INVALID_ARGUMENT when a file's content is wrong (file, line, column, remedy), NOT_FOUND or
// PERMISSION_DENIED when it cannot be opened; the message begins with the path of the field.
absl::StatusOr<Datasets> LoadDatasets(const v1alpha1::TrainingJobSpec& resolved,
                                      const Form& form = {});

struct FieldProblem {
  std::string path;     // such as spec.dataset.train.csv.uri
  std::string message;  // what is wrong and what to do
};

// Of an error that is "path: message", as those of loaders are.
FieldProblem ToProblem(const absl::Status& status);

// What is wrong with the data that `spec` names, before anything is started; empty when all is
// well. Small files are read as a whole; of a large one only the first megabytes, so that the
// answer takes less than a second.
std::vector<FieldProblem> CheckData(const v1alpha1::TrainingJobSpec& spec, const Form& form = {});

}  // namespace starling::data
