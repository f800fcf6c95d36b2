// SPDX-License-Identifier: Apache-2.0
// What the programs of members have in common beside the control service: how they read what they
// are given, how they are asked to leave, how they end.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "trainer/control/options.h"

namespace starling::v1alpha1 {
class TrainingJobSpec;
}  // namespace starling::v1alpha1

namespace starling::control {

inline constexpr int kFailed = 1;
inline constexpr int kBadInput = 2;
// It stood still, and ended so that it is started again, whatever the restart policy says of codes
// below 128. No signal has this number.
inline constexpr int kHung = 200;

// How a member's program begins: signals wait for WatchSignals, the log names `component`, the
// command line and the environment are read. Ends the process where they are wrong.
Options Begin(std::string_view component, int argc, char** argv);

absl::StatusOr<std::string> ReadFile(const std::string& path);
// The resolved spec; relative URIs start at the working directory.
absl::StatusOr<v1alpha1::TrainingJobSpec> ReadSpec(const std::string& path);

// Ends the process without static destructors: threads of ours may still run.
[[noreturn]] void Leave(int code);
// The same; the message is the log's last line, which the job's incident shows.
[[noreturn]] void Fail(int code, const absl::Status& status);

// The coordinator has found that this process hangs: writes where its threads are to the log, the
// one that hangs last (the end of the log is what the job's incident shows), and ends, whatever
// locks that one may hold. Its threads are not waited for.
[[noreturn]] void LeaveHung(std::int64_t thread);

// Turns the first SIGTERM or SIGINT into `terminate`, and calls `grace_over` so long afterwards, on
// a thread that ends with the process.
void WatchSignals(std::function<void()> terminate, absl::Duration grace,
                  std::function<void()> grace_over);

}  // namespace starling::control
