// SPDX-License-Identifier: Apache-2.0
// For tests: how long to wait for what other threads and processes do. No test that passes waits so
// long, so that it is long enough for a loaded machine under a sanitizer. Who runs tests that are
// to fail (tests/mutation) shortens it by STARLING_TEST_PATIENCE, in seconds.
#pragma once

#include <cstdlib>

#include "absl/strings/numbers.h"
#include "absl/time/time.h"

namespace starling::clock {

inline absl::Duration Patience(absl::Duration otherwise) {
  const char* const text = std::getenv("STARLING_TEST_PATIENCE");
  double seconds = 0;
  return text != nullptr && absl::SimpleAtod(text, &seconds) ? absl::Seconds(seconds) : otherwise;
}

}  // namespace starling::clock
