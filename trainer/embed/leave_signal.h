// SPDX-License-Identifier: Apache-2.0
// SIGTERM in a program that is not ours: its handler only writes to an eventfd, and a thread of the
// library reads it. No signal is blocked, because processes that the program starts would inherit
// that and could not be ended; and what the program itself makes of SIGINT is left to it.
#pragma once

#include <functional>
#include <memory>
#include <thread>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/net/socket.h"

namespace starling::embed {

// One at a time in a process, whose handler of SIGTERM it is until it is destroyed.
class LeaveSignal {
 public:
  // The first SIGTERM becomes `terminate`, and `grace_over` is called so long afterwards, on a
  // thread of its own.
  static absl::StatusOr<std::unique_ptr<LeaveSignal>> Watch(std::function<void()> terminate,
                                                            absl::Duration grace,
                                                            std::function<void()> grace_over);
  ~LeaveSignal();
  LeaveSignal(const LeaveSignal&) = delete;
  LeaveSignal& operator=(const LeaveSignal&) = delete;

 private:
  LeaveSignal(net::FileDescriptor asked, net::FileDescriptor stop);

  net::FileDescriptor asked_;
  net::FileDescriptor stop_;
  std::thread thread_;
};

// In a process that was forked: SIGTERM ends it, as it would have without the library.
void ForgetLeaveSignal();

}  // namespace starling::embed
