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

absl::Duration AllowedSpin(const Spin& wanted, int ranks_here, int cores, bool others_idle) {
  const auto where = [](bool allowed, absl::Duration time) {
    return allowed ? time : absl::ZeroDuration();
  };
  const bool alone =
      others_idle && ranks_here > 1 && Allows(SpinRule::kWhereCoresSuffice, ranks_here, cores);
  return std::max(where(Allows(wanted.rule, ranks_here, cores), wanted.time),
                  where(alone, wanted.time_alone));
}

absl::StatusOr<Spin> ParseSpin(std::string_view text) {
  if (text.empty()) return Spin{kJobSpin, SpinRule::kWhereACoreIsLeft, kJobSpinAlone};
  int microseconds = 0;
  const bool number = absl::SimpleAtoi(absl::string_view(text.data(), text.size()), &microseconds);
  if (number && microseconds >= 0 && microseconds <= kMostMicroseconds) {
    return Spin{absl::Microseconds(microseconds), SpinRule::kAlways};
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
