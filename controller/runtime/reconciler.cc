// SPDX-License-Identifier: Apache-2.0
#include "controller/runtime/reconciler.h"

#include "common/log/log.h"

namespace starling::runtime {

Outcome ReconcileKey(WorkQueue& queue, Reconciler& reconciler, const Key& key) {
  const absl::StatusOr<Result> result = reconciler.Reconcile(key);
  Outcome outcome = Outcome::kSuccess;
  if (result.ok()) {
    queue.Forget(key);
    if (result->requeue_after > absl::ZeroDuration()) {
      outcome = Outcome::kRequeueAfter;
      queue.AddAfter(key, result->requeue_after);
    }
  } else {
    outcome = Outcome::kError;
    // A conflict only means that the copy was old; the first one is not logged.
    if (!absl::IsAborted(result.status()) || queue.FailuresOf(key) > 5) {
      log::Warning("reconcile failed, will try again",
                   {{"key", key.ToString()}, {"error", result.status().ToString()}});
    }
    queue.AddBackedOff(key);
  }
  queue.Done(key);
  return outcome;
}

bool ReconcileOnce(WorkQueue& queue, Reconciler& reconciler) {
  const std::optional<Key> key = queue.TryGet();
  if (!key) return false;
  ReconcileKey(queue, reconciler, *key);
  return true;
}

}  // namespace starling::runtime
