// SPDX-License-Identifier: Apache-2.0
// What the programs of members have in common beside the control service: how they read what they
// are given, how they are asked to leave, how they end.
#pragma once

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

// Turns the first SIGTERM or SIGINT into `terminate`, and calls `grace_over` so long afterwards, on
// a thread that ends with the process.
void WatchSignals(std::function<void()> terminate, absl::Duration grace,
                  std::function<void()> grace_over);

}  // namespace starling::control
