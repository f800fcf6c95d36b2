// SPDX-License-Identifier: Apache-2.0
#include "controller/runtime/manager.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/log/log.h"
#include "common/status/macros.h"

namespace starling::runtime {

struct Manager::Controller {
  std::string name;
  WorkQueue& queue;
  Reconciler& reconciler;
  int workers;
  ReconcileMetrics metrics;
};

struct Manager::Periodic {
  std::string name;
  absl::Duration interval;
  std::function<absl::Status()> task;
  absl::Status last;  // guarded by the manager's mutex
};

namespace {

void Count(Outcome outcome, ReconcileMetrics& metrics) {
  switch (outcome) {
    case Outcome::kSuccess:
      return metrics.success.Increment();
    case Outcome::kRequeueAfter:
      return metrics.requeue_after.Increment();
    case Outcome::kError:
      metrics.error.Increment();
      return metrics.errors.Increment();
  }
}

}  // namespace

Manager::Manager(const clock::Clock& clock, metrics::Registry* registry)
    : clock_(clock), registry_(registry) {}
Manager::~Manager() { Stop(); }

void Manager::AddInformer(std::string name, Copying& informer) {
  informers_.emplace_back(std::move(name), &informer);
}

void Manager::AddController(std::string name, WorkQueue& queue, Reconciler& reconciler,
                            int workers) {
  ReconcileMetrics metrics;
  if (registry_ != nullptr) {
    metrics = AddReconcileMetrics(*registry_, name);
    metrics.most.Set(workers);
    queue.UseMetrics(AddQueueMetrics(*registry_, name));
  }
  controllers_.push_back(std::make_unique<Controller>(
      Controller{std::move(name), queue, reconciler, workers, metrics}));
}

void Manager::AddPeriodic(std::string name, absl::Duration interval,
                          std::function<absl::Status()> task) {
  periodics_.push_back(std::make_unique<Periodic>(
      Periodic{std::move(name), interval, std::move(task), absl::OkStatus()}));
}

void Manager::LaunchInformers() {
  for (const auto& [name, informer] : informers_) {
    threads_.emplace_back([informer = informer] { informer->Run(); });
  }
}

void Manager::LaunchRest() {
  for (const auto& controller : controllers_) {
    for (int i = 0; i < controller->workers; ++i) {
      threads_.emplace_back([this, &controller = *controller] { Work(controller); });
    }
  }
  for (const auto& periodic : periodics_) {
    threads_.emplace_back([this, &periodic = *periodic] { Repeat(periodic); });
  }
}

void Manager::Launch() {
  LaunchInformers();
  LaunchRest();
}

absl::Status Manager::Start(absl::Duration timeout) {
  LaunchInformers();
  RETURN_IF_ERROR(AwaitInformers(timeout));
  LaunchRest();
  return absl::OkStatus();
}

absl::Status Manager::AwaitInformers(absl::Duration timeout) {
  const absl::Time deadline = clock_.Now() + timeout;
  for (const auto& [name, informer] : informers_) {
    sync::MutexLock lock(mutex_);
    while (!informer->HasSynced()) {
      if (stopped_) return absl::CancelledError("manager: stopped");
      if (clock_.Now() > deadline) {
        return absl::DeadlineExceededError(absl::StrCat("manager: the first list of ", name,
                                                        " did not come within ",
                                                        absl::FormatDuration(timeout)));
      }
      stopping_.WaitFor(mutex_, absl::Milliseconds(2));
    }
  }
  return absl::OkStatus();
}

void Manager::Work(Controller& controller) {
  while (const std::optional<Key> key = controller.queue.Get()) {
    const absl::Time start = clock_.Now();
    controller.metrics.active.Add(1);
    const Outcome outcome = ReconcileKey(controller.queue, controller.reconciler, *key);
    controller.metrics.active.Add(-1);
    controller.metrics.seconds.Observe(absl::ToDoubleSeconds(clock_.Now() - start));
    Count(outcome, controller.metrics);
  }
}

void Manager::Repeat(Periodic& periodic) {
  while (true) {
    const absl::Status status = periodic.task();
    sync::MutexLock lock(mutex_);
    if (!status.ok() && status != periodic.last) {
      log::Warning("task failed", {{"task", periodic.name}, {"error", status.ToString()}});
    }
    periodic.last = status;
    const absl::Time next = clock_.Now() + periodic.interval;
    while (!stopped_ && clock_.Now() < next) stopping_.WaitFor(mutex_, next - clock_.Now());
    if (stopped_) return;
  }
}

void Manager::Stop() {
  {
    sync::MutexLock lock(mutex_);
    stopped_ = true;
    stopping_.NotifyAll();
  }
  for (const auto& controller : controllers_) controller->queue.ShutDown();
  for (const auto& [name, informer] : informers_) informer->Stop();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

absl::Status Manager::Health() const {
  for (const auto& [name, informer] : informers_) {
    if (!informer->HasSynced()) {
      return absl::UnavailableError(absl::StrCat("informer ", name, ": no list yet"));
    }
  }
  sync::MutexLock lock(mutex_);
  for (const auto& periodic : periodics_) {
    if (periodic->last.ok()) continue;
    return absl::UnavailableError(
        absl::StrCat("task ", periodic->name, ": ", periodic->last.ToString()));
  }
  return absl::OkStatus();
}

void Manager::UpdateMetrics() {
  for (const auto& controller : controllers_) controller->queue.UpdateAges();
}

}  // namespace starling::runtime
