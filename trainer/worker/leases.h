// SPDX-License-Identifier: Apache-2.0
// Work as leases, in a job with parameter servers: the coordinator lists what this worker is to
// work off, which validation is due, and whether to write the result.
//
// Orders are state (lease_queue.h): between two leases the worker looks what they are now. What it
// had pushed when a view ends is sent again in the next. To obey a new order: a field in
// LeaseOrders, a line in Work.
#pragma once

#include <memory>
#include <optional>
#include <set>

#include "trainer/client/parameter_server_exchange.h"
#include "trainer/worker/course_store.h"
#include "trainer/worker/lease_queue.h"
#include "trainer/worker/step_computer.h"
#include "trainer/worker/work_source.h"

namespace starling::worker {

// See WorkSource.
class Leases final : public WorkSource {
 public:
  // `context` outlives it. INVALID_ARGUMENT when spec and model do not fit.
  static absl::StatusOr<std::unique_ptr<WorkSource>> Create(const Context& context);

  absl::Status Enter(const membership::View& view) override;
  void Leave() override { exchange_.Leave(); }
  absl::Status Begin(const membership::Run& run) override;
  absl::Status Work() override;
  absl::Status Do(const membership::Action&) override { return absl::OkStatus(); }

  void Hear(const membership::Directive& directive, membership::ViewNumber installed) override;
  void Fill(membership::Report& report) const override { queue_.Fill(report); }

 private:
  using Lease = parameter_server::Lease;

  Leases(const Context& context, const parameter_server::Layout& layout,
         parameter_server::JobTables tables);

  absl::Status WorkOff(const consistency::LeaseRun& leases);
  absl::Status WaitForOrders();
  // Waits as long as each lease is to be delayed.
  absl::Status Pace(Lease first);

  absl::Status Evaluate(const LeaseOrders& orders);
  absl::Status Conclude(const LeaseOrders& orders);
  // Whether a validation's parameters may be kept.
  bool MayKeep() const;
  // All parameters into the workload, or those that validation needs, when nobody works any more;
  // or as they are now.
  absl::Status FetchForGood(const LeaseOrders& orders, bool at_rest, bool validation_only = false);

  void Tell(std::int64_t settled);
  void AskForCourse();
  void OnDone(const client::ParameterServerExchange::Done& done);
  void OnRefused(const consistency::LeaseRun& leases);
  void OnRecord(const CourseRecord& record);
  // The newest that is known, at `step`.
  Course CourseAt(std::int64_t step) const;

  const Context& context_;
  const parameter_server::JobTables tables_;
  LeaseQueue queue_;
  client::ParameterServerExchange exchange_;
  StepComputer computer_;
  CourseStore store_;
  membership::View view_;  // the newest that was entered
  CourseRecord record_;    // the newest that is known
  absl::Time asked_ = absl::InfinitePast();
  std::optional<std::int64_t> told_;  // settled steps, since the first orders
  std::int64_t evaluated_ = 0;        // turn
  std::optional<Values> training_;    // the metrics of the newest leases, smoothed
  std::set<Lease> again_;             // begins of leases that were worked on in vain
  Lease paced_lease_ = 0;
  net::Deadline paced_until_ = net::Deadline::Never();
  absl::Time idle_since_ = absl::InfiniteFuture();
};

}  // namespace starling::worker
