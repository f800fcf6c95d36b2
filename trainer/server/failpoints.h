// SPDX-License-Identifier: Apache-2.0
// Named places at which a server process can be made to end, to show that it may end there: off
// unless STARLING_FAILPOINT says "name" or "name:n" (at the n-th time that the place is passed);
// "pod/name:n" means the server of that pod only. It is meant for a pod's first process: whoever is
// started after it has no failpoint.
//
// To add a place: pass its name to Hit() there, and list it in slot_server_test.cc, which kills a
// server at each.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"
#include "common/sync/mutex.h"

namespace starling::server {

struct Failpoint {
  std::string name;
  std::int64_t passes = 1;
  std::string pod = {};  // empty: any
};

// Of the environment variable's text; empty: none. INVALID_ARGUMENT for what cannot be read.
absl::StatusOr<std::optional<Failpoint>> ParseFailpoint(std::string_view text);

// Thread-safe.
class Failpoints {
 public:
  // `end` ends the process; a test's marks it as ended instead.
  Failpoints(std::optional<Failpoint> armed, std::function<void()> end)
      : end_(std::move(end)), armed_(std::move(armed)) {}

  // In the place of whatever was armed; passes are counted from now on.
  void Arm(Failpoint point) {
    const sync::MutexLock lock(mutex_);
    armed_ = std::move(point);
  }

  // True: this was the place, and `end` was called.
  bool Hit(std::string_view name) {
    {
      const sync::MutexLock lock(mutex_);
      if (!armed_ || armed_->name != name || --armed_->passes > 0) return false;
      armed_.reset();
    }
    end_();
    return true;
  }

 private:
  const std::function<void()> end_;
  sync::Mutex mutex_;
  std::optional<Failpoint> armed_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace starling::server
