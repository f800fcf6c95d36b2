// SPDX-License-Identifier: Apache-2.0
// A timeline of a job that somebody asks for (`starling trace`): an annotation of the job, which
// anybody may write who may patch it.
//
//   starling.dev/trace-requested: "steps=50,seconds=30,at=2026-11-23T03:00:00.123456789Z"
//
// Its text is a word, new for each request; by our own hands it ends with the time. What was
// recorded for it is in the ConfigMap JOB-trace, under the key trace.json.gz, beside the same
// annotation.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace starling::spec {

inline constexpr char kTraceRequest[] = "starling.dev/trace-requested";
inline constexpr char kTraceKey[] = "trace.json.gz";
std::string TraceConfigName(const std::string& job);

struct TraceWish {
  std::int64_t steps = 50;                  // of each worker
  absl::Duration time = absl::Seconds(30);  // then whatever there is
};
inline constexpr std::int64_t kMostTraceSteps = 10'000;
inline constexpr absl::Duration kMostTraceTime = absl::Minutes(10);

// What is asked for, its first 128 bytes; empty: nothing. `job` is a TrainingJob in whatever state.
std::string TraceRequestOf(const nlohmann::json& job);
// What it wishes: anybody may have written it, so what cannot be read is as if left out, and what
// is too much is the most.
TraceWish ReadTraceRequest(const std::string& request);

// INVALID_ARGUMENT for a wish that is out of bounds.
absl::Status CheckTraceWish(const TraceWish& wish);
// FailedPrecondition if of this job nothing will be recorded now, with the reason and what to do.
absl::Status CheckTraceRequest(const nlohmann::json& job);

// A merge patch that asks for one, of this very job. `now`: no two requests may have the same.
nlohmann::json TraceRequestPatch(const nlohmann::json& job, const TraceWish& wish, absl::Time now);
// One that takes back what was asked for.
nlohmann::json TraceWithdrawal(const nlohmann::json& job);

}  // namespace starling::spec
