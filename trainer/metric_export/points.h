// SPDX-License-Identifier: Apache-2.0
// A job's metrics at one moment, as its status and its history name them: what is told to others.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "starling/v1alpha1/membership.pb.h"

namespace starling::metric_export {

struct Points {
  std::int64_t step = 0;  // settled
  absl::Time time;        // since 1970
  // loss, samplesPerSecond, and the others by their names, such as validation/accuracy.
  std::map<std::string, double> values;
  bool last = false;  // of the job's end
  bool operator==(const Points&) const = default;
};

// Nothing: no step is settled yet, or no value is known.
std::optional<Points> PointsOf(const v1alpha1::TrainingReport& training, absl::Time now);

// Which of the reports, that come several times a second, are told: one a second, and the end.
// Thread-compatible.
class Pace {
 public:
  static constexpr absl::Duration kEvery = absl::Seconds(1);

  bool Tells(const Points& points);

 private:
  std::optional<Points> told_;
};

}  // namespace starling::metric_export
