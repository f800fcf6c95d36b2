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

WorkQueue::Line& WorkQueue::LineOf(Turn turn) { return turn == Turn::kNew ? new_ : under_way_; }

void WorkQueue::TellDepth() {
  metrics_.depth.Set(static_cast<double>(under_way_.size() + new_.size()));
}

void WorkQueue::MakeReady(const Key& key, Waiting& waiting) {
  waiting.place = ++places_;
  LineOf(waiting.turn).emplace(waiting.place, key);
  TellDepth();
}

void WorkQueue::WakeOne() {
  if (idle_ > 0) {
    changed_.NotifyOne();
  } else if (watching_) {
    due_changed_.NotifyOne();
  }
}

bool WorkQueue::AddLocked(const Key& key, Turn turn) {
  if (shut_down_) return false;
  const auto [known, added] = dirty_.try_emplace(key, Waiting{clock_.Now(), turn});
  Waiting& waiting = known->second;
  if (!added) {
    if (turn == waiting.turn || turn == Turn::kNew) return false;
    if (waiting.place != 0) LineOf(waiting.turn).erase(waiting.place);
    waiting.turn = turn;
    if (waiting.place != 0) MakeReady(key, waiting);
    return false;
  }
  metrics_.adds.Increment();
  if (processing_.contains(key)) return false;  // Done() hands it out again
  MakeReady(key, waiting);
  return true;
}

void WorkQueue::Add(const Key& key) {
  sync::MutexLock lock(mutex_);
  if (AddLocked(key)) WakeOne();
}

void WorkQueue::AddNew(const Key& key) {
  sync::MutexLock lock(mutex_);
  if (AddLocked(key, Turn::kNew)) WakeOne();
}

void WorkQueue::AddAfterLocked(const Key& key, absl::Duration delay) {
  if (delay <= absl::ZeroDuration()) {
    if (AddLocked(key)) WakeOne();
    return;
  }
  if (shut_down_) return;
  const absl::Time when = clock_.Now() + delay;
  const auto [known, inserted] = due_.try_emplace(key, when);
  if (!inserted) {
    if (known->second <= when) return;
    delayed_.erase({known->second, key});
    known->second = when;
  }
  // Who watches must wake earlier only if this key is due before all others.
  // Two statements: within one, begin() may be taken before there is the new key.
  const auto added = delayed_.emplace(when, key).first;
  if (added != delayed_.begin()) return;
  if (watching_) {
    due_changed_.NotifyOne();
  } else {
    changed_.NotifyOne();
  }
}

void WorkQueue::AddAfter(const Key& key, absl::Duration delay) {
  sync::MutexLock lock(mutex_);
  AddAfterLocked(key, delay);
}

void WorkQueue::AddBackedOff(const Key& key) {
  sync::MutexLock lock(mutex_);
  metrics_.retries.Increment();
  const absl::Duration delay = DelayAfter(back_off_, failures_[key]++, jitter_.Next());
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

WorkQueue::Turn WorkQueue::NextTurn() {
  if (new_.empty() || (!under_way_.empty() && in_a_row_ < kInARow)) {
    in_a_row_ = new_.empty() ? 0 : in_a_row_ + 1;
    return Turn::kUnderWay;
  }
  in_a_row_ = 0;
  return Turn::kNew;
}

std::optional<Key> WorkQueue::TakeLocked() {
  MoveDueLocked();
  if (shut_down_ || (under_way_.empty() && new_.empty())) return std::nullopt;
  Line& line = LineOf(NextTurn());
  Key key = std::move(line.begin()->second);
  line.erase(line.begin());
  const absl::Time now = clock_.Now();
  const auto added = dirty_.find(key);
  TellDepth();
  metrics_.queue_seconds.Observe(absl::ToDoubleSeconds(now - added->second.since));
  dirty_.erase(added);
  processing_[key] = now;
  return key;
}

void WorkQueue::AwaitChange() {
  if (delayed_.empty() || watching_) {
    ++idle_;
    changed_.Wait(mutex_);
    --idle_;
    return;
  }
  watching_ = true;
  due_changed_.WaitFor(mutex_, delayed_.begin()->first - clock_.Now());
  watching_ = false;
}

std::optional<Key> WorkQueue::Get() {
  sync::MutexLock lock(mutex_);
  while (!shut_down_) {
    if (std::optional<Key> key = TakeLocked()) {
      const bool ready = !under_way_.empty() || !new_.empty();
      if (ready || (!watching_ && !delayed_.empty())) WakeOne();
      return key;
    }
    AwaitChange();
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
  const auto again = dirty_.find(key);
  if (shut_down_ || again == dirty_.end()) return;
  MakeReady(key, again->second);
  WakeOne();
}

void WorkQueue::ShutDown() {
  sync::MutexLock lock(mutex_);
  shut_down_ = true;
  changed_.NotifyAll();
  due_changed_.NotifyAll();
}

std::size_t WorkQueue::size() const {
  sync::MutexLock lock(mutex_);
  return under_way_.size() + new_.size();
}

std::optional<absl::Time> WorkQueue::next_due() const {
  sync::MutexLock lock(mutex_);
  if (delayed_.empty()) return std::nullopt;
  return delayed_.begin()->first;
}

}  // namespace starling::runtime
