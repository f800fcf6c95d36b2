// SPDX-License-Identifier: Apache-2.0
// How much work a job with parameter servers has, and in what portions: pure functions of spec and
// layout. Batches are numbered from 1 over all epochs; each is one step, and `portions` leases
// (batch b is the leases from 2 + (b - 1) * portions on). Validations are called turns, by the
// number of the epoch after which they are made.
//
// The coordinator asks it what may be given out and which turn is due; nobody else has to know.
#pragma once

#include <cstdint>

#include "trainer/consistency/lease_ledger.h"

namespace starling::v1alpha1 {
class Stop;
class TrainingJobSpec;
}  // namespace starling::v1alpha1

namespace starling::parameter_server {

using consistency::Lease;

struct WorkPlan {
  std::int64_t portions = 1;   // leases of a batch
  bool in_step = false;        // nothing of a batch is worked off before all of those before it are
  std::int64_t per_epoch = 1;  // batches
  std::int64_t total = 0;      // batches until training ends, if nothing ends it sooner
  std::int64_t every = 0;      // epochs between two turns; 0: there are none
  // So many intervals between turns may be worked ahead of a turn that is not made yet.
  std::int64_t ahead = 0;
  // So many batches are one client's alone.
  std::int64_t warm_start = 0;

  // The turn after turn `made`; 0: there is none.
  std::int64_t TurnAfter(std::int64_t made) const;
  // Batches that must be done before turn `turn`.
  std::int64_t BatchesBefore(std::int64_t turn) const;
  // The turn to be made when the first `settled` batches are done; 0: none.
  std::int64_t TurnDue(std::int64_t made, std::int64_t settled) const;
  // Batches up to this one may be given out when turn `made` is the newest.
  std::int64_t Limit(std::int64_t made) const;
  // The last lease of batch `batch`; 1, the first values, before the first.
  Lease LastOf(std::int64_t batch) const { return static_cast<Lease>(batch * portions) + 1; }
  // Batches all of whose leases are below `open`.
  std::int64_t BatchesBelow(Lease open) const {
    return open < consistency::kFirstPortion
               ? 0
               : static_cast<std::int64_t>(open - consistency::kFirstPortion) / portions;
  }
  // Whose turn a lease is when so many clients share each batch: neighbours are one client's, so
  // that it can work them off, and push them, as one.
  std::int64_t RankOf(Lease lease, std::int64_t clients) const {
    const auto portion = static_cast<std::int64_t>(lease - consistency::kFirstPortion) % portions;
    return ((portion + 1) * clients - 1) / portions;
  }
  // Nothing is left to be done.
  bool Over(std::int64_t made, std::int64_t settled) const;
};

// `stop` is spec.stop, or what it was changed into since.
WorkPlan WorkOf(const v1alpha1::TrainingJobSpec& spec, const v1alpha1::Stop& stop,
                std::int64_t samples);

}  // namespace starling::parameter_server
