// SPDX-License-Identifier: Apache-2.0
#include "trainer/timeline/recorder.h"

#include <algorithm>
#include <vector>

namespace starling::timeline {
namespace {

void Put(const Event& event, std::int64_t epoch, v1alpha1::TraceEvent& to) {
  to.set_track(event.track);
  to.set_name(std::string(event.name));
  to.set_begin_nanos(absl::ToUnixNanos(event.begin));
  to.set_end_nanos(absl::ToUnixNanos(event.end));
  to.set_step(event.step);
  to.set_epoch(epoch);
  to.set_bucket(event.bucket);
  to.set_bytes(event.bytes);
  to.set_dense_bytes(event.dense_bytes);
  if (!event.algorithm.empty()) to.set_algorithm(std::string(event.algorithm));
  if (!event.transport.empty()) to.set_transport(std::string(event.transport));
  to.set_view(event.view);
}

}  // namespace

void Recorder::Add(Event event) {
  if (!on()) return;
  sync::MutexLock lock(mutex_);
  if (request_.empty()) return;
  if (event.end - asked_ > kForgotten) return End();
  if (event.end < begun_) return;
  if (events_.size() >= kMostEvents) {
    ++left_out_;
    return;
  }
  event.begin = std::max(event.begin, begun_);
  if (event.step == 0) event.step = step_;
  events_.push_back({event, event.step == step_ ? epoch_ : 0});
}

void Recorder::BeginStep(std::int64_t step, std::int64_t epoch) {
  if (!on()) return;
  sync::MutexLock lock(mutex_);
  step_ = step;
  epoch_ = epoch;
}

std::string_view Recorder::Keep(const std::string& text) {
  sync::MutexLock lock(mutex_);
  if (texts_.size() >= kMostTexts && !texts_.contains(text)) return "other";
  return *texts_.insert(text).first;
}

// Whoever works waits for the lock no longer than a copy takes: messages are made without it.
v1alpha1::TraceAnswer Recorder::Answer(const v1alpha1::TraceQuery& query) {
  v1alpha1::TraceAnswer answer;
  *answer.mutable_id() = self_;
  answer.set_lockstep(lockstep_.load(std::memory_order_relaxed));
  std::vector<Recorded> events;
  {
    sync::MutexLock lock(mutex_);
    asked_ = clock_.Now();
    answer.set_now_nanos(absl::ToUnixNanos(asked_));
    if (query.request().empty()) return answer;
    if (query.over()) {
      if (query.request() == request_) End();
      return answer;
    }
    if (query.request() != request_) Begin(query.request());
    // What has arrived is let go. One that knows of more than there was speaks of another process.
    if (query.after() <= first_ + events_.size()) {
      while (first_ < query.after()) {
        events_.pop_front();
        ++first_;
      }
    }
    answer.set_first(first_);
    answer.set_left_out(left_out_);
    const auto count = static_cast<std::ptrdiff_t>(std::min(events_.size(), kMostInAnswer));
    events.assign(events_.begin(), events_.begin() + count);
  }
  answer.mutable_events()->Reserve(static_cast<int>(events.size()));
  for (const Recorded& one : events) Put(one.event, one.epoch, *answer.add_events());
  return answer;
}

void Recorder::Begin(const std::string& request) {
  End();
  request_ = request;
  begun_ = asked_;
  on_.store(true, std::memory_order_relaxed);
}

void Recorder::End() {
  on_.store(false, std::memory_order_relaxed);
  request_.clear();
  std::deque<Recorded>().swap(events_);
  first_ = left_out_ = 0;
  step_ = epoch_ = 0;
}

}  // namespace starling::timeline
