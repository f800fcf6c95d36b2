// SPDX-License-Identifier: Apache-2.0
// The main loop of a worker in a job with parameter servers: it enters views, works leases off,
// and makes the validations and the end when it is asked to.
//
// One thread does all of it. Orders are state (lease_desk.h): between two leases the loop looks
// what they are now. Whatever goes wrong with a link ends the view for this worker, never the job;
// what it had pushed is sent again in the next view. To obey a new order: a field in Orders, a line
// in Turn.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "common/clock/clock.h"
#include "common/storage/blob_store.h"
#include "starling/v1alpha1/training_job.pb.h"
#include "trainer/data/audit_log.h"
#include "trainer/parameter_server/topology.h"
#include "trainer/worker/course_store.h"
#include "trainer/worker/lease_desk.h"
#include "trainer/worker/lease_work.h"
#include "trainer/worker/step_files.h"
#include "trainer/worker/training_board.h"
#include "trainer/worker/view_links.h"
#include "trainer/worker/worker_metrics.h"

namespace starling::worker {

// Confined to one thread.
class LeaseLoop {
 public:
  struct Parts {
    const v1alpha1::TrainingJobSpec& spec;
    membership::MemberId self;
    std::string job_dir;
    std::map<std::string, std::string> model_metadata;
    LeaseDesk& desk;
    ViewLinks& links;
    workload::Workload& workload;
    const parameter_server::JobTables& tables;
    storage::BlobStore& storage;
    TrainingBoard& board;
    Stopwatch& stopwatch;
    StepFiles& step_files;
    WorkerMetrics& metrics;
    const clock::Clock& clock;
    std::function<void()> poke;                           // a report has news
    std::function<void(membership::ViewNumber)> on_view;  // a view's steps begin; may be empty
  };
  explicit LeaseLoop(Parts parts);

  // Until orders say exit (OK), or training cannot go on: the status says why, and the board has it
  // as the job's failure.
  absl::Status Run();

 private:
  using Lease = parameter_server::Lease;

  // UNAVAILABLE: the view has ended here. Any other error is the job's.
  absl::Status InView(const membership::View& view);
  absl::Status EnterView(const membership::View& view);
  absl::Status Turn(const Orders& orders);
  absl::Status WaitForOrders(const Orders& orders);
  // Waits as long as each lease is to be delayed.
  absl::Status Pace(Lease first);

  absl::Status Evaluate(const Orders& orders);
  absl::Status Conclude(const Orders& orders);
  // Whether a validation's parameters may be kept.
  bool MayKeep() const;
  // All parameters into the workload, or those that validation needs, when nobody works any more;
  // or as they are now.
  absl::Status FetchForGood(const Orders& orders, bool at_rest, bool validation_only = false);

  void TakeSettings(const membership::Settings& settings);
  void Tell(const Orders& orders);
  void ReportProgress(const Orders& orders);
  void WriteAudit(std::int64_t settled);
  void AskForCourse();
  void OnDone(const LeaseWork::Done& done);
  bool IsFirst() const;
  std::int64_t Total() const { return TotalSteps(stop_, batches_); }
  const workload::Declaration& declared() const { return parts_.workload.declaration(); }
  // The newest that is known, at `step`.
  Course CourseAt(std::int64_t step) const;

  Parts parts_;
  const data::Batches batches_;
  const parameter_server::Topology topology_;
  client::SlotPipe pipe_;
  LeaseWork work_;
  CourseStore store_;
  v1alpha1::Stop stop_;  // in force
  std::int64_t settings_generation_ = 0;
  membership::View view_;  // the newest that was entered
  CourseRecord record_;    // the newest that is known
  absl::Time asked_ = absl::InfinitePast();
  std::unique_ptr<data::AuditLog> audit_;
  bool audit_failing_ = false;
  std::int64_t told_ = -1;          // settled, as told last
  std::int64_t evaluated_ = 0;      // turn
  std::optional<Values> training_;  // the metrics of the newest leases, smoothed
  Lease paced_lease_ = 0;
  net::Deadline paced_until_ = net::Deadline::Never();
  absl::Time idle_since_ = absl::InfiniteFuture();
  absl::Time started_ = absl::InfinitePast();
  absl::Time view_ended_ = absl::InfinitePast();  // set while no lease was done since
  absl::Time last_done_ = absl::InfinitePast();
};

}  // namespace starling::worker
