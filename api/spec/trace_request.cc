// SPDX-License-Identifier: Apache-2.0
#include "api/spec/trace_request.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "api/spec/stored_job.h"

namespace starling::spec {
namespace {

constexpr std::size_t kLongestTraceRequest = 128;

std::string WhyNotRecorded(const nlohmann::json& job) {
  using Idle = Idleness::Kind;
  const Idleness idle = IdlenessOf(job);
  switch (idle.kind) {
    case Idle::kWorks:
      return "";
    case Idle::kFinished:
      return "is finished: nothing can be recorded any more; ask while it trains";
    case Idle::kDeleted:
      return "is being deleted";
    case Idle::kSuspended:
      return "is suspended; resume it first";
    case Idle::kManaged:
      return absl::StrCat("is managed by ", idle.manager, "; ask there");
    case Idle::kContainer:
      break;
  }
  return "brings its own container, whose steps nobody here sees; use its framework's profiler";
}

}  // namespace

std::string TraceConfigName(const std::string& job) { return job + "-trace"; }

std::string TraceRequestOf(const nlohmann::json& job) {
  return AnnotationIn(job, kTraceRequest, kLongestTraceRequest);
}

TraceWish ReadTraceRequest(const std::string& request) {
  TraceWish wish;
  const std::vector<std::string> parts = absl::StrSplit(request, ',');
  for (const std::string& part : parts) {
    const std::vector<std::string> pair = absl::StrSplit(part, absl::MaxSplits('=', 1));
    std::int64_t number = 0;
    if (pair.size() != 2 || !absl::SimpleAtoi(pair[1], &number) || number < 1) continue;
    if (pair[0] == "steps") wish.steps = std::min(number, kMostTraceSteps);
    if (pair[0] == "seconds") {
      wish.time = absl::Seconds(std::min(number, absl::ToInt64Seconds(kMostTraceTime)));
    }
  }
  return wish;
}

absl::Status CheckTraceWish(const TraceWish& wish) {
  if (wish.steps < 1 || wish.steps > kMostTraceSteps) {
    return absl::InvalidArgumentError(
        absl::StrCat("steps: must be a whole number from 1 to ", kMostTraceSteps));
  }
  if (wish.time < absl::Seconds(1) || wish.time > kMostTraceTime) {
    return absl::InvalidArgumentError(
        absl::StrCat("time: must be from 1s to ", absl::FormatDuration(kMostTraceTime)));
  }
  return absl::OkStatus();
}

absl::Status CheckTraceRequest(const nlohmann::json& job) {
  return RefusalBecause(job, WhyNotRecorded(job));
}

nlohmann::json TraceRequestPatch(const nlohmann::json& job, const TraceWish& wish, absl::Time now) {
  const std::string word =
      absl::StrCat("steps=", wish.steps,
                   ",seconds=", absl::ToInt64Seconds(absl::Ceil(wish.time, absl::Seconds(1))),
                   ",at=", RequestTime(now));
  return AnnotationPatch(job, kTraceRequest, word);
}

nlohmann::json TraceWithdrawal(const nlohmann::json& job) {
  return AnnotationPatch(job, kTraceRequest, nullptr);
}

}  // namespace starling::spec
