// SPDX-License-Identifier: Apache-2.0
// The coordinator's real LeaseSource in made-up time, told what one server and the workers would
// report: who computes which samples, what becomes of a dead worker's leases, and who waits while a
// warm start lasts are the product's decisions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainer/consistency/consistency.h"
#include "trainer/parameter_server/lease_source.h"

namespace starling::techniques {

// Thread-compatible.
class LeaseFeed {
 public:
  // Leases of `batch` samples each, without end; the first `warm_start` are the first client's.
  // Under bulkSynchronous they are the portions of batches, as `model` has them, and shared out in
  // step.
  LeaseFeed(std::int64_t samples, std::int64_t batch, const consistency::Options& model,
            std::int64_t warm_start);

  // A view with these clients; the server has what `ledger` says. `now` is in seconds.
  void OnView(membership::ViewNumber number, const std::vector<consistency::Client>& clients,
              consistency::LeaseLedger ledger, double now);
  // The first lease that this client is told to work on; 0: none.
  consistency::Lease FirstOf(const consistency::Client& client) const;
  // The server has taken its push; has refused it.
  void OnDone(const consistency::Client& client, consistency::Lease lease, double now);
  void OnReturned(const consistency::Client& client, consistency::Lease lease, double now);

  // From 1.
  static std::int64_t NumberOf(consistency::Lease lease) {
    return static_cast<std::int64_t>(lease - consistency::kFirstPortion) + 1;
  }

 private:
  // All that it is told to do.
  std::vector<consistency::Lease> ToldTo(const consistency::Client& client) const;
  void Say(const membership::MemberId& id, const v1alpha1::ParameterServerReport& said);
  // It holds what it was told to do, and then all of that but `lease`.
  void Ends(const consistency::Client& client, consistency::Lease lease, bool done, double now);
  void Update(double now);

  parameter_server::LeaseSource source_;
  membership::View view_;
};

}  // namespace starling::techniques
