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

namespace starling::v1alpha1 {
class TrainingJobSpec;
}

namespace starling::data {

// x -> (x - mean) / std, kept with the model: whoever uses the model scales its inputs so. One
// value for all features (images) or one a feature (tables); a feature that never varies has std 1.
struct Normalization {
  std::vector<float> mean;
  std::vector<float> std;
};

struct Datasets {
  Dataset train;
  std::optional<Dataset> validation;
  std::optional<Normalization> normalization;  // already applied to both; absent when not wanted
  std::string digest;                          // SHA-256 over both sets, hexadecimal
  // Of workload.sparseLogisticRegression: all samples, those of the validation set last. In `train`
  // and `validation` a sample's only feature is then its number here, and labels are 0 and 1.
  std::shared_ptr<const SparseDataset> sparse;
};

// Loads what `resolved` names (URIs: absolute paths or file:///). INVALID_ARGUMENT when a file's
// content is wrong (file, line, column, remedy), NOT_FOUND or PERMISSION_DENIED when it cannot be
// opened; the message begins with the path of the field.
absl::StatusOr<Datasets> LoadDatasets(const v1alpha1::TrainingJobSpec& resolved);

struct FieldProblem {
  std::string path;     // such as spec.dataset.train.csv.uri
  std::string message;  // what is wrong and what to do
};

// What is wrong with the data that `spec` names, before anything is started; empty when all is
// well. Small files are read as a whole; of a large one only the first megabytes, so that the
// answer takes less than a second.
std::vector<FieldProblem> CheckData(const v1alpha1::TrainingJobSpec& spec);

}  // namespace starling::data
