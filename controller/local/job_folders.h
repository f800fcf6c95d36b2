// SPDX-License-Identifier: Apache-2.0
// The folders of jobs and the FIFOs in them that tell pods that somebody still wants them.
//
// Whoever holds <job folder>/alive open keeps the job's pods running (common/process/alive_fifo.h).
#pragma once

#include <map>
#include <string>

#include "absl/status/status.h"
#include "common/process/alive_fifo.h"
#include "controller/local/folders.h"

namespace starling::local {

// Thread-compatible.
class JobFolders {
 public:
  explicit JobFolders(std::string home) : home_(std::move(home)) {}

  // Makes the folder and its FIFO if they are missing, and holds the FIFO open.
  absl::Status Hold(const JobReference& job);

  // Lets go of the FIFO; the folder stays.
  void Release(const JobReference& job);

  // Lets go and removes everything in it.
  void Remove(const JobReference& job);

 private:
  const std::string home_;
  std::map<std::string, process::AliveHold> held_;  // by the job's UID
};

}  // namespace starling::local
