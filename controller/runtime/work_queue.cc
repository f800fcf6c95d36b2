// SPDX-License-Identifier: Apache-2.0
#include "controller/runtime/work_queue.h"

#include <algorithm>
#include <cmath>

namespace starling::runtime {

void WorkQueue::AddLocked(const Key& key) {
  if (shut_down_ || !dirty_.insert(key).second) return;
  if (processing_.contains(key)) return;  // Done() hands it out again
  ready_.push_back(key);
  changed_.NotifyOne();
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
  delayed_.emplace(when, key);
  changed_.NotifyAll();
}

void WorkQueue::AddAfter(const Key& key, absl::Duration delay) {
  sync::MutexLock lock(mutex_);
  AddAfterLocked(key, delay);
}

// SplitMix64 (Steele et al. 2014): delays need spread, not secrecy.
double WorkQueue::RandomShare() {
  std::uint64_t z = back_off_.seed += 0x9e3779b97f4a7c15U;
  z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9U;
  z = (z ^ (z >> 27U)) * 0x94d049bb133111ebU;
  return static_cast<double>((z ^ (z >> 31U)) >> 11U) * 0x1p-53;
}

void WorkQueue::AddBackedOff(const Key& key) {
  sync::MutexLock lock(mutex_);
  const int failures = failures_[key]++;
  const double growth = std::pow(back_off_.factor, std::min(failures, 64));
  const absl::Duration delay = std::min(back_off_.first * growth, back_off_.longest);
  AddAfterLocked(key, delay * (1.0 + back_off_.jitter * RandomShare()));
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
  dirty_.erase(key);
  processing_.insert(key);
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
  processing_.erase(key);
  if (shut_down_ || !dirty_.contains(key)) return;
  ready_.push_back(key);
  changed_.NotifyOne();
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
