// SPDX-License-Identifier: Apache-2.0
// Where every thread of this process is: for the log of a process that stands still, so that people
// see the loop, the lock or the call that it does not come out of.
//
// Each thread is interrupted by a signal and writes down its own program counters; the caller finds
// names for them. A thread that does not take the signal (it stands in the kernel, or blocks it) is
// told with the call that it stands in, as far as /proc says it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"

namespace starling::control {

struct ThreadStack {
  std::int64_t thread = 0;  // as gettid() names it
  std::string name;
  std::string state;                // its letter in /proc, such as R (runs) or S (sleeps)
  std::vector<std::string> frames;  // the innermost first; empty: it did not answer
  std::string kernel;               // where it stands in the kernel, if it does and that is told
};

// At most so many frames of a thread.
inline constexpr int kMostFrames = 32;

// Of all threads but the caller's, `last` behind all others. Each has `patience` to answer. One
// call at a time.
std::vector<ThreadStack> StacksOfOtherThreads(std::int64_t last, absl::Duration patience);

// The frames as one text, "a < b < c", cut to so many bytes.
std::string InOneLine(const ThreadStack& stack, std::size_t most);

}  // namespace starling::control
