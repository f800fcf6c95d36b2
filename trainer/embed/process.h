// SPDX-License-Identifier: Apache-2.0
// A process that is a member of a job though its program is not ours: what starling-worker's main
// puts together (control service, metrics, data plane, worker), for a program that opens it, says
// what it has, starts it and runs its own loop.
//
// The coordinator may dial as soon as the process is open; it is joinable when it has started. The
// worker runs on a thread of its own until the coordinator lets go of it.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "starling/v1alpha1/training_job.pb.h"
#include "trainer/embed/handover.h"
#include "trainer/transport/window.h"

namespace starling::embed {

// When training ends, where the job does not say it; 0: not given.
struct End {
  std::int64_t epochs = 0;
  std::int64_t steps = 0;
};

// Confined to the program's thread, but for what the Handover allows, and Leave.
class Process {
 public:
  // `arguments` are the flags of a role (control/options.h), without a program's name; the
  // environment is read too. UNAVAILABLE when the process cannot be a member here and now; all
  // other errors are what it was given.
  static absl::StatusOr<std::unique_ptr<Process>> Open(const std::vector<std::string>& arguments);
  // As Abandon.
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  // The job's resolved spec, as the controller wrote it.
  const std::string& spec_text() const;

  // To be filled in before Start. `batch`: samples of a step; 0: the job's.
  Description description;
  std::int64_t batch = 0;
  End end;

  absl::Status Start();
  bool started() const { return handover_ != nullptr; }
  // After Start.
  Handover& handover() { return *handover_; }
  const data::Batches& batches() const { return *batches_; }
  // How the worker has ended; nothing while it runs.
  std::optional<absl::Status> ended() const;
  // Training is over for the program, as Next has said.
  bool over = false;

  // As SIGTERM does.
  void Leave();
  // Whether Close would wait for copies of the state that the program is to bring up to date; its
  // next call says that they are.
  bool WantsState();
  // After the last step: waits until the coordinator lets go. The end of the worker.
  // FAILED_PRECONDITION, after Abandon, when training is not over.
  absl::Status Close();
  // Ends everything here at once, without goodbye.
  void Abandon();

 private:
  struct Parts;
  explicit Process(std::unique_ptr<Parts> parts);
  absl::Status Complete(v1alpha1::TrainingJobSpec& spec) const;
  void Run();
  void Stop();

  std::unique_ptr<Parts> parts_;  // null when everything has ended
  std::optional<data::Batches> batches_;
  std::shared_ptr<const transport::Window> window_;  // where gradients lie, perhaps
  std::unique_ptr<Handover> handover_;
  std::thread thread_;
  mutable sync::Mutex mutex_;
  std::optional<absl::Status> ended_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace starling::embed
