// SPDX-License-Identifier: Apache-2.0
// Matrix factorization under managed communication: two workers factor the digits' images (a matrix
// of samples by pixels) with the rows of both factors at a server, and changed rows travel early
// as far as EagerSender's budget goes. In made-up time.
#pragma once

#include <cstdint>

#include "trainer/consistency/consistency.h"

namespace starling::techniques {

struct FactorizationOptions {
  std::uint64_t seed = 1;
  consistency::Priority priority = consistency::Priority::kFifo;
  bool budgeted = true;
};

struct FactorizationResult {
  std::int64_t updates = 0;   // entries looked at until the server's loss was at its target
  double seconds = 0;         // made-up
  double busiest_second = 0;  // bytes of a worker in any one second, beside the budget
  std::int64_t too_old = 0;   // reads without all clocks that they were promised
};

FactorizationResult Factorize(const FactorizationOptions& options);

}  // namespace starling::techniques
