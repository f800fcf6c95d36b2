// SPDX-License-Identifier: Apache-2.0
// How what workers learn travels between them: what whoever computes sees, whatever the way.
//
//   RETURN_IF_ERROR(exchange->Enter(view, mesh));      // once a view
//   RETURN_IF_ERROR(exchange->Begin(step));            // a control word leaves
//   ASSIGN_OR_RETURN(update, exchange->Prepare());     // the parameters are up to date
//   for each bucket, last layer first: exchange->Add(group, bucket);   // during backward
//   ASSIGN_OR_RETURN(Outcome outcome, exchange->Finish(statistics, columns));
//   exchange->Leave();                                 // the view is over
//
// There are three ways. Allreduce (StepExchange): every worker holds the parameters, and when
// Finish returns the gradients hold the sum over all workers, the same bits at each. Parameter
// servers (client::ParameterServerExchange): Prepare reads the parameters from the servers, Add
// pushes what is ready, and Finish sends the rest; that it has arrived is heard later. Both in one
// job (client::HybridExchange): some tensors lie on servers, and the others are summed up.
//
// Errors say who is to act. UNAVAILABLE from any call: the view has ended for this worker, which
// goes on in the next one; transport::UnreachableRanks tells whom it could not reach. ABORTED: this
// step is not wanted any more, and nothing of it counts. Every other error would come again in any
// view, so the job fails with its message.
//
// Besides gradients a step may carry a control word (candidate view, checkpoint turn, stop: reduced
// by min and max, to be acted upon when they are equal) and statistics (validation sums, losses:
// doubles, added in group order).
//
// The groups of a step are the units whose order fixes every sum. In reproducible mode they are the
// job's G groups of a batch; otherwise rank i's share of the batch is group i.
//
// Gradients may travel encoded (trainer/compression); what that loses is this rank's own state.
//
// To add a way to travel (gossip, say): implement Exchange, and choose it where the worker makes
// its exchange.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/net/deadline.h"
#include "common/ranges/ranges.h"
#include "trainer/buffer/buffer.h"
#include "trainer/collectives/allreduce.h"
#include "trainer/collectives/grouped_reduce.h"
#include "trainer/compression/compressor.h"
#include "trainer/consistency/lease_ledger.h"
#include "trainer/membership/types.h"
#include "trainer/timeline/recorder.h"
#include "trainer/transport/mesh.h"

namespace starling::exchange {

// `status`, of a mesh or of its opening, as the end of a view: UNAVAILABLE, with the ranks that
// could not be reached.
absl::Status ViewEnded(const absl::Status& status);

// What a worker does between two exchanges.
struct Step {
  std::uint64_t number = 0;  // from 1; its batch is the one that the samples are of
  // What is to travel, F32, the buckets one after another; perhaps not the workload's own gradients
  // (local steps). Empty for a step that only settles the one before: then no Add is expected. Must
  // outlive Finish.
  buffer::View gradients;
  // Equally many words at every rank.
  std::span<const std::int64_t> control;
  // Reproducible mode only: how many groups this batch has (its last one may have fewer).
  int groups = 1;
  // Buckets may be reduced beside the computing, on another thread. False where that thread would
  // not be the only one that uses the mesh.
  bool overlap = true;
  net::Deadline deadline = net::Deadline::Never();
  // Those that this worker computes, by their ids. They outlive Finish.
  std::span<const std::int64_t> samples = {};
  // Times this the gradients are what the parameters are to change by: 1 / samples for the gradient
  // of a sum. Servers need it, for each push is applied by itself; who sums over all workers leaves
  // it to whoever applies the sum.
  float scale = 1;
  // With a lease queue: those that are worked off.
  consistency::LeaseRun leases{0};
};

struct Outcome {
  std::vector<std::int64_t> min = {};  // of the control words
  std::vector<std::int64_t> max = {};
  // Sums, one for each column: over all workers, or where each works for itself, of this one.
  std::vector<double> statistics = {};
  bool finite = true;  // all gradients that travelled are numbers
  // What every rank computed from was the state before this step. Where servers hold a part of it,
  // they may have gone on with a step that is made again.
  bool of_state_before = true;
};

// Bytes of updates that this rank has sent since its exchange was made, and what the same updates
// would have been as floats: by a ring where all sum up, by pushes where servers do.
struct Volume {
  std::uint64_t sent = 0;
  std::uint64_t dense = 0;
  // At least how many bytes of gradients are summed up at a time, where that was found in the
  // present view (bucket_tuner.h); else 0.
  std::uint64_t merged = 0;
};

// How updates travel in the present view, for people: over what, by which algorithm, and why.
struct Path {
  std::string exchange = {};   // as in the job file: allReduce
  std::string transport = {};  // shared memory, TCP or UDP (with TLS), or both
  std::string algorithm = {};
  std::string reason = {};
};
// What the links to these ranks of `mesh` are; this rank itself may be one of them.
std::string TransportTo(const transport::Mesh& mesh, std::span<const int> ranks);

// What became of the step that this rank has computed last.
enum class Fate {
  kApplied,  // it counts: it was applied here, or the state that this rank copies holds it
  kDropped,  // it does not, and will be done again
  kMissed,   // other steps have counted since, without this rank
};

// Confined to the loop's thread, except Add, which is called by whoever computes meanwhile.
class Exchange {
 public:
  virtual ~Exchange() = default;

