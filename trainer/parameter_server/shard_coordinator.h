// SPDX-License-Identifier: Apache-2.0
// The coordinator of jobs with parameter servers: all rules for views are in
// membership/coordinator.h, where shards lie is ShardPlacement's, what there is to be done, and by
// whom, LeaseSource's. Here is what the tables are (from the layout that workers report), what
// servers and workers report of them, and when to save and to halt. Where servers hold only some of
// the tensors (spec.exchange.parameterServer.tensors) the workers are a replica group as well: the
// machines are those of both kinds, side by side in one view.
//
// All of it is soft: layout, views, ledgers, held leases and turns are reported again to a
// successor. docs/design/parameter-server.md says what is told to whom; to add something: a row
// there, a private method that Work() calls, a test in shard_coordinator_test.cc.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "trainer/membership/coordinator.h"
#include "trainer/parameter_server/job_tables.h"
#include "trainer/parameter_server/lease_source.h"
#include "trainer/parameter_server/shard_placement.h"

namespace starling::parameter_server {

using membership::kServerRole;
using membership::kWorkerRole;

// Thread-compatible.
class ShardCoordinator final : public membership::Coordinator {
 public:
  struct Options {
    membership::CoordinatorOptions common;
    absl::Duration ahead_patience = absl::Seconds(10);
    Balance balance;  // of the servers' loads
    LeaseSource::Options work;
    // How long a leaving client may finish what it holds.
    absl::Duration drain_patience = absl::Seconds(5);
    // How tables follow from a layout; empty: TablesOf().
    std::function<absl::StatusOr<JobTables>(const Layout&)> tables;
    // What stands before the plan of where shards lie; empty: nothing does. (Simulated histories
    // put them where nobody would plan them.)
    std::function<std::shared_ptr<membership::Placement>(std::shared_ptr<membership::Placement>)>
        placement;
  };

  // `spec` is resolved and valid, its exchange is parameterServer.
  ShardCoordinator(Options options, const v1alpha1::TrainingJobSpec& spec);
  ~ShardCoordinator() override;

  // The run of batches that are done, from the first on; where workers make every step together,
  // the steps that all of them have.
  std::int64_t settled() const { return hybrid_ ? lockstep_.settled : work_.settled(); }
  // All batches are done, in every shard.
  bool AllDone() const { return work_.AllDone(); }

 private:
  void Hear(const membership::Report& report, membership::Participant& said,
            absl::Time now) override;
  std::vector<std::shared_ptr<membership::Placement>> MakePlacements() override;
  void Admit(membership::Roster& roster) override;
  bool Keeps(const MemberId& id, absl::Time now) override;
  void OnView(const View& view) override { work_.OnView(view); }
  void Work(absl::Time now) override;
  bool Stopped() const override { return view() == nullptr || stopped_; }
  bool Rests() const override { return stopped_ && Halted(); }
  bool AllSaved() const override {
    return Rests() || (halt_round_ != 0 && ServersLeave() && SavedByAll(halt_round_));
  }
  void FillTraining(membership::Summary& summary) const override;
  std::string PartFor(const MemberId* id) const override;
  void OnPodsChanged() override;

  void ChooseLayout();
  void FollowLockstep();
  // All workers of the view have halted, and what they hold is saved.
  bool WorkersStopped() const;
  // Nothing is on its way any more: what is saved now is whole.
  bool AtRest() const;
  void GiveWork(absl::Time now);
  void FollowRecovery(absl::Time now);
  void AskForCheckpoint(absl::Time now);
  bool SavedByAll(std::int64_t turn) const;
  bool ServersLeave() const;

  const Options shard_options_;
  const std::unique_ptr<const v1alpha1::TrainingJobSpec> spec_;
  // The workers hold a part of the model, in a group of their own behind the shards' chains.
  const bool hybrid_;
  LeaseSource::Lockstep lockstep_;
  std::map<MemberId, Layout> layouts_;  // that processes have reported
  std::optional<Layout> layout_;
  std::string impossible_;  // why the job cannot go on
  std::shared_ptr<const ShardPlacement> placement_;
  ShardPlacement::Ahead ahead_;  // as servers are told
  LeaseSource work_;
  std::map<MemberId, absl::Time> leaving_since_;

  std::int64_t saved_settled_ = -1;  // when the newest round that all have written was asked for
  std::int64_t halt_round_ = 0;      // 0: not halting
  bool stopped_ = false;
};

}  // namespace starling::parameter_server
