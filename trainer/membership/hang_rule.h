// SPDX-License-Identifier: Apache-2.0
// Who hangs: a member whose process answers, but whose work stands still. A pure rule over what the
// members of a view say of themselves (Standing, pulse.h); docs/design/protocol.md has it as C7.
//
//   patience    of a member at work: `times` the 99th percentile of its own stretches of work, and
//               `floor` at least; `warm_up` for its first stretches in a view
//   together    the more members stand in their work at once, the likelier their machine is slow,
//               or the work itself: patience is multiplied by how many have stood there for at
//               least half as long
//   alone       where nobody waits or goes on meanwhile, nothing shows that it is not the machine:
//               patience is multiplied by `alone`
//
// So where all wait for each other in a reduction, the one that hangs is the one that has not
// contributed: whoever waits stands nowhere. What is announced (a validation, a copy, a checkpoint)
// is no hang, however long it takes, and who does it is nobody's witness. To add a reason for
// patience: a factor in PatienceWith().
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "absl/time/time.h"
#include "trainer/membership/pulse.h"
#include "trainer/membership/types.h"

namespace starling::membership {

struct HangRule {
  absl::Duration floor = absl::Seconds(2);
  double times = 5;
  // For the first stretches of work in a view.
  std::int64_t warm_up_stretches = Pulse::kWarmUp;
  absl::Duration warm_up = absl::Seconds(30);
  double alone = 10;
  // After one was found no other is, for so long: at most one is replaced at a time.
  absl::Duration pause = absl::Seconds(5);
  // Of older reports nothing is concluded.
  absl::Duration fresh = absl::Milliseconds(500);
};

// How long this member may stand in one stretch of work, were it the only one.
absl::Duration PatienceWith(const Standing& standing, const HangRule& rule);

// The index of the one that hangs, if one does. Members that say nothing of themselves, or have not
// for too long, are left out by the caller.
std::optional<std::size_t> WhoHangs(std::span<const Standing> members, const HangRule& rule);

}  // namespace starling::membership
