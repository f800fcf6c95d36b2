// SPDX-License-Identifier: Apache-2.0
// A checkpoint that somebody asks for, beside those that come with checkpoint.interval: an
// annotation of the job, which anybody may write who may patch it.
//
//   starling.dev/checkpoint-requested-at: "2026-11-23T03:00:00.123456789Z"
//
// Its text is a word, new for each request; by our own hands it is the time. What was written for
// it is in status.requestedCheckpoint, beside that word.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace starling::spec {

inline constexpr char kCheckpointRequest[] = "starling.dev/checkpoint-requested-at";

// What is asked for, its first 64 bytes; empty: nothing. `job` is a TrainingJob in whatever state.
std::string CheckpointRequestOf(const nlohmann::json& job);

// FailedPrecondition if this job will write none that is asked for now, with the reason and what to
// do instead.
absl::Status CheckCheckpointRequest(const nlohmann::json& job);

// A merge patch that asks for one, of this very job. `now`: no two requests may have the same.
nlohmann::json CheckpointRequestPatch(const nlohmann::json& job, absl::Time now);

}  // namespace starling::spec
