// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/batches.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/random/permutation.h"
#include "common/status/check.h"

namespace starling::data {
namespace {

constexpr std::int64_t kGroups = 16;

}  // namespace

Range Share(std::int64_t batch, std::int64_t index, std::int64_t members) {
  return ranges::PartOf(batch, index, members);
}

std::int64_t GroupCount(std::int64_t batch) { return std::min(batch, kGroups); }

Range Group(std::int64_t batch, std::int64_t group) {
  return ranges::PartOf(batch, group, GroupCount(batch));
}

Batches::Batches(std::int64_t samples, std::int64_t batch, std::uint64_t seed)
    : samples_(samples), batch_(batch), seed_(seed) {
  STARLING_CHECK(samples >= 1 && batch >= 1, "a data set and a batch hold at least one sample");
}

std::int64_t Batches::StepsPerEpoch() const { return (samples_ + batch_ - 1) / batch_; }

Batches::Position Batches::At(std::int64_t step) const {
  STARLING_CHECK(step >= 1, "steps count from 1");
  const std::int64_t steps = StepsPerEpoch();
  const std::int64_t in_epoch = (step - 1) % steps;
  const std::int64_t begin = in_epoch * batch_;
  return {.epoch = (step - 1) / steps + 1,
          .positions = {begin, std::min(begin + batch_, samples_)}};
}

std::int64_t Batches::SamplesUpTo(std::int64_t step) const {
  if (step < 1) return 0;
  const Position position = At(step);
  return (position.epoch - 1) * samples_ + position.positions.end;
}

std::vector<std::int64_t> Batches::SampleIds(std::int64_t step, Range positions) const {
  const Position position = At(step);
  STARLING_CHECK(positions.begin >= 0 && positions.begin <= positions.end &&
                     positions.end <= position.positions.size(),
                 "a share lies within its batch");
  const random::Permutation order(seed_, static_cast<std::uint64_t>(position.epoch),
                                  static_cast<std::uint64_t>(samples_));
  std::vector<std::int64_t> ids;
  ids.reserve(static_cast<std::size_t>(positions.size()));
  for (std::int64_t i = positions.begin; i < positions.end; ++i) {
    const auto place = static_cast<std::uint64_t>(position.positions.begin + i);
    ids.push_back(static_cast<std::int64_t>(order.At(place)));
  }
  return ids;
}

std::vector<std::int64_t> Batches::SampleIds(std::int64_t step) const {
  return SampleIds(step, {0, BatchSize(step)});
}

std::string Batches::AuditLine(std::int64_t step) const {
  return absl::StrCat("{\"epoch\":", At(step).epoch, ",\"step\":", step, ",\"samples\":[",
                      absl::StrJoin(SampleIds(step), ","), "]}");
}

}  // namespace starling::data