  // A view has begun, and its links stand: `mesh`, which lives until Leave, or null in a view of
  // one. Returns when steps may begin.
  virtual absl::Status Enter(const membership::View& view, transport::Mesh* mesh) = 0;
  // The view is over; between steps.
  virtual void Leave() = 0;

  // Every Begin that returned OK is ended by one Finish, also after a Cancel. INVALID_ARGUMENT when
  // the gradients do not fit the buckets.
  virtual absl::Status Begin(const Step& step) = 0;

  // The workload's parameters are now as the step's samples are to see them. Before the first
  // Compute, and again between local steps; the workload may go on with its own copy instead. The
  // number of the update that these gradients become, from 1, as far as this worker knows: learning
  // rates go by it.
  virtual absl::StatusOr<std::int64_t> Prepare() = 0;

  // Bucket `bucket` of step.gradients now holds group `group`'s gradient of it, and is not to be
  // touched before Finish (reproducible: before this returns, it was copied). Once for each bucket
  // and each group of this rank. Errors come with Finish.
  virtual void Add(int group, int bucket) = 0;

  // Ends the step. `statistics` has one row for each group of this rank, row after row, `columns`
  // numbers each (the same number at every rank). Allreduce: step.gradients hold the sum over all
  // groups, and after any error they are unspecified, the mesh is dead and nobody touches them.
  virtual absl::StatusOr<Outcome> Finish(std::span<const double> statistics, int columns) = 0;

  // The current step cannot be made here: its Finish returns an error, and others that need this
  // rank's part are told so by the end of the mesh.
  virtual void Cancel(const absl::Status& reason) = 0;

  // Where a step's fate is decided by all: at the latest before the next Begin; else the step is
  // dropped.
  virtual void Settle(Fate /*fate*/) {}

  // What this rank alone holds, one number for each gradient (two with momentum correction), and
  // what is to be saved with the state: the residual of error feedback; empty without. It stays
  // where it is and changes with Settle only. When the state was overwritten, by a checkpoint or by
  // a copy of others' state, Adopted says whether the residual is to be taken from what was
  // written, or kept.
  virtual std::span<float> residual() { return {}; }
  virtual void Adopted(bool /*from_checkpoint*/) {}

  // Between steps.
  virtual Volume volume() const { return {}; }
  // Of the view that was entered last; none where nothing travels.
  virtual std::vector<Path> paths() const { return {}; }

  // Before the first view: each bucket's way is recorded there, while somebody looks. It outlives
  // this.
  virtual void RecordTo(timeline::Recorder& /*recorder*/) {}

  // The groups [first, last) that rank `rank` of `size` contributes to a step of `groups` groups.
  virtual ranges::Range<int> Groups(int rank, int /*size*/, int /*groups*/) const {
    return {rank, rank + 1};
  }
};

// How gradients are summed, and in which form they travel.
struct AllReduceOptions {
  // Not given: what is fastest for each size by the links that a view has (collectives/selector.h).
  std::optional<collectives::Algorithm> algorithm = std::nullopt;
  // Null, or one without loss: as they are, by `algorithm`. Else as collectives::EncodedAllreduce,
  // whatever the algorithm.
  std::shared_ptr<const compression::Codec> codec = nullptr;
  compression::CompressorOptions compressor = {};
  // Buckets are cut small, and how many are summed up at once is found in each view.
  bool tune_buckets = false;
};
// Group i is rank i's share; sums in place by allreduce. `bucket_sizes` are in elements.
std::unique_ptr<Exchange> NewAllReduceExchange(const std::vector<std::size_t>& bucket_sizes,
                                               const AllReduceOptions& options);

// The job's groups, each with its own gradient: bit-identical for any number of ranks.
std::unique_ptr<Exchange> NewReproducibleExchange(const std::vector<std::size_t>& bucket_sizes,
                                                  bool tune_buckets = false);

// A single worker: nothing travels.
std::unique_ptr<Exchange> NewNoExchange(const std::vector<std::size_t>& bucket_sizes);

}  // namespace starling::exchange
