// SPDX-License-Identifier: Apache-2.0
// What the control service calls before there is a worker: directives that come too early wait
// here, and only the newest counts.
#pragma once

#include <optional>

#include "common/sync/mutex.h"
#include "trainer/worker/worker.h"

namespace starling::worker {

// Thread-safe. The worker is called without the lock, since it may ask for a report at once.
class Intake {
 public:
  void OnDirective(const membership::Directive& directive) {
    if (Worker* worker = Take(directive)) worker->OnDirective(directive);
  }
  void UpdateMetrics() {
    if (Worker* worker = Get()) worker->UpdateMetrics();
  }
  membership::Report MakeReport() {
    Worker* worker = Get();
    return worker == nullptr ? membership::Report{} : worker->MakeReport();
  }
  // `worker` outlives what calls this.
  void Open(Worker& worker) {
    std::optional<membership::Directive> early;
    {
      sync::MutexLock lock(mutex_);
      worker_ = &worker;
      early = early_;
    }
    if (early) worker.OnDirective(*early);
  }

 private:
  Worker* Take(const membership::Directive& directive) {
    sync::MutexLock lock(mutex_);
    if (worker_ == nullptr) early_ = directive;
    return worker_;
  }
  Worker* Get() {
    sync::MutexLock lock(mutex_);
    return worker_;
  }

  sync::Mutex mutex_;
  Worker* worker_ ABSL_GUARDED_BY(mutex_) = nullptr;
  std::optional<membership::Directive> early_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace starling::worker
