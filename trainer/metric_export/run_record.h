// SPDX-License-Identifier: Apache-2.0
// What a run has been told so far, and what further points add to it.
//
// A coordinator that takes over learns what its predecessor has told and goes on behind it: no step
// is told twice. Where nobody that lives holds the newest state, training goes back, and steps are
// trained again: what was told of them does not count any more.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "trainer/metric_export/points.h"

namespace starling::metric_export {

// Thread-compatible. Pure.
class RunRecord {
 public:
  struct News {
    // What was told of this step and of later ones does not count.
    std::optional<std::int64_t> restart_at;
    // To be told; it may have no values.
    Points points;
  };

  // Loss and speed have a value at each step that is told, other metrics where they change: between
  // two validations there is nothing new about them.
  News NewsIn(const Points& points);

  // The newest step that has been told; -1: none.
  std::int64_t newest() const { return newest_; }

  // That has been told.
  void Take(std::int64_t step, const std::string& name, double value);
  void Restart(std::int64_t step);
  void Take(const News& news);

 private:
  struct Known {
    std::int64_t step;
    float value;  // as exact as the least exact place keeps it
  };

  bool IsNews(const std::string& name, double value, const Points& points) const;

  std::map<std::string, Known> known_;  // the newest of each name
  std::int64_t newest_ = -1;
  // A step that was heard of and lies before the newest one. It may be late news, unless the next
  // one, which is later, lies before it too.
  std::optional<std::int64_t> behind_;
};

}  // namespace starling::metric_export
