// SPDX-License-Identifier: Apache-2.0
// How much of the past is kept: a pure decision about those that are there.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"

namespace starling::history {

struct Retention {
  absl::Duration age = absl::Hours(24 * 90);  // since its object was gone
  std::int64_t jobs = 100'000;
  std::int64_t bytes = std::int64_t{1} << 30;  // of what is kept, as text
};

// What one job, or all of them, take.
struct Space {
  std::int64_t jobs = 0;
  std::int64_t bytes = 0;
};

// A job whose object is gone; the others are never forgotten.
struct Forgettable {
  std::string uid;
  absl::Time gone;
  std::int64_t bytes = 0;
};

// How many of the first of `oldest`, the longest gone first, are to be forgotten so that the rest
// is within the limits. `all` counts those whose objects are there too.
std::size_t ChooseForgotten(const std::vector<Forgettable>& oldest, Space all,
                            const Retention& retention, absl::Time now);

}  // namespace starling::history
