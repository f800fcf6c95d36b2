// SPDX-License-Identifier: Apache-2.0
// Lets another thread end a call that waits.
#pragma once

#include "absl/status/status.h"
#include "common/net/socket.h"
#include "common/sync/mutex.h"

namespace starling::transport {

// Once cancelled, stays so. Thread-safe.
class Cancellation {
 public:
  // The first reason wins; it must not be OK.
  void Cancel(const absl::Status& reason);

  // OK, or the reason.
  absl::Status status() const;

  // Readable, for poll(2), once cancelled.
  int event() const { return event_.get(); }

 private:
  mutable sync::Mutex mutex_;
  absl::Status reason_ ABSL_GUARDED_BY(mutex_);
  net::EventFd event_;
};

}  // namespace starling::transport
