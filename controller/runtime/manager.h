// SPDX-License-Identifier: Apache-2.0
// Owns the threads of a controller process: informers, workers, periodic tasks.
//
// The composition root adds what there is, starts it, and stops it; the parts themselves have no
// threads and are tested without any.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/clock/clock.h"
#include "common/metrics/metrics.h"
#include "common/sync/mutex.h"
#include "controller/runtime/informer.h"
#include "controller/runtime/reconciler.h"

namespace starling::runtime {

// Thread-safe, but Add*, Start and Stop are for one thread. What is added must outlive Stop().
class Manager {
 public:
  // `registry`, if given, shows what the controllers and their queues do, and must outlive it.
  explicit Manager(const clock::Clock& clock, metrics::Registry* registry = nullptr);
  ~Manager();  // stops

  void AddInformer(std::string name, Copying& informer);
  void AddController(std::string name, WorkQueue& queue, Reconciler& reconciler, int workers);
  // Runs `task` immediately and then every `interval`; an error is logged and makes it unhealthy
  // until the next success.
  void AddPeriodic(std::string name, absl::Duration interval, std::function<absl::Status()> task);

  // Starts informers, waits up to `timeout` for their first lists, then starts the rest.
  absl::Status Start(absl::Duration timeout);
  // Starts everything without waiting: Health() tells when the first lists are in.
  void Launch();
  // Ends and joins all threads; a reconcile that is under way is finished first.
  void Stop();

  // OK, or what is wrong: an informer without its first list, a task that fails.
  absl::Status Health() const;
  // Brings gauges up to date that nothing else moves; before the registry is shown.
  void UpdateMetrics();

 private:
  struct Controller;
  struct Periodic;

  void Work(Controller& controller);
  void Repeat(Periodic& periodic);
  void LaunchInformers();
  void LaunchRest();
  absl::Status AwaitInformers(absl::Duration timeout);

  const clock::Clock& clock_;
  metrics::Registry* const registry_;
  std::vector<std::pair<std::string, Copying*>> informers_;
  std::vector<std::unique_ptr<Controller>> controllers_;
  std::vector<std::unique_ptr<Periodic>> periodics_;
  std::vector<std::thread> threads_;
  mutable sync::Mutex mutex_;
  sync::Condition stopping_;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace starling::runtime
