// SPDX-License-Identifier: Apache-2.0
// A worker without its surroundings: membership, exchange and loop put together over a workload, a
// transport and a storage that are handed in. There are two kinds; to add one:
// implement Worker, a line in Create.
//
// main.cc gives it the job's workload, TCP and a disk; tests give it a tiny one and peers in one
// process.
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
#include "trainer/transport/transport.h"
#include "trainer/workload/workload.h"

namespace starling::worker {

struct WorkerConfig {
  v1alpha1::TrainingJobSpec spec;  // resolved
  std::string job_uid;
  std::string job_dir;
  membership::MemberId self;
  std::optional<membership::LastExit> last_exit;
  std::string progress_file;  // empty: none
  std::string step_log;       // empty: none
};

// What a worker works with; all of it outlives it.
struct WorkerParts {
  workload::Workload& workload;
  transport::Transport& transport;
  storage::BlobStore& storage;  // the job's place (checkpoint::JobPlace)
  const clock::Clock& clock;
  metrics::Registry& registry;
  std::function<void()> poke;                           // the report has news; called on any thread
  std::function<void(membership::ViewNumber)> on_view;  // a view's steps begin; may be empty
};

// Thread-safe, except Run.
class Worker {
 public:
  // The kind that spec.exchange asks for: one that holds the whole state and reduces gradients with
  // its peers (peer_worker.h), or a client of parameter servers (client_worker.h).
  static absl::StatusOr<std::unique_ptr<Worker>> Create(WorkerConfig config, WorkerParts parts);
  virtual ~Worker() = default;

  // Trains until the coordinator lets go (OK) or training cannot go on; then the report says why.
  virtual absl::Status Run() = 0;

  virtual void OnDirective(const membership::Directive& directive) = 0;
  virtual membership::Report MakeReport() const = 0;
  // Leave in an orderly way, or at once.
  virtual void Terminate() = 0;
  virtual void GraceOver() = 0;
  // After a failed Run: until the coordinator or a signal ends this process, or `timeout`.
  virtual void WaitForExit(absl::Duration timeout) = 0;
};

}  // namespace starling::worker
