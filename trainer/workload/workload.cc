// SPDX-License-Identifier: Apache-2.0
#include "trainer/workload/workload.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/check.h"

namespace starling::workload {

void Add(const Sums& from, Sums& into) {
  if (into.empty()) into.resize(from.size());
  STARLING_CHECK(from.size() == into.size(), "sums of one workload have its metrics");
  for (std::size_t i = 0; i < from.size(); ++i) {
    into[i].sum += from[i].sum;
    into[i].count += from[i].count;
  }
}

Values MeansOf(const Sums& sums, const Declaration& declared) {
  Values means = {};
  for (std::size_t i = 0; i < sums.size(); ++i) {
    if (sums[i].count == 0) continue;
    const double mean = sums[i].sum / sums[i].count;
    const auto is_among = [&](const std::vector<std::string>& names) {
      return std::ranges::count(names, declared.metrics[i]) > 0;
    };
    means[i] = is_among(declared.exponentials) ? std::exp(mean)
               : is_among(declared.roots)      ? std::sqrt(mean)
                                               : mean;
  }
  return means;
}

absl::Status OfTheJob(const absl::Status& status) {
  if (!absl::IsUnavailable(status) && !absl::IsAborted(status)) return status;
  return absl::InternalError(absl::StrCat("the workload cannot compute: ", status.message()));
}

Workload::Workload(Declaration declaration) : declaration_(std::move(declaration)) {
  const std::vector<std::string>& metrics = declaration_.metrics;
  STARLING_CHECK(!metrics.empty() && metrics.size() <= kMostMetrics && metrics.front() == "loss",
                 "a workload declares 1 to 8 metrics, the first of which is loss");
}

}  // namespace starling::workload
