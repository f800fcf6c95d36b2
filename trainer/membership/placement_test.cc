// SPDX-License-Identifier: Apache-2.0
// Where the group of all workers lies, asked directly; peer_coordinator_rules_test.cc shows the
// views that come of it.
#include "trainer/membership/placement.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace starling::membership {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

const MemberId kA{"a", 0}, kB{"b", 0}, kC{"c", 0}, kD{"d", 0};

View ViewOf(ViewNumber number, const Members& members) {
  std::vector<ViewMember> all;
  all.reserve(members.size());
  for (const MemberId& id : members) all.push_back({id, "", number, ""});
  return ViewOfPeers(number, std::move(all));
}

class LockstepPlacementTest : public testing::Test {
 protected:
  LockstepPlacementTest() { roster_.workers = {4, 1, 0}; }
  Participant& Add(const MemberId& id) {
    Participant& one = roster_.participants[id];
    one.id = id;
    one.index = static_cast<std::int64_t>(roster_.participants.size());
    one.liveness = Liveness::kReporting;
    return one;
  }
  Members Repair(const View* current) {
    return placement_.Repair(SceneOf(current, nullptr), waiting_).at(0).members;
  }
  Members Plan(const View& current, const View* pending = nullptr) {
    return placement_.Plan(SceneOf(&current, pending)).at(0).members;
  }
  Placement::Scene SceneOf(const View* current, const View* pending) const {
    return {roster_, current, current, pending, history_, 0, absl::UnixEpoch()};
  }

  Roster roster_;
  std::vector<GroupHistory> history_{GroupHistory()};
  std::string waiting_;
  LockstepPlacement placement_;
};

TEST_F(LockstepPlacementTest, ARepairTakesWhoHoldsAStateThoughNoViewNamesIt) {
  const View current = ViewOf(1, {kA});
  Add(kA);
  Add(kB).groups = {{StateId{1, 3}, false, false, 0}};
  Add(kC).groups.resize(1);
  Add(kD);  // says nothing of any group
  EXPECT_THAT(Repair(&current), ElementsAre(kA, kB));
  EXPECT_THAT(waiting_, IsEmpty());
}

TEST_F(LockstepPlacementTest, WhereNobodyIsLeftAsManyBeginAsAreWantedAndAtLeastOne) {
  for (const MemberId& id : {kA, kB, kC}) Add(id);
  for (const std::int64_t wanted : {0, 1, 2}) {
    roster_.workers.most = wanted;
    EXPECT_THAT(Repair(nullptr), SizeIs(wanted == 2 ? 2 : 1)) << wanted;
  }
}

TEST_F(LockstepPlacementTest, APreparedViewStandsThoughAMemberOfTheOldOneIsNotHeard) {
  const View current = ViewOf(1, {kA, kB}), pending = ViewOf(2, {kA, kB, kC});
  Add(kA).liveness = Liveness::kUnclear;
  for (const MemberId& id : {kB, kC, kD}) Add(id);
  EXPECT_THAT(Plan(current, &pending), ElementsAre(kA, kB, kC)) << "the fourth comes afterwards";
  roster_.participants.at(kC).liveness = Liveness::kSilent;
  EXPECT_THAT(Plan(current, &pending), ElementsAre(kA, kB, kD)) << "its joiner is lost";
}

}  // namespace
}  // namespace starling::membership
