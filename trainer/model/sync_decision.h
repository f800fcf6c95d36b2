// SPDX-License-Identifier: Apache-2.0
// The decision of the sync round, taken by the product's own function (membership::DecideSync) and
// remembered, since a search asks the same few questions millions of times. This is the only place
// of the model that changes when that function's arguments do.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "trainer/membership/rules.h"

namespace starling::model {

// What a round is asked, in small numbers.
struct SyncQuestion {
  struct Holding {
    int member = 0;
    int epoch = 0;  // that it synced last; 0: it has no state
    int index = 0;
  };
  struct Past {
    int epoch = 0;
    std::vector<int> members;
    bool waived = false;
  };
  int epoch = 0;
  std::vector<Holding> members;  // in the group's order
  std::vector<Past> since;
};

struct SyncDecision {
  int missing_witness = 0;   // epoch; 0: none
  std::uint8_t holders = 0;  // bit mask of members
};

class SyncDecider {
 public:
  explicit SyncDecider(membership::Rules rules) : rules_(rules) {}

  SyncDecision Decide(const SyncQuestion& question);

 private:
  const membership::Rules rules_;
  std::unordered_map<std::string, SyncDecision> known_;
};

}  // namespace starling::model
