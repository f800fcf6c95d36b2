// SPDX-License-Identifier: Apache-2.0
#include "controller/local/node.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/log/log.h"
#include "common/status/macros.h"
#include "controller/kube/objects.h"

namespace starling::local {
namespace {

using kube::Json;

// How long, once all processes have ended, their last statuses may take to be written.
constexpr absl::Duration kLastWrites = absl::Seconds(5);

}  // namespace

Node::Node(kube::KubeClient& client, runtime::Informer& pods, runtime::Informer& jobs,
           const clock::Clock& clock, KubeletOptions options)
    : client_(client),
      pods_(pods),
      jobs_(jobs),
      clock_(clock),
      options_(std::move(options)),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      addresses_(options_.home, SomebodyListens),
      job_folders_(options_.home) {
  epoll_event event{.events = EPOLLIN, .data = {.fd = wake_}};
  epoll_ctl(epoll_, EPOLL_CTL_ADD, wake_, &event);
  pods_.AddHandler([this](const Object& before, const Object& after) {
    sync::MutexLock lock(mutex_);
    changed_pods_.insert(kube::KeyOf(after != nullptr ? *after : *before));
    Wake();
  });
  jobs_.AddHandler([this](const Object& before, const Object& after) {
    sync::MutexLock lock(mutex_);
    changed_jobs_.insert(kube::KeyOf(after != nullptr ? *after : *before));
    Wake();
  });
}

Node::~Node() {
  Stop(StopMode::kLeavePods);
  close(wake_);
  close(epoll_);
}

absl::Status Node::Start() {
  if (!pods_.HasSynced() || !jobs_.HasSynced()) {
    return absl::FailedPreconditionError("the informers of pods and jobs have not synced yet");
  }
  RETURN_IF_ERROR(MakeFolder(options_.home));
  thread_ = std::thread([this] { Loop(); });
  return absl::OkStatus();
}

void Node::Stop(StopMode mode) {
  if (!thread_.joinable()) return;
  {
    sync::MutexLock lock(mutex_);
    stop_ = mode;
  }
  Wake();
  thread_.join();
}

void Node::Wake() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(wake_, &one, sizeof(one));
}

void Node::Loop() {
  CleanUpAfterPredecessor();
  while (!StopIfDone()) {
    WaitForSomething();
    HandleEnds();
    HandleChanges();
    HandleDeadlines();
  }
}

absl::Time Node::NextDeadline() const {
  absl::Time next = remove_at_;
  for (const auto& [uid, entry] : entries_) {
    next = std::min({next, entry.kill_at, entry.retry_at});
  }
  return next;
}

void Node::WaitForSomething() {
  const absl::Time deadline = NextDeadline();
  int timeout = -1;
  if (deadline != absl::InfiniteFuture()) {
    const absl::Duration left = absl::Ceil(deadline - clock_.Now(), absl::Milliseconds(1));
    timeout =
        static_cast<int>(std::clamp<std::int64_t>(absl::ToInt64Milliseconds(left), 0, 60'000));
  }
  // Who ended is found by asking each process: there are few, and an entry may go meanwhile.
  std::array<epoll_event, 64> events{};
  epoll_wait(epoll_, events.data(), static_cast<int>(events.size()), timeout);
  std::uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = read(wake_, &count, sizeof(count));
}

void Node::HandleEnds() {
  std::vector<runtime::Key> ended;
  for (auto& [uid, entry] : entries_) {
    if (!entry.process || !entry.process->HasEnded()) continue;
    epoll_ctl(epoll_, EPOLL_CTL_DEL, entry.process->descriptor(), nullptr);
    const Outcome outcome = entry.process->Collect(clock_.WallNow());
    entry.process.reset();
    const Object pod = pods_.Get(entry.key);
    OnEnded(pod != nullptr ? *pod : Json::object(), entry, outcome);
    ended.push_back(entry.key);
  }
  for (const runtime::Key& key : ended) ReconcilePod(key);
}

void Node::HandleChanges() {
  std::set<runtime::Key> pods;
  std::set<runtime::Key> jobs;
  {
    sync::MutexLock lock(mutex_);
    pods.swap(changed_pods_);
    jobs.swap(changed_jobs_);
  }
  for (const runtime::Key& key : jobs) ReconcileJob(key);
  for (const runtime::Key& key : pods) ReconcilePod(key);
}

void Node::HandleDeadlines() {
  const absl::Time now = clock_.Now();
  std::set<runtime::Key> due;
  for (auto& [uid, entry] : entries_) {
    if (entry.kill_at <= now && entry.process) {
      entry.kill_at = absl::InfiniteFuture();
      log::Warning("pod did not end in time and is killed", {{"pod", entry.key.ToString()}});
      entry.process->Kill();
    }
    if (entry.retry_at <= now) {
      entry.retry_at = absl::InfiniteFuture();
      due.insert(entry.key);
    }
  }
  for (const runtime::Key& key : due) ReconcilePod(key);
  if (remove_at_ <= now) RemoveLeftovers();
}

bool Node::StopIfDone() {
  std::optional<StopMode> mode;
  {
    sync::MutexLock lock(mutex_);
    mode = stop_;
  }
  if (!mode) return false;
  if (*mode == StopMode::kLeavePods) return true;
  if (!stopping_) TerminateAll();
  bool running = false;
  bool writing = false;
  for (const auto& [uid, entry] : entries_) {
    running = running || entry.process;
    writing = writing || entry.status != nullptr;
  }
  return !running && (!writing || clock_.Now() >= give_up_at_);
}

void Node::TerminateAll() {
  stopping_ = true;
  const absl::Time deadline = clock_.Now() + options_.stop_grace;
  give_up_at_ = deadline + kLastWrites;
  for (auto& [uid, entry] : entries_) {
    if (!entry.process) continue;
    if (!entry.terminating) entry.process->Terminate();
    entry.terminating = true;
    entry.kill_at = std::min(entry.kill_at, deadline);
  }
}

}  // namespace starling::local
