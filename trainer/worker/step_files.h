// SPDX-License-Identifier: Apache-2.0
// Small files that tell other processes how far this worker is.
//
// The progress file (STARLING_PROGRESS_FILE) holds the newest settled step; the supervisor forgives
// restarts when it grows. The step log (STARLING_STEP_LOG, a prefix to which the pod's name is
// added) gets one line a completed step, "step <number> <unix seconds> <pid>", for benchmarks.
// Neither may hold training up: what cannot be written is told once and then left.
#pragma once

#include <cstdint>
#include <string>

#include "common/net/socket.h"

namespace starling::worker {

// Confined to the training loop's thread.
class StepFiles {
 public:
  // Empty paths: nothing is written.
  StepFiles(const std::string& progress_path, const std::string& log_path);

  void Settled(int64_t step);
  void Completed(int64_t step);

 private:
  net::FileDescriptor progress_;
  net::FileDescriptor log_;
};

}  // namespace starling::worker
