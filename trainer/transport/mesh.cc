// SPDX-License-Identifier: Apache-2.0
#include "trainer/transport/mesh.h"

#include <charconv>
#include <optional>

#include "absl/strings/cord.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace starling::transport {
namespace {

constexpr char kPayload[] = "starling.dev/unreachable-ranks";

}  // namespace

std::vector<int> UnreachableRanks(const absl::Status& status) {
  std::vector<int> ranks;
  const std::optional<absl::Cord> payload = [&]() -> std::optional<absl::Cord> {
    auto found = status.GetPayload(kPayload);
    if (!found.has_value()) return std::nullopt;
    return *found;
  }();
  if (!payload.has_value()) return ranks;
  const std::string text(*payload);
  for (const auto part : absl::StrSplit(text, ',', absl::SkipEmpty())) {
    int rank = 0;
    if (std::from_chars(part.data(), part.data() + part.size(), rank).ec == std::errc()) {
      ranks.push_back(rank);
    }
  }
  return ranks;
}

absl::Status WithUnreachableRanks(absl::Status status, const std::vector<int>& ranks) {
  if (!ranks.empty()) status.SetPayload(kPayload, absl::Cord(absl::StrJoin(ranks, ",")));
  return status;
}

}  // namespace starling::transport
