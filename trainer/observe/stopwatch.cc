// SPDX-License-Identifier: Apache-2.0
#include "trainer/observe/stopwatch.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

namespace starling::observe {
namespace {

using Kind = membership::Standing::Kind;

constexpr std::array<Kind, kActivityNames.size()> kKinds = {
    Kind::kAnnounced,  // starting
    Kind::kAnnounced,  // joining
    Kind::kWorks,      // input
    Kind::kWorks,      // compute
    Kind::kWaits,      // exchange
    Kind::kWaits,      // waiting
    Kind::kWorks,      // optimizer
    Kind::kAnnounced,  // checkpoint
    Kind::kAnnounced,  // recovery
    Kind::kWorks,      // repeated
    Kind::kWaits,      // idle
};

bool IsWork(Activity activity) {
  return activity == Activity::kInput || activity == Activity::kCompute ||
         activity == Activity::kExchange || activity == Activity::kOptimizer;
}

std::size_t IndexOf(Activity activity) { return static_cast<std::size_t>(activity); }

}  // namespace

Doing DoingOf(Activity activity) {
  const std::size_t at = IndexOf(activity);
  return {activity, kKinds[at], kActivityNames[at]};
}

Stopwatch::Stopwatch(const clock::Clock& clock, absl::Time since, timeline::Recorder* recorder)
    : clock_(clock), recorder_(recorder), since_(std::min(since, clock.Now())) {}

absl::Time Stopwatch::Enter(const Doing& doing) {
  sync::MutexLock lock(mutex_);
  const absl::Time now = clock_.Now();
  spent_[IndexOf(activity_)] += now - since_;
  if (timeline::IsOn(recorder_) && now > since_) {
    recorder_->Add({.name = kActivityNames[IndexOf(activity_)], .begin = since_, .end = now});
  }
  since_ = now;
  doing_ = doing;
  const bool as_it_is =
      !counts_as_ || (counts_as_ == Activity::kRepeated && !IsWork(doing.activity));
  activity_ = as_it_is ? doing.activity : *counts_as_;
  Tell(now);
  return now;
}

void Stopwatch::CountAs(std::optional<Activity> activity) {
  sync::MutexLock lock(mutex_);
  counts_as_ = activity;
}

void Stopwatch::Move(Activity from, Activity to, absl::Duration duration) {
  sync::MutexLock lock(mutex_);
  const absl::Duration moved = std::clamp(duration, absl::ZeroDuration(), spent_[IndexOf(from)]);
  spent_[IndexOf(from)] -= moved;
  spent_[IndexOf(to)] += moved;
}

void Stopwatch::SetAnnounced(const char* what) {
  sync::MutexLock lock(mutex_);
  announced_ = what;
  Tell(clock_.Now());
}

void Stopwatch::Tell(absl::Time now) {
  const bool announced = announced_ != nullptr && doing_.kind == Kind::kWorks;
  pulse_.Enter(announced ? Kind::kAnnounced : doing_.kind, announced ? announced_ : doing_.where,
               now);
}

void Stopwatch::BeginView() {
  sync::MutexLock lock(mutex_);
  pulse_.SetThread(syscall(SYS_gettid));
  pulse_.Begin();
}

Activity Stopwatch::activity() const {
  sync::MutexLock lock(mutex_);
  return activity_;
}

Doing Stopwatch::doing() const {
  sync::MutexLock lock(mutex_);
  return doing_;
}

Seconds Stopwatch::Read() const {
  sync::MutexLock lock(mutex_);
  Seconds seconds;
  for (std::size_t i = 0; i < spent_.size(); ++i) {
    absl::Duration spent = spent_[i];
    if (i == IndexOf(activity_)) spent += clock_.Now() - since_;
    seconds[kActivityNames[i]] = absl::ToDoubleSeconds(spent);
  }
  return seconds;
}

membership::Standing Stopwatch::Look() {
  sync::MutexLock lock(mutex_);
  return pulse_.Look(clock_.Now());
}

}  // namespace starling::observe
