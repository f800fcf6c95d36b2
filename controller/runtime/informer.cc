// SPDX-License-Identifier: Apache-2.0
#include "controller/runtime/informer.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "common/log/log.h"
#include "common/status/macros.h"
#include "controller/kube/objects.h"

namespace starling::runtime {

Informer::Informer(kube::KubeClient& client, const kube::ResourceKind& kind,
                   InformerOptions options)
    : client_(client), kind_(kind), options_(std::move(options)) {}

Informer::~Informer() { Stop(); }

void Informer::AddHandler(Handler handler) { handlers_.push_back(std::move(handler)); }

Informer::Object Informer::Get(const Key& key) const {
  sync::MutexLock lock(mutex_);
  const auto found = objects_.find(key);
  return found == objects_.end() ? nullptr : found->second;
}

std::vector<Informer::Object> Informer::List() const {
  sync::MutexLock lock(mutex_);
  std::vector<Object> objects;
  objects.reserve(objects_.size());
  for (const auto& [key, object] : objects_) objects.push_back(object);
  return objects;
}

bool Informer::HasSynced() const {
  sync::MutexLock lock(mutex_);
  return synced_;
}

void Informer::Apply(const Key& key, Object after) {
  Object before;
  {
    sync::MutexLock lock(mutex_);
    const auto found = objects_.find(key);
    if (found != objects_.end()) before = found->second;
    if (after) {
      objects_[key] = after;
    } else {
      objects_.erase(key);
    }
  }
  if (!before && !after) return;
  if (before && after && kube::ResourceVersionOf(*before) == kube::ResourceVersionOf(*after)) {
    return;
  }
  for (const Handler& handler : handlers_) handler(before, after);
}

absl::Status Informer::Relist() {
  ASSIGN_OR_RETURN(kube::ObjectList list,
                   client_.List(kind_, options_.ns, {options_.selection, 0, ""}));
  std::vector<Key> gone;
  {
    sync::MutexLock lock(mutex_);
    for (const auto& [key, object] : objects_) gone.push_back(key);
  }
  for (kube::Json& item : list.items) {
    const Key key = kube::KeyOf(item);
    gone.erase(std::remove(gone.begin(), gone.end(), key), gone.end());
    Apply(key, std::make_shared<const kube::Json>(std::move(item)));
  }
  for (const Key& key : gone) Apply(key, nullptr);
  ASSIGN_OR_RETURN(std::shared_ptr<kube::WatchStream> watch,
                   client_.Watch(kind_, options_.ns, {options_.selection, list.resource_version}));
  sync::MutexLock lock(mutex_);
  synced_ = true;
  if (stopped_) watch->Stop();
  watch_ = std::move(watch);
  return absl::OkStatus();
}

absl::Status Informer::Drain(absl::Duration timeout) {
  std::shared_ptr<kube::WatchStream> watch;
  {
    sync::MutexLock lock(mutex_);
    watch = watch_;
  }
  while (true) {
    ASSIGN_OR_RETURN(const std::optional<kube::WatchEvent> event, watch->Next(timeout));
    if (!event) return absl::OkStatus();
    timeout = absl::ZeroDuration();
    if (event->type == kube::WatchEventType::kBookmark) continue;
    const bool deleted = event->type == kube::WatchEventType::kDeleted;
    Apply(kube::KeyOf(*event->object), deleted ? nullptr : event->object);
  }
}

absl::Status Informer::Poll(absl::Duration timeout) {
  bool watching = false;
  {
    sync::MutexLock lock(mutex_);
    watching = watch_ != nullptr;
  }
  if (!watching) return Relist();
  const absl::Status status = Drain(timeout);
  if (status.ok()) return status;
  sync::MutexLock lock(mutex_);
  watch_ = nullptr;
  // Having missed events is part of life; the list that follows makes up for it.
  return absl::IsOutOfRange(status) ? absl::OkStatus() : status;
}

absl::Duration Informer::Pause(int failures) const {
  return std::min(absl::Milliseconds(50) * (1 << std::min(failures, 10)), absl::Seconds(10));
}

void Informer::Run() {
  int failures = 0;
  while (true) {
    const absl::Status status = Poll(absl::Seconds(10));
    sync::MutexLock lock(mutex_);
    if (stopped_) return;
    if (status.ok()) {
      failures = 0;
      continue;
    }
    log::Warning("watch broke, will list again",
                 {{"kind", kind_.kind}, {"error", status.ToString()}});
    stopping_.WaitFor(mutex_, Pause(failures++));
    if (stopped_) return;
  }
}

void Informer::Stop() {
  sync::MutexLock lock(mutex_);
  stopped_ = true;
  if (watch_) watch_->Stop();
  stopping_.NotifyAll();
}

}  // namespace starling::runtime
