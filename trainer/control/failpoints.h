// SPDX-License-Identifier: Apache-2.0
// Named places at which a member's process can be made to end or to hang, to show that it may do so
// there: off unless STARLING_FAILPOINT says "name" or "name:n" (at the n-th time that the place is
// passed); "pod/name:n" means that pod only. What it does there is said before it, as in
// "stop@pod/name:n":
//
//   (nothing)   it is killed, as by kill -9
//   stop        the thread never returns
//   loop        the thread never returns, and computes
//   pause       the thread goes on after eight seconds
//
// It is meant for a pod's first process: whoever is started after it has no failpoint. To add a
// place: pass its name to Hit() there, and for a server list it in shard_server_test.cc, which
// kills one at each. To add a deed: a row in failpoints.cc.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"
#include "common/sync/mutex.h"
#include "trainer/control/options.h"

namespace starling::control {

struct Failpoint {
  std::string name;
  std::int64_t passes = 1;
  std::string pod = {};   // empty: any
  std::string deed = {};  // empty: a kill
};

// Of the environment variable's text; empty: none. INVALID_ARGUMENT for what cannot be read.
absl::StatusOr<std::optional<Failpoint>> ParseFailpoint(std::string_view text);
// Of this process's environment, if it is meant.
absl::StatusOr<std::optional<Failpoint>> FailpointOf(const Options& options);
// What is done at that place; of none, nothing.
std::function<void()> DeedOf(const std::optional<Failpoint>& point);

// Thread-safe.
class Failpoints {
 public:
  // `deed` ends the process, or stands in its way; a test's marks it as ended instead.
  Failpoints(std::optional<Failpoint> armed, std::function<void()> deed)
      : deed_(std::move(deed)), armed_(std::move(armed)) {}

  // In the place of whatever was armed; passes are counted from now on.
  void Arm(Failpoint point) {
    const sync::MutexLock lock(mutex_);
    armed_ = std::move(point);
  }

  // True: this was the place, and the deed was done.
  bool Hit(std::string_view name) {
    {
      const sync::MutexLock lock(mutex_);
      if (!armed_ || armed_->name != name || --armed_->passes > 0) return false;
      armed_.reset();
    }
    deed_();
    return true;
  }

 private:
  const std::function<void()> deed_;
  sync::Mutex mutex_;
  std::optional<Failpoint> armed_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace starling::control
