// SPDX-License-Identifier: Apache-2.0
#include "controller/runtime/leader_elector.h"

#include <functional>
#include <nlohmann/json.hpp>
#include <utility>

#include "common/log/log.h"
#include "common/status/macros.h"
#include "controller/kube/objects.h"

namespace starling::runtime {
namespace {

using kube::Json;

constexpr int kActsPerTurn = 4;

kube::ObjectKey KeyFor(const ElectionOptions& options) { return {options.ns, options.name}; }

}  // namespace

LeaderElector::LeaderElector(kube::KubeClient& client, const clock::Clock& clock,
                             ElectionOptions options)
    : client_(client),
      clock_(clock),
      options_(std::move(options)),
      jitter_(std::hash<std::string>{}(options_.identity)) {}

ElectionState LeaderElector::Snapshot() const {
  sync::MutexLock lock(mutex_);
  return state_;
}

Standing LeaderElector::standing() const {
  const ElectionState state = Snapshot();
  if (state.was_leader) return Standing::kLost;
  if (!state.leads) return Standing::kStandby;
  return runtime::MayWrite(options_, state, clock_.Now()) ? Standing::kLeader : Standing::kLost;
}

bool LeaderElector::MayWrite() const {
  sync::MutexLock lock(mutex_);
  return runtime::MayWrite(options_, state_, clock_.Now());
}

std::int64_t LeaderElector::transition() const {
  sync::MutexLock lock(mutex_);
  return state_.leads && state_.lease.has_value() ? state_.lease->transitions : 0;
}

std::string LeaderElector::holder() const {
  sync::MutexLock lock(mutex_);
  return state_.lease.has_value() ? state_.lease->holder : "";
}

absl::Status LeaderElector::Read() {
  const absl::StatusOr<Json> lease = client_.Get(kube::kLease, KeyFor(options_));
  if (!lease.ok() && !absl::IsNotFound(lease.status())) return lease.status();
  sync::MutexLock lock(mutex_);
  // Counted from the answer and not from the request: this can only lengthen the wait for another's
  // lease.
  Observe(options_, lease.ok() ? std::optional(ReadLease(*lease)) : std::nullopt, clock_.Now(),
          state_);
  return absl::OkStatus();
}

Json LeaderElector::LeaseToWrite(const ElectionState& state, ElectionAct act) const {
  const std::string now = kube::FormatMicroTimestamp(clock_.WallNow());
  Json lease = {{"apiVersion", kube::kLease.ApiVersion()},
                {"kind", "Lease"},
                {"metadata", {{"name", options_.name}, {"namespace", options_.ns}}},
                {"spec",
                 {{"holderIdentity", options_.identity},
                  {"leaseDurationSeconds",
                   std::max<std::int64_t>(1, absl::ToInt64Seconds(options_.duration))},
                  {"renewTime", now}}}};
  std::int64_t transitions = 1;
  if (act != ElectionAct::kCreate) {
    lease["metadata"]["resourceVersion"] = state.lease->version;
    transitions = state.lease->transitions + (act == ElectionAct::kTake ? 1 : 0);
  }
  lease["spec"]["leaseTransitions"] = transitions;
  const bool keeps = act == ElectionAct::kRenew && !state.lease->acquired.empty();
  lease["spec"]["acquireTime"] = keeps ? state.lease->acquired : now;
  return lease;
}

absl::Status LeaderElector::Hold(ElectionAct act) {
  const ElectionState state = Snapshot();
  const absl::Time begun = clock_.Now();
  const Json wanted = LeaseToWrite(state, act);
  ASSIGN_OR_RETURN(const Json lease, act == ElectionAct::kCreate
                                         ? client_.Create(kube::kLease, wanted)
                                         : client_.Update(kube::kLease, wanted));
  sync::MutexLock lock(mutex_);
  if (!state_.leads) {
    log::Info("this process leads now", {{"lease", KeyFor(options_).ToString()},
                                         {"transition", ReadLease(lease).transitions}});
  }
  NoteHeld(ReadLease(lease), begun, state_);
  return absl::OkStatus();
}

absl::Duration LeaderElector::Turn() {
  absl::Duration wait = options_.retry;
  bool read = false;
  for (int i = 0; i < kActsPerTurn; ++i) {
    const ElectionAction action = DecideElection(options_, Snapshot(), clock_.Now());
    wait = action.wait;
    if (action.act == ElectionAct::kWait || action.act == ElectionAct::kStop) return wait;
    if (action.act == ElectionAct::kRead && read) break;
    const bool reads = action.act == ElectionAct::kRead;
    absl::Status status = reads ? Read() : Hold(action.act);
    if (absl::IsAborted(status) || absl::IsAlreadyExists(status) || absl::IsNotFound(status)) {
      status = Read();
    }
    read = true;
    if (status.ok()) continue;
    log::Warning("the lease cannot be had",
                 {{"lease", KeyFor(options_).ToString()}, {"error", status.ToString()}});
    break;
  }
  return wait * (1 + 0.2 * jitter_.Next());
}

void LeaderElector::Run() {
  while (true) {
    const absl::Duration wait = Turn();
    const bool lost = standing() == Standing::kLost;
    sync::MutexLock lock(mutex_);
    if (stopped_ || lost) return;
    stopping_.WaitFor(mutex_, wait);
    if (stopped_) return;
  }
}

void LeaderElector::Stop() {
  sync::MutexLock lock(mutex_);
  stopped_ = true;
  stopping_.NotifyAll();
}

absl::Status LeaderElector::Release() {
  const ElectionState state = Snapshot();
  if (!runtime::MayWrite(options_, state, clock_.Now())) return absl::OkStatus();
  {
    sync::MutexLock lock(mutex_);
    state_.leads = false;
    state_.was_leader = true;
  }
  Json lease = LeaseToWrite(state, ElectionAct::kRenew);
  lease["spec"]["holderIdentity"] = "";
  lease["spec"]["leaseDurationSeconds"] = 1;
  return client_.Update(kube::kLease, lease).status();
}

}  // namespace starling::runtime
