// SPDX-License-Identifier: Apache-2.0
// What a controller is: one method that makes the world of one key as it should be.
//
// Level-triggered: it is told which key, never what happened; it lists what there is, decides, and
// acts. It must be idempotent, and may be stopped after any single write.
#pragma once

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "controller/runtime/work_queue.h"

namespace starling::runtime {

struct Result {
  // Look again after this long, even if nothing changes; zero: only when something does.
  absl::Duration requeue_after = absl::ZeroDuration();
};

// Thread-safe: different keys may be reconciled at the same time, one key never twice.
class Reconciler {
 public:
  virtual ~Reconciler() = default;

  // An error is logged and tried again with growing delays; Aborted (a conflict) is tried again
  // without a word.
  virtual absl::StatusOr<Result> Reconcile(const Key& key) = 0;
};

enum class Outcome { kSuccess, kRequeueAfter, kError };

// Reconciles a key that the queue has handed out, requeues it as asked and gives it back.
Outcome ReconcileKey(WorkQueue& queue, Reconciler& reconciler, const Key& key);

// One turn of a controller's worker: takes a ready key, reconciles it, requeues as asked. Returns
// whether there was one. Tests drive a controller with this, the Manager does so with threads.
bool ReconcileOnce(WorkQueue& queue, Reconciler& reconciler);

}  // namespace starling::runtime
