// SPDX-License-Identifier: Apache-2.0
// When a view is due and what it carries, for groups of any kind and number: here servers lie where
// the test says. The views of whole jobs are in peer_coordinator_rules_test.cc and in
// trainer/parameter_server (shard_placement_test.cc, hybrid_views_test.cc).
#include "trainer/membership/view_plan.h"

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace starling::membership {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

const MemberId kA{"a", 0}, kB{"b", 0}, kC{"c", 0};  // workers
const MemberId kS{"s", 0}, kT{"t", 0};              // servers

ViewNumber V(std::uint64_t epoch) { return MakeViewNumber(1, epoch); }

// Groups of servers that have the members that the test gives them.
class GivenPlacement final : public Placement {
 public:
  explicit GivenPlacement(std::vector<Members> members, std::string kept = "its shard")
      : members_(std::move(members)), kept_(std::move(kept)) {}

  std::size_t groups() const override { return members_.size(); }
  Role role() const override { return Role::kServer; }
  std::string Kept(std::size_t) const override { return kept_; }
  std::vector<ReplicaGroup> Repair(const Scene& /*scene*/, std::string& /*waiting*/) override {
    std::vector<ReplicaGroup> given(members_.size());
    for (std::size_t i = 0; i < given.size(); ++i) given[i].members = members_[i];
    return given;
  }
  std::vector<ReplicaGroup> Plan(const Scene& scene) override {
    std::string waiting;
    return Repair(scene, waiting);
  }

  std::vector<Members> members_;

 private:
  const std::string kept_;
};

using Placements = std::vector<std::shared_ptr<Placement>>;

class ViewPlanTest : public testing::Test {
 protected:
  void Make(Placements placements, const Rules& rules = {},
            absl::Duration grace = absl::ZeroDuration()) {
    groups_ = 0;
    for (const auto& placement : placements) groups_ += placement->groups();
    ViewPlan::Options options;
    options.rules = rules;
    options.incarnation = 1;
    options.first_view_grace = grace;
    plan_.emplace(options, std::move(placements));
  }
  std::shared_ptr<GivenPlacement> MakeGiven(std::vector<Members> members, const Rules& rules = {}) {
    auto given = std::make_shared<GivenPlacement>(std::move(members));
    Make({given}, rules);
    return given;
  }
  void MakeLockstep(const Rules& rules = {}, absl::Duration grace = absl::ZeroDuration()) {
    Make({std::make_shared<LockstepPlacement>()}, rules, grace);
  }
  Participant& Add(const MemberId& id) {
    const bool serves = id.pod_uid >= "s";
    Participant& one = roster_.participants[id];
    one.id = id;
    one.index = static_cast<std::int64_t>(roster_.participants.size());
    one.role = serves ? Role::kServer : Role::kWorker;
    one.liveness = Liveness::kReporting;
    one.groups.resize(groups_);
    Roster::Wanted& wanted = serves ? roster_.servers : roster_.workers;
    ++wanted.most;
    ++wanted.expected;
    return one;
  }
  Participant& At(const MemberId& id) { return roster_.participants.at(id); }
  void End(const MemberId& id) { roster_.participants.erase(id); }
  std::optional<View> Next() { return plan_->Next(roster_, now_); }
  const View& newest() const { return *plan_->Newest(); }
  void Follow(const MemberId& id) {
    Participant& one = At(id);
    one.fence = one.installed = newest().number;
    for (std::size_t i = 0; i < groups_; ++i) {
      if (newest().groups[i].Has(id)) one.groups[i].state = StateId{newest().number, 5};
    }
  }
  // Publishes the first view, in which all of it run.
  void Begin() {
    ASSERT_TRUE(Next());
    for (const ViewMember& member : newest().members) Follow(member.id);
    ASSERT_FALSE(Next());
    ASSERT_TRUE(plan_->running());
  }
  // Then another view, which restores nothing, with a worker more.
  void BeginAndGoOn() {
    Begin();
    Add(kA);
    ASSERT_TRUE(Next());
    for (const ViewMember& member : newest().members) Follow(member.id);
    ASSERT_FALSE(Next());
    ASSERT_TRUE(plan_->running());
  }
  static View Lockstep(ViewNumber number, const Members& members, ViewNumber from = 0) {
    std::vector<ViewMember> all;
    all.reserve(members.size());
    for (const MemberId& id : members) all.push_back({id, "", number, ""});
    View view = ViewOfPeers(number, std::move(all));
    view.at_boundary = from != 0;
    view.from = from;
    return view;
  }

  Roster roster_;
  std::optional<ViewPlan> plan_;
  std::size_t groups_ = 0;
  absl::Time now_ = absl::UnixEpoch();
};

// What is learned. -------------------------------------------------------------------------------

TEST_F(ViewPlanTest, OfAViewThatALaterOneListsTheMembersAreKnown) {
  MakeLockstep();
  View view = Lockstep(V(2), {kA, kB, kC}, V(1));
  view.groups[0].since = {{V(1), {kA, kB}}};
  plan_->Learn(view);
  const View* current = plan_->Current();
  ASSERT_NE(current, nullptr);
  EXPECT_EQ(current->number, V(1)) << "nobody is known to have acted on the prepared one";
  ASSERT_THAT(current->members, SizeIs(2));
  EXPECT_TRUE(current->Has(kA));
  EXPECT_TRUE(current->Has(kB));
  EXPECT_EQ(current->groups[0].epoch, V(1));
  EXPECT_THAT(current->groups[0].members, ElementsAre(kA, kB));
}

TEST_F(ViewPlanTest, APreparedViewThatAllHaveSyncedIsInEffect) {
  MakeLockstep();
  for (const MemberId& id : {kA, kB}) Add(id).groups[0].state = StateId{V(2), 1};
  Add(kC);  // of the first view, and still there: that one is not forgotten
  plan_->Learn(Lockstep(V(1), {kA, kB, kC}));
  plan_->Learn(Lockstep(V(2), {kA, kB}, V(1)));
  EXPECT_EQ(plan_->Current()->number, V(1));
  Next();
  EXPECT_EQ(plan_->Current()->number, V(2));
}

TEST_F(ViewPlanTest, AViewIsPendingOnlyInTheOneThatItWasPreparedIn) {
  MakeLockstep();
  Add(kA).installed = V(2);
  Add(kB).installed = V(1);
  for (const MemberId& id : {kA, kB}) At(id).groups[0].state = StateId{V(1), 1};
  plan_->Learn(Lockstep(V(1), {kA, kB}));
  plan_->Learn(Lockstep(V(2), {kA, kB, kC}, V(1)));
  EXPECT_EQ(plan_->Pending(roster_)->number, V(2));
  plan_->Learn(Lockstep(V(3), {kA, kB}, V(1)));
  EXPECT_EQ(plan_->Pending(roster_)->number, V(3));
  Next();  // one has acted on the second
  EXPECT_EQ(plan_->Current()->number, V(2));
  EXPECT_EQ(plan_->Pending(roster_), nullptr) << "those of the second view will refuse it";
}

// All had the second view in hand when the third was prepared: it was replaced too late.
TEST_F(ViewPlanTest, WhatWasPreparedInAViewThatIsOverNeverTakesEffect) {
  MakeLockstep();
  for (const MemberId& id : {kA, kB}) {
    Participant& one = Add(id);
    one.installed = one.fence = V(2);
    one.groups[0].state = StateId{V(2), 5};
  }
  plan_->Learn(Lockstep(V(1), {kA, kB, {"d", 0}}));
  View drained = Lockstep(V(2), {kA, kB}, V(1));
  drained.groups[0].since = {{V(1), {kA, kB, {"d", 0}}}};
  View joined = Lockstep(V(3), {kA, kB, kC}, V(1));
  joined.groups[0].since = {{V(1), {kA, kB, {"d", 0}}}, {V(2), {kA, kB}}};
  plan_->Learn(drained);
  plan_->Learn(joined);
  EXPECT_FALSE(Next()) << "of the first view somebody is left no more, and it is forgotten";
  EXPECT_EQ(plan_->Current()->number, V(2));
  EXPECT_TRUE(plan_->running()) << "that nobody is there who was to join is no loss";
}

TEST_F(ViewPlanTest, WhoSaysThatItIsInAViewOfWhichNothingIsKnownTeachesNothing) {
  MakeLockstep();
  Add(kA).installed = V(9);
  plan_->Learn(Lockstep(V(2), {kA}, V(1)));
  EXPECT_FALSE(Next()) << "it may yet come to the second";
  At(kA).installed = V(2);
  EXPECT_FALSE(Next()) << "nothing is known of the one before";
  EXPECT_EQ(plan_->Current()->number, V(2));
}

TEST_F(ViewPlanTest, WhereTheControllerSawAViewOfWhichNobodyTellsTheFirstOneRestores) {
  for (const ViewNumber seen : {0, 1}) {
    roster_ = Roster();
    MakeLockstep();
    Add(kA).groups[0].state = StateId{1, 5};
    plan_->OnTakenOver(seen);
    ASSERT_TRUE(Next());
    EXPECT_EQ(newest().groups[0].restore, seen == 1);
  }
}

// When a view has broken. ------------------------------------------------------------------------

TEST_F(ViewPlanTest, AFreezeIsNoTimeInWhichOthersCouldHaveSaidWhoIsGone) {
  MakeLockstep();
  Add(kA);
  Add(kB);
  Begin();
  At(kA).phase = Phase::kAborted;
  EXPECT_FALSE(Next());
  now_ += absl::Seconds(9);
  plan_->OnGap(absl::Seconds(9));
  EXPECT_FALSE(Next());
  now_ += absl::Milliseconds(250);
  EXPECT_TRUE(Next());
  EXPECT_TRUE(plan_->blamed());
}

TEST_F(ViewPlanTest, WhereThereIsNoViewNobodyIsBlamed) {
  MakeLockstep();
  EXPECT_FALSE(plan_->IsBlamed(roster_, now_));
}

TEST_F(ViewPlanTest, AJoinerThatIsNotYetThereBreaksNothingByAnAbort) {
  MakeLockstep();
  Add(kA);
  Begin();
  Add(kC).phase = Phase::kAborted;
  ASSERT_TRUE(Next());
  ASSERT_TRUE(newest().at_boundary);
  Follow(kA);
  EXPECT_FALSE(Next());
  EXPECT_EQ(plan_->Current()->number, V(2));
  now_ += absl::Seconds(1);
  EXPECT_FALSE(Next());
}

TEST_F(ViewPlanTest, ALossCountsOfItsOwnGroupInTheViewItselfAndUntilItIsMended) {
  auto given = MakeGiven({{kS}, {kT}});
  Add(kS);
  Add(kT);
  ASSERT_TRUE(Next());
  At(kS).groups[0].lost = true;
  EXPECT_FALSE(Next());
  EXPECT_THAT(plan_->waiting(), IsEmpty()) << "that was in the view before";
  At(kS).groups[0].lost = false;
  Follow(kS);
  Follow(kT);
  Add(kA);
  ASSERT_TRUE(Next()) << "a view that restores nothing";
  for (const MemberId& id : {kS, kT, kA}) Follow(id);
  At(kT).groups[0].lost = true;
  EXPECT_FALSE(Next());
  EXPECT_TRUE(plan_->running()) << "it is not in that group";
  At(kT).groups.push_back({std::nullopt, false, /*lost=*/true, 0});
  EXPECT_FALSE(Next());
  EXPECT_TRUE(plan_->running()) << "there is no such group";
  At(kS).groups[0].lost = true;
  EXPECT_FALSE(Next());
  EXPECT_FALSE(plan_->running());
  EXPECT_TRUE(plan_->unwitnessed());
  EXPECT_EQ(plan_->unwitnessed_group(), 0U);
  EXPECT_THAT(plan_->waiting(), HasSubstr("waits for a server that knows its shard"));
  At(kS).groups[0].lost = false;
  EXPECT_FALSE(Next());
  EXPECT_TRUE(plan_->running());
  EXPECT_FALSE(plan_->unwitnessed());
}

TEST_F(ViewPlanTest, WhereAWitnessIsMissingAViewIsRepeatedOnlyIfItTellsMore) {
  const auto lose = [this](std::vector<Members> members) {
    roster_ = Roster();
    auto given = MakeGiven(std::move(members));
    Add(kS);
    Add(kT);
    BeginAndGoOn();
    At(kS).groups[0].lost = true;
    EXPECT_FALSE(Next());
    return given;
  };
  auto given = lose({{kS}});
  given->members_[0] = {kT, kS};
  EXPECT_TRUE(Next()) << "another member of the group";
  given = lose({{kS, kT}});
  given->members_[0] = {kT, kS};
  EXPECT_FALSE(Next()) << "only in another order";
  Add({"u", 0});
  EXPECT_TRUE(Next()) << "somebody else is in the view";

  // The only member of the view before has ended.
  roster_ = Roster();
  MakeGiven({{kS}});
  Add(kS);
  Add(kT);
  View view;
  view.number = V(2);
  view.members = {{kS, "", V(2), "", "", Role::kServer}, {kT, "", V(2), "", "", Role::kServer}};
  view.groups.resize(1);
  view.groups[0].epoch = V(2);
  view.groups[0].members = {kS};
  view.groups[0].since = {{V(1), {{"x", 0}}}};
  plan_->Learn(view);
  Add({"x", 0}).liveness = Liveness::kSilent;
  roster_.servers.most = 2;
  At(kS).installed = At(kS).fence = V(2);
  At(kS).groups[0] = {StateId{V(1), 5}, false, /*lost=*/true, 0};
  At(kT).installed = At(kT).fence = V(2);
  EXPECT_FALSE(Next());
  End({"x", 0});
  const std::optional<View> next = Next();
  ASSERT_TRUE(next);
  EXPECT_THAT(next->groups[0].waived, ElementsAre(V(1)));
}

TEST_F(ViewPlanTest, WhoSaysNothingOfItsGroupDoesNotRunYet) {
  MakeGiven({{kS}});
  Add(kS);
  Begin();
  At(kS).groups.clear();
  EXPECT_FALSE(Next());
  EXPECT_FALSE(plan_->running());
}

// What a view carries. ---------------------------------------------------------------------------

TEST_F(ViewPlanTest, OnlyViewsOfOneGroupOfWorkersWaitForABoundary) {
  auto given = std::make_shared<GivenPlacement>(std::vector<Members>{{kS}});
  const std::vector<Placements> jobs = {{given},
                                        {std::make_shared<LockstepPlacement>(), given},
                                        {std::make_shared<LockstepPlacement>()}};
  for (std::size_t job = 0; job < jobs.size(); ++job) {
    roster_ = Roster();
    Make(jobs[job]);
    Add(kA);
    if (job < 2) Add(kS);
    Begin();
    Add(kB);
    ASSERT_TRUE(Next());
    EXPECT_EQ(newest().at_boundary, job == 2);
    EXPECT_EQ(newest().from, job == 2 ? V(1) : 0);
    EXPECT_EQ(plan_->running(), job == 2) << "a view that takes effect immediately begins anew";
    EXPECT_EQ(plan_->synced(), job == 2);
  }
}

TEST_F(ViewPlanTest, WhoIsMissingIsNamedByTheGroupsOwnPlacement) {
  const auto keeps = [](std::vector<Members> members, const char* what) {
    return std::make_shared<GivenPlacement>(std::move(members), what);
  };
  for (const std::size_t group : {0, 1, 2, 3}) {
    roster_ = Roster();
    Make({keeps({{kS}}, "the first"), keeps({{kS}, {kS}}, "the second"), keeps({{kS}}, "third")});
    Add(kS);
    Add(kT);
    Begin();
    View view = newest();
    view.number = V(2);
    for (ReplicaGroup& one : view.groups) one.epoch = V(2);
    view.groups[group].members = {kT};
    plan_->Learn(view);
    At(kT).liveness = Liveness::kSilent;
    EXPECT_FALSE(Next());
    EXPECT_EQ(plan_->unwitnessed_group(), group);
    const char* const names[] = {"the first", "the second", "the second", "third"};
    EXPECT_THAT(plan_->waiting(), HasSubstr(absl::StrCat(names[group],
                                                         " may be known only to "
                                                         "servers")));
  }
}

// The shard's last holder was released, and has not ended yet.
TEST_F(ViewPlanTest, AServerThatMayBeInNoViewIsAWitnessAllTheSame) {
  MakeGiven({{kS}});
  Add(kS);
  Add(kT);
  Begin();
  View view = newest();
  view.number = view.groups[0].epoch = V(2);
  view.groups[0].members = {kT};
  plan_->Learn(view);
  At(kT).admitted = false;
  roster_.renew = true;
  ASSERT_TRUE(Next());
  EXPECT_THAT(newest().groups[0].members, ElementsAre(kT, kS));
}

TEST_F(ViewPlanTest, WhereServersRestoreClientsStartOverAndServersDoNot) {
  for (const bool restart : {true, false}) {
    Rules rules;
    rules.restart_clients = restart;
    roster_ = Roster();
    auto given = MakeGiven({{kS}, {kT}}, rules);
    for (const MemberId& id : {kS, kT, kA}) Add(id);
    Begin();
    End(kS);
    given->members_ = {{kT}, {kT}};
    ASSERT_TRUE(Next());
    ASSERT_TRUE(newest().groups[0].restore);
    EXPECT_EQ(newest().Find(kT)->joined, V(1));
    EXPECT_EQ(newest().Find(kA)->joined, restart ? V(2) : V(1));
  }
}

TEST_F(ViewPlanTest, WithoutIncarnationsViewsAreCountedOnFromTheNewestThatWasSeen) {
  Rules rules;
  rules.incarnation_in_view_number = false;
  for (const std::uint64_t seen : {0, 7}) {
    roster_ = Roster();
    MakeLockstep(rules);
    plan_->OnTakenOver(MakeViewNumber(0, seen));
    Add(kA);
    ASSERT_TRUE(Next());
    EXPECT_EQ(newest().number, MakeViewNumber(0, seen + 1));
    EXPECT_FALSE(Next()) << "it will come to it: nobody can tell whose view that is";
    Follow(kA);
    Add(kB);
    ASSERT_TRUE(Next());
    EXPECT_EQ(newest().number, MakeViewNumber(0, seen + 2));
    EXPECT_EQ(plan_->Pending(roster_), plan_->Newest());
  }
}

// When a job begins. -----------------------------------------------------------------------------

TEST_F(ViewPlanTest, WhereAllHaveEndedOthersHaveAMomentAgainToCome) {
  MakeLockstep({}, /*grace=*/absl::Seconds(1));
  Add(kA);
  Add(kB);
  Begin();
  now_ += absl::Seconds(10);
  End(kA);
  End(kB);
  Add({"a", 1});
  roster_.workers.most = roster_.workers.expected = 2;
  EXPECT_FALSE(Next());
  EXPECT_THAT(plan_->waiting(), HasSubstr("a moment for more workers: 1 of 2"));
  now_ += absl::Seconds(1);
  EXPECT_TRUE(Next());
}

TEST_F(ViewPlanTest, WhereTooFewAreThereAndOthersWouldReturnTheSilentKeepThemOut) {
  MakeLockstep();
  roster_.workers.least = 2;
  Add(kA);
  roster_.workers.most = 2;
  for (const std::int64_t returning : {0, 1}) {
    roster_.returning = returning;
    EXPECT_FALSE(Next());
    EXPECT_FALSE(plan_->unwitnessed()) << "there is no view that anybody could know";
  }
  Add(kB);
  roster_.workers.most = 2;
  roster_.returning = 0;
  Begin();
  End(kA);
  End(kB);
  for (const std::int64_t returning : {0, 1}) {
    roster_.returning = returning;
    EXPECT_FALSE(Next());
    EXPECT_EQ(plan_->unwitnessed(), returning == 1);
  }
}

TEST_F(ViewPlanTest, SoItIsWhereAGroupHasNobody) {
  auto given = MakeGiven({{kS}});
  Add(kS);
  Add(kA);
  Begin();
  given->members_ = {{}};
  End(kS);
  roster_.servers.least = 0;
  for (const std::int64_t returning : {0, 1}) {
    roster_.returning = returning;
    EXPECT_FALSE(Next());
    EXPECT_EQ(plan_->unwitnessed(), returning == 1);
    EXPECT_EQ(plan_->waiting(), "waits for a server: none is there");
  }
}

TEST_F(ViewPlanTest, ThatAGroupLackedAWitnessIsForgottenWithTheReason) {
  auto given = MakeGiven({{kS}});
  Add(kS);
  Add(kT);
  Begin();
  View view = newest();
  view.number = view.groups[0].epoch = V(2);
  view.groups[0].members = {kT};
  plan_->Learn(view);
  At(kT).liveness = Liveness::kSilent;
  EXPECT_FALSE(Next());
  ASSERT_EQ(plan_->unwitnessed_group(), 0U);
  given->members_ = {{}};
  roster_.returning = 1;
  EXPECT_FALSE(Next());
  EXPECT_TRUE(plan_->unwitnessed());
  EXPECT_FALSE(plan_->unwitnessed_group()) << "whoever returns may wait for any";
}

}  // namespace
}  // namespace starling::membership
