// SPDX-License-Identifier: Apache-2.0
#include "controller/runtime/work_queue.h"

#include <algorithm>

namespace starling::runtime {

void WorkQueue::UseMetrics(QueueMetrics metrics) {
  sync::MutexLock lock(mutex_);
  metrics_ = metrics;
}

void WorkQueue::UpdateAges() {
  sync::MutexLock lock(mutex_);
  const absl::Time now = clock_.Now();
  absl::Duration longest = absl::ZeroDuration();
  absl::Duration all = absl::ZeroDuration();
  for (const auto& [key, since] : processing_) {
    longest = std::max(longest, now - since);
    all += now - since;
  }
  metrics_.unfinished.Set(absl::ToDoubleSeconds(all));
  metrics_.longest.Set(absl::ToDoubleSeconds(longest));
}

void WorkQueue::MakeReady(const Key& key) {
  ready_.push_back(key);
  metrics_.depth.Set(static_cast<double>(ready_.size()));
  changed_.NotifyOne();
}

void WorkQueue::AddLocked(const Key& key) {
  if (shut_down_ || !dirty_.try_emplace(key, clock_.Now()).second) return;
  metrics_.adds.Increment();
  if (processing_.contains(key)) return;  // Done() hands it out again
  MakeReady(key);
}

void WorkQueue::Add(const Key& key) {
  sync::MutexLock lock(mutex_);
  AddLocked(key);
}

void WorkQueue::AddAfterLocked(const Key& key, absl::Duration delay) {
  if (delay <= absl::ZeroDuration()) return AddLocked(key);
  if (shut_down_) return;
  const absl::Time when = clock_.Now() + delay;
  const auto [known, inserted] = due_.try_emplace(key, when);
  if (!inserted) {
    if (known->second <= when) return;
    delayed_.erase({known->second, key});
    known->second = when;
  }
  // Who waits for the earliest key waits too long only if this one is earlier still.
  // Two statements: within one, begin() may be taken before there is the new key.
  const auto added = delayed_.emplace(when, key).first;
  if (added == delayed_.begin()) changed_.NotifyOne();
}

void WorkQueue::AddAfter(const Key& key, absl::Duration delay) {
  sync::MutexLock lock(mutex_);
  AddAfterLocked(key, delay);
}

void WorkQueue::AddBackedOff(const Key& key) {
  sync::MutexLock lock(mutex_);
  metrics_.retries.Increment();
  const absl::Duration delay = DelayAfter(back_off_, failures_[key]++, shares_.Next());
  AddAfterLocked(key, std::max(delay, retries_.Take(clock_.Now())));
}

void WorkQueue::Forget(const Key& key) {
  sync::MutexLock lock(mutex_);
  failures_.erase(key);
}

int WorkQueue::FailuresOf(const Key& key) const {
  sync::MutexLock lock(mutex_);
  const auto found = failures_.find(key);
  return found == failures_.end() ? 0 : found->second;
}

void WorkQueue::MoveDueLocked() {
  const absl::Time now = clock_.Now();
  while (!delayed_.empty() && delayed_.begin()->first <= now) {
    const Key key = delayed_.begin()->second;
    delayed_.erase(delayed_.begin());
    due_.erase(key);
    AddLocked(key);
  }
}

std::optional<Key> WorkQueue::TakeLocked() {
  MoveDueLocked();
  if (shut_down_ || ready_.empty()) return std::nullopt;
  Key key = std::move(ready_.front());
  ready_.pop_front();
  const absl::Time now = clock_.Now();
  const auto added = dirty_.find(key);
  metrics_.depth.Set(static_cast<double>(ready_.size()));
  metrics_.queue_seconds.Observe(absl::ToDoubleSeconds(now - added->second));
  dirty_.erase(added);
  processing_[key] = now;
  return key;
}

std::optional<Key> WorkQueue::Get() {
  sync::MutexLock lock(mutex_);
  while (!shut_down_) {
    if (std::optional<Key> key = TakeLocked()) return key;
    if (delayed_.empty()) {
      changed_.Wait(mutex_);
    } else {
      changed_.WaitFor(mutex_, delayed_.begin()->first - clock_.Now());
    }
  }
  return std::nullopt;
}

std::optional<Key> WorkQueue::TryGet() {
  sync::MutexLock lock(mutex_);
  return TakeLocked();
}

void WorkQueue::Done(const Key& key) {
  sync::MutexLock lock(mutex_);
  const auto begun = processing_.find(key);
  if (begun != processing_.end()) {
    metrics_.work_seconds.Observe(absl::ToDoubleSeconds(clock_.Now() - begun->second));
    processing_.erase(begun);
  }
  if (!shut_down_ && dirty_.contains(key)) MakeReady(key);
}

void WorkQueue::ShutDown() {
  sync::MutexLock lock(mutex_);
  shut_down_ = true;
  changed_.NotifyAll();
}

std::size_t WorkQueue::size() const {
  sync::MutexLock lock(mutex_);
  return ready_.size();
}

std::optional<absl::Time> WorkQueue::next_due() const {
  sync::MutexLock lock(mutex_);
  if (delayed_.empty()) return std::nullopt;
  return delayed_.begin()->first;
}

}  // namespace starling::runtime
