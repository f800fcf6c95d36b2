// SPDX-License-Identifier: Apache-2.0
// How a job's metrics went, in bounded memory, from the states of the job as they come.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "controller/kube/kube_client.h"

namespace starling::service {

// One metric of one job. Full, every other point goes, and from then on only every other one comes
// in: the curve keeps its shape and its two ends. Thread-compatible.
class Curve {
 public:
  struct Point {
    std::int64_t step;
    double seconds;  // since the job's first point of any metric
    double value;
  };
  static constexpr std::size_t kMost = 2000;

  // A point of a step that is not above the last one's is the same news again, and passed over,
  // unless training was set back: then what was above it goes.
  void Add(const Point& point);

  // From `from` on, at most `most` of them, evenly chosen, the last one always.
  std::vector<Point> Points(std::int64_t from, std::size_t most) const;

 private:
  std::vector<Point> points_;
  std::int64_t stride_ = 1;   // of the points that come only these stay
  std::int64_t skipped_ = 0;  // since the last that stayed
};

// All metrics of one job: loss, samplesPerSecond, and the named ones such as
// validation/accuracy. Thread-compatible.
class Curves {
 public:
  // From a job's status; what is not a number is passed over.
  void Take(const kube::Json& job, absl::Time now);

  const std::map<std::string, Curve>& all() const { return curves_; }

 private:
  void Add(const std::string& name, const kube::Json& value, std::int64_t step, double seconds);

  std::map<std::string, Curve> curves_;
  absl::Time began_ = absl::InfinitePast();
};

}  // namespace starling::service
