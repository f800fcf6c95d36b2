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
  ControllerStats stats;  // guarded by the manager's mutex
};

struct Manager::Periodic {
  std::string name;
  absl::Duration interval;
  std::function<absl::Status()> task;
  absl::Status last;  // guarded by the manager's mutex
};

Manager::Manager(const clock::Clock& clock) : clock_(clock) {}
Manager::~Manager() { Stop(); }

void Manager::AddInformer(std::string name, Informer& informer) {
  informers_.emplace_back(std::move(name), &informer);
}

void Manager::AddController(std::string name, WorkQueue& queue, Reconciler& reconciler,
                            int workers) {
  controllers_.push_back(
      std::make_unique<Controller>(Controller{std::move(name), queue, reconciler, workers, {}}));
}

void Manager::AddPeriodic(std::string name, absl::Duration interval,
                          std::function<absl::Status()> task) {
  periodics_.push_back(std::make_unique<Periodic>(
      Periodic{std::move(name), interval, std::move(task), absl::OkStatus()}));
}

absl::Status Manager::Start(absl::Duration timeout) {
  for (const auto& [name, informer] : informers_) {
    threads_.emplace_back([informer = informer] { informer->Run(); });
  }
  RETURN_IF_ERROR(AwaitInformers(timeout));
  for (const auto& controller : controllers_) {
    for (int i = 0; i < controller->workers; ++i) {
      threads_.emplace_back([this, &controller = *controller] { Work(controller); });
    }
  }
  for (const auto& periodic : periodics_) {
    threads_.emplace_back([this, &periodic = *periodic] { Repeat(periodic); });
  }
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
    const bool well = ReconcileKey(controller.queue, controller.reconciler, *key);
    sync::MutexLock lock(mutex_);
    ++controller.stats.reconciles;
    controller.stats.errors += well ? 0 : 1;
    controller.stats.busy += clock_.Now() - start;
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

std::map<std::string, ControllerStats> Manager::Stats() const {
  sync::MutexLock lock(mutex_);
  std::map<std::string, ControllerStats> stats;
  for (const auto& controller : controllers_) {
    ControllerStats& one = stats[controller->name];
    one = controller->stats;
    one.queued = static_cast<std::int64_t>(controller->queue.size());
  }
  return stats;
}

}  // namespace starling::runtime
