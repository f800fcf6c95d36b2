// SPDX-License-Identifier: Apache-2.0
// Fills the history from what an informer tells of jobs.
//
// It hears, and writes later: while the history cannot be reached, what is new waits here, each
// job's newest state and the points of its curves, and nobody else waits for it. All that it writes
// may be written again, by it or by another one beside it, so it keeps no account of what it has
// told. What was deleted while nobody listened it finds by what the store still remembers, else by
// looking for those that the history believes to be there.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "common/clock/clock.h"
#include "common/metrics/metrics.h"
#include "common/sync/mutex.h"
#include "controller/history/history.h"
#include "controller/kube/kube_client.h"
#include "controller/runtime/informer.h"

namespace starling::history {

struct RecorderOptions {
  kube::Json (*summarize)(const kube::Json& job) = nullptr;  // required
  // NotFound: there is no such namespace any more. Null: namespaces are names alone.
  std::function<absl::StatusOr<std::string>(const std::string& ns)> namespace_uid = nullptr;
  // What a job's pods have written, oldest first. Of the UID the first eight characters are
  // enough. Null: logs are not to be had.
  std::function<std::vector<LogTail>(const JobName& job)> read_logs = nullptr;
  Retention retention;
  std::size_t most_waiting = 10'000;  // jobs; beyond that those that have waited longest go
  absl::Duration resync = absl::Minutes(10);
  absl::Duration trim = absl::Minutes(1);
  // Of a watch that tells what was missed: after so long without an event it has told all.
  absl::Duration quiet = absl::Seconds(1);
  absl::Duration logs_wait = absl::Minutes(10);  // for logs to be recorded; then they may go
};

// Thread-safe; Flush() is for one thread at a time.
class Recorder {
 public:
  // What is referred to must outlive it. Before the informer's first turn.
  Recorder(History& history, kube::KubeClient& client, runtime::Informer& jobs,
           const clock::Clock& clock, metrics::Registry& registry, RecorderOptions options);

  // Writes what waits, and does what is due; call it often. Errors are told in the log, once each,
  // and by the gauge starling_history_lag_seconds; what could not be written is kept.
  void Flush();

  // A job is gone and its logs are about to be: true when they are recorded, or are not worth
  // recording, or have waited too long. Until then it is to be asked again.
  bool LetGo(const JobName& job);

 private:
  using Object = runtime::Informer::Object;
  struct Waiting {
    Object job;
    std::map<std::string, Points> points;
    std::optional<absl::Time> gone;
    bool events = false;  // are to be read, whether there is other news or not
    bool logs = false;
    absl::Time since;
  };
  using Batch = std::map<std::string, Waiting>;  // by UID
  enum class Leaving { kAsked, kDone };
  using FolderKey = std::tuple<std::string, std::string, std::string>;  // UID: 8 characters

  void Hear(const Object& before, const Object& after);
  void Put(const Object& job, bool with_points, std::optional<absl::Time> gone)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool IsWaiting(const FolderKey& folder) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void PutBack(Batch batch);
  void DropOldest() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  absl::Status FlushAll();
  absl::Status WriteWaiting();
  absl::Status WriteBatch(Batch& batch);
  absl::StatusOr<std::vector<JobUpdate>> UpdatesOf(const Batch& batch);
  JobUpdate DetailsOf(const std::string& uid, const Waiting& waiting);
  std::vector<kube::Json> EventsOf(const kube::Json& job);
  absl::Status CatchUp();
  absl::Status Resync();
  absl::Status MarkGone(const PresentJob& job);
  absl::StatusOr<bool> IsGone(const PresentJob& job);
  absl::Status TakeLeavingLogs();
  absl::Status Trim();
  void Tell(const absl::Status& status);

  History& history_;
  kube::KubeClient& client_;
  runtime::Informer& jobs_;
  const clock::Clock& clock_;
  const RecorderOptions options_;
  metrics::Gauge bytes_, lag_;
  metrics::Counter dropped_;
  // Of Flush() alone.
  bool caught_up_ = false;
  std::int64_t told_to_ = -1;  // the history's incarnation that everything was told to
  absl::Time next_resync_ = absl::InfinitePast();
  absl::Time next_trim_ = absl::InfinitePast();
  std::map<std::string, std::vector<kube::Json>> events_;  // by namespace, while a batch is made
  absl::Status last_;
  mutable sync::Mutex mutex_;
  Batch waiting_ ABSL_GUARDED_BY(mutex_);
  std::map<FolderKey, std::pair<Leaving, absl::Time>> leaving_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace starling::history
