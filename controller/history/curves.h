// SPDX-License-Identifier: Apache-2.0
// How a job's metrics went, in bounded memory, from the states of the job as they come. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "controller/kube/kube_client.h"

namespace starling::history {

struct Point {
  std::int64_t step;
  double seconds;  // since the job's status.startTime, so that every observer counts alike
  double value;

  friend bool operator==(const Point&, const Point&) = default;
};

// One metric of one job, steps ascending.
using Points = std::vector<Point>;

inline constexpr std::size_t kMostPoints = 2000;  // of a metric
inline constexpr std::size_t kMostMetrics = 64;   // of a job

// The point as it stands behind the others: its seconds are not below theirs, though an end that is
// noticed late counts from when it was.
Point Behind(const Points& curve, Point point);

// Adds the point at the end. One of the last one's step is the same news again, and passed over; a
// lower step says that training was set back: what was from there on goes. A curve that is full is
// thinned to half.
void AddPoint(const Point& point, Points& curve);

// At most `most` points (at least 1), steps ascending: the first, the last, and of equal stretches
// of steps the lowest and the highest value each, so that no peak is lost.
Points Thin(const Points& curve, std::size_t most);

// From the step `from` on, at most `most`.
Points Select(const Points& curve, std::int64_t from, std::size_t most);

// What a job's status says of each metric: loss, samplesPerSecond, and the named ones such as
// validation/accuracy. `now` is wall time. What is not a number is left out; so is a name that is
// longer than 256 bytes.
std::map<std::string, Point> PointsOf(const kube::Json& job, absl::Time now);

// All metrics of one job. Thread-compatible.
class Curves {
 public:
  void Take(const kube::Json& job, absl::Time now);
  const std::map<std::string, Points>& all() const { return curves_; }

 private:
  std::map<std::string, Points> curves_;
};

// `known` and what `newer` has beyond its end.
Points Joined(Points known, const Points& newer);

// [[step, seconds, value], ...], and back; what is no point is passed over.
kube::Json ToJson(const Points& curve);
Points PointsFromJson(const kube::Json& list);

}  // namespace starling::history
