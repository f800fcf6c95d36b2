// SPDX-License-Identifier: Apache-2.0
#include "trainer/metric_export/exporter.h"

#include <cstdint>
#include <deque>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/log/log.h"
#include "common/sync/mutex.h"

namespace starling::metric_export {

// What its thread and its owner have in common, for as long as either lives.
struct Exporter::Shared {
  Shared(std::unique_ptr<Sink> told, const clock::Clock& time, Options given)
      : sink(std::move(told)), clock(time), options(std::move(given)) {}

  void Serve();
  void Judge(const absl::Status& status);

  const std::unique_ptr<Sink> sink;
  const clock::Clock& clock;
  const Options options;
  sync::Mutex mutex;
  sync::Condition changed;
  std::deque<Points> waiting ABSL_GUARDED_BY(mutex);
  bool ending ABSL_GUARDED_BY(mutex) = false;
  bool ended ABSL_GUARDED_BY(mutex) = false;
  std::int64_t lost ABSL_GUARDED_BY(mutex) = 0;  // since it last went well
  std::string problem ABSL_GUARDED_BY(mutex);
  absl::Time failed ABSL_GUARDED_BY(mutex) = absl::InfinitePast();
};

// Said once, and when it is over.
void Exporter::Shared::Judge(const absl::Status& status) {
  const sync::MutexLock lock(mutex);
  if (status.ok()) {
    if (lost > 0) log::Info("metrics are told again", {{"to", options.name}, {"lost", lost}});
    lost = 0;
    return;
  }
  const std::string why(status.message());
  if (lost == 0) log::Warning("metrics cannot be told", {{"to", options.name}, {"why", why}});
  ++lost;
  problem = why;
  failed = clock.Now();
}

void Exporter::Shared::Serve() {
  while (true) {
    Points points;
    {
      const sync::MutexLock lock(mutex);
      while (waiting.empty() && !ending) changed.Wait(mutex);
      if (waiting.empty()) {
        ended = true;
        changed.NotifyAll();
        return;
      }
      points = std::move(waiting.front());
      waiting.pop_front();
    }
    Judge(sink->Tell(points));
  }
}

Exporter::Exporter(std::unique_ptr<Sink> sink, const clock::Clock& clock, Options options)
    : shared_(std::make_shared<Shared>(std::move(sink), clock, std::move(options))) {
  std::thread([shared = shared_] { shared->Serve(); }).detach();
}

Exporter::~Exporter() {
  const sync::MutexLock lock(shared_->mutex);
  shared_->ending = true;
  shared_->changed.NotifyAll();
  const absl::Time until = shared_->clock.Now() + shared_->options.goodbye;
  while (!shared_->ended) {
    const absl::Duration left = until - shared_->clock.Now();
    if (left <= absl::ZeroDuration()) break;
    shared_->changed.WaitFor(shared_->mutex, left);
  }
  if (shared_->ended) return;
  log::Warning("metrics are left untold at the end",
               {{"to", shared_->options.name}, {"points", shared_->waiting.size()}});
  shared_->waiting.clear();
}

void Exporter::Tell(Points points) {
  const sync::MutexLock lock(shared_->mutex);
  shared_->waiting.push_back(std::move(points));
  if (shared_->waiting.size() > shared_->options.most_waiting) {
    shared_->waiting.pop_front();
    if (shared_->lost++ == 0) {
      log::Warning("metrics cannot be told as fast as they come; the oldest are let go",
                   {{"to", shared_->options.name}});
    }
    shared_->problem = absl::StrCat(
        shared_->options.name,
        " does not take metrics as fast as they come: of those that wait the oldest are let go; "
        "look whether its disk or server answers");
    shared_->failed = shared_->clock.Now();
  }
  shared_->changed.NotifyAll();
}

std::string Exporter::problem() const {
  const sync::MutexLock lock(shared_->mutex);
  if (shared_->clock.Now() - shared_->failed > shared_->options.calm) return "";
  return shared_->problem;
}

}  // namespace starling::metric_export
