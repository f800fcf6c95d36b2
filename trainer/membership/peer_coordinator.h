// SPDX-License-Identifier: Apache-2.0
// The coordinator of jobs whose workers all hold the whole training state: one replica group, whose
// views take effect at once or, where a change is planned, at a step's boundary. All rules for
// views are the base's; here is what these workers report, who of them may train together, and what
// their steps say of training.
#pragma once

#include <memory>
#include <vector>

#include "absl/time/time.h"
#include "trainer/membership/coordinator.h"

namespace starling::membership {

// Thread-compatible.
class PeerCoordinator final : public Coordinator {
 public:
  using Options = CoordinatorOptions;

  explicit PeerCoordinator(Options options);

 private:
  void Hear(const Report& report, Participant& said, absl::Time now) override;
  std::vector<std::shared_ptr<Placement>> MakePlacements() override {
    return {std::make_shared<LockstepPlacement>()};
  }
  void Admit(Roster& roster) override;
  void Work(absl::Time now) override;
  bool Stopped() const override;
  void FillTraining(Summary& summary) const override;
  void FollowRecovery(const Report& report, absl::Time now);
  void NoteLostSteps(const Report& report, absl::Time now);

  std::int64_t settled_ = -1;  // the newest settled step that any member or coordinator has told
  std::int64_t reached_ = -1;  // the highest step that any member has told
  ViewNumber going_on_ = 0;    // the newest view in which a step was made
  ViewNumber round_view_ = 0;  // in which the newest checkpoint was asked for
};

}  // namespace starling::membership
