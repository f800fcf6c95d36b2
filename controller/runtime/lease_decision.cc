// SPDX-License-Identifier: Apache-2.0
#include "controller/runtime/lease_decision.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "controller/kube/objects.h"

namespace starling::runtime {

absl::Status CheckElection(const ElectionOptions& options) {
  const auto text = [](absl::Duration time) { return absl::FormatDuration(time); };
  if (options.retry < absl::Milliseconds(10)) {
    return absl::InvalidArgumentError(absl::StrCat("--leader-elect-retry-period ",
                                                   text(options.retry), ": must be at least 10ms"));
  }
  if (options.renew_deadline <= options.retry * 1.2) {
    return absl::InvalidArgumentError(
        absl::StrCat("--leader-elect-renew-deadline ", text(options.renew_deadline),
                     ": must be more than 1.2 times the retry period of ", text(options.retry)));
  }
  if (options.duration <= options.renew_deadline) {
    return absl::InvalidArgumentError(
        absl::StrCat("--leader-elect-lease-duration ", text(options.duration),
                     ": must be longer than the renew deadline of ", text(options.renew_deadline),
                     ", or two processes would lead"));
  }
  return absl::OkStatus();
}

LeaseRecord ReadLease(const nlohmann::json& lease) {
  return {.version = kube::ResourceVersionOf(lease),
          .holder = kube::StringAt(lease, "/spec/holderIdentity"),
          .duration = absl::Seconds(kube::IntAt(lease, "/spec/leaseDurationSeconds")),
          .transitions = kube::IntAt(lease, "/spec/leaseTransitions"),
          .acquired = kube::StringAt(lease, "/spec/acquireTime")};
}

void Observe(const ElectionOptions& options, std::optional<LeaseRecord> lease, absl::Time now,
             ElectionState& state) {
  const auto version = [](const std::optional<LeaseRecord>& record) {
    return record.has_value() ? record->version : std::string();
  };
  if (!state.asked || version(lease) != version(state.lease)) state.changed = now;
  state.asked = true;
  state.lease = std::move(lease);
  if (!state.leads) return;
  if (state.lease.has_value() && state.lease->holder == options.identity) return;
  state.leads = false;
  state.was_leader = true;
}

void NoteHeld(LeaseRecord lease, absl::Time begun, ElectionState& state) {
  state.lease = std::move(lease);
  state.renewed = begun;
  state.leads = true;
}

bool MayWrite(const ElectionOptions& options, const ElectionState& state, absl::Time now) {
  return state.leads && now - state.renewed < options.renew_deadline;
}

ElectionAction DecideElection(const ElectionOptions& options, const ElectionState& state,
                              absl::Time now) {
  if (state.was_leader) return {ElectionAct::kStop, absl::ZeroDuration()};
  if (state.leads) {
    if (!MayWrite(options, state, now)) return {ElectionAct::kStop, absl::ZeroDuration()};
    const absl::Duration left = state.renewed + options.retry - now;
    if (left > absl::ZeroDuration()) return {ElectionAct::kWait, left};
    return {ElectionAct::kRenew, std::min(options.retry / 4, absl::Seconds(1))};
  }
  if (!state.asked) return {ElectionAct::kRead, options.retry};
  if (!state.lease.has_value()) return {ElectionAct::kCreate, options.retry};
  // Taken by a write whose answer was lost.
  if (state.lease->holder == options.identity) return {ElectionAct::kRenew, options.retry};
  if (state.lease->holder.empty()) return {ElectionAct::kTake, options.retry};
  // The holder may have asked for a longer duration than ours.
  const absl::Duration timeout = std::max(options.duration, state.lease->duration);
  if (now - state.changed >= timeout) return {ElectionAct::kTake, options.retry};
  return {ElectionAct::kRead, options.retry};
}

}  // namespace starling::runtime
