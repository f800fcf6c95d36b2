// SPDX-License-Identifier: Apache-2.0
// The coordinator of jobs with parameter servers: what all kinds share is in
// membership/coordinator.h; here is what the tables are (from the layout that workers report),
// which view is next (SlotPlan), and when to save and to halt. What there is to be done, and by
// whom, is the LeaseSource's.
//
// All of it is soft: layout, views, ledgers, held leases and turns are reported again to a
// successor. docs/design/parameter-server.md says what is told to whom; to add something: a row
// there, a private method that Decide() calls, a test in slot_coordinator_test.cc.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "trainer/membership/coordinator.h"
#include "trainer/parameter_server/job_tables.h"
#include "trainer/parameter_server/lease_source.h"
#include "trainer/parameter_server/slot_plan.h"

namespace starling::parameter_server {

// Roles, as pods and certificates name them.
inline constexpr const char* kWorkerRole = "worker";
inline constexpr const char* kServerRole = "parameter-server";

// Thread-compatible.
class SlotCoordinator final : public membership::Coordinator {
 public:
  struct Options {
    membership::CoordinatorOptions common;
    PlanRules plan;  // its `sync` is common.rules
    absl::Duration ahead_patience = absl::Seconds(10);
    Balance balance;  // of the servers' loads
    LeaseSource::Options work;
    // How long a leaving client may finish what it holds.
    absl::Duration drain_patience = absl::Seconds(5);
    // How tables follow from a layout; empty: TablesOf().
    std::function<absl::StatusOr<JobTables>(const Layout&)> tables;
  };

  // `spec` is resolved and valid, its exchange is parameterServer.
  SlotCoordinator(Options options, const v1alpha1::TrainingJobSpec& spec);
  ~SlotCoordinator() override;

  // The newest view; null before there is one.
  const View* view() const;
  // The run of batches that are done, from the first on.
  std::int64_t settled() const { return work_.settled(); }
  // All batches are done, in every slot.
  bool AllDone() const { return work_.AllDone(); }

 private:
  // What a process has said in ParameterServerReport, newest only.
  struct Heard {
    MemberId id;
    std::optional<Layout> layout;
    ViewNumber installed = 0;
    std::optional<View> view;  // installed, until the plan has learned it
    bool broken = false;
    std::vector<SlotReport> slots;
  };

  // slot_coordinator.cc: what is decided, and what is told.
  bool Learn(const membership::Report& report, absl::Time now) override;
  void Decide(absl::Time now) override;
  const View* Newest() const override { return view(); }
  bool Synced() const override { return plan_->running(); }
  bool Stopped() const override { return view() == nullptr || stopped_; }
  void FillTraining(membership::Summary& summary) const override;
  std::string PartFor(const MemberId* id) const override;
  bool EveryGroup(
      const std::function<bool(const membership::GroupHistory&)>& holds) const override {
    return !plan_ || plan_->EveryGroup(holds);
  }
  void OnTakenOver() override;
  void OnPodsChanged() override;

  // slot_coordinator_views.cc: who is there, and which view is next.
  void ChooseLayout();
  bool MakePlan();
  void LearnViews();
  void OnNewest();
  bool IsServer(const std::string& uid) const;
  const Heard* HeardOf(const MemberId& id) const;
  Census MakeCensus(absl::Time now);
  std::optional<Participant> ParticipantOf(const membership::Pod& pod, absl::Time now);
  bool Admitted(const std::string& uid);
  bool KeepWhileWorking(const MemberId& id, absl::Time now);
  bool MayBegin(const Census& census, absl::Time now);
  void Replan(absl::Time now);
  void Evict(Census& census, absl::Time now);
  void NoticeUnwitnessed(const Census& census, absl::Time now);
  void OnPublished(const View& next);
  void ReleaseLeaving();

  // What is done with the answers of the work source.
  void Work(absl::Time now);
  void FollowRecovery(absl::Time now);
  void AskForCheckpoint(absl::Time now);
  bool SavedByAll(std::int64_t turn) const;
  bool ServersLeave() const;

  const Options slot_options_;
  const std::unique_ptr<const v1alpha1::TrainingJobSpec> spec_;
  std::map<std::string, Heard> heard_;  // by pod UID
  std::optional<Layout> layout_;
  std::string impossible_;  // why the job cannot go on
  std::optional<SlotPlan> plan_;
  LeaseSource work_;

  Census census_;  // as planned with last
  absl::Time plan_due_ = absl::InfinitePast();
  std::map<std::string, absl::Time> leaving_since_;

  std::int64_t saved_settled_ = -1;  // when the newest round that all have written was asked for
  std::int64_t halt_round_ = 0;      // 0: not halting
  bool stopped_ = false;
};

}  // namespace starling::parameter_server
