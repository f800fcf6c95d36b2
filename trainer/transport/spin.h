// SPDX-License-Identifier: Apache-2.0
// Whether a thread that waits for a mesh polls for a while before it sleeps. Waking up costs about
// 30 microseconds and polling 2, but a thread that polls takes a core from others that compute.
//
// Pure functions decide, by how many ranks of the mesh share memory (are on this machine) and how
// many cores there are for them. To add a rule: a value of SpinRule, a row in spin_test.cc.
#pragma once

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
};

// `ranks_here` counts this rank and those with which it shares memory.
absl::Duration AllowedSpin(const Spin& wanted, int ranks_here, int cores);

// What members of a job do. `text` is STARLING_SPIN, in microseconds: always so long (0: never);
// empty: kJobSpin where a core is left. INVALID_ARGUMENT if it is no number up to a second.
inline constexpr absl::Duration kJobSpin = absl::Microseconds(50);
absl::StatusOr<Spin> ParseSpin(std::string_view text);
// Of this process's environment.
absl::StatusOr<Spin> SpinOfJob();

}  // namespace starling::transport
