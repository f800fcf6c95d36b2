// SPDX-License-Identifier: Apache-2.0
// One worker's way with a lease: fetch the parameters as the consistency model allows, compute the
// gradient of the lease's samples, push it to every slot as soon as backward has made it, and know
// when all slots have it.
//
// Leases are pushed as one, so that they are applied once or not at all: of a bulk-synchronous step
// all portions that this worker has, else each by itself. With exchange.parameterServer.
// downpour it holds several units of work: between two of them the worker goes on with its own
// copy, and their gradients' sum is pushed. With hogwild threads take a step for each of its
// samples, and what the parameters have changed by is pushed. With eagerStaleSynchronous what is
// ready is sent within a budget, the most useful first, and the lease ends when all is sent.
// Several pushes may be on their way; what was refused in some slot (backup workers; or portions of
// which a slot had some already) is given back and worked off again, mostly by another worker;
// slots that have taken it skip it.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "common/clock/clock.h"
#include "trainer/client/parameter_reader.h"
#include "trainer/compression/compressor.h"
#include "trainer/consistency/downpour.h"
#include "trainer/consistency/eager_sender.h"
#include "trainer/data/batches.h"
#include "trainer/parameter_server/job_tables.h"
#include "trainer/worker/stopwatch.h"
#include "trainer/workload/hogwild.h"

namespace starling::worker {

// Confined to the loop's thread.
class LeaseWork {
 public:
  using Lease = parameter_server::Lease;
  struct Parts {
    const v1alpha1::TrainingJobSpec& spec;
    workload::Workload& workload;
    const data::Batches& batches;  // one step each
    const parameter_server::JobTables& tables;
    Stopwatch& stopwatch;
    const clock::Clock& clock;
    client::SlotPipe& pipe;
  };
  // Of leases whose push every slot has acknowledged.
  struct Done {
    consistency::LeaseRun leases;
    workload::Sums sums = {};  // of the metrics; empty of no samples
    std::int64_t samples = 0;
  };
  struct Events {
    std::function<void(const Done&)> done;
    // All slots have answered, and some has not taken them.
    std::function<void(const consistency::LeaseRun&)> refused;
    // Whether these are still listed, and the lowest that this worker has: others may wait for
    // lower ones.
    std::function<bool(const consistency::LeaseRun&)> are_next;
  };
  LeaseWork(const Parts& parts, Events events);

  // In a new view: until all slots have said where this client stands.
  absl::Status AwaitWelcome();
  // Handles what has arrived, or arrives until then.
  absl::Status Poll();
  absl::Status PollUntil(net::Deadline deadline);
  // Until nothing is on its way, or `timeout` has passed: OK.
  absl::Status AwaitAll(absl::Duration timeout);

  // Up to its pushes. UNAVAILABLE when the view has ended, ABORTED when they were not
  // read for yet and are not wanted any more, or not now: if not all is pushed, nothing is. Any
  // other error is the job's.
  absl::Status Work(const consistency::LeaseRun& leases);
  // Leases of a step.
  std::int64_t portions() const { return portions_; }
  std::size_t on_their_way() const { return flights_.size(); }
  // Nothing is left of it, and nobody waits for this worker until its next lease.
  void Rest();

  // All parameters as the slots have them now, read at `clock`, into the workload; the own copy is
  // lost. Of a sparse table all rows that any sample uses, or those of the validation set alone.
  // UNAVAILABLE when the view has ended, ABORTED when `wanted` says no more.
  absl::Status Fetch(parameter_server::Clock clock, const std::function<bool()>& wanted,
                     bool validation_only = false);
  // The next lease fetches: the workload's parameters were used for something else.
  void ForgetCopy() { units_ = 0; }

  double fetch_seconds() const { return absl::ToDoubleSeconds(reader_.took()); }  // of the last one

 private:
  struct Flight {
    std::int64_t open = 0;  // pushes without an acknowledgement
    bool sealed = false;    // all are pushed
    bool refused = false;
    consistency::LeaseRun leases{0};
    workload::Sums sums = {};
    std::int64_t samples = 0;
  };
  // The lease that is being pushed.
  struct Outgoing {
    consistency::LeaseRun leases{0};
    parameter_server::Clock clock = 0;  // of all its pushes, whatever is heard meanwhile
    std::span<const float> gradient;
    float scale = 1;
    double weight = 0;
    std::size_t next = 0;  // the first slot that is not ready
    bool diverged = false;
  };

  void StartOver();
  // A push that has no answer yet.
  struct Sent {
    Lease lease = 0;
    std::uint64_t update = 0;  // under which its residual is pending
  };

  void On(const parameter_server::Acknowledged& event);
  void FinishIfAllIn(Lease lease);
  absl::Status Await(const std::function<bool()>& done);
  absl::Status NothingRejected() const;
  absl::Status Ready();
  absl::Status AssignFirstValues();
  parameter_server::Clock ClockOf(const consistency::LeaseRun& leases) const;
  data::Range PositionsOf(const consistency::LeaseRun& leases) const;
  std::int64_t StepOf(Lease lease) const;
  absl::Status FetchFor(const consistency::LeaseRun& leases);
  absl::Status FetchIfDue();
  absl::Status Compute(const consistency::LeaseRun& leases, Flight& flight);
  absl::Status PushNothing();
  absl::Status ComputeUnit(std::int64_t step, data::Range positions,
                           const std::function<void(std::int64_t)>& push, Flight& flight);
  absl::Status ComputeInUnits(std::int64_t step, data::Range positions, Flight& flight);
  void GoOnLocally(std::int64_t samples);
  double Rate() const;
  // The gradient is made up to here.
  void GradientUpTo(std::int64_t end);
  parameter_server::UpdatePtr Encoded(std::size_t slot, std::uint64_t update);
  void PushSlot(std::size_t slot);
  void SendEagerly();
  absl::Status SendTheRest();
  absl::Status Seal(const Flight& flight);

  const Parts parts_;
  const Events events_;
  const consistency::Downpour downpour_;
  const std::int64_t unit_;               // samples
  const std::int64_t portions_;           // leases of a step
  const bool in_step_;                    // a lease's step is its clock
  const bool factored_;                   // fully connected layers' gradients travel as factors
  const compression::CodecNumber codec_;  // of a lease's weights and changes
  const std::optional<double> kkt_;       // with the KKT filter: the L1 penalty
  workload::SparseTable* const sparse_;   // null: all parameters travel
  client::ParameterReader reader_;
  std::vector<std::uint64_t> touched_;  // those that the present lease uses
  const std::unique_ptr<workload::Hogwild> hogwild_;
  std::unique_ptr<consistency::EagerSender> eager_;
  std::vector<float> first_values_;
  std::vector<float> sum_;  // of the units' gradients

  parameter_server::Clock clock_ = 0;  // completed
  bool begun_ = false;                 // all slots have said where this client stands
  std::int64_t units_ = 0;             // worked off since the own copy was lost
  std::map<Lease, Flight> flights_;    // by the first lease of each
  std::map<std::pair<std::size_t, parameter_server::Sequence>, Sent> sent_;
  compression::Compressor compressor_;
  std::uint64_t updates_ = 0;  // encoded so far
  Outgoing outgoing_;
  std::set<std::uint64_t> unsent_;  // slots that wait for the eager sender
};

}  // namespace starling::worker
