// SPDX-License-Identifier: Apache-2.0
// Takes, renews and gives back the lease by which one of several processes leads.
//
// The rules are lease_decision.h's; this carries them out. Whoever acts for the leader asks
// MayWrite() before each write (FencedKubeClient), and ends its process when Standing() is kLost:
// a process leads at most once.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "common/clock/clock.h"
#include "common/sync/mutex.h"
#include "controller/kube/kube_client.h"
#include "controller/runtime/back_off.h"
#include "controller/runtime/lease_decision.h"

namespace starling::runtime {

enum class Standing { kStandby, kLeader, kLost };

// Thread-safe, except that Turn() and Run() are confined to one thread.
class LeaderElector {
 public:
  // `client` should not share a limit on requests with others: renewals must not wait.
  LeaderElector(kube::KubeClient& client, const clock::Clock& clock, ElectionOptions options);

  // Decides and acts once; returns how long to wait before the next turn.
  absl::Duration Turn();
  // Turns until Stop(), or until the lead is lost.
  void Run();
  void Stop();

  Standing standing() const;
  // Whether the lease is ours now, and for certain nobody else's.
  bool MayWrite() const;
  // Of the lease that is ours; counted from 1. 0 before that.
  std::int64_t transition() const;
  // Who holds the lease, as last seen; empty: nobody.
  std::string holder() const;

  // Gives the lease back, so that another takes it immediately. After Run() has returned and
  // nothing acts for the leader any more.
  absl::Status Release();

 private:
  absl::Status Read();
  absl::Status Hold(ElectionAct act);
  nlohmann::json LeaseToWrite(const ElectionState& state, ElectionAct act) const;
  ElectionState Snapshot() const;

  kube::KubeClient& client_;
  const clock::Clock& clock_;
  const ElectionOptions options_;
  Jitter jitter_;  // of the thread that runs
  mutable sync::Mutex mutex_;
  sync::Condition stopping_;
  ElectionState state_ ABSL_GUARDED_BY(mutex_);
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace starling::runtime
