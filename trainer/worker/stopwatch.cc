// SPDX-License-Identifier: Apache-2.0
#include "trainer/worker/stopwatch.h"

namespace starling::worker {

void Stopwatch::Enter(Activity activity) {
  sync::MutexLock lock(mutex_);
  const absl::Time now = clock_.Now();
  spent_[static_cast<size_t>(activity_)] += now - since_;
  since_ = now;
  activity_ = activity;
}

Activity Stopwatch::activity() const {
  sync::MutexLock lock(mutex_);
  return activity_;
}

std::map<std::string, double> Stopwatch::Seconds() const {
  sync::MutexLock lock(mutex_);
  std::map<std::string, double> seconds;
  for (size_t i = 0; i < spent_.size(); ++i) {
    absl::Duration spent = spent_[i];
    if (i == static_cast<size_t>(activity_)) spent += clock_.Now() - since_;
    seconds[kActivityNames[i]] = absl::ToDoubleSeconds(spent);
  }
  return seconds;
}

}  // namespace starling::worker
