// SPDX-License-Identifier: Apache-2.0
#include "trainer/worker/hybrid.h"

#include <utility>

#include "common/log/log.h"
#include "common/status/macros.h"
#include "trainer/client/hybrid_exchange.h"
#include "trainer/worker/layout.h"

namespace starling::worker {
namespace {

using consistency::LeaseRun;

// How often a worker that has nothing to do looks at its links.
constexpr absl::Duration kHybridLook = absl::Milliseconds(2);

}  // namespace

absl::StatusOr<std::unique_ptr<WorkSource>> Hybrid::Create(const Context& context) {
  ASSIGN_OR_RETURN(const parameter_server::Layout layout,
                   LayoutOf(context.spec(), context.parts.workload));
  ASSIGN_OR_RETURN(parameter_server::JobTables tables,
                   parameter_server::TablesOf(context.spec(), layout));
  std::unique_ptr<Hybrid> made(new Hybrid(context, layout, std::move(tables)));
  auto exchange = std::make_unique<client::HybridExchange>(
      client::HybridExchange::Parts{
          .workload = context.parts.workload,
          .batches = context.batches,
          .tables = made->tables_,
          .wanted = [raw = made.get()] { return !raw->queue_.HasOpen(); }},
      made->servers_);
  ASSIGN_OR_RETURN(made->lockstep_,
                   Lockstep::Create(context, {.exchange = std::move(exchange),
                                              .served = layout.held,
                                              .portions = made->servers_.portions()}));
  return std::unique_ptr<WorkSource>(std::move(made));
}

Hybrid::Hybrid(const Context& context, const parameter_server::Layout& layout,
               parameter_server::JobTables tables)
    : context_(context),
      tables_(std::move(tables)),
      queue_({.id = context.config.self, .layout = layout, .chains = tables_.shards.size()}),
      servers_({.spec = context.spec(),
                .self = context.config.self,
                .workload = context.parts.workload,
                .tables = tables_,
                .clock = context.parts.clock},
               {.done =
                    [this](const client::ParameterServerExchange::Done& done) {
                      queue_.Done(done.leases);
                      context_.parts.notify();
                    },
                .refused = [this](const LeaseRun& leases) { queue_.Refused(leases); },
                .are_next = [this](const LeaseRun& leases) { return queue_.IsNext(leases.first); },
                .started_over = [] {}}),
      for_servers_({.spec = context.spec(),
                    .workload = context.parts.workload,
                    .batches = context.batches,
                    .exchange = servers_,
                    .stopwatch = context.stopwatch}) {}

void Hybrid::Hear(const membership::Directive& directive, membership::ViewNumber installed) {
  queue_.OnDirective(directive, installed);
  context_.shell.Nudge();
}

absl::Status Hybrid::Enter(const membership::View& view) {
  queue_.Enter(view);
  RETURN_IF_ERROR(servers_.Enter(view, context_.links.mesh()));
  return lockstep_->Enter(view);
}

absl::Status Hybrid::Begin(const membership::Run& run) {
  caught_up_ = false;
  return lockstep_->Begin(run);
}

void Hybrid::Leave() {
  lockstep_->Leave();
  servers_.Leave();
}

absl::Status Hybrid::Work() {
  ASSIGN_OR_RETURN(const bool caught_up, CatchUp());
  if (caught_up) return absl::OkStatus();
  if (!queue_.Read().begun) {
    (void)context_.shell.WaitForNews(kHybridLook);
    return absl::OkStatus();
  }
  const absl::Status worked = lockstep_->Work();
  return absl::IsAborted(worked) ? absl::OkStatus() : worked;  // a lease comes first
}

absl::StatusOr<bool> Hybrid::CatchUp() {
  RETURN_IF_ERROR(servers_.Poll());
  const std::optional<LeaseRun> lease = queue_.Take();
  if (!lease) return false;
  const absl::Status worked = WorkOff(lease->first);
  if (!worked.ok()) queue_.Dropped(*lease);
  if (!worked.ok() && !absl::IsAborted(worked)) return worked;
  return true;
}

absl::Status Hybrid::WorkOff(parameter_server::Lease lease) {
  if (lease == parameter_server::kFirstValues) return servers_.AssignFirstValues();
  const std::int64_t portions = servers_.portions();
  const std::int64_t portion = parameter_server::PortionOfLease(lease, portions);
  StepRequest request;
  request.step = parameter_server::StepOfLease(lease, portions) + 1;
  request.portions = {portion, portion + 1};
  request.of = portions;
  request.leases = lease;
  caught_up_ = true;
  ASSIGN_OR_RETURN(const StepOutcome outcome, for_servers_.Run(request));
  return outcome.finite ? absl::OkStatus() : Diverged(request.step, outcome);
}

// When the last step is settled there may still be something to catch up with, and the end to make.
absl::StatusOr<absl::Duration> Hybrid::Idle() {
  if (!lockstep_->over()) return lockstep_->Idle();
  ASSIGN_OR_RETURN(const bool caught_up, CatchUp());
  if (caught_up) return absl::ZeroDuration();
  const bool conclude = queue_.Read().conclude && !context_.board.has_result();
  if (conclude) RETURN_IF_ERROR(Conclude());
  servers_.Rest();  // who reads for good waits until nobody works any more
  ASSIGN_OR_RETURN(const absl::Duration idle, lockstep_->Idle());
  return std::min(idle, kHybridLook);
}

// Where a validation ended training, the next step's portions were pushed before that was known.
// The servers' tensors of the state that was validated are those that were read for it; only after
// a catch-up the servers' newest must do.
absl::Status Hybrid::Conclude() {
  if (lockstep_->validated_at_end() && !caught_up_) return lockstep_->Conclude();
  context_.stopwatch.Enter(Activity::kExchange);
  RETURN_IF_ERROR(servers_.AwaitAll(absl::InfiniteDuration()));
  servers_.Rest();
  RETURN_IF_ERROR(servers_.Fetch(consistency::kAtRest, [] { return true; }));
  return lockstep_->Conclude();
}

}  // namespace starling::worker
