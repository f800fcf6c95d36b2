// SPDX-License-Identifier: Apache-2.0
#include "trainer/transport/spin.h"

#include <algorithm>
#include <cstdlib>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace starling::transport {
namespace {

constexpr int kMostMicroseconds = 1'000'000;

bool Allows(SpinRule rule, int ranks_here, int cores) {
  switch (rule) {
    case SpinRule::kWhereCoresSuffice:
      return cores >= ranks_here;
    case SpinRule::kWhereACoreIsLeft:
      return ranks_here > 1 && cores > ranks_here;
    case SpinRule::kAlways:
      return true;
  }
  return false;
}

}  // namespace

SpinLimits LimitsOf(const Spin& wanted, int ranks_here, int cores) {
  const auto where = [&](SpinRule rule, absl::Duration time) {
    return Allows(rule, ranks_here, cores) ? time : absl::ZeroDuration();
  };
  const absl::Duration others_idle = ranks_here > 1 ? wanted.others_idle : absl::ZeroDuration();
  return {.time = where(wanted.rule, wanted.time),
          .others_idle = where(SpinRule::kWhereCoresSuffice, others_idle),
          .at_sum = wanted.at_sum,
          .oversubscribed = ranks_here > cores};
}

SpinWait::Next SpinWait::Decide(std::int64_t since, std::int64_t now, bool at_sum) {
  if (now == since) BeginPoll();
  absl::Duration limit = limits_.time;
  if (at_sum) limit = std::max(limit, limits_.at_sum);
  if (others_idle_ && now >= backoff_until_) limit = std::max(limit, limits_.others_idle);
  const std::int64_t polled = now - since;
  if (polled >= absl::ToInt64Nanoseconds(limit)) return Next::kSleep;
  return polled >= kYieldAfter || limits_.oversubscribed ? Next::kYield : Next::kPoll;
}

void SpinWait::BeginPoll() {
  if (yielded_) backoff_ = std::clamp(late_ ? 4 * backoff_ : backoff_ / 2, kShortest, kLongest);
  yielded_ = late_ = false;
}

// What happens while others of this process compute says nothing about the time when they do not.
void SpinWait::Yielded(std::int64_t from, std::int64_t to) {
  if (!others_idle_) return;
  yielded_ = true;
  if (to - from < kLate) return;
  late_ = true;
  backoff_until_ = to + backoff_;
}

absl::StatusOr<Spin> ParseSpin(std::string_view text) {
  if (text.empty())
    return Spin{
        .time = kJobSpin, .rule = SpinRule::kWhereACoreIsLeft, .others_idle = kJobSpinOthersIdle};
  int microseconds = 0;
  const bool number = absl::SimpleAtoi(absl::string_view(text.data(), text.size()), &microseconds);
  if (number && microseconds >= 0 && microseconds <= kMostMicroseconds) {
    const absl::Duration time = absl::Microseconds(microseconds);
    return Spin{.time = time, .rule = SpinRule::kAlways, .at_sum = time};
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "STARLING_SPIN is \"", std::string(text),
      "\"; it must be a number of microseconds from 0 (never) to ", kMostMicroseconds));
}

absl::StatusOr<Spin> SpinOfJob() {
  const char* const text = std::getenv("STARLING_SPIN");
  return ParseSpin(text == nullptr ? "" : text);
}

}  // namespace starling::transport
