// SPDX-License-Identifier: Apache-2.0
#include "trainer/workload/dense.h"

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace starling::workload {
namespace {

// Nine digits give a float back bit by bit.
std::string Join(const std::vector<float>& values) {
  return absl::StrJoin(values, ",", [](std::string* out, float value) {
    absl::StrAppendFormat(out, "%.9g", static_cast<double>(value));
  });
}

}  // namespace

Declaration DeclareDense(const data::Datasets& datasets) {
  Declaration declaration;
  declaration.samples = datasets.train.size();
  if (datasets.validation) declaration.validation_samples = datasets.validation->size();
  declaration.data_digest = datasets.digest;
  declaration.model_metadata = {{"format", "pt"},
                                {"starling.inputShape", absl::StrJoin(datasets.train.shape, ",")}};
  if (datasets.normalization) {
    declaration.model_metadata["starling.normalization.mean"] = Join(datasets.normalization->mean);
    declaration.model_metadata["starling.normalization.std"] = Join(datasets.normalization->std);
  }
  return declaration;
}

}  // namespace starling::workload
