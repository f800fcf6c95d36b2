// SPDX-License-Identifier: Apache-2.0
// The leases that a worker of a job with parameter servers holds: what the coordinator has listed,
// what of it is begun, done or given back, and how that is reported
// (docs/design/parameter-server.md).
//
// Lists arrive on the control service's threads; the loop takes leases when it has time. Everything
// in a report is state: a lease that is done stays in it until the coordinator lists it no more.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/net/deadline.h"
#include "common/sync/mutex.h"
#include "trainer/membership/types.h"
#include "trainer/parameter_server/job_tables.h"
#include "trainer/parameter_server/shard_placement.h"

namespace starling::worker {

// What the newest directive asks for, of the view that it names.
struct LeaseOrders {
  membership::ViewNumber view = 0;
  std::vector<parameter_server::Lease> leases;  // all that this worker holds, in order
  std::int64_t settled = 0;                     // steps
  std::int64_t evaluate = 0;                    // the newest turn that is to be validated
  bool conclude = false;                        // write the result
  bool begun = false;                           // the first values are on all servers
};

// Thread-safe.
class LeaseQueue {
 public:
  struct Options {
    membership::MemberId id;
    parameter_server::Layout layout;
    // Where workers are a replica group too: so many chains stand before it in a view.
    std::optional<std::size_t> chains = {};
    // How long the coordinator may take to unlist a lease that was given back.
    absl::Duration give_back_timeout = absl::Seconds(1);
  };
  explicit LeaseQueue(Options options) : options_(std::move(options)) {}

  // A directive that this worker's session has taken, with the view that it has installed.
  void OnDirective(const membership::Directive& directive, membership::ViewNumber installed);
  // Completes a report that the session has begun. What is told of leases belongs to the view that
  // the report names: nothing is told of another.
  void Fill(membership::Report& report) const;

  // For the loop. ------------------------------------------------------------------------------

  // Of the view that the loop has entered; empty orders while they are of another.
  LeaseOrders Read() const;
  // The loop has entered the view: what was done is void if this client starts over in it.
  void Enter(const membership::View& view);
  // The first lease of the view that is neither begun nor done, and as many as follow it in the
  // same step, of so many portions; they are begun now: finished and told, listed or not. What was
  // refused beside others comes by itself.
  std::optional<consistency::LeaseRun> Take(std::int64_t portions = 1);
  // Whether Take would give one.
  bool HasOpen() const;
  // Whether this one, which is begun, is still listed, and Take would not give a lower one.
  bool IsNext(parameter_server::Lease lease) const;
  // All shards have acknowledged them. What was not taken from here is left aside.
  void Done(const consistency::LeaseRun& run);
  // All shards have answered, and one has refused them: they are given back, so that another worker
  // does them. What is listed for long nevertheless is this worker's again.
  void Refused(const consistency::LeaseRun& run);
  // They were begun, but nothing of them is on its way: they are to be taken again.
  void Dropped(const consistency::LeaseRun& run);
  void Evaluated(std::int64_t turn, bool ends_training);

 private:
  bool Open(parameter_server::Lease lease) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool InView() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Listed(parameter_server::Lease lease) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Options options_;
  mutable sync::Mutex mutex_;
  LeaseOrders orders_ ABSL_GUARDED_BY(mutex_);
  membership::ViewNumber entered_ ABSL_GUARDED_BY(mutex_) = 0;
  membership::ViewNumber joined_ ABSL_GUARDED_BY(mutex_) = 0;  // of the entered view
  std::set<parameter_server::Lease> begun_ ABSL_GUARDED_BY(mutex_);
  std::set<parameter_server::Lease> done_ ABSL_GUARDED_BY(mutex_);  // and listed
  // Done, but listed no more while they were on their way: the newest few.
  std::deque<parameter_server::Lease> done_unlisted_ ABSL_GUARDED_BY(mutex_);
  // Listed, but refused: until then they are told neither as held nor as done, once they were told
  // as held. By that the coordinator knows.
  std::map<parameter_server::Lease, net::Deadline> given_back_ ABSL_GUARDED_BY(mutex_);
  // Refused beside others: some shard has a part of those, so each is to be pushed by itself.
  std::set<parameter_server::Lease> singly_ ABSL_GUARDED_BY(mutex_);
  mutable std::set<parameter_server::Lease> told_held_ ABSL_GUARDED_BY(mutex_);
  std::int64_t evaluated_turn_ ABSL_GUARDED_BY(mutex_) = 0;
  bool ends_training_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace starling::worker
