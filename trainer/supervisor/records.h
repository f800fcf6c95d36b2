// SPDX-License-Identifier: Apache-2.0
// The files in which a supervisor tells how things ended, as JSON, each whole or not there at all.
//
// The exit record is for the kubelet: a pod that it has adopted is nobody's child. The last exit is
// for the role's next process, whose first report carries it to the coordinator.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "common/process/exit_status.h"

namespace starling::supervisor {

struct ExitRecord {
  int exit_code = 0;  // the supervisor's own: 128 + signal when a signal ended the role
  int signal = 0;
  std::string reason;                 // Completed, Error, OOMKilled, StartError, Orphaned
  std::string message;                // the last log lines, or what went wrong
  std::int64_t started_at_nanos = 0;  // of the role's last process, since 1970
  std::int64_t finished_at_nanos = 0;
  int restarts = 0;  // in place, in all
};

std::string ToJson(const ExitRecord& record);

// The same in at most `most` bytes: of the message the oldest part is left out.
std::string ToShortJson(ExitRecord record, std::size_t most);

// {exitCode, signal, logTail, unixNanos}.
std::string LastExitJson(const process::ExitStatus& status, const std::string& log_tail,
                         std::int64_t unix_nanos);

std::int64_t UnixNanosNow();

// Writes a new file beside `path`, makes it durable if `sync`, and renames it there. Returns false
// if that failed; `path` then is as it was.
bool WriteFileAtomically(const std::string& path, std::string_view text, bool sync);

}  // namespace starling::supervisor
