// SPDX-License-Identifier: Apache-2.0
#include "trainer/metric_export/points.h"

#include <utility>

namespace starling::metric_export {

std::optional<Points> PointsOf(const v1alpha1::TrainingReport& training, absl::Time now,
                               std::vector<Event> events) {
  const v1alpha1::Progress& progress = training.progress();
  Points points{.step = progress.step(),
                .time = now,
                .values = {},
                .last = training.has_result(),
                .events = std::move(events)};
  if (progress.has_loss()) points.values["loss"] = progress.loss();
  if (progress.has_samples_per_second()) {
    points.values["samplesPerSecond"] = progress.samples_per_second();
  }
  for (const auto& [name, value] : progress.metrics()) points.values[name] = value;
  if (points.last) {
    points.step = training.result().steps();
    for (const auto& [name, value] : training.result().metrics()) points.values[name] = value;
  }
  if (points.values.empty() && points.events.empty()) return std::nullopt;
  return points;
}

bool Pace::Tells(const Points& points) {
  if (told_ && told_->last) return false;
  const bool due = !told_ || points.last || !points.events.empty() ||
                   (points.step != told_->step && points.time - told_->time >= kEvery);
  if (due) told_ = points;
  return due;
}

}  // namespace starling::metric_export
