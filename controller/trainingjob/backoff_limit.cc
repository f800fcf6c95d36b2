// SPDX-License-Identifier: Apache-2.0
// backoffLimit: how many pods may fail without a new step between them, and how long to wait
// before the next try. Evictions, deletions and lost nodes are not failures.
#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "controller/trainingjob/policies.h"

namespace starling::trainingjob {
namespace {

// The first two replacements are created immediately; a pod that keeps failing is not restarted
// without pause.
constexpr std::int64_t kFreeRestarts = 2;
constexpr absl::Duration kFirstDelay = absl::Milliseconds(200);
constexpr absl::Duration kLongestDelay = absl::Seconds(10);
// Of attempts that the API server refuses: a quota may be raised, a name become free.
constexpr absl::Duration kFirstRetry = absl::Milliseconds(200);
constexpr absl::Duration kLongestRetry = absl::Seconds(30);

absl::Duration Grow(absl::Duration first, std::int64_t times, absl::Duration longest) {
  const double factor = std::pow(2.0, static_cast<double>(std::clamp<std::int64_t>(times, 0, 16)));
  return std::min(first * factor, longest);
}

const v1alpha1::Incident* LastFailure(const v1alpha1::TrainingJobStatus& status) {
  const v1alpha1::Incident* last = nullptr;
  for (const v1alpha1::Incident& incident : status.incidents()) {
    if (!incident.has_exit_code()) continue;
    if (last == nullptr || ToTime(incident.time()) >= ToTime(last->time())) last = &incident;
  }
  return last;
}

}  // namespace

void FailByBackoffLimit(Pass& pass) {
  const std::int64_t limit = pass.observed.spec.run_policy().backoff_limit();
  if (pass.status.failures() <= limit) return;
  std::string message = absl::StrCat(pass.status.failures(),
                                     " pods failed without a step of progress between them, more "
                                     "than backoffLimit allows (",
                                     limit, ")");
  if (const v1alpha1::Incident* last = LastFailure(pass.status); last != nullptr) {
    absl::StrAppend(&message, "; the last: ", last->message());
    if (!last->log_tail().empty()) absl::StrAppend(&message, ": ", last->log_tail());
  }
  FinishJob(pass, false, "BackoffLimitExceeded", std::move(message));
}

absl::Duration RestartDelay(const Pass& pass) {
  const std::int64_t beyond = pass.status.failures() - kFreeRestarts;
  const v1alpha1::Incident* last = LastFailure(pass.status);
  if (beyond <= 0 || last == nullptr) return absl::ZeroDuration();
  const absl::Duration delay = Grow(kFirstDelay, beyond - 1, kLongestDelay);
  const absl::Duration left = ToTime(last->time()) + delay - pass.now;
  // By the clock of its node it failed long after now: how long ago that is nobody knows, and a pod
  // that waited for that time to come might wait for hours.
  if (left > 2 * delay) return absl::ZeroDuration();
  return std::clamp(left, absl::ZeroDuration(), delay);
}

absl::Duration RetryDelay(int attempts) { return Grow(kFirstRetry, attempts - 1, kLongestRetry); }

absl::Duration RefusalDelay(const std::optional<Refusal>& refusal, absl::Time now) {
  if (!refusal.has_value()) return absl::ZeroDuration();
  const absl::Duration delay = RetryDelay(refusal->attempts);
  return std::clamp(refusal->at + delay - now, absl::ZeroDuration(), delay);
}

absl::Duration RefusalDelay(const Pass& pass) {
  return RefusalDelay(pass.observed.refusal, pass.now);
}

}  // namespace starling::trainingjob
