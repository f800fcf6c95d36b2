// SPDX-License-Identifier: Apache-2.0
// Work in lockstep where some of the model's tensors lie on parameter servers
// (client/hybrid_exchange.h).
//
// Steps are Lockstep's. Beside them the coordinator lists leases: the tensors' first values, and
// portions of earlier steps that a restored server lacks, which are computed for the servers alone
// (catch-up, rule H4 of docs/design/protocol.md). They come before the next step, for its reads
// wait for them. The end is the coordinator's to order, too, when the servers have every step (H5).
#pragma once

#include <memory>

#include "trainer/client/parameter_server_exchange.h"
#include "trainer/worker/lease_queue.h"
#include "trainer/worker/lockstep.h"
#include "trainer/worker/work_source.h"

namespace starling::worker {

// See WorkSource.
class Hybrid final : public WorkSource {
 public:
  // `context` outlives it. INVALID_ARGUMENT when spec and model do not fit.
  static absl::StatusOr<std::unique_ptr<WorkSource>> Create(const Context& context);

  absl::Status Enter(const membership::View& view) override;
  void Leave() override;
  absl::Status Begin(const membership::Run& run) override;
  void OnSettings() override { lockstep_->OnSettings(); }
  absl::Status Work() override;
  absl::Status Do(const membership::Action& action) override { return lockstep_->Do(action); }
  absl::StatusOr<absl::Duration> Idle() override;

  void Hear(const membership::Directive& directive, membership::ViewNumber installed) override;
  void Fill(membership::Report& report) const override { queue_.Fill(report); }

 private:
  Hybrid(const Context& context, const parameter_server::Layout& layout,
         parameter_server::JobTables tables);

  // The lease that comes before the next step, if there is one: true, and its outcome.
  absl::StatusOr<bool> CatchUp();
  absl::Status WorkOff(parameter_server::Lease lease);
  absl::Status Conclude();

  const Context& context_;
  const parameter_server::JobTables tables_;
  LeaseQueue queue_;
  client::ParameterServerExchange servers_;
  StepComputer for_servers_;  // portions that the workers have already
  std::unique_ptr<Lockstep> lockstep_;
  bool caught_up_ = false;  // since the present work began: parameters were read for earlier steps
};

}  // namespace starling::worker
