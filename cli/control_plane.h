// SPDX-License-Identifier: Apache-2.0
// The one controller process of a home: is there one, start one, keep one going, end it.
//
// A controller holds an flock on HOME/controller.lock while it lives, with its pid in the file, and
// writes HOME/controller.json when it is ready. `up` starts one that stays; `run` makes sure that
// there is one, which ends when no job is left to do.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cli/session.h"
#include "common/process/process.h"

namespace starling::cli {

// The pid of the process that holds an flock on the file, as /proc/locks tells; nothing if nobody
// does. Asking takes no lock, so it is never in a starting controller's way.
std::optional<pid_t> LockHolder(const std::string& lock_file);

// The same of the text of /proc/locks, for the inode of a file.
std::optional<pid_t> ParseLockHolder(std::string_view locks, std::uint64_t inode);

bool ControllerRuns(const Home& home);

// Started by us; runs on when we end.
absl::StatusOr<process::Process> StartController(const Session& session, bool stay);

// Confined to the main thread.
class ControllerKeeper {
 public:
  explicit ControllerKeeper(Session& session) : session_(session) {}

  // Starts a controller if there is none; call it often. Unavailable when several in a row have
  // ended immediately, with the end of their log.
  absl::Status Tend();

  // Whether one has been started in the place of one that had ended, since the last question.
  bool TakeRestarted() { return std::exchange(restarted_, false); }

 private:
  Session& session_;
  process::Process child_;
  absl::Time started_ = absl::InfinitePast();
  absl::Time next_look_ = absl::InfinitePast();
  int quick_ends_ = 0;
  bool seen_ = false;  // there has been one since we began
  bool restarted_ = false;
};

// The last `lines` lines of a text file, or what is there of them.
std::string LastLines(const std::string& path, int lines);

}  // namespace starling::cli
