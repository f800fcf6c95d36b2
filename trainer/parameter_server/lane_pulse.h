// SPDX-License-Identifier: Apache-2.0
// What the thread of a lane is doing (membership/pulse.h), for whoever tells it.
//
//   const While serving(pulse, {Kind::kWorks, "serving"});   // until the end of the block
#pragma once

#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#include <utility>

#include "common/clock/clock.h"
#include "common/sync/mutex.h"
#include "trainer/membership/pulse.h"

namespace starling::parameter_server {

// Thread-safe.
class LanePulse {
 public:
  using Kind = membership::Standing::Kind;
  struct Doing {
    Kind kind = Kind::kWaits;
    const char* where = "idle";
  };

  // By the lane's thread; what it did before.
  Doing Enter(const Doing& doing) {
    const sync::MutexLock lock(mutex_);
    const Doing before = {pulse_.kind(), pulse_.where()};
    pulse_.Enter(doing.kind, doing.where, clock_.Now());
    return before;
  }
  // By the lane's thread, when it begins.
  void Begin() {
    const sync::MutexLock lock(mutex_);
    pulse_.SetThread(syscall(SYS_gettid));
    pulse_.Begin();
  }
  membership::Standing Look() {
    const sync::MutexLock lock(mutex_);
    return pulse_.Look(clock_.Now());
  }

 private:
  const clock::SystemClock clock_;
  sync::Mutex mutex_;
  membership::Pulse pulse_ ABSL_GUARDED_BY(mutex_);
};

// While it lives, the lane's thread does this; then what it did before.
class While {
 public:
  While(LanePulse& pulse, const LanePulse::Doing& doing)
      : pulse_(pulse), before_(pulse.Enter(doing)) {}
  ~While() { pulse_.Enter(before_); }
  While(const While&) = delete;
  While& operator=(const While&) = delete;

 private:
  LanePulse& pulse_;
  const LanePulse::Doing before_;
};

}  // namespace starling::parameter_server
