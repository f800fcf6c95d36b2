// SPDX-License-Identifier: Apache-2.0
#include "trainer/worker/stopwatch.h"

#include <sys/syscall.h>
#include <unistd.h>

namespace starling::worker {
namespace {

using Kind = membership::Standing::Kind;

constexpr std::array<Kind, kActivityNames.size()> kKinds = {
    Kind::kWaits, Kind::kWorks, Kind::kWorks, Kind::kWaits, Kind::kAnnounced, Kind::kAnnounced};

}  // namespace

void Stopwatch::Enter(Activity activity) {
  sync::MutexLock lock(mutex_);
  const absl::Time now = clock_.Now();
  spent_[static_cast<size_t>(activity_)] += now - since_;
  since_ = now;
  activity_ = activity;
  Tell(now);
}

void Stopwatch::Tell(absl::Time now) {
  const auto at = static_cast<size_t>(activity_);
  const bool announced = announced_ != nullptr && kKinds[at] == Kind::kWorks;
  pulse_.Enter(announced ? Kind::kAnnounced : kKinds[at],
               announced ? announced_ : kActivityNames[at], now);
}

void Stopwatch::SetAnnounced(const char* what) {
  sync::MutexLock lock(mutex_);
  announced_ = what;
  Tell(clock_.Now());
}

void Stopwatch::BeginView() {
  sync::MutexLock lock(mutex_);
  pulse_.SetThread(syscall(SYS_gettid));
  pulse_.Begin();
}

membership::Standing Stopwatch::Look() {
  sync::MutexLock lock(mutex_);
  return pulse_.Look(clock_.Now());
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
