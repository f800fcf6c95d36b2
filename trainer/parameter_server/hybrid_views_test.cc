// SPDX-License-Identifier: Apache-2.0
// Views with groups of both kinds: the chains of shards, and one group of all workers.
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/membership/view_plan.h"
#include "trainer/parameter_server/shard_placement.h"

namespace starling::parameter_server {
namespace {

using membership::LockstepPlacement;
using membership::MakeViewNumber;
using membership::Participant;
using membership::Role;
using membership::Roster;
using membership::ViewPlan;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr std::size_t kChains = 2;
constexpr std::size_t kWorkers = kChains;  // the index of their group

class HybridViews : public testing::Test {
 protected:
  void Begin(int replication, int servers, int workers) {
    ShardPlacement::Options shards;
    for (std::uint32_t shard = 0; shard < kChains; ++shard)
      shards.shards.push_back({shard, {0, 100}});
    shards.replication = replication;
    ViewPlan::Options options;
    options.incarnation = 1;
    options.first_view_grace = absl::ZeroDuration();
    plan_.emplace(options, std::vector<std::shared_ptr<membership::Placement>>{
                               std::make_shared<ShardPlacement>(std::move(shards)),
                               std::make_shared<LockstepPlacement>()});
    plan_->OnTakenOver(0);
    for (int i = 0; i < servers; ++i) Add(Role::kServer, i);
    for (int i = 0; i < workers; ++i) Add(Role::kWorker, i);
    ASSERT_TRUE(Next());
    Follow();
    ASSERT_FALSE(Next());
    ASSERT_TRUE(plan_->running());
  }
  MemberId Add(Role role, int index, std::int64_t start = 0) {
    const bool serves = role == Role::kServer;
    const MemberId id{absl::StrCat(serves ? "server-" : "worker-", index), start};
    Participant& one = roster_.participants[id];
    one.id = id;
    one.index = index;
    one.role = role;
    one.liveness = Liveness::kReporting;
    one.groups.resize(serves ? kChains : kChains + 1);
    if (start == 0) ++(serves ? roster_.servers : roster_.workers).most;
    return id;
  }
  MemberId Restart(const MemberId& id) {
    const Participant before = roster_.participants.at(id);
    roster_.participants.erase(id);
    return Add(before.role, static_cast<int>(before.index), id.start + 1);
  }
  std::optional<View> Next() { return plan_->Next(roster_, now_); }
  const View& view() const { return *plan_->Newest(); }
  void Follow() {
    for (auto& [id, one] : roster_.participants) {
      if (one.liveness == Liveness::kReporting) Follow(id);
    }
  }
  void Follow(const MemberId& id) {
    Participant& one = roster_.participants.at(id);
    one.fence = one.installed = view().number;
    for (std::size_t i = 0; i < one.groups.size(); ++i) {
      if (view().groups[i].Has(id)) one.groups[i].state = StateId{view().number, 5};
    }
  }

