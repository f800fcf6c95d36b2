// SPDX-License-Identifier: Apache-2.0
// Owns the threads of a controller process: informers, workers, periodic tasks.
//
// The composition root adds what there is, starts it, and stops it; the parts themselves have no
// threads and are tested without any.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/clock/clock.h"
#include "common/sync/mutex.h"
#include "controller/runtime/informer.h"
#include "controller/runtime/reconciler.h"

namespace starling::runtime {

// Counters of one controller, for /metrics (controller_runtime_reconcile_*, workqueue_*).
struct ControllerStats {
  std::int64_t reconciles = 0;
  std::int64_t errors = 0;
  std::int64_t queued = 0;
  absl::Duration busy = absl::ZeroDuration();
};

// Thread-safe, but Add*, Start and Stop are for one thread. What is added must outlive Stop().
class Manager {
 public:
  explicit Manager(const clock::Clock& clock);
  ~Manager();  // stops

  void AddInformer(std::string name, Informer& informer);
  void AddController(std::string name, WorkQueue& queue, Reconciler& reconciler, int workers);
  // Runs `task` at once and then every `interval`; an error is logged and makes it unhealthy until
  // the next success.
  void AddPeriodic(std::string name, absl::Duration interval, std::function<absl::Status()> task);

  // Starts informers, waits up to `timeout` for their first lists, then starts the rest.
  absl::Status Start(absl::Duration timeout);
  // Ends and joins all threads; a reconcile that is under way is finished first.
  void Stop();

  // OK, or what is wrong: an informer without its first list, a task that fails.
  absl::Status Health() const;
  std::map<std::string, ControllerStats> Stats() const;

 private:
  struct Controller;
  struct Periodic;

  void Work(Controller& controller);
  void Repeat(Periodic& periodic);
  absl::Status AwaitInformers(absl::Duration timeout);

  const clock::Clock& clock_;
  std::vector<std::pair<std::string, Informer*>> informers_;
  std::vector<std::unique_ptr<Controller>> controllers_;
  std::vector<std::unique_ptr<Periodic>> periodics_;
  std::vector<std::thread> threads_;
  mutable sync::Mutex mutex_;
  sync::Condition stopping_;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace starling::runtime
