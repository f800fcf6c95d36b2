// SPDX-License-Identifier: Apache-2.0
#include "controller/history/curves.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "controller/kube/objects.h"

namespace starling::history {
namespace {

using kube::Json;

constexpr std::size_t kLongestMetricName = 256;

bool IsLower(const Point& a, const Point& b) { return a.value < b.value; }

// The lowest and the highest of a stretch, in the order of their steps.
void AddExtremes(Points::const_iterator begin, Points::const_iterator end, Points& to) {
  if (begin == end) return;
  const auto [low, high] = std::minmax_element(begin, end, IsLower);
  to.push_back(*std::min(low, high));
  if (low != high) to.push_back(*std::max(low, high));
}

}  // namespace

Point Behind(const Points& curve, Point point) {
  if (!curve.empty()) point.seconds = std::max(point.seconds, curve.back().seconds);
  return point;
}

void AddPoint(const Point& point, Points& curve) {
  if (!curve.empty() && point.step == curve.back().step) return;
  while (!curve.empty() && point.step <= curve.back().step) curve.pop_back();
  curve.push_back(Behind(curve, point));
  if (curve.size() >= kMostPoints) curve = Thin(curve, kMostPoints / 2);
}

Points Thin(const Points& curve, std::size_t most) {
  if (curve.size() <= most) return curve;
  if (most == 1) return {curve.back()};
  Points thin = {curve.front()};
  const auto stretches = static_cast<std::int64_t>((most - 2) / 2);
  const std::int64_t first = curve.front().step;
  const std::int64_t steps = curve.back().step - first;
  auto begin = curve.begin() + 1;
  const auto last = curve.end() - 1;
  for (std::int64_t i = 1; i <= stretches; ++i) {
    // Steps are below 2^53 and stretches below 2^10.
    const std::int64_t limit = first + steps * i / stretches;
    const auto end = std::find_if(begin, last, [limit](const Point& p) { return p.step > limit; });
    AddExtremes(begin, end, thin);
    begin = end;
  }
  thin.push_back(curve.back());
  return thin;
}

Points Select(const Points& curve, std::int64_t from, std::size_t most) {
  const auto first = std::find_if(curve.begin(), curve.end(),
                                  [from](const Point& point) { return point.step >= from; });
  return Thin({first, curve.end()}, most);
}

std::map<std::string, Point> PointsOf(const Json& job, absl::Time now) {
  std::map<std::string, Point> points;
  const Json& progress = kube::At(job, "/status/progress");
  const std::int64_t step = kube::IntAt(progress, "/step", -1);
  if (step < 0) return points;
  const auto start = kube::ParseTimestamp(kube::StringAt(job, "/status/startTime"));
  const auto end = kube::ParseTimestamp(kube::StringAt(job, "/status/completionTime"));
  if (end) now = std::min(now, *end);  // it may be looked at long after
  const double seconds = start ? std::max(0.0, absl::ToDoubleSeconds(now - *start)) : 0;
  const auto add = [&](const std::string& name, const Json& value) {
    if (!value.is_number() || name.size() > kLongestMetricName) return;
    points[name] = {step, seconds, value.get<double>()};
  };
  add("loss", kube::At(progress, "/loss"));
  add("samplesPerSecond", kube::At(progress, "/samplesPerSecond"));
  for (const auto& [name, value] : kube::At(progress, "/metrics").items()) add(name, value);
  return points;
}

void Curves::Take(const Json& job, absl::Time now) {
  for (const auto& [name, point] : PointsOf(job, now)) {
    if (curves_.size() >= kMostMetrics && !curves_.contains(name)) continue;
    AddPoint(point, curves_[name]);
  }
}

Points Joined(Points known, const Points& newer) {
  for (const Point& point : newer) {
    if (known.empty() || point.step > known.back().step) known.push_back(Behind(known, point));
  }
  return known;
}

Json ToJson(const Points& curve) {
  Json list = Json::array();
  for (const Point& point : curve) {
    list.push_back(Json::array({point.step, point.seconds, point.value}));
  }
  return list;
}

Points PointsFromJson(const Json& list) {
  Points curve;
  if (!list.is_array()) return curve;
  for (const Json& point : list) {
    if (!point.is_array() || point.size() != 3 || !point[0].is_number_integer() ||
        !point[1].is_number() || !point[2].is_number()) {
      continue;
    }
    curve.push_back({point[0].get<std::int64_t>(), point[1].get<double>(), point[2].get<double>()});
  }
  return curve;
}

}  // namespace starling::history
