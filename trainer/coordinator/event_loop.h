// SPDX-License-Identifier: Apache-2.0
// One thread that owns the coordinator's state: gRPC's threads only post to it.
//
// Whatever is posted runs in order on that thread, so that nothing behind it needs a lock. The tick
// runs in between, about every `period`. A call of our own is not over before gRPC says so: it
// holds the queue, and the loop does not end before the last event of every holder.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <thread>

#include "absl/time/time.h"
#include "common/net/deadline.h"
#include "common/sync/mutex.h"

namespace starling::coordinator {

// Thread-safe.
class EventQueue {
 public:
  // Never blocks.
  void Post(std::function<void()> event);
  // The next event; an empty one when `deadline` has come first.
  std::function<void()> Take(net::Deadline deadline);
  // Keeps the loop going until PostLast.
  void Hold();
  // Posts a holder's last event, and lets go.
  void PostLast(std::function<void()> event);
  // Drops what is posted from now on, unless somebody holds.
  void Close();
  // Closed, and nothing is left or to come.
  bool Over();

 private:
  bool OverLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  sync::Mutex mutex_;
  sync::Condition changed_;
  std::deque<std::function<void()>> events_ ABSL_GUARDED_BY(mutex_);
  int holds_ ABSL_GUARDED_BY(mutex_) = 0;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
};

// Thread-safe.
class EventLoop {
 public:
  EventLoop(std::shared_ptr<EventQueue> queue, absl::Duration period, std::function<void()> tick);
  // Runs what is posted already, and what holders post, then ends.
  ~EventLoop();
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  // Posts and waits until it has run. Not to be called on the loop's own thread.
  void Run(const std::function<void()>& event);

 private:
  void Serve();

  const absl::Duration period_;
  const std::function<void()> tick_;
  const std::shared_ptr<EventQueue> queue_;
  std::thread thread_;
};

}  // namespace starling::coordinator
