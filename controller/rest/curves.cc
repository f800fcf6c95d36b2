// SPDX-License-Identifier: Apache-2.0
#include "controller/rest/curves.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "controller/kube/objects.h"

namespace starling::service {
namespace {

using kube::Json;

constexpr std::size_t kMostMetrics = 64;

}  // namespace

void Curve::Add(const Point& point) {
  if (!points_.empty() && point.step == points_.back().step) return;
  while (!points_.empty() && point.step <= points_.back().step) points_.pop_back();
  // The last point is always the newest; whether it stays is decided when the next one comes.
  if (points_.size() > 1 && ++skipped_ < stride_) {
    points_.back() = point;
    return;
  }
  skipped_ = 0;
  points_.push_back(point);
  if (points_.size() < kMost) return;
  std::size_t kept = 0;
  for (std::size_t i = 0; i < points_.size(); i += 2) points_[kept++] = points_[i];
  points_.resize(kept);
  if (points_.back().step != point.step) points_.push_back(point);
  stride_ *= 2;
}

std::vector<Curve::Point> Curve::Points(std::int64_t from, std::size_t most) const {
  const auto first =
      std::lower_bound(points_.begin(), points_.end(), from,
                       [](const Point& point, std::int64_t step) { return point.step < step; });
  const auto count = static_cast<std::size_t>(points_.end() - first);
  if (count <= most) return {first, points_.end()};
  std::vector<Point> chosen;
  for (std::size_t i = 0; i < most; ++i) {
    const std::size_t at = most == 1 ? count - 1 : i * (count - 1) / (most - 1);
    chosen.push_back(first[static_cast<std::ptrdiff_t>(at)]);
  }
  return chosen;
}

void Curves::Add(const std::string& name, const Json& value, std::int64_t step, double seconds) {
  if (!value.is_number()) return;
  if (curves_.size() >= kMostMetrics && !curves_.contains(name)) return;
  curves_[name].Add({step, seconds, value.get<double>()});
}

void Curves::Take(const Json& job, absl::Time now) {
  const Json& progress = kube::At(job, "/status/progress");
  const std::int64_t step = kube::IntAt(progress, "/step", -1);
  if (step < 0) return;
  if (began_ == absl::InfinitePast()) began_ = now;
  const double seconds = absl::ToDoubleSeconds(now - began_);
  Add("loss", kube::At(progress, "/loss"), step, seconds);
  Add("samplesPerSecond", kube::At(progress, "/samplesPerSecond"), step, seconds);
  for (const auto& [name, value] : kube::At(progress, "/metrics").items()) {
    Add(name, value, step, seconds);
  }
}

}  // namespace starling::service
