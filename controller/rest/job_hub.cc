// SPDX-License-Identifier: Apache-2.0
#include "controller/rest/job_hub.h"

#include <algorithm>
#include <mutex>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/numbers.h"
#include "common/json/json.h"
#include "controller/kube/objects.h"
#include "controller/rest/summary.h"

namespace starling::service {
namespace {

using kube::Json;

// A version that is no number has no order: it counts as the oldest.
std::int64_t VersionOf(const Json& job) {
  std::int64_t version = 0;
  return absl::SimpleAtoi(kube::ResourceVersionOf(job), &version) ? version : 0;
}

}  // namespace

struct JobState::Words {
  std::once_flag summary_once, object_once;
  std::string summary, object;
};

JobState::JobState(std::shared_ptr<const Json> job, std::int64_t version, std::int64_t added,
                   bool deleted)
    : job_(std::move(job)),
      uid_(kube::UidOf(*job_)),
      version_(version),
      added_(added),
      deleted_(deleted),
      words_(std::make_shared<Words>()) {}

const std::string& JobState::Summary() const {
  std::call_once(words_->summary_once, [this] {
    words_->summary = json::Dump({{"uid", uid_}, {"summary", SummaryOf(*job_)}});
  });
  return words_->summary;
}

const std::string& JobState::Object() const {
  std::call_once(words_->object_once, [this] { words_->object = json::Dump({{"object", *job_}}); });
  return words_->object;
}

bool JobFilter::Matches(const Json& job) const {
  return (ns.empty() || kube::NamespaceOf(job) == ns) &&
         (name.empty() || kube::NameOf(job) == name) && selector.Matches(job);
}

JobListener::~JobListener() {
  sync::MutexLock lock(hub_.mutex_);
  const auto like_it = hub_.listeners_.find({filter_.ns, filter_.name});
  like_it->second.erase(this);
  if (like_it->second.empty()) hub_.listeners_.erase(like_it);
}

std::optional<JobNews> JobListener::Next() {
  using Kind = JobNews::Kind;
  sync::MutexLock lock(hub_.mutex_);
  while (!unheard_.empty()) {
    auto [version, unheard] = std::move(*unheard_.begin());
    unheard_.erase(unheard_.begin());
    versions_.erase(unheard.state->uid());
    told_ = version;
    if (unheard.left || unheard.state->deleted()) {
      if (unheard.entered) continue;  // it came and went unheard
      return JobNews{Kind::kDeleted, version, std::move(unheard.state)};
    }
    const Kind kind = unheard.entered ? Kind::kAdded : Kind::kModified;
    return JobNews{kind, version, std::move(unheard.state)};
  }
  if (!bookmark_) return std::nullopt;
  told_ = std::max(told_, *std::exchange(bookmark_, std::nullopt));
  return JobNews{Kind::kBookmark, told_, nullptr};
}

void JobHub::Take(const Object& before, const Object& after) {
  Wakes wakes;
  {
    sync::MutexLock lock(mutex_);
    const Object& job = after != nullptr ? after : before;
    const auto found = live_.find(kube::KeyOf(*job));
    const JobStatePtr old = found == live_.end() ? nullptr : found->second;
    const bool same = old != nullptr && old->uid() == kube::UidOf(*job);
    const std::int64_t version = VersionOf(*job);
    if (after == nullptr ? !same : old != nullptr && version <= old->version()) return;
    // The version of a deletion is not told: it lies behind all that has been seen, and before all
    // that is to come. A successor of the same name says that its predecessor is gone.
    if (old != nullptr && (after == nullptr || !same)) {
      const Object last = after == nullptr ? before : Object(old, &old->job());
      Add(last, std::make_shared<const JobState>(last, newest_ + 1, old->added(), true), wakes);
    }
    if (after != nullptr) {
      Add(same ? Object(old, &old->job()) : nullptr,
          std::make_shared<const JobState>(job, version, same ? old->added() : version, false),
          wakes);
    }
  }
  for (const auto& wake : wakes) wake();
}

void JobHub::Add(const Object& before, JobStatePtr state, Wakes& wakes) {
  const kube::ObjectKey key = kube::KeyOf(state->job());
  newest_ = std::max(newest_, state->version());
  if (state->deleted()) {
    live_.erase(key);
    curves_.erase(state->uid());
    deleted_.emplace_back(clock_.Now(), state);
    Forget();
  } else {
    live_[key] = state;
    curves_[state->uid()].Take(state->job(), clock_.WallNow());
  }
  for (const kube::ObjectKey& like : {key, {key.ns, ""}, {"", key.name}, kube::ObjectKey{"", ""}}) {
    const auto concerned = listeners_.find(like);
    if (concerned == listeners_.end()) continue;
    for (JobListener* listener : concerned->second) {
      if (Tell(*listener, before, state)) wakes.push_back(listener->wake_);
    }
  }
}

bool JobHub::Tell(JobListener& listener, const Object& before, const JobStatePtr& state) {
  const bool matches = listener.filter_.Matches(state->job());
  const bool matched = before != nullptr && listener.filter_.Matches(*before);
  if (!matches && !matched) return false;
  Put(listener, state->version(),
      {.state = state, .entered = matches && !matched, .left = !matches});
  return true;
}

// What is unheard of the job gives way to what is newer.
void JobHub::Put(JobListener& listener, std::int64_t version, JobListener::Unheard unheard) {
  const auto known = listener.versions_.find(unheard.state->uid());
  if (known != listener.versions_.end()) {
    const auto older = listener.unheard_.find(known->second);
    // What it enters, or leaves, counts from what the listener knows, not from what it missed.
    if (older->second.left) unheard.entered = false;
    if (older->second.entered) unheard.entered = true;
    listener.unheard_.erase(older);
    coalesced_.Increment();
  }
  listener.versions_[unheard.state->uid()] = version;
  listener.unheard_[version] = std::move(unheard);
}

void JobHub::Forget() {
  const absl::Time now = clock_.Now();
  while (!deleted_.empty() && (deleted_.size() > kRememberedDeletions ||
                               now - deleted_.front().first > kRememberedFor)) {
    floor_ = std::max(floor_.value_or(0), deleted_.front().second->version());
    deleted_.pop_front();
  }
}

void JobHub::Begin(std::int64_t seen) {
  sync::MutexLock lock(mutex_);
  newest_ = std::max(newest_, seen);
  floor_ = newest_;
}

std::unique_ptr<JobListener> JobHub::Listen(JobFilter filter, std::optional<std::int64_t> since,
                                            std::function<void()> wake) {
  std::unique_ptr<JobListener> listener(new JobListener(*this, std::move(filter), std::move(wake)));
  sync::MutexLock lock(mutex_);
  listeners_[{listener->filter_.ns, listener->filter_.name}].insert(listener.get());
  // What was deleted before this process began, or long ago, nobody knows any more.
  const bool known = since && floor_ && *since >= *floor_ && *since <= newest_;
  if (known) {
    listener->told_ = *since;
  } else {
    listener->bookmark_ = newest_;
  }
  const auto put = [&](const JobStatePtr& state) {
    if ((known && state->version() <= *since) || !listener->filter_.Matches(state->job())) return;
    const bool entered = !known || state->added() > *since;
    Put(*listener, state->version(), {.state = state, .entered = entered, .left = false});
  };
  for (const auto& [key, state] : live_) put(state);
  if (known) {
    for (const auto& [when, state] : deleted_) put(state);
  }
  return listener;
}

std::vector<JobStatePtr> JobHub::Live(const JobFilter& filter) const {
  std::vector<JobStatePtr> states;
  sync::MutexLock lock(mutex_);
  for (const auto& [key, state] : live_) {
    if (filter.Matches(state->job())) states.push_back(state);
  }
  return states;
}

std::int64_t JobHub::newest() const {
  sync::MutexLock lock(mutex_);
  return newest_;
}

std::map<std::string, history::Points> JobHub::Points(const std::string& uid,
                                                      const std::string& name) const {
  std::map<std::string, history::Points> points;
  sync::MutexLock lock(mutex_);
  const auto found = curves_.find(uid);
  if (found == curves_.end()) return points;
  for (const auto& [metric, curve] : found->second.all()) {
    if (name.empty() || name == metric) points[metric] = curve;
  }
  return points;
}

}  // namespace starling::service
