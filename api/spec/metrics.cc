// SPDX-License-Identifier: Apache-2.0
#include "api/spec/metrics.h"

#include <algorithm>
#include <string_view>

namespace starling::spec {
namespace {

using v1alpha1::Workload;

constexpr Metric kAccuracy{"validation/accuracy", /*higher_is_better=*/true, /*is_share=*/true};
constexpr Metric kTop5Accuracy{"validation/top5Accuracy", /*higher_is_better=*/true,
                               /*is_share=*/true};  // of more than five classes
constexpr Metric kLoss{"validation/loss"};

constexpr Metric kPerplexity{"validation/perplexity"};
constexpr Metric kMeanAbsoluteError{"validation/meanAbsoluteError"};
constexpr Metric kRmse{"validation/rmse"};  // root of the mean squared error
constexpr Metric kR2{"validation/r2", /*higher_is_better=*/true};

struct Reported {
  Workload::KindCase workload;
  Metric metric;
};

constexpr Reported kReported[] = {
    {Workload::kClassification, kAccuracy},
    {Workload::kClassification, kLoss},
    {Workload::kClassification, kTop5Accuracy},
    {Workload::kSparseLogisticRegression, kAccuracy},
    {Workload::kSparseLogisticRegression, kLoss},
    {Workload::kLanguageModel, kLoss},
    {Workload::kLanguageModel, kPerplexity},
    {Workload::kLinearRegression, kLoss},  // the mean squared error
    {Workload::kLinearRegression, kMeanAbsoluteError},
    {Workload::kRegression, kLoss},
    {Workload::kRegression, kRmse},
    {Workload::kRegression, kR2},
    {Workload::kAutoencoder, kLoss},
    {Workload::kAutoencoder, kRmse},
};

}  // namespace

std::vector<Metric> MetricsOf(Workload::KindCase workload) {
  std::vector<Metric> metrics;
  for (const Reported& one : kReported) {
    if (one.workload == workload) metrics.push_back(one.metric);
  }
  return metrics;
}

std::string ShortName(const Metric& metric) {
  const std::string name = metric.name;
  return name.substr(name.rfind('/') + 1);
}

std::vector<Metric> AllMetrics() {
  std::vector<Metric> metrics;
  for (const Reported& one : kReported) {
    const auto same = [&](const Metric& metric) {
      return std::string_view(metric.name) == one.metric.name;
    };
    if (std::ranges::none_of(metrics, same)) metrics.push_back(one.metric);
  }
  return metrics;
}

}  // namespace starling::spec
