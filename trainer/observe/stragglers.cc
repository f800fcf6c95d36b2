// SPDX-License-Identifier: Apache-2.0
#include "trainer/observe/stragglers.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace starling::observe {
namespace {

// Two of them span the window but for this.
constexpr absl::Duration kBetweenSamples = absl::Milliseconds(500);

double BusyOf(const Seconds& seconds) {
  double busy = 0;
  for (const Activity activity : {Activity::kInput, Activity::kCompute, Activity::kOptimizer}) {
    const auto found = seconds.find(kActivityNames[static_cast<std::size_t>(activity)]);
    if (found != seconds.end()) busy += found->second;
  }
  return busy;
}

// As Prometheus interpolates.
double FastestQuarter(std::vector<double> shares) {
  std::sort(shares.begin(), shares.end());
  const double rank = 0.25 * static_cast<double>(shares.size() - 1);
  const auto below = static_cast<std::size_t>(std::floor(rank));
  const std::size_t above = std::min(below + 1, shares.size() - 1);
  return std::lerp(shares[below], shares[above], rank - std::floor(rank));
}

}  // namespace

void Stragglers::OnReport(const membership::MemberId& process, const Seconds& total,
                          absl::Time now) {
  std::erase_if(samples_, [&](const auto& one) {
    const bool replaced = one.first.pod_uid == process.pod_uid && one.first != process;
    return replaced || now - one.second.back().time > kWindow;
  });
  std::deque<Sample>& samples = samples_[process];
  if (!samples.empty() && now - samples.back().time < kBetweenSamples) return;
  samples.push_back({now, BusyOf(total)});
  // One that is older than the window stays.
  while (samples.size() > 2 && now - samples[1].time >= kWindow) samples.pop_front();
}

std::vector<Straggler> Stragglers::Find(absl::Time now) const {
  std::vector<Straggler> found;
  std::vector<double> shares;
  for (const auto& [process, samples] : samples_) {
    const absl::Duration span = samples.back().time - samples.front().time;
    const bool fresh = now - samples.back().time <= 4 * kBetweenSamples;
    if (!fresh || span < kWindow) continue;
    const double share = (samples.back().busy - samples.front().busy) / absl::ToDoubleSeconds(span);
    shares.push_back(share);
    found.push_back({process, share});
  }
  if (shares.size() < 2) return {};
  const double usual = FastestQuarter(shares);
  std::erase_if(found, [&](const Straggler& one) {
    return one.ratio < kLeastShare || one.ratio <= kLeastRatio * usual;
  });
  for (Straggler& one : found) one.ratio /= std::max(usual, 1e-3);
  std::sort(found.begin(), found.end(),
            [](const Straggler& a, const Straggler& b) { return a.ratio > b.ratio; });
  return found;
}

}  // namespace starling::observe
