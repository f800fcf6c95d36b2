// SPDX-License-Identifier: Apache-2.0
#include "trainer/coordinator/event_loop.h"

#include <utility>

namespace starling::coordinator {

void EventQueue::Post(std::function<void()> event) {
  sync::MutexLock lock(mutex_);
  if (closed_ && holds_ == 0) return;
  events_.push_back(std::move(event));
  changed_.NotifyAll();
}

std::function<void()> EventQueue::Take(net::Deadline deadline) {
  sync::MutexLock lock(mutex_);
  while (events_.empty() && !OverLocked() && !deadline.Expired()) {
    changed_.WaitFor(mutex_, deadline.Remaining());
  }
  if (events_.empty()) return nullptr;
  std::function<void()> event = std::move(events_.front());
  events_.pop_front();
  return event;
}

void EventQueue::Hold() {
  sync::MutexLock lock(mutex_);
  ++holds_;
}

void EventQueue::PostLast(std::function<void()> event) {
  sync::MutexLock lock(mutex_);
  events_.push_back(std::move(event));
  --holds_;
  changed_.NotifyAll();
}

void EventQueue::Close() {
  sync::MutexLock lock(mutex_);
  closed_ = true;
  changed_.NotifyAll();
}

bool EventQueue::Over() {
  sync::MutexLock lock(mutex_);
  return OverLocked();
}

bool EventQueue::OverLocked() const { return closed_ && events_.empty() && holds_ == 0; }

EventLoop::EventLoop(std::shared_ptr<EventQueue> queue, absl::Duration period,
                     std::function<void()> tick)
    : period_(period),
      tick_(std::move(tick)),
      queue_(std::move(queue)),
      thread_([this] { Serve(); }) {}

EventLoop::~EventLoop() {
  queue_->Close();
  thread_.join();
}

void EventLoop::Run(const std::function<void()>& event) {
  sync::Mutex mutex;
  sync::Condition ran;
  bool done = false;
  queue_->Post([&] {
    event();
    sync::MutexLock lock(mutex);
    done = true;
    ran.NotifyAll();
  });
  sync::MutexLock lock(mutex);
  while (!done) ran.Wait(mutex);
}

void EventLoop::Serve() {
  net::Deadline next_tick = net::Deadline::After(period_);
  while (!queue_->Over()) {
    const std::function<void()> event = queue_->Take(next_tick);
    if (event) event();
    if (!next_tick.Expired()) continue;
    tick_();
    next_tick = net::Deadline::After(period_);
  }
}

}  // namespace starling::coordinator
