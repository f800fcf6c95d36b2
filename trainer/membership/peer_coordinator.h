// SPDX-License-Identifier: Apache-2.0
// The coordinator of jobs whose workers all hold the whole training state: rules C0 to C6 of
// docs/design/protocol.md as a pure machine.
//
// To add a rule: one private method that Decide() calls in the order of the design page, a row
// there, a test in peer_coordinator_test.cc, and if it guards safety a switch in rules.h.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "trainer/membership/coordinator.h"
#include "trainer/membership/failure_detector.h"
#include "trainer/membership/group_history.h"
#include "trainer/membership/types.h"

namespace starling::membership {

// Thread-compatible.
class PeerCoordinator final : public Coordinator {
 public:
  using Options = CoordinatorOptions;

  explicit PeerCoordinator(Options options);

  void OnGrant(const Grant& grant, absl::Time now) override;
  void OnDesired(const Desired& desired, absl::Time now) override;
  void OnConnected(const std::string& pod_uid, absl::Time now) override;
  void OnDisconnected(const std::string& pod_uid, absl::Time now) override;
  void OnRefused(const std::string& pod_uid, absl::Time now) override;
  void OnReport(const std::string& pod_uid, const Report& report, absl::Time now) override;
  void OnTick(absl::Time now) override;

  std::map<std::string, Dial> PodsToDial() const override { return detector_.PodsToDial(); }
  Directive DirectiveFor(const std::string& pod_uid) const override;
  Summary MakeSummary(absl::Time now) const override;
  bool finished() const override { return detector_.finished(); }
  bool AllGone() const override { return detector_.AllGone(); }
  std::uint64_t directives_version() const override { return directives_version_; }
  std::uint64_t report_version() const override { return report_version_; }

  bool superseded() const { return detector_.superseded(); }
  const std::set<std::string>& assumed_terminated() const { return detector_.assumed_terminated(); }

 private:
  // peer_coordinator.cc: what is known.
  void NoticeGap(absl::Time now);
  Liveness LivenessOf(const MemberId& id, absl::Time now) const {
    return detector_.LivenessOf(id, taken_over_, now);
  }
  std::string Risked() const;
  void Learn(const Report& report);
  void LearnView(const View& view);
  void Prune();
  bool SyncedByAll(const View& view) const { return history_.SyncedByAll(view.groups.front()); }
  const View* Current() const;
  const View* Pending(const View* current) const;
  ViewNumber Newest() const { return published_.empty() ? 0 : published_.rbegin()->first; }
  void Refresh(absl::Time now);
  void FillTraining(Summary& summary) const;
  bool AllStopped() const;

  // peer_coordinator_rules.cc: what follows from it.
  void Decide(absl::Time now);
  bool TakeOver(absl::Time now);
  bool EnoughFor(std::size_t members, absl::Time now);
  void FirstView(absl::Time now);
  bool Broken(const View& view, absl::Time now, bool& blamed) const;
  void Repair(const View& current, bool blamed, absl::Time now);
  Members Survivors(const View& current, absl::Time now);
  void Evict(const View& view, Members& members, absl::Time now);
  bool Resume(const View& current, absl::Time now);
  void Plan(const View& current, const View* pending, absl::Time now);
  Members Remaining(const View& current) const;
  void TakeTurn(const View& current, absl::Time now);
  void Release(const View* current, const View* pending);

  // peer_coordinator_views.cc: who may be in a view, and what it carries.
  std::vector<std::string> Eligible(absl::Time now);
  bool IsJoinable(const std::string& uid) const;
  bool IsRunning(const View& view, absl::Time now) const;
  FormedGroup Form(const Members& members) const;
  bool Witnessed(const FormedGroup& formed, absl::Time now);
  View Compose(ReplicaGroup group) const;
  void Publish(View view, const std::string& deed);

  // peer_coordinator_incidents.cc: what is told about it.
  void NoteLosses(const View& view, absl::Time now);
  void FollowRecovery(const Report& report, absl::Time now);

  const Options options_;
  FailureDetector detector_;
  GroupHistory history_;  // of all workers
  // The views of the history, as far as they are known.
  std::map<ViewNumber, View> published_;
  std::set<ViewNumber> acted_;  // prepared ones that a member of `from` has installed
  bool taken_over_ = false;
  bool newest_unknown_ = false;  // the controller has seen a view that none of its members survived
  std::uint64_t next_epoch_ = 1;
  std::int64_t turn_ = 0;
  absl::Time turn_due_ = absl::InfinitePast();
  std::int64_t turn_step_ = -1;
  ViewNumber turn_view_ = 0;
  absl::Time enough_since_ = absl::InfiniteFuture();
  absl::Time unwitnessed_since_ = absl::InfiniteFuture();
  int failed_views_ = 0;  // in a row, by blame alone
  std::set<std::string> released_;
  std::string waiting_;
  Training training_;  // the last that was heard, for when nobody is left to ask
  std::int64_t settled_step_ = -1;
  Summary told_;  // the summary without what changes all the time
  std::uint64_t directives_version_ = 0;
  std::uint64_t report_version_ = 0;
};

}  // namespace starling::membership
