// SPDX-License-Identifier: Apache-2.0
#include "controller/history/recorder.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "api/telemetry/metric_table.h"
#include "common/log/log.h"
#include "common/status/macros.h"
#include "controller/kube/objects.h"

namespace starling::history {
namespace {

using kube::Json;

constexpr std::size_t kBatch = 200;  // jobs in one transaction
constexpr std::size_t kFolderUid = 8;
constexpr absl::Duration kCatchUp = absl::Seconds(30);
// Of a namespace that is gone: no later one of its name has it.
constexpr const char* kNoNamespace = "-";

bool HasEnded(const Json& job) {
  return kube::IsConditionTrue(job, "Succeeded") || kube::IsConditionTrue(job, "Failed");
}

void Append(const std::map<std::string, Points>& newer, std::map<std::string, Points>& to) {
  for (const auto& [metric, points] : newer) {
    if (to.size() >= kMostMetrics && !to.contains(metric)) continue;
    for (const Point& point : points) AddPoint(point, to[metric]);
  }
}

// Whether `a` is the later state of one job.
bool IsNewer(const Json& a, const Json& b) {
  return !runtime::IsOlder(kube::ResourceVersionOf(a), kube::ResourceVersionOf(b));
}

}  // namespace

Recorder::Recorder(History& history, kube::KubeClient& client, runtime::Informer& jobs,
                   const clock::Clock& clock, metrics::Registry& registry, RecorderOptions options)
    : history_(history),
      client_(client),
      jobs_(jobs),
      clock_(clock),
      options_(std::move(options)),
      bytes_(telemetry::AddGauge(registry, "starling_history_bytes")),
      lag_(telemetry::AddGauge(registry, "starling_history_lag_seconds")),
      dropped_(telemetry::AddCounter(registry, "starling_history_dropped_total")) {
  telemetry::AddGauge(registry, "starling_history_limit_bytes")
      .Set(static_cast<double>(options_.retention.bytes));
  jobs_.AddHandler([this](const Object& before, const Object& after) { Hear(before, after); });
}

void Recorder::Hear(const Object& before, const Object& after) {
  sync::MutexLock lock(mutex_);
  const bool another =
      before != nullptr && (after == nullptr || kube::UidOf(*before) != kube::UidOf(*after));
  if (another) Put(before, /*with_points=*/false, clock_.WallNow());
  if (after != nullptr) Put(after, /*with_points=*/true, std::nullopt);
}

void Recorder::Put(const Object& job, bool with_points, std::optional<absl::Time> gone) {
  const std::string uid = kube::UidOf(*job);
  if (uid.empty()) return;
  const auto [place, added] = waiting_.try_emplace(uid);
  Waiting& waiting = place->second;
  if (added) waiting.since = clock_.Now();
  if (waiting.job == nullptr || IsNewer(*job, *waiting.job)) waiting.job = job;
  if (with_points) {
    for (const auto& [metric, point] : PointsOf(*job, clock_.WallNow())) {
      Append({{metric, {point}}}, waiting.points);
    }
  }
  if (gone && !waiting.gone) waiting.gone = gone;
  DropOldest();
}

// Only while the history is away for long.
void Recorder::DropOldest() {
  if (waiting_.size() <= options_.most_waiting) return;
  const auto oldest = std::min_element(
      waiting_.begin(), waiting_.end(),
      [](const auto& a, const auto& b) { return a.second.since < b.second.since; });
  log::Warning("news of a job is let go: the history has been away for too long",
               {{"job", kube::KeyOf(*oldest->second.job).ToString()}, {"uid", oldest->first}});
  waiting_.erase(oldest);
  dropped_.Increment();
}

void Recorder::PutBack(Batch batch) {
  sync::MutexLock lock(mutex_);
  for (auto& [uid, older] : batch) {
    const auto newer = waiting_.find(uid);
    if (newer == waiting_.end()) {
      waiting_[uid] = std::move(older);
      continue;
    }
    Append(newer->second.points, older.points);
    newer->second.points = std::move(older.points);
    if (older.gone) newer->second.gone = older.gone;
    newer->second.events = newer->second.events || older.events;
    newer->second.logs = newer->second.logs || older.logs;
    newer->second.since = older.since;
  }
}

// All events of the namespace are read once a batch.
std::vector<Json> Recorder::EventsOf(const Json& job) {
  const std::string ns = kube::NamespaceOf(job);
  if (!events_.contains(ns)) {
    absl::StatusOr<kube::ObjectList> list = client_.List(kube::kEvent, ns, {});
    events_[ns] = list.ok() ? std::move(list->items) : std::vector<Json>();
  }
  std::vector<Json> events;
  for (const Json& event : events_[ns]) {
    if (IsAbout(event, job)) events.push_back(event);
  }
  return events;
}

absl::StatusOr<std::vector<JobUpdate>> Recorder::UpdatesOf(const Batch& batch) {
  std::map<std::string, std::string> uids;
  std::vector<JobUpdate> updates;
  for (const auto& [uid, waiting] : batch) {
    const std::string ns = kube::NamespaceOf(*waiting.job);
    if (options_.namespace_uid != nullptr && !uids.contains(ns)) {
      absl::StatusOr<std::string> found = options_.namespace_uid(ns);
      if (!found.ok() && !absl::IsNotFound(found.status())) return found.status();
      uids[ns] = found.ok() ? *std::move(found) : kNoNamespace;
    }
    JobUpdate update;
    update.record = MakeRecord(*waiting.job, uids[ns], options_.summarize);
    update.points = waiting.points;
    update.gone = waiting.gone;
    updates.push_back(std::move(update));
  }
  return updates;
}

JobUpdate Recorder::DetailsOf(const std::string& uid, const Waiting& waiting) {
  JobUpdate update;
  update.record.uid = uid;
  if (waiting.events) update.events = EventsOf(*waiting.job);
  if (waiting.logs && options_.read_logs != nullptr) {
    update.logs =
        options_.read_logs({kube::NamespaceOf(*waiting.job), "", kube::NameOf(*waiting.job), uid});
  }
  return update;
}

// First what all jobs are, then events and logs of those that are news and have ended.
absl::Status Recorder::WriteBatch(Batch& batch) {
  ASSIGN_OR_RETURN(const std::vector<JobUpdate> updates, UpdatesOf(batch));
  ASSIGN_OR_RETURN(const std::vector<std::string> news, history_.Record(updates));
  events_.clear();
  std::vector<JobUpdate> details;
  for (auto& [uid, waiting] : batch) {
    const bool is_news = waiting.gone || std::find(news.begin(), news.end(), uid) != news.end();
    const bool ended = is_news && (waiting.gone || HasEnded(*waiting.job));
    waiting.events = waiting.events || ended;
    waiting.logs = waiting.logs || ended;
    if (waiting.events || waiting.logs) details.push_back(DetailsOf(uid, waiting));
  }
  return history_.Record(details).status();
}

absl::Status Recorder::WriteWaiting() {
  while (true) {
    Batch batch;
    {
      sync::MutexLock lock(mutex_);
      while (!waiting_.empty() && batch.size() < kBatch) {
        batch.insert(waiting_.extract(waiting_.begin()));
      }
    }
    if (batch.empty()) return absl::OkStatus();
    if (const absl::Status status = WriteBatch(batch); !status.ok()) {
      PutBack(std::move(batch));
      return status;
    }
  }
}

// What the store has told since the newest that is recorded, deletions included, as far as it
// remembers. Past times are not told, so these states have no points.
absl::Status Recorder::CatchUp() {
  ASSIGN_OR_RETURN(const std::int64_t newest, history_.NewestVersion());
  if (newest == 0) return absl::OkStatus();
  const auto watch = client_.Watch(kube::kTrainingJob, jobs_.options().ns,
                                   {.selection = {}, .resource_version = absl::StrCat(newest)});
  const absl::Time deadline = clock_.Now() + kCatchUp;
  while (watch.ok() && clock_.Now() < deadline) {
    const auto event = (*watch)->Next(options_.quiet);
    if (!event.ok() || !*event) break;
    if ((*event)->type == kube::WatchEventType::kBookmark) continue;
    sync::MutexLock lock(mutex_);
    const bool deleted = (*event)->type == kube::WatchEventType::kDeleted;
    Put((*event)->object, /*with_points=*/false,
        deleted ? std::optional(clock_.WallNow()) : std::nullopt);
  }
  return absl::OkStatus();  // what the store has forgotten is found by Resync()
}

// The informer's copy may be late: the store says it.
absl::StatusOr<bool> Recorder::IsGone(const PresentJob& job) {
  const Object copy = jobs_.Get({job.ns, job.name});
  if (copy != nullptr && kube::UidOf(*copy) == job.uid) return false;
  const absl::StatusOr<Json> stored = client_.Get(kube::kTrainingJob, {job.ns, job.name});
  if (stored.ok()) return kube::UidOf(*stored) != job.uid;
  if (absl::IsNotFound(stored.status())) return true;
  return stored.status();
}

absl::Status Recorder::MarkGone(const PresentJob& job) {
  JobUpdate update;
  update.record.uid = job.uid;
  update.gone = clock_.WallNow();
  if (options_.read_logs != nullptr) {
    update.logs = options_.read_logs({job.ns, "", job.name, job.uid});
  }
  return history_.Record({update}).status();
}

absl::Status Recorder::Resync() {
  const std::vector<Object> jobs = jobs_.List();
  {
    sync::MutexLock lock(mutex_);
    for (const Object& job : jobs) {
      Put(job, /*with_points=*/false, std::nullopt);
      // Events live for an hour, jobs for days.
      if (const auto put = waiting_.find(kube::UidOf(*job)); put != waiting_.end()) {
        put->second.events = true;
      }
    }
  }
  RETURN_IF_ERROR(WriteWaiting());
  ASSIGN_OR_RETURN(const std::vector<PresentJob> present, history_.Present());
  for (const PresentJob& job : present) {
    const std::string& ns = jobs_.options().ns;
    if (!ns.empty() && ns != job.ns) continue;
    ASSIGN_OR_RETURN(const bool gone, IsGone(job));
    if (gone) RETURN_IF_ERROR(MarkGone(job));
  }
  return absl::OkStatus();
}

bool Recorder::LetGo(const JobName& job) {
  if (options_.read_logs == nullptr) return true;
  const FolderKey key{job.ns, job.name, job.uid.substr(0, kFolderUid)};
  sync::MutexLock lock(mutex_);
  const absl::Time now = clock_.Now();
  const auto [place, asked] = leaving_.try_emplace(key, Leaving::kAsked, now);
  const bool done = place->second.first == Leaving::kDone;
  if (!done && now - place->second.second < options_.logs_wait) return false;
  if (!done) {
    log::Warning("logs of a job are let go: they could not be recorded in time",
                 {{"job", job.ns + "/" + job.name}, {"uid", job.uid}});
  }
  leaving_.erase(place);
  return true;
}

bool Recorder::IsWaiting(const FolderKey& folder) const {
  return std::any_of(waiting_.begin(), waiting_.end(), [&](const auto& item) {
    const auto& [ns, name, uid] = folder;
    return item.first.starts_with(uid) &&
           kube::KeyOf(*item.second.job) == kube::ObjectKey{ns, name};
  });
}

// Of jobs whose logs wait to go. By now all that was to be told of them has been.
absl::Status Recorder::TakeLeavingLogs() {
  std::vector<FolderKey> asked;
  {
    sync::MutexLock lock(mutex_);
    for (const auto& [key, state] : leaving_) {
      if (state.first == Leaving::kAsked) asked.push_back(key);
    }
  }
  for (const FolderKey& key : asked) {
    const auto& [ns, name, uid] = key;
    ASSIGN_OR_RETURN(const std::string known, history_.FindUid(ns, name, uid));
    if (!known.empty()) {
      JobUpdate update;
      update.record.uid = known;
      update.logs = options_.read_logs({ns, "", name, uid});
      update.logs_taken = true;
      RETURN_IF_ERROR(history_.Record({update}).status());
    }
    sync::MutexLock lock(mutex_);
    if (known.empty() && IsWaiting(key)) continue;  // heard of since; the next turn writes it
    if (const auto found = leaving_.find(key); found != leaving_.end()) {
      found->second.first = Leaving::kDone;
    }
  }
  return absl::OkStatus();
}

absl::Status Recorder::Trim() {
  ASSIGN_OR_RETURN(const Space left, history_.Trim(options_.retention, clock_.WallNow()));
  bytes_.Set(static_cast<double>(left.bytes));
  if (left.jobs > options_.retention.jobs || left.bytes > options_.retention.bytes) {
    log::Warning("the jobs that are there alone take more than the history may hold",
                 {{"jobs", left.jobs}, {"bytes", left.bytes}});
  }
  return absl::OkStatus();
}

absl::Status Recorder::FlushAll() {
  if (!caught_up_) {
    RETURN_IF_ERROR(CatchUp());
    caught_up_ = true;
  }
  RETURN_IF_ERROR(WriteWaiting());
  const absl::Time now = clock_.Now();
  if (jobs_.HasSynced() && (told_to_ != history_.incarnation() || now >= next_resync_)) {
    const std::int64_t incarnation = history_.incarnation();
    RETURN_IF_ERROR(Resync());
    told_to_ = incarnation;
    next_resync_ = now + options_.resync;
  }
  RETURN_IF_ERROR(TakeLeavingLogs());
  if (now < next_trim_) return absl::OkStatus();
  RETURN_IF_ERROR(Trim());
  next_trim_ = now + options_.trim;
  return absl::OkStatus();
}

void Recorder::Tell(const absl::Status& status) {
  if (!status.ok() && status != last_) {
    log::Error("the history cannot be written; what is new waits", {{"error", status.ToString()}});
  } else if (status.ok() && !last_.ok()) {
    log::Info("the history is written again", {{"history", history_.name()}});
  }
  last_ = status;
}

void Recorder::Flush() {
  Tell(FlushAll());
  sync::MutexLock lock(mutex_);
  absl::Time oldest = clock_.Now();
  for (const auto& [uid, waiting] : waiting_) oldest = std::min(oldest, waiting.since);
  lag_.Set(absl::ToDoubleSeconds(clock_.Now() - oldest));
}

}  // namespace starling::history
