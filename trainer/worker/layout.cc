// SPDX-License-Identifier: Apache-2.0
#include "trainer/worker/layout.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "common/bytes/bytes.h"
#include "common/status/macros.h"

namespace starling::worker {
namespace {

using parameter_server::RowRange;

constexpr char kField[] = "spec.exchange.parameterServer.tensors";

bool Matches(absl::string_view name, absl::string_view pattern) {
  return absl::ConsumeSuffix(&pattern, "*") ? absl::StartsWith(name, pattern) : name == pattern;
}

absl::StatusOr<std::vector<RowRange>> HeldBy(const v1alpha1::ParameterServer& servers,
                                             const std::vector<engine::Tensor>& tensors) {
  const auto names = [&] {
    return absl::StrJoin(tensors, ", ", [](std::string* out, const engine::Tensor& tensor) {
      absl::StrAppend(out, tensor.name);
    });
  };
  std::vector<RowRange> ranges;
  for (const std::string& pattern : servers.tensors()) {
    bool found = false;
    for (const engine::Tensor& tensor : tensors) {
      if (!Matches(tensor.name, pattern)) continue;
      found = true;
      ranges.push_back({static_cast<std::uint64_t>(tensor.offset),
                        static_cast<std::uint64_t>(tensor.offset + tensor.size)});
    }
    if (found) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(kField, ": the model has no tensor \"", pattern, "\"; it has ", names()));
  }
  std::ranges::sort(ranges, {}, &RowRange::begin);
  std::vector<RowRange> held;
  for (const RowRange& range : ranges) {
    if (!held.empty() && range.begin <= held.back().end) {
      held.back().end = std::max(held.back().end, range.end);
    } else {
      held.push_back(range);
    }
  }
  std::uint64_t count = 0, all = 0;
  for (const RowRange& range : held) count += range.size();
  for (const engine::Tensor& tensor : tensors) all += static_cast<std::uint64_t>(tensor.size);
  if (!held.empty() && count == all) {
    return absl::InvalidArgumentError(absl::StrCat(
        kField, " names all tensors of the model; leave it out, and all of them lie on servers"));
  }
  return held;
}

}  // namespace

absl::StatusOr<parameter_server::Layout> LayoutOf(const v1alpha1::TrainingJobSpec& spec,
                                                  workload::Workload& workload) {
  const workload::Declaration& declared = workload.declaration();
  parameter_server::Layout layout;
  layout.parameters = static_cast<std::int64_t>(workload.parameters().size());
  layout.samples = declared.samples;
  layout.sparse = workload.sparse() != nullptr;
  ASSIGN_OR_RETURN(layout.held, HeldBy(spec.exchange().parameter_server(), declared.tensors));
  // Workers with another one would push gradients of another model or of other samples.
  std::string names;
  for (const engine::Tensor& tensor : declared.tensors) {
    absl::StrAppend(&names, tensor.name, "[", absl::StrJoin(tensor.shape, ","), "];");
  }
  bytes::Sha256 digest;
  digest.Update(bytes::View(names));
  layout.fingerprint = absl::StrCat("model=", bytes::ToHex(digest.Finish()).substr(0, 16),
                                    " data=", declared.data_digest.substr(0, 16));
  return layout;
}

}  // namespace starling::worker
