// SPDX-License-Identifier: Apache-2.0
// What one thread is doing and since when, for another thread of its process that tells it: so a
// process whose working thread stands still for ever can say so itself. The thread that works says
// what it does next (Enter); whoever reports looks, again and again (Look). From the lengths of its
// stretches of work follows what is usual for it. Whether it hangs is not decided here, but over
// all members (hang_rule.h).
//
// A process that was stopped, or a machine that slept, must not be taken for one that hangs. So of
// the time between two looks only a little counts: who looks was stopped as well.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/time/time.h"
#include "trainer/membership/types.h"

namespace starling::membership {

// Thread-compatible.
class Pulse {
 public:
  // Looks come several times in this.
  static constexpr absl::Duration kBetweenLooks = absl::Milliseconds(300);
  // The first stretches of a view are no measure of others: kernels are compiled, caches filled.
  static constexpr std::int64_t kWarmUp = 4;

  // From now on the thread does this; `where` is a literal. What is work before and after is one
  // stretch.
  void Enter(Standing::Kind kind, const char* where, absl::Time now);
  // The work of a view begins.
  void Begin() { stretches_ = 0; }
  // Of the thread, as the kernel numbers it.
  void SetThread(std::int64_t thread) { thread_ = thread; }

  Standing Look(absl::Time now);
  Standing::Kind kind() const { return kind_; }
  const char* where() const { return where_; }

 private:
  // The longest two of so many stretches are beyond the 99th percentile.
  static constexpr std::size_t kKept = 256;
  // Shorter ones are not kept: among thousands of them those that count would be forgotten.
  static constexpr absl::Duration kShortest = absl::Milliseconds(1);

  void Count(absl::Time now);
  absl::Duration Usual() const;

  Standing::Kind kind_ = Standing::Kind::kWaits;
  const char* where_ = "start";
  absl::Time counted_ = absl::InfiniteFuture();  // up to here
  absl::Duration since_;
  std::array<absl::Duration, kKept> lengths_ = {};
  std::size_t measured_ = 0;  // stretches of work, ever
  std::int64_t stretches_ = 0;
  std::int64_t thread_ = 0;
};

}  // namespace starling::membership
