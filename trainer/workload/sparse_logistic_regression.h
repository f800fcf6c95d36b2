// SPDX-License-Identifier: Apache-2.0
// Logistic regression over sparse samples of two classes (workload.sparseLogisticRegression).
// Metrics: the logistic loss, and the share of samples on whose side the score is.
#pragma once

#include <string>

#include "trainer/workload/sparse_linear.h"
#include "trainer/workload/workloads.h"

namespace starling::workload {

// Labels above 0 are the positive class.
class SparseLogisticRegression final : public SparseLinear {
 public:
  SparseLogisticRegression(Samples train, Samples validation, double l2,
                           const std::string& data_digest = "");
};

data::Form SparseLogisticRegressionForm(const v1alpha1::TrainingJobSpec& spec);
Opener BeginSparseLogisticRegression(const v1alpha1::TrainingJobSpec& spec);

}  // namespace starling::workload
