// SPDX-License-Identifier: Apache-2.0
// A standby by itself, and with a coordinator and real members.
#include "trainer/membership/standby.h"

#include <memory>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/testing/peer_cluster.h"

namespace starling::membership {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Optional;

constexpr std::uint64_t kPrimary = 1;
constexpr std::uint64_t kFollows = 2;

Standby NewStandby(const Rules& rules = {}) {
  Standby::Options options;
  options.boot_id = "waits";
  options.rules = rules;
  return Standby(options);
}

Shadow ShadowOf(std::uint64_t primary, std::uint64_t epoch) {
  Shadow shadow;
  shadow.incarnation = primary;
  shadow.standby = kFollows;
  shadow.newest_view = MakeViewNumber(primary, epoch);
  shadow.view = ViewOfPeers(shadow.newest_view, {{{"a", 0}, "", 0, ""}});
  shadow.settled_step = 41;
  shadow.desired.workers = 1;
  shadow.desired.pods = {{"a", "w0", kWorkerRole, 0, "127.0.0.9", PodState::kLive},
                         {"b", "w1", kWorkerRole, 1, "127.0.0.8", PodState::kTerminated}};
  return shadow;
}

// Asks every 50 ms; nothing: it has not taken over in this time.
std::optional<Standby::Succession> Wait(Standby& standby, absl::Time& now, absl::Duration wait) {
  for (const absl::Time end = now + wait; now < end;) {
    now += absl::Milliseconds(50);
    if (auto succession = standby.TakeOver(now)) return succession;
  }
  return std::nullopt;
}

class StandbyTest : public testing::Test {
 protected:
  absl::Time now_ = absl::FromUnixSeconds(1000);
};

TEST_F(StandbyTest, WhoIsSilentForTooLongIsFollowedWithAllThatItKnew) {
  Standby standby = NewStandby();
  standby.OnGrant(kFollows, kPrimary);
  EXPECT_EQ(standby.OnShadow(ShadowOf(kPrimary, 7), now_).view, MakeViewNumber(kPrimary, 7));
  EXPECT_FALSE(Wait(standby, now_, absl::Seconds(1)));
  standby.OnShadow(ShadowOf(kPrimary, 8), now_);
  EXPECT_FALSE(Wait(standby, now_, absl::Seconds(1.4)));
  const auto succession = Wait(standby, now_, absl::Seconds(0.2));
  ASSERT_TRUE(succession);
  EXPECT_EQ(succession->grant.incarnation, kFollows);
  EXPECT_EQ(succession->grant.boot_id, "waits");
  EXPECT_EQ(succession->grant.newest_view, MakeViewNumber(kPrimary, 8));
  EXPECT_TRUE(succession->grant.knows_all);
  EXPECT_THAT(succession->grant.view, Optional(*ShadowOf(kPrimary, 8).view));
  EXPECT_EQ(succession->grant.settled_step, 41);
  ASSERT_EQ(succession->grant.roster.size(), 1U) << "whoever has ended is not waited for";
  EXPECT_EQ(succession->grant.roster[0].uid, "a");
  EXPECT_EQ(succession->desired.workers, 1);
  EXPECT_TRUE(standby.leads());
  EXPECT_FALSE(Wait(standby, now_, absl::Seconds(10))) << "once";
}

TEST_F(StandbyTest, WhoHasNeverBeenAskedWaitsForEver) {
  Standby standby = NewStandby();
  EXPECT_FALSE(Wait(standby, now_, absl::Seconds(10)));
  standby.OnGrant(kFollows, kPrimary);
  EXPECT_FALSE(standby.armed());
  EXPECT_FALSE(Wait(standby, now_, absl::Seconds(10)));
}

TEST_F(StandbyTest, OnlyThePrimaryOfItsGrantIsAnsweredWithAView) {
  Standby standby = NewStandby();
  EXPECT_EQ(standby.OnShadow(ShadowOf(kPrimary, 7), now_).view, 0U) << "no grant yet";
  standby.OnGrant(kFollows, kPrimary);
  Shadow of_another = ShadowOf(kPrimary, 7);
  of_another.standby = kFollows + 1;
  EXPECT_EQ(standby.OnShadow(of_another, now_).view, 0U);
  EXPECT_EQ(standby.OnShadow(ShadowOf(kPrimary + 7, 1), now_).view, 0U);
  EXPECT_FALSE(standby.armed());
}

TEST_F(StandbyTest, ANewGrantIsForAnotherPrimaryWhichHasYetToAsk) {
  for (const bool armed : {true, false}) {
    Rules rules;
    rules.standby_armed = armed;
    Standby standby = NewStandby(rules);
    standby.OnGrant(kFollows, kPrimary);
    standby.OnShadow(ShadowOf(kPrimary, 7), now_);
    standby.OnGrant(kFollows + 2, kPrimary + 2);
    EXPECT_EQ(Wait(standby, now_, absl::Seconds(2)).has_value(), !armed);
    standby.OnGrant(kFollows, kPrimary);
    EXPECT_EQ(standby.incarnation(), kFollows + 2) << "an older grant is none";
  }
}

TEST_F(StandbyTest, WhatIsTooLateToBeNewestIsNotTakenForIt) {
  Standby standby = NewStandby();
  standby.OnGrant(kFollows, kPrimary);
  standby.OnShadow(ShadowOf(kPrimary, 8), now_);
  EXPECT_EQ(standby.OnShadow(ShadowOf(kPrimary, 7), now_).view, MakeViewNumber(kPrimary, 8));
}

TEST_F(StandbyTest, WhileItStoodStillItselfNobodyWasSilent) {
  Standby standby = NewStandby();
  standby.OnGrant(kFollows, kPrimary);
  standby.OnShadow(ShadowOf(kPrimary, 7), now_);
  now_ += absl::Seconds(30);
  EXPECT_FALSE(standby.TakeOver(now_));
  EXPECT_TRUE(Wait(standby, now_, absl::Seconds(1.6)));
}

TEST_F(StandbyTest, OnceItLeadsItAcknowledgesNothingAndSaysSo) {
  Standby standby = NewStandby();
  standby.OnGrant(kFollows, kPrimary);
  standby.OnShadow(ShadowOf(kPrimary, 7), now_);
  ASSERT_TRUE(Wait(standby, now_, absl::Seconds(2)));
  const ShadowReply reply = standby.OnShadow(ShadowOf(kPrimary, 8), now_);
  EXPECT_EQ(reply.view, 0U);
  EXPECT_TRUE(reply.leads);
  EXPECT_EQ(reply.standby, kFollows);
}

TEST_F(StandbyTest, WhoIsToLeadAsAnOrdinarySuccessorFollowsNobodyAnyMore) {
  Standby standby = NewStandby();
  standby.OnGrant(kFollows, kPrimary);
  standby.OnShadow(ShadowOf(kPrimary, 7), now_);
  standby.Cease();
  EXPECT_EQ(standby.OnShadow(ShadowOf(kPrimary, 8), now_).view, 0U);
  EXPECT_FALSE(Wait(standby, now_, absl::Seconds(10)));
}

TEST_F(StandbyTest, AJobThatHasEndedIsNotLed) {
  Standby standby = NewStandby();
  standby.OnGrant(kFollows, kPrimary);
  Shadow shadow = ShadowOf(kPrimary, 7);
  shadow.desired.finished = true;
  standby.OnShadow(shadow, now_);
  EXPECT_FALSE(Wait(standby, now_, absl::Seconds(10)));
}

// A coordinator with a standby. -------------------------------------------------------------------

// Three workers run, and the standby has acknowledged their view.
struct Pair {
  Pair() : cluster(Running(3)), standby(NewStandby()) {
    standby.OnGrant(kFollows, kPrimary);
    cluster.desired_.standby = StandbyPod{kFollows, "standby-uid", "127.0.0.7"};
    cluster.Want();
    Ask();
  }
  void Ask() {
    const std::optional<Shadow> shadow = cluster.coordinator_->MakeShadow();
    ASSERT_TRUE(shadow);
    cluster.coordinator_->OnShadowReply(standby.OnShadow(*shadow, cluster.now_), cluster.now_);
    cluster.Settle();
  }
  // The coordinator has ended; the members hear and report nothing until the standby dials them.
  void TakeOver() {
    cluster.connected_.clear();
    const auto succession = Wait(standby, cluster.now_, absl::Seconds(2));
    ASSERT_TRUE(succession);
    PeerCoordinator::Options options;
    options.boot_id = "waits";
    cluster.coordinator_ = std::make_unique<PeerCoordinator>(options);
    cluster.coordinator_->OnGrant(succession->grant, cluster.now_);
    cluster.coordinator_->OnDesired(succession->desired, cluster.now_);
  }

