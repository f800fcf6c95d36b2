// SPDX-License-Identifier: Apache-2.0
#include "trainer/membership/roster.h"

#include <functional>
#include <map>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace starling::membership {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

const MemberId kA{"a", 0}, kB{"b", 0}, kC{"c", 0};

class RosterTest : public testing::Test {
 protected:
  Participant& Add(const MemberId& id, std::int64_t index, Role role = Role::kWorker) {
    Participant& one = roster_.participants[id];
    one.id = id;
    one.index = index;
    one.role = role;
    one.liveness = Liveness::kReporting;
    return one;
  }
  static std::vector<MemberId> IdsOf(const std::vector<const Participant*>& participants) {
    std::vector<MemberId> ids;
    for (const Participant* one : participants) ids.push_back(one->id);
    return ids;
  }

  Roster roster_;
};

TEST_F(RosterTest, WhoeverIsThereIsFoundAndHeardOnlyIfItReports) {
  Add(kA, 0).groups = {{StateId{3, 7}, false, false, 0}};
  EXPECT_EQ(roster_.Find(kA)->id, kA);
  EXPECT_EQ(roster_.Find(kB), nullptr);
  EXPECT_EQ(roster_.Reporting(kB), nullptr);
  EXPECT_EQ(roster_.ReportOf(kB, 0), nullptr);
  EXPECT_EQ(roster_.ReportOf(kA, 0)->state, (StateId{3, 7}));
  EXPECT_EQ(roster_.ReportOf(kA, 1), nullptr) << "it says nothing of that group";
  for (const Liveness liveness : {Liveness::kUnclear, Liveness::kSilent}) {
    roster_.participants.at(kA).liveness = liveness;
    EXPECT_NE(roster_.Find(kA), nullptr);
    EXPECT_EQ(roster_.Reporting(kA), nullptr);
    EXPECT_EQ(roster_.ReportOf(kA, 0), nullptr) << "what it said last may be old";
  }
}

TEST_F(RosterTest, AProcessHasEndedIfItsPodIsGoneOrHasALaterOne) {
  Add({"b", 1}, 0);
  Add({"c", 0}, 1);
  EXPECT_TRUE(roster_.Ended({"b", 0}));
  EXPECT_FALSE(roster_.Ended({"b", 1}));
  EXPECT_FALSE(roster_.Ended({"b", 2})) << "a later one is not known to have ended";
  EXPECT_TRUE(roster_.Ended({"a", 0}));
  EXPECT_TRUE(roster_.Ended({"d", 0}));
  EXPECT_TRUE(Roster().Ended({"a", 0}));
}

TEST_F(RosterTest, ThoseOfARoleThatReportAndAreAdmittedStandByTheirIndices) {
  Add(kA, 2);
  Add(kB, 1);
  Add(kC, 1);
  Add({"d", 0}, 0, Role::kServer);
  Add({"e", 0}, 0).admitted = false;
  Add({"f", 0}, 0).liveness = Liveness::kSilent;
  EXPECT_THAT(IdsOf(roster_.Eligible(Role::kWorker)), ElementsAre(kB, kC, kA));
  EXPECT_THAT(IdsOf(roster_.Eligible(Role::kServer)), ElementsAre(MemberId{"d", 0}));
}

TEST_F(RosterTest, NoMoreStayThanAreWantedAndNobodyWhoLeavesOrLingers) {
  Add(kA, 0).leaving = true;
  Add(kB, 1).phase = Phase::kLinger;
  Add(kC, 2);
  Add({"d", 0}, 3);
  Add({"e", 0}, 4);
  Add({"s", 0}, 0, Role::kServer);
  roster_.workers.most = 2;
  EXPECT_THAT(IdsOf(roster_.Staying(Role::kWorker)), ElementsAre(kC, MemberId{"d", 0}));
  EXPECT_THAT(roster_.Staying(Role::kServer), IsEmpty()) << "none is wanted";
  roster_.workers.most = 5;
  EXPECT_THAT(IdsOf(roster_.Staying(Role::kWorker)),
              ElementsAre(kC, MemberId{"d", 0}, MemberId{"e", 0}));
  for (const std::int64_t none : {0, -1}) {
    roster_.workers.most = none;
    EXPECT_THAT(roster_.Staying(Role::kWorker), IsEmpty());
  }
}

// A view is looked for when somebody says something that could matter to it, and else seldom.
TEST_F(RosterTest, WhatCouldMatterToAViewMakesADifferenceAndAStateThatGrowsDoesNot) {
  Participant one = Add(kA, 0);
  one.fence = one.installed = one.prepared = 4;
  one.groups = {{StateId{4, 7}, true, true, 5}, GroupReport()};
  EXPECT_TRUE(SameShape(one, one));
  const std::map<std::string, std::function<void(Participant&)>> nothing = {
      {"step", [](auto& other) { other.groups[0].state->step = 8; }},
      {"load", [](auto& other) { other.groups[0].load = 6; }},
      {"address", [](auto& other) { other.address = "elsewhere"; }},
  };
  const std::map<std::string, std::function<void(Participant&)>> something = {
      {"process", [](auto& other) { other.id.start = 1; }},
      {"leaving", [](auto& other) { other.leaving = true; }},
      {"fence", [](auto& other) { other.fence = 5; }},
      {"installed", [](auto& other) { other.installed = 5; }},
      {"prepared", [](auto& other) { other.prepared = 5; }},
      {"phase", [](auto& other) { other.phase = Phase::kAborted; }},
      {"view of a state", [](auto& other) { other.groups[0].state->view = 5; }},
      {"no state", [](auto& other) { other.groups[0].state.reset(); }},
      {"a state of the first view",
       [](auto& other) {
         other.groups[1].state = StateId{1, 0};
       }},
      {"cached", [](auto& other) { other.groups[1].cached = true; }},
      {"lost", [](auto& other) { other.groups[1].lost = true; }},
      {"fewer groups", [](auto& other) { other.groups.pop_back(); }},
  };
  for (const bool matters : {false, true}) {
    for (const auto& [name, change] : matters ? something : nothing) {
      Participant other = one;
      change(other);
      EXPECT_EQ(SameShape(one, other), !matters) << name;
      EXPECT_EQ(SameShape(other, one), !matters) << name;
    }
  }
}

TEST_F(RosterTest, AViewHasEnoughIfBothRolesHaveAsManyAsMustBeOrAsAreWanted) {
  View view;
  view.members = {{{"s", 0}, "", 1, "", "", Role::kServer}, {kA, "", 1, ""}, {kB, "", 1, ""}};
  const auto enough = [&](const Roster::Wanted& workers, const Roster::Wanted& servers) {
    Roster roster;
    roster.workers = workers;
    roster.servers = servers;
    return EnoughIn(view, roster);
  };
  EXPECT_TRUE(enough({4, 2, 0}, {4, 1, 0}));
  EXPECT_FALSE(enough({4, 3, 0}, {4, 1, 0}));
  EXPECT_FALSE(enough({4, 2, 0}, {4, 2, 0}));
  EXPECT_TRUE(enough({2, 3, 0}, {1, 2, 0})) << "no more than these are wanted";
}

}  // namespace
}  // namespace starling::membership
