// SPDX-License-Identifier: Apache-2.0
#include "trainer/membership/types.h"

namespace starling::membership {

int View::RankOf(const MemberId& id) const {
  for (std::size_t i = 0; i < members.size(); ++i) {
    if (members[i].id == id) return static_cast<int>(i);
  }
  return -1;
}

const char* PhaseName(Phase phase) {
  switch (phase) {
    case Phase::kOut:
      return "out";
    case Phase::kSync:
      return "sync";
    case Phase::kCopy:
      return "copy";
    case Phase::kRun:
      return "run";
    case Phase::kAborted:
      return "aborted";
    case Phase::kLost:
      return "lost";
    case Phase::kLinger:
      return "linger";
    case Phase::kDone:
      return "done";
  }
  return "unknown";
}

}  // namespace starling::membership
