// SPDX-License-Identifier: Apache-2.0
// A job's metrics at one moment, as its status and its history name them, and what has happened in
// it since: what is told to others.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "starling/v1alpha1/membership.pb.h"

namespace starling::metric_export {

// A view of the members began, or somebody was lost.
struct Event {
  enum class Kind { kView, kIncident };
  Kind kind = Kind::kView;
  absl::Time time;                                // since 1970
  std::string name;                               // such as "view 1-3", WorkerLost
  std::map<std::string, std::string> attributes;  // more about it, for people
  bool operator==(const Event&) const = default;
};

struct Points {
  std::int64_t step = 0;  // settled
  absl::Time time;        // since 1970
  // loss, samplesPerSecond, and the others by their names, such as validation/accuracy.
  std::map<std::string, double> values;
  bool last = false;               // of the job's end
  std::vector<Event> events = {};  // the oldest first
  bool operator==(const Points&) const = default;
};

// Nothing: no step is settled yet, or no value is known, and nothing has happened.
std::optional<Points> PointsOf(const v1alpha1::TrainingReport& training, absl::Time now,
                               std::vector<Event> events = {});

// Which of the reports, that come several times a second, are told: one a second, what has
// happened, and the end. Thread-compatible.
class Pace {
 public:
  static constexpr absl::Duration kEvery = absl::Seconds(1);

  bool Tells(const Points& points);

 private:
  std::optional<Points> told_;
};

}  // namespace starling::metric_export
