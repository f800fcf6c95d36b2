// SPDX-License-Identifier: Apache-2.0
#include "trainer/observe/activity_ledger.h"

#include <algorithm>
#include <cstddef>

namespace starling::observe {

void ActivityLedger::OnReport(const membership::MemberId& process, const std::string& prefix,
                              const Seconds& total, const Seconds& before) {
  const auto [known, is_new] = told_.try_emplace(process, before);
  if (is_new) {
    // An earlier process of its pod says nothing any more.
    std::erase_if(told_, [&](const auto& one) {
      return one.first.pod_uid == process.pod_uid && one.first.start < process.start;
    });
  }
  double all = 0;
  for (const auto& [activity, seconds] : total) {
    double& told = known->second[activity];
    sum_[prefix + activity] += seconds - told;
    all += seconds - told;
    told = seconds;
  }
  if (!is_new) return;
  // It lived for a while before it could report: that was no queueing, after all.
  double& absent = absent_[prefix];
  const double lived = std::clamp(all, 0.0, absent);
  absent -= lived;
  if (lived > 0) sum_[prefix + kQueueing] -= lived;
}

void ActivityLedger::OnBroken(const membership::MemberId& process, const std::string& prefix,
                              absl::Duration since_report) {
  const auto known = told_.find(process);
  if (known == told_.end()) return;
  const std::string recovery = kActivityNames[static_cast<std::size_t>(Activity::kRecovery)];
  const double seconds = absl::ToDoubleSeconds(since_report);
  // As if it had told so; its next report says how it was.
  known->second[recovery] += seconds;
  sum_[prefix + recovery] += seconds;
}

void ActivityLedger::OnAbsence(const std::string& prefix, std::int64_t members,
                               absl::Duration duration) {
  if (members <= 0 || duration <= absl::ZeroDuration()) return;
  const double seconds = static_cast<double>(members) * absl::ToDoubleSeconds(duration);
  sum_[prefix + kQueueing] += seconds;
  absent_[prefix] += seconds;
}

}  // namespace starling::observe
