// SPDX-License-Identifier: Apache-2.0
// The coordinator of jobs whose workers all hold the whole training state: one replica group, whose
// views take effect at once or, where a change is planned, at a step's boundary. Each rule of
// docs/design/protocol.md with its place (what all kinds share is in coordinator.h):
//
//   C0 first view      FirstView()
//   C1 repair          Broken(), Repair(), Survivors()
//   C2 planned change  IsRunning(), Plan(): join first, drain after
//   C5 waive, restore  GroupHistory::Form(); Witnessed()
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
#include "trainer/membership/group_history.h"
#include "trainer/membership/types.h"

namespace starling::membership {

// Thread-compatible.
class PeerCoordinator final : public Coordinator {
 public:
  using Options = CoordinatorOptions;

  explicit PeerCoordinator(Options options);

 private:
  // peer_coordinator.cc: what is known.
  bool Learn(const Report& report, absl::Time now) override;
  void LearnView(const View& view);
  void Prune();
  bool SyncedByAll(const View& view) const { return history_.SyncedByAll(view.groups.front()); }
  const View* Newest() const override {
    return published_.empty() ? nullptr : &published_.rbegin()->second;
  }
  const View* Current() const override;
  const View* Pending(const View* current) const;
  bool Synced() const override { return SyncedByAll(*Current()); }
  bool Stopped() const override;
  void FillTraining(Summary& summary) const override;
  void FollowRecovery(const Report& report, absl::Time now);
  bool EveryGroup(const std::function<bool(const GroupHistory&)>& holds) const override {
    return holds(history_);
  }
  void OnTakenOver() override;

  // peer_coordinator_rules.cc: what follows from it.
  void Decide(absl::Time now) override;
  std::int64_t Least() const;
  bool EnoughFor(const Members& members, absl::Time now);
  void FirstView(absl::Time now);
  bool Broken(const View& view, absl::Time now, bool& blamed) const;
  void Repair(const View& current, bool blamed, absl::Time now);
  Members Survivors(const View& current, absl::Time now);
  void Evict(const View& view, Members& members, absl::Time now);
  bool Resume(const View& current, absl::Time now);
  void Plan(const View& current, const View* pending, absl::Time now);
  Members Remaining(const View& current) const;
  void AskForCheckpoint(const View& current, absl::Time now);
  void ReleaseDrained(const View* current, const View* pending);

  // peer_coordinator_views.cc: who may be in a view, and what it carries.
  std::vector<std::string> Eligible(absl::Time now);
  bool IsJoinable(const std::string& uid) const;
  bool IsRunning(const View& view, absl::Time now) const;
  FormedGroup Form(const Members& members) const;
  bool Witnessed(const FormedGroup& formed, absl::Time now);
  void NoteHoldersMissing(absl::Time now);
  View Compose(ReplicaGroup group) const;
  void Publish(View view, const std::string& deed);

  GroupHistory history_;  // of all workers
  // The views of the history, as far as they are known.
  std::map<ViewNumber, View> published_;
  std::set<ViewNumber> acted_;   // prepared ones that a member of `from` has installed
  bool newest_unknown_ = false;  // the controller has seen a view that none of its members survived
  std::uint64_t next_epoch_ = 1;
  ViewNumber round_view_ = 0;  // in which the newest checkpoint was asked for
};

}  // namespace starling::membership
