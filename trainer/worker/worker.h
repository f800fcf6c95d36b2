// SPDX-License-Identifier: Apache-2.0
// A worker without its surroundings: membership machine, source of work and loop put together over
// a workload, a transport and a storage that are handed in.
//
// main.cc gives it the job's workload, TCP and a disk; tests give it a tiny one and peers in one
// process. What differs between jobs is where the work comes from (work_source.h).
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/clock/clock.h"
#include "common/metrics/metrics.h"
#include "common/storage/blob_store.h"
#include "starling/v1alpha1/training_job.pb.h"
#include "trainer/membership/member.h"
#include "trainer/timeline/recorder.h"
#include "trainer/transport/transport.h"
#include "trainer/worker/own_loop.h"
#include "trainer/workload/workload.h"

namespace starling::worker {

struct WorkerConfig {
  v1alpha1::TrainingJobSpec spec;  // resolved
  std::string job_uid;
  std::string job_dir;
  membership::MemberId self;
  std::optional<membership::LastExit> last_exit;
  std::string progress_file;                  // empty: none
  std::string step_log;                       // empty: none
  absl::Time began = absl::InfiniteFuture();  // this process, by the parts' clock; if later: now
};

// What a worker works with; all of it outlives it.
struct WorkerParts {
  workload::Workload& workload;
  transport::Transport& transport;
  storage::BlobStore& storage;  // the job's place (checkpoint::JobPlace)
  const clock::Clock& clock;
  metrics::Registry& registry;
  std::function<void()> notify;                         // the report has news; called on any thread
  std::function<void(membership::ViewNumber)> on_view;  // a view's steps begin; may be empty
  // This worker hangs in that thread, and its process is to end now; empty: a test's does not.
  std::function<void(std::int64_t thread)> on_hung = {};
  // Whose loop makes the steps, if it is a program's; its workload is `workload`. Null: our own.
  OwnLoop* own_loop = nullptr;
  // Where this worker's time is recorded, while somebody looks; null: nowhere.
  timeline::Recorder* recorder = nullptr;
};

// Thread-safe, except Run.
class Worker {
 public:
  // INVALID_ARGUMENT when spec and workload do not fit.
  static absl::StatusOr<std::unique_ptr<Worker>> Create(WorkerConfig config, WorkerParts parts);
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // Trains until the coordinator lets go (OK) or training cannot go on; then the report says why.
  absl::Status Run();

  void OnDirective(const membership::Directive& directive);
  membership::Report MakeReport() const;
  // Brings up to date what metrics show of others' counts. By one thread at a time.
  void UpdateMetrics();
  // What the own loop answers has changed.
  void Nudge();
  // Leave in an orderly way, or at once.
  void Terminate();
  void GraceOver();
  // After a failed Run: until the coordinator or a signal ends this process, or `timeout`.
  void WaitForExit(absl::Duration timeout);

 private:
  struct State;
  explicit Worker(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace starling::worker