  Roster roster_;
  std::optional<ViewPlan> plan_;
  absl::Time now_ = absl::UnixEpoch();
  const MemberId server_{"server-0", 0};
  const MemberId other_server_{"server-1", 0};
  const MemberId worker_{"worker-0", 0};
  const MemberId other_worker_{"worker-1", 0};
};

TEST_F(HybridViews, TheFirstViewHasAChainForEachShardAndOneGroupOfAllWorkers) {
  Begin(2, 2, 2);
  ASSERT_THAT(view().groups, SizeIs(kChains + 1));
  EXPECT_FALSE(view().at_boundary);
  for (std::size_t i = 0; i < kChains; ++i) EXPECT_THAT(view().groups[i].members, SizeIs(2));
  EXPECT_THAT(view().groups[kWorkers].members, ElementsAre(worker_, other_worker_));
  EXPECT_THAT(RanksOf(view()), ElementsAre(server_, other_server_, worker_, other_worker_));
  for (const ReplicaGroup& group : view().groups) {
    EXPECT_EQ(group.epoch, view().number);
    EXPECT_TRUE(group.restore);
  }
}

TEST_F(HybridViews, AClientPushesToTheChainsAndNotToTheGroupOfWorkers) {
  Begin(2, 2, 2);
  const ClientView client = ClientViewOf(view(), worker_);
  ASSERT_THAT(client.shards, SizeIs(kChains));
  for (std::size_t shard = 0; shard < kChains; ++shard) {
    EXPECT_EQ(client.shards[shard].head, view().groups[shard].members.front());
    EXPECT_EQ(client.shards[shard].tail, view().groups[shard].members.back());
  }
}

TEST_F(HybridViews, AServersDeathLeavesTheWorkersTheirGroupAndTheirNames) {
  Begin(2, 2, 2);
  const ViewNumber joined = view().workers()[0].joined;
  roster_.participants.erase(server_);
  ASSERT_TRUE(Next());
  EXPECT_THAT(view().groups[0].members, ElementsAre(other_server_));
  EXPECT_THAT(view().groups[kWorkers].members, ElementsAre(worker_, other_worker_));
  for (const ReplicaGroup& group : view().groups) {
    EXPECT_EQ(group.epoch, view().number) << "every view restarts all groups";
    EXPECT_FALSE(group.restore);
  }
  EXPECT_EQ(view().workers()[0].joined, joined);
}

TEST_F(HybridViews, AWorkersDeathLeavesTheChainsAsTheyAre) {
  Begin(2, 2, 2);
  const View before = view();
  roster_.participants.erase(worker_);
  ASSERT_TRUE(Next());
  EXPECT_THAT(view().groups[kWorkers].members, ElementsAre(other_worker_));
  for (std::size_t i = 0; i < kChains; ++i) {
    EXPECT_EQ(view().groups[i].members, before.groups[i].members);
    EXPECT_FALSE(view().groups[i].restore);
  }
  EXPECT_THAT(view().workers(), SizeIs(1));
}

TEST_F(HybridViews, AWorkerJoinsByAViewThatTakesEffectImmediately) {
  Begin(1, 1, 1);
  const MemberId joiner = Add(Role::kWorker, 1);
  ASSERT_TRUE(Next());
  EXPECT_FALSE(view().at_boundary);
  EXPECT_THAT(view().groups[kWorkers].members, ElementsAre(worker_, joiner));
  EXPECT_FALSE(view().groups[kWorkers].restore);
  Follow();
  EXPECT_FALSE(Next());
  EXPECT_TRUE(plan_->running());
}

TEST_F(HybridViews, WhereAllCopiesOfAShardAreGoneOnlyThatShardRestoresAndAllClientsStartOver) {
  Begin(1, 2, 2);
  const ViewNumber joined = view().workers()[0].joined;
  const MemberId gone = view().groups[0].members.front();
  Restart(gone);
  ASSERT_TRUE(Next());
  for (std::size_t i = 0; i < kChains; ++i) {
    EXPECT_EQ(view().groups[i].restore, !view().groups[i].waived.empty());
  }
  EXPECT_TRUE(view().groups[0].restore);
  EXPECT_FALSE(view().groups[kWorkers].restore) << "the dense state stays where it is";
  EXPECT_GT(view().workers()[0].joined, joined);
}

TEST_F(HybridViews, WhereAllWorkersAreGoneTheirGroupRestoresAndNoShard) {
  Begin(1, 1, 2);
  const MemberId again = Restart(worker_);
  roster_.participants.erase(other_worker_);
  roster_.workers.least = 2;
  EXPECT_FALSE(Next());
  EXPECT_THAT(plan_->waiting(), HasSubstr("waits for workers: 1 of at least 2"));
  roster_.workers.least = 1;
  ASSERT_TRUE(Next());
  EXPECT_THAT(view().groups[kWorkers].members, ElementsAre(again));
  EXPECT_TRUE(view().groups[kWorkers].restore);
  for (std::size_t i = 0; i < kChains; ++i) EXPECT_FALSE(view().groups[i].restore);
}

TEST_F(HybridViews, NothingIsPlannedAndNobodyReleasedBeforeEveryGroupIsSynced) {
  Begin(2, 2, 2);
  roster_.participants.erase(worker_);
  ASSERT_TRUE(Next());
  const ViewNumber number = view().number;
  Follow(server_);
  Follow(other_server_);
  Add(Role::kWorker, 2);
  EXPECT_FALSE(Next());
  EXPECT_FALSE(plan_->synced()) << "the chains are, the workers are not";
  Follow(other_worker_);
  ASSERT_TRUE(Next());
  EXPECT_GT(view().number, number);
  EXPECT_THAT(view().workers(), SizeIs(2));
}

TEST_F(HybridViews, AGroupIsPrunedByItsOwnSyncedViewsAlone) {
  Begin(2, 2, 2);
  const ViewNumber first = view().number;
  roster_.participants.at(worker_).liveness = Liveness::kSilent;
  ASSERT_TRUE(Next());
  const ViewNumber second = view().number;
  Follow(server_);
  Follow(other_server_);
  roster_.participants.at(server_).phase = membership::Phase::kAborted;
  roster_.participants.at(other_server_).phase = membership::Phase::kAborted;
  ASSERT_FALSE(Next()) << "the worker may say who is gone";
  now_ += absl::Seconds(1);
  ASSERT_TRUE(Next());
  EXPECT_THAT(view().groups[0].since, SizeIs(1)) << "all of the chain have synced the second";
  EXPECT_EQ(view().groups[0].since[0].number, second);
  ASSERT_THAT(view().groups[kWorkers].since, SizeIs(2));
  EXPECT_EQ(view().groups[kWorkers].since[0].number, first);
}

TEST_F(HybridViews, WhatOnlyASilentWorkerKnowsIsWaitedForThoughAllServersAreThere) {
  Begin(1, 1, 1);
  roster_.participants.at(worker_).liveness = Liveness::kSilent;
  Add(Role::kWorker, 1);
  EXPECT_FALSE(Next());
  EXPECT_TRUE(plan_->unwitnessed());
  EXPECT_THAT(plan_->waiting(), HasSubstr("the last steps may be known only to workers"));
  roster_.participants.erase(worker_);  // now it is certain
  ASSERT_TRUE(Next());
  EXPECT_TRUE(view().groups[kWorkers].restore);
  EXPECT_THAT(view().groups[kWorkers].waived, ElementsAre(MakeViewNumber(1, 1)));
  EXPECT_THAT(view().groups[0].waived, IsEmpty());
}

}  // namespace
}  // namespace starling::parameter_server
