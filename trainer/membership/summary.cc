// SPDX-License-Identifier: Apache-2.0
#include "trainer/membership/summary.h"

namespace starling::membership {

Summary NewsOf(Summary summary) {
  summary.settled_step = 0;
  summary.training.bytes.clear();
  for (MemberState& member : summary.members) {
    member.silent = absl::ZeroDuration();
    member.settled_step = 0;
  }
  return summary;
}

}  // namespace starling::membership
