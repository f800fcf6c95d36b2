// SPDX-License-Identifier: Apache-2.0
#include "trainer/metric_export/run_record.h"

#include <algorithm>

namespace starling::metric_export {
namespace {

bool ChangesAtEachStep(const std::string& name) {
  return name == "loss" || name == "samplesPerSecond";
}

}  // namespace

void RunRecord::Take(std::int64_t step, const std::string& name, double value) {
  known_[name] = {step, static_cast<float>(value)};
  newest_ = std::max(newest_, step);
}

void RunRecord::Restart(std::int64_t step) {
  newest_ = std::min(newest_, step - 1);
  for (auto& [name, known] : known_) known.step = std::min(known.step, step - 1);
  behind_.reset();
}

void RunRecord::Take(const News& news) {
  if (news.restart_at) Restart(*news.restart_at);
  for (const auto& [name, value] : news.points.values) Take(news.points.step, name, value);
}

bool RunRecord::IsNews(const std::string& name, double value, const Points& points) const {
  const auto known = known_.find(name);
  if (known == known_.end()) return true;
  if (known->second.step >= points.step) return false;
  return points.last || ChangesAtEachStep(name) || known->second.value != static_cast<float>(value);
}

RunRecord::News RunRecord::NewsIn(const Points& points) {
  News news{.restart_at = std::nullopt, .points = points};
  news.points.values.clear();
  if (points.step < newest_) {
    const std::int64_t before = behind_.value_or(points.step);
    const bool trained_again = points.step > before || points.last;
    behind_ = before;
    if (!trained_again) return news;
    RunRecord after = *this;
    after.Restart(before);
    news = after.NewsIn(points);
    news.restart_at = before;
    return news;
  }
  behind_.reset();
  for (const auto& [name, value] : points.values) {
    if (IsNews(name, value, points)) news.points.values[name] = value;
  }
  return news;
}

}  // namespace starling::metric_export
