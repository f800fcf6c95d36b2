// SPDX-License-Identifier: Apache-2.0
#include "trainer/workload/dense.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/status/macros.h"

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

absl::StatusOr<DenseSamples::View> DenseSamples::Gather(const data::Dataset& set,
                                                        std::span<const std::int64_t> samples,
                                                        std::int64_t epoch) {
  features_.resize(samples.size() * static_cast<std::size_t>(set.SampleSize()));
  labels_.resize(samples.size());
  RETURN_IF_ERROR(data::Read(set, samples, epoch, features_, labels_));
  return View{features_, labels_};
}

absl::StatusOr<DenseSamples::View> DenseSamples::Range(const data::Dataset& set, std::int64_t begin,
                                                       std::int64_t end) {
  const auto first = static_cast<std::size_t>(begin);
  const auto count = static_cast<std::size_t>(end - begin);
  if (set.reader == nullptr) {
    const auto sample = static_cast<std::size_t>(set.SampleSize());
    return View{std::span(set.features).subspan(first * sample, count * sample),
                std::span(set.labels).subspan(first, count)};
  }
  std::vector<std::int64_t> ids(count);
  std::iota(ids.begin(), ids.end(), begin);
  std::vector<std::int64_t> next(static_cast<std::size_t>(std::min(end - begin, set.size() - end)));
  std::iota(next.begin(), next.end(), end);
  set.reader->Expect(ids, 0);
  set.reader->Expect(next, 0);
  return Gather(set, ids, 0);
}

}  // namespace starling::workload
