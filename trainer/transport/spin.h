// SPDX-License-Identifier: Apache-2.0
// Whether a thread that waits for a mesh polls for a while before it sleeps. Waking up costs 30 to
// 60 microseconds and polling 2, but a thread that polls takes a core from others that compute.
//
// Pure functions decide, by how many ranks of the mesh share memory (are on this machine), how many
// cores there are for them, and whether others of this process compute meanwhile. To add a rule: a
// value of SpinRule, a row in spin_test.cc.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace starling::transport {

enum class SpinRule {
  kWhereCoresSuffice,  // each rank on this machine has a core
  kWhereACoreIsLeft,   // and there is one more; where none shares memory, polling gains little
  kAlways,             // somebody has said so
};

struct Spin {
  absl::Duration time = absl::ZeroDuration();
  SpinRule rule = SpinRule::kWhereCoresSuffice;
  // At least so long while no other thread of this process has work (Mesh::SetOthersIdle), where
  // some rank shares memory and each of those has a core.
  absl::Duration time_alone = absl::ZeroDuration();
};

// `ranks_here` counts this rank and those with which it shares memory.
absl::Duration AllowedSpin(const Spin& wanted, int ranks_here, int cores, bool others_idle = false);

// Whether others want the cores on which one thread polls. Who polls gives way to them now and
// then; where it comes back late, somebody has run meanwhile, and may want to again. Who sleeps is
// served sooner then than who gives way, so nobody polls for a while. Times are monotonic
// nanoseconds.
class Crowding {
 public:
  static constexpr std::int64_t kLate = 20'000;
  static constexpr std::int64_t kShortest = 100'000;
  static constexpr std::int64_t kLongest = 20'000'000;

  // A thread begins to poll. The while is longer each time that it was late when it last polled,
  // and shorter again each time that it gave way and nobody wanted the core.
  void Begin() {
    if (gave_way_) lasts_ = std::clamp(late_ ? 4 * lasts_ : lasts_ / 2, kShortest, kLongest);
    gave_way_ = late_ = false;
  }
  void GaveWay(std::int64_t from, std::int64_t to) {
    gave_way_ = true;
    if (to - from < kLate) return;
    late_ = true;
    until_ = to + lasts_;
  }
  bool At(std::int64_t now) const { return now < until_; }

 private:
  bool gave_way_ = false;
  bool late_ = false;
  std::int64_t until_ = 0;
  std::int64_t lasts_ = kShortest;
};

// What members of a job do. `text` is STARLING_SPIN, in microseconds: always so long (0: never);
// empty: kJobSpin where a core is left, kJobSpinAlone as Spin says. INVALID_ARGUMENT if it is no
// number up to a second.
inline constexpr absl::Duration kJobSpin = absl::Microseconds(50);
inline constexpr absl::Duration kJobSpinAlone = absl::Microseconds(300);
absl::StatusOr<Spin> ParseSpin(std::string_view text);
// Of this process's environment.
absl::StatusOr<Spin> SpinOfJob();

}  // namespace starling::transport
