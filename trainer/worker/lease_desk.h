// SPDX-License-Identifier: Apache-2.0
// Where directives come in and reports go out, for a worker that works leases off (a job with
// parameter servers; docs/design/parameter-server.md).
//
// Directives arrive on gRPC's threads; the loop reads what they ask for when it has time. What
// cannot wait for it, because it may be blocked in the mesh, is done at once by the thread that
// brought it: a newer view fences and ends the present one. Everything in a report is state: what
// is done stays in it until the coordinator's directive no longer lists it.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/net/deadline.h"
#include "common/sync/mutex.h"
#include "trainer/membership/types.h"
#include "trainer/parameter_server/job_tables.h"
#include "trainer/parameter_server/slot_plan.h"

namespace starling::worker {

// The newest directive, as far as it concerns the loop.
struct Orders {
  std::uint64_t stamp = 0;  // rises with every change
  std::optional<membership::View> view;
  // Of that view.
  std::vector<parameter_server::Lease> leases;  // all that this worker holds, in order
  std::int64_t settled = 0;
  std::int64_t evaluate = 0;
  bool conclude = false;

  membership::Settings settings;
  bool leaving = false;
  std::string exit;  // why the process is to end; empty: it is not
};

// Thread-safe.
class LeaseDesk {
 public:
  struct Options {
    membership::MemberId id;
    std::string numeric_identity;
    std::optional<membership::LastExit> last_exit;
    parameter_server::Layout layout;
    // How long the coordinator may take to unlist a lease that was given back.
    absl::Duration give_back_patience = absl::Seconds(1);
  };
  // What is done on the thread that brings a directive, without a lock held.
  struct AtOnce {
    std::function<void(membership::ViewNumber)> fence;
    std::function<void()> stop;
    std::function<void()> report;
  };
  LeaseDesk(Options options, AtOnce at_once);

  void OnDirective(const membership::Directive& directive);
  void Terminate();
  void GraceOver();
  membership::Report MakeReport() const;

  // For the loop.
  Orders Read() const;
  std::uint64_t stamp() const;
  // Until something has changed since `stamp`; false once `timeout` has passed.
  bool WaitForChange(std::uint64_t stamp, absl::Duration timeout);
  // The view is installed: what was done is void if this client starts over in it.
  void Install(const membership::View& view);
  // Its links stand, and all slots have welcomed this worker.
  void Running();
  // Its links have ended, and whom this worker could not reach.
  void Broken(std::vector<membership::MemberId> unreachable);
  // The first lease of the installed view that is neither begun nor done, and as many as follow it
  // in the same step, of so many portions; they are begun now: finished and told, listed or not.
  // What was refused beside others comes by itself.
  std::optional<consistency::LeaseRun> Take(std::int64_t portions = 1);
  // Whether this one, which is begun, is still listed, and Take would not give a lower one.
  bool IsNext(parameter_server::Lease lease) const;
  // All slots have acknowledged them.
  void Done(const consistency::LeaseRun& run);
  // All slots have answered, and one has refused them: they are given back, so that another worker
  // does them. What is listed for long nevertheless is this worker's again.
  void Refused(const consistency::LeaseRun& run);
  // They were begun, but nothing of them is on its way: they are to be taken again.
  void Dropped(const consistency::LeaseRun& run);
  void Evaluated(std::int64_t turn, bool ends_training);

 private:
  bool Open(parameter_server::Lease lease) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool InView() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Listed(parameter_server::Lease lease) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool TakeView(const membership::View& view, std::uint64_t incarnation)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Changed() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::string ParameterServerReport() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Options options_;
  const AtOnce at_once_;
  mutable sync::Mutex mutex_;
  sync::Condition changed_;
  std::uint64_t incarnation_ ABSL_GUARDED_BY(mutex_) = 0;
  Orders orders_ ABSL_GUARDED_BY(mutex_);
  std::int64_t checkpoint_turn_ ABSL_GUARDED_BY(mutex_) = 0;
  std::optional<membership::View> installed_ ABSL_GUARDED_BY(mutex_);
  membership::ViewNumber joined_ ABSL_GUARDED_BY(mutex_) = 0;  // of the installed view
  membership::Phase phase_ ABSL_GUARDED_BY(mutex_) = membership::Phase::kOut;
  std::vector<membership::MemberId> unreachable_ ABSL_GUARDED_BY(mutex_);
  std::set<parameter_server::Lease> begun_ ABSL_GUARDED_BY(mutex_);
  std::set<parameter_server::Lease> done_ ABSL_GUARDED_BY(mutex_);  // and listed
  // Done, but listed no more while they were on their way: the newest few.
  std::deque<parameter_server::Lease> done_unlisted_ ABSL_GUARDED_BY(mutex_);
  // Listed, but refused: until then they are told neither as held nor as done, once they were told
  // as held. By that the coordinator knows.
  std::map<parameter_server::Lease, net::Deadline> given_back_ ABSL_GUARDED_BY(mutex_);
  // Refused beside others: some slot has a part of those, so each is to be pushed by itself.
  std::set<parameter_server::Lease> singly_ ABSL_GUARDED_BY(mutex_);
  mutable std::set<parameter_server::Lease> told_held_ ABSL_GUARDED_BY(mutex_);
  std::int64_t evaluated_turn_ ABSL_GUARDED_BY(mutex_) = 0;
  bool ends_training_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace starling::worker
