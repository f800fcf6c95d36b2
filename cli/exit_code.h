// SPDX-License-Identifier: Apache-2.0
// What the program's exit code says; scripts rely on it, `starling help` lists it.
#pragma once

#include "absl/status/status.h"

namespace starling::cli {

inline constexpr int kSuccess = 0;
inline constexpr int kFailed = 1;  // the job failed, or the command did
inline constexpr int kUsage = 2;   // wrong usage, or a file or value that is wrong
inline constexpr int kNotFound = 3;
inline constexpr int kTimeout = 5;
inline constexpr int kInterrupted = 130;

int ExitCodeOf(const absl::Status& status);

}  // namespace starling::cli
