// SPDX-License-Identifier: Apache-2.0
// How the updates of a step travel: what the step loop sees.
//
//   RETURN_IF_ERROR(exchange->Begin(step));            // the control word leaves
//   for each bucket, last layer first: exchange->Add(group, bucket);   // during backward
//   ASSIGN_OR_RETURN(Outcome outcome, exchange->Finish(statistics));   // gradients hold the sum
//
// Buckets are reduced in the order of their indices at every rank, whatever the order of Adds, for
// collectives only match when all ranks issue them alike; autograd's readiness order need not be.
// Reduction runs on a communication thread while backward still computes; what is left when Finish
// is called, for small models everything, runs on the caller's thread and costs no wake-up.
//
// Besides gradients a step carries a control word (candidate view, checkpoint turn, stop: reduced
// by min and max, to be acted upon when they are equal) and statistics (validation sums, losses:
// doubles, added in group order).
//
// The groups of a step are the units whose order fixes every sum. In reproducible mode they are the
// job's G groups of a batch; otherwise rank i's share of the batch is group i.
//
// Gradients may travel encoded (trainer/compression); what that loses is this rank's own state, of
// which the loop says what became of the step that left it: Settle.
//
// To add a way to travel (parameter server, gossip): implement Exchange.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/net/deadline.h"
#include "common/ranges/ranges.h"
#include "trainer/buffer/buffer.h"
#include "trainer/collectives/allreduce.h"
#include "trainer/collectives/grouped_reduce.h"
#include "trainer/compression/codec.h"
#include "trainer/transport/mesh.h"

namespace starling::exchange {

// One step's exchange as the step loop announces it.
struct Step {
  transport::Mesh* mesh = nullptr;  // of the view; null when this worker is alone
  std::uint64_t number = 0;
  // The flat gradients of the model, F32, the buckets one after another. Empty for a step that only
  // settles the one before: then no Add is expected. Must outlive Finish.
  buffer::View gradients;
  // Equally many words at every rank.
  std::span<const std::int64_t> control;
  // Reproducible mode only: how many groups this batch has (its last one may have fewer).
  int groups = 1;
  net::Deadline deadline = net::Deadline::Never();
};

struct Outcome {
  std::vector<std::int64_t> min;  // of the control words
  std::vector<std::int64_t> max;
  std::vector<double> statistics;  // sums, one for each column
};

// What became of the step that this rank has computed last.
enum class Fate {
  kApplied,  // it counts: it was applied here, or the state that this rank copies holds it
  kDropped,  // it does not, and will be done again
  kMissed,   // other steps have counted since, without this rank
};

// Confined to the step loop's thread, except Add and Cancel, which are thread-safe.
class Exchange {
 public:
  virtual ~Exchange() = default;

  // Every Begin that returned OK is ended by one Finish, also after a Cancel. INVALID_ARGUMENT when
  // the gradients do not fit the buckets; the mesh's status when it is dead already.
  virtual absl::Status Begin(const Step& step) = 0;

  // Bucket `bucket` of step.gradients now holds group `group`'s gradient of it, and is not to be
  // touched before Finish (reproducible: before this returns, it was copied). Once for each bucket
  // and each group of this rank. Called by autograd's threads. Errors come with Finish.
  virtual void Add(int group, int bucket) = 0;

  // Ends the step: step.gradients hold the sum over all groups, the same bits at every rank.
  // `statistics` has one row for each group of this rank, row after row, `columns` numbers each
  // (the same number at every rank). FAILED_PRECONDITION names the buckets that were never added;
  // after any error the gradients are unspecified, the mesh is dead and nobody touches them.
  virtual absl::StatusOr<Outcome> Finish(std::span<const double> statistics, int columns) = 0;

  // Ends a running or coming Finish of the current step with `reason`, and its mesh.
  virtual void Cancel(const absl::Status& reason) = 0;

  // At the latest before the next Begin; else the step is dropped.
  virtual void Settle(Fate fate) = 0;

  // What this rank alone holds, one number for each gradient: the residual of error feedback; empty
  // without. It stays where it is and changes with Settle only, so it can be a part of the state
  // that is saved. When the state was overwritten, by a checkpoint or by a copy of others' state,
  // Adopted says whether the residual is to be taken from what was written, or kept.
  virtual std::span<float> residual() = 0;
  virtual void Adopted(bool from_checkpoint) = 0;

  // The groups [first, last) that rank `rank` of `size` contributes to a step of `groups` groups.
  virtual ranges::Range<int> Groups(int rank, int size, int groups) const = 0;
};

// How gradients are summed, and in which form they travel.
struct AllReduceOptions {
  collectives::Algorithm algorithm = collectives::Algorithm::kAuto;
  // Null, or one without loss: as they are, by `algorithm`. Else as collectives::EncodedAllreduce,
  // whatever the algorithm. It outlives the exchange.
  const compression::Codec* codec = nullptr;
  bool error_feedback = false;
};
// Group i is rank i's share; sums in place by allreduce. `bucket_sizes` are in elements.
std::unique_ptr<Exchange> NewAllReduceExchange(const std::vector<std::size_t>& bucket_sizes,
                                               const AllReduceOptions& options);

// The job's groups, each with its own gradient: bit-identical for any number of ranks.
std::unique_ptr<Exchange> NewReproducibleExchange(const std::vector<std::size_t>& bucket_sizes);

// A single worker: nothing travels.
std::unique_ptr<Exchange> NewNoExchange(const std::vector<std::size_t>& bucket_sizes);

}  // namespace starling::exchange
