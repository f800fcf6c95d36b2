// SPDX-License-Identifier: Apache-2.0
#include "trainer/exchange/bucket_tuner.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace starling::exchange {
namespace {

// A view's first steps are slow: memory and connections are used for the first time.
constexpr int kWarmUp = 3;
// So often is each size tried, in turns, so that a disturbance meets all of them. Odd, for the
// middle one counts.
constexpr int kRounds = 7;
// A larger size must be faster by this much: it begins later where the model or the links change.
constexpr double kWorthIt = 0.98;

std::vector<ranges::Range<int>> MergedTo(std::size_t bytes,
                                         const std::vector<std::size_t>& bucket_bytes) {
  std::vector<ranges::Range<int>> merged;
  std::size_t size = 0;
  int begin = 0;
  for (int bucket = 0; bucket < static_cast<int>(bucket_bytes.size()); ++bucket) {
    size += bucket_bytes[bucket];
    if (size < bytes && bucket + 1 < static_cast<int>(bucket_bytes.size())) continue;
    merged.push_back({begin, bucket + 1});
    begin = bucket + 1;
    size = 0;
  }
  return merged;
}

}  // namespace

BucketTuner::BucketTuner(const std::vector<std::size_t>& bucket_bytes)
    : plans_{{kLeastMerged, MergedTo(0, bucket_bytes)}} {
  const std::size_t whole =
      std::accumulate(bucket_bytes.begin(), bucket_bytes.end(), std::size_t{0});
  if (whole <= kLeastMerged) return;
  for (std::size_t bytes = 2 * kLeastMerged; bytes <= kMostMerged; bytes *= 2) {
    std::vector<ranges::Range<int>> merged = MergedTo(bytes, bucket_bytes);
    if (merged != plans_.back().merged) plans_.push_back({bytes, std::move(merged)});
  }
}

void BucketTuner::Begin(bool tune) {
  for (Plan& plan : plans_) plan.took.clear();
  present_ = 0;
  step_ = 0;
  const int plans = static_cast<int>(plans_.size());
  // One step more than are tried: with it the last one's time arrives.
  end_ = tune && plans > 1 ? kWarmUp + kRounds * plans + 1 : 0;
}

bool BucketTuner::Counts(int step) const { return step >= kWarmUp && step < end_ - 1; }

std::size_t BucketTuner::PlanOf(int step) const {
  return Counts(step) ? static_cast<std::size_t>(step - kWarmUp) % plans_.size() : 0;
}

void BucketTuner::Ended(std::int64_t before) {
  if (!trying()) return;
  if (Counts(step_ - 1)) plans_[PlanOf(step_ - 1)].took.push_back(before);
  ++step_;
  present_ = PlanOf(step_);
  if (!trying()) Choose();
}

void BucketTuner::Choose() {
  const auto median = [](Plan& plan) {
    const auto middle = plan.took.begin() + static_cast<std::ptrdiff_t>(plan.took.size() / 2);
    std::ranges::nth_element(plan.took, middle);
    return static_cast<double>(*middle);
  };
  double fastest = median(plans_[0]);
  present_ = 0;
  for (std::size_t i = 1; i < plans_.size(); ++i) {
    const double seconds = median(plans_[i]);
    if (seconds >= fastest * kWorthIt) continue;
    fastest = seconds;
    present_ = i;
  }
}

}  // namespace starling::exchange