  Cluster cluster;
  Standby standby;
};

TEST(CoordinatorWithAStandby, OfAViewThatIsNotAcknowledgedNobodyIsTold) {
  Pair pair;
  Cluster& cluster = pair.cluster;
  cluster.Kill(2);
  EXPECT_EQ(cluster.Look().newest_view, MakeViewNumber(1, 2)) << "its number is used";
  EXPECT_EQ(cluster.members_.at(0).fence(), MakeViewNumber(1, 1));
  EXPECT_THAT(cluster.Look().waiting, HasSubstr("standby"));
  pair.Ask();
  EXPECT_EQ(cluster.members_.at(0).fence(), MakeViewNumber(1, 2));
  EXPECT_THAT(cluster.Running(), ElementsAre(0, 1));
  EXPECT_THAT(cluster.Look().waiting, IsEmpty());
}

// B4: it may have led before it ended. Only a grant above its own gives the word back.
TEST(CoordinatorWithAStandby, WhoHasHadOneGoesOnWithoutItOnlyWhenItIsGrantedAnew) {
  Pair pair;
  Cluster& cluster = pair.cluster;
  cluster.Kill(2);
  for (const auto& other : {std::optional<StandbyPod>(),
                            std::optional<StandbyPod>({kFollows + 1, "another", "127.0.0.6"})}) {
    cluster.desired_.standby = other;
    cluster.Want();
    cluster.Settle();
    EXPECT_EQ(cluster.coordinator_->standby()->incarnation, kFollows);
    EXPECT_EQ(cluster.members_.at(0).fence(), MakeViewNumber(1, 1));
  }
  cluster.pods_[2].state = PodState::kTerminated;
  cluster.desired_.standby.reset();
  cluster.NewCoordinator();
  cluster.NewCoordinator();  // above the standby's
  for (const int pod : {0, 1}) cluster.Connect(pod);
  EXPECT_THAT(cluster.Running(), ElementsAre(0, 1));
  EXPECT_FALSE(cluster.coordinator_->MakeShadow());
}

TEST(CoordinatorWithAStandby, AnotherStandbysWordIsNotTakenForItsOwn) {
  Pair pair;
  Cluster& cluster = pair.cluster;
  cluster.Kill(2);
  cluster.coordinator_->OnShadowReply({kFollows + 1, kPrimary, MakeViewNumber(1, 2), false},
                                      cluster.now_);
  cluster.Settle();
  EXPECT_EQ(cluster.members_.at(0).fence(), MakeViewNumber(1, 1));
}

TEST(CoordinatorWithAStandby, WhoHearsThatTheStandbyLeadsPublishesNoMore) {
  Pair pair;
  Cluster& cluster = pair.cluster;
  cluster.coordinator_->OnShadowReply({kFollows, kPrimary, 0, true}, cluster.now_);
  EXPECT_TRUE(cluster.Look().superseded);
  EXPECT_FALSE(cluster.coordinator_->MakeShadow());
}

TEST(CoordinatorWithAStandby, WhereAllAnswerTheStandbyAdoptsTheirView) {
  Pair pair;
  Cluster& cluster = pair.cluster;
  pair.TakeOver();
  for (const int pod : {0, 1, 2}) cluster.Connect(pod);
  EXPECT_EQ(cluster.Look().newest_view, MakeViewNumber(1, 1));
  cluster.Step({0, 1, 2});
  EXPECT_EQ(cluster.members_.at(0).state(), (StateId{MakeViewNumber(1, 1), 2}));
}

TEST(CoordinatorWithAStandby, LossInCompanyIsRepairedWithinAHeartbeatAndRisksNothing) {
  Pair pair;
  Cluster& cluster = pair.cluster;
  cluster.members_.erase(0);  // with the coordinator, and without a word
  cluster.members_.erase(1);
  pair.TakeOver();
  cluster.Connect(2);
  cluster.Advance(absl::Seconds(0.5));
  EXPECT_EQ(cluster.Look().newest_view, MakeViewNumber(1, 1)) << "the others may yet report";
  cluster.Advance(absl::Seconds(0.7));
  EXPECT_THAT(cluster.Running(), ElementsAre(2));
  EXPECT_EQ(cluster.members_.at(2).view()->number, MakeViewNumber(kFollows, 1));
  for (const IncidentRecord& incident : cluster.Look().incidents) {
    EXPECT_EQ(incident.reason, "WorkerLost");
  }
  EXPECT_THAT(cluster.coordinator_->assumed_terminated(), IsEmpty());
}

// What the primary has published, and perhaps told, needs a witness at the standby too.
TEST(CoordinatorWithAStandby, ASideThatHasNoWitnessOfTheLastViewWaits) {
  Pair pair;
  Cluster& cluster = pair.cluster;
  cluster.Advance(absl::Seconds(1.5), /*mute=*/{2});  // 0 and 1 may go on without 2
  pair.Ask();
  cluster.Step({0, 1});
  cluster.members_.erase(0);
  pair.TakeOver();
  cluster.Connect(2);
  cluster.Advance(absl::Seconds(5));
  EXPECT_EQ(cluster.Look().newest_view, MakeViewNumber(1, 2));
  cluster.Connect(1);
  cluster.Advance(absl::Seconds(1));
  EXPECT_THAT(cluster.Running(), ElementsAre(1, 2));
  EXPECT_EQ(cluster.members_.at(2).state()->step, cluster.members_.at(1).state()->step);
}

}  // namespace
}  // namespace starling::membership
