// SPDX-License-Identifier: Apache-2.0
#include "trainer/workload/workloads.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "starling/v1alpha1/training_job.pb.h"
#include "trainer/data/source.h"
#include "trainer/workload/autoencoder.h"
#include "trainer/workload/classification.h"
#include "trainer/workload/initial_model.h"
#include "trainer/workload/language_model.h"
#include "trainer/workload/linear_regression.h"
#include "trainer/workload/regression.h"
#include "trainer/workload/sparse_logistic_regression.h"

namespace starling::workload {
namespace {

struct Kind {
  v1alpha1::Workload::KindCase field;
  data::Form (*form)(const v1alpha1::TrainingJobSpec& spec);  // of its samples
  Opener (*begin)(const v1alpha1::TrainingJobSpec& spec);
};

constexpr Kind kKinds[] = {
    {v1alpha1::Workload::kClassification, ClassificationForm, BeginClassification},
    {v1alpha1::Workload::kLanguageModel, LanguageModelForm, BeginLanguageModel},
    {v1alpha1::Workload::kRegression, RegressionForm, BeginRegression},
    {v1alpha1::Workload::kAutoencoder, AutoencoderForm, BeginAutoencoder},
    {v1alpha1::Workload::kLinearRegression, LinearRegressionForm, BeginLinearRegression},
    {v1alpha1::Workload::kSparseLogisticRegression, SparseLogisticRegressionForm,
     BeginSparseLogisticRegression},
};

const Kind* KindOf(const v1alpha1::TrainingJobSpec& spec) {
  const auto* const kind = std::ranges::find(kKinds, spec.workload().kind_case(), &Kind::field);
  return kind == std::end(kKinds) ? nullptr : kind;
}

}  // namespace

absl::StatusOr<Opener> Begin(const v1alpha1::TrainingJobSpec& spec) {
  if (const Kind* kind = KindOf(spec)) return kind->begin(spec);
  return absl::UnimplementedError(
      "spec.workload: starling-worker does not compute this kind of workload");
}

std::vector<data::FieldProblem> Check(const v1alpha1::TrainingJobSpec& spec) {
  const Kind* kind = KindOf(spec);
  if (kind == nullptr) return {};
  std::vector<data::FieldProblem> problems = data::CheckData(spec, kind->form(spec));
  const auto initial = InitialModelOf(spec.workload());
  if (!initial) return problems;
  const auto file = data::Inspect(initial->uri, initial->field);
  if (!file.ok()) problems.push_back(data::ToProblem(file.status()));
  return problems;
}

}  // namespace starling::workload
