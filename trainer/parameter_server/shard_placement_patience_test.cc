// SPDX-License-Identifier: Apache-2.0
// Chains for one roster and one view; shard_placement_test.cc plays them view by view.
#include <algorithm>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/parameter_server/shard_placement.h"

namespace starling::parameter_server {
namespace {

using membership::Participant;
using membership::Placement;
using membership::Role;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

const MemberId kA{"a", 0}, kB{"b", 0}, kC{"c", 0}, kD{"d", 0};

// One shard, of three replicas where there are as many servers.
class ShardPlacementPatienceTest : public ::testing::Test {
 protected:
  ShardPlacementPatienceTest() { roster_.servers.most = 9; }
  ShardReport& Add(const MemberId& id) {
    Participant& one = roster_.participants[id];
    one.id = id;
    one.index = static_cast<std::int64_t>(roster_.participants.size());
    one.role = Role::kServer;
    one.liveness = Liveness::kReporting;
    one.groups.resize(1);
    return one.groups[0];
  }
  // The newest view, in which these are the shard's chain.
  void Serve(const std::vector<MemberId>& chain) {
    view_.emplace();
    view_->number = 7;
    for (const auto& [id, one] : roster_.participants) {
      view_->members.push_back({id, "", 1, id.pod_uid, "", Role::kServer});
    }
    view_->groups.emplace_back().members = chain;
  }
  std::vector<MemberId> Repair() {
    std::string waiting;
    return placement_.Repair(Scene(), waiting).at(0).members;
  }
  std::vector<MemberId> Plan() { return placement_.Plan(Scene()).at(0).members; }
  Placement::Scene Scene() const {
    const View* view = view_ ? &*view_ : nullptr;
    return {roster_, view, view, nullptr, history_, 0, now_};
  }
  static ShardPlacement::Options Options() {
    ShardPlacement::Options options;
    options.shards = {{0, {0, 100}}};
    options.replication = 3;
    options.ahead_patience = absl::Seconds(10);
    return options;
  }

  ShardPlacement placement_{Options()};
  membership::Roster roster_;
  std::optional<View> view_;
  std::vector<membership::GroupHistory> history_;
  absl::Time now_ = absl::FromUnixSeconds(1000);
};

TEST_F(ShardPlacementPatienceTest, WhereNobodyServesWhoeverHasTheMostComesFirst) {
  Add(kA).state = StateId{4, 9};
  Add(kB).state = StateId{6, 1};
  Add(kC);
  Add(kD).state = StateId{6, 1};
  roster_.participants.at(kD).leaving = true;
  const std::vector<MemberId> chain = Repair();
  EXPECT_THAT(chain, UnorderedElementsAre(kA, kB, kC, kD));
  EXPECT_EQ(chain.front(), kD) << "it leaves, and is needed for what it has";
  roster_.participants.at(kD).groups[0].state = StateId{4, 9};
  EXPECT_THAT(Repair(), UnorderedElementsAre(kA, kB, kC)) << "others have more";
}

TEST_F(ShardPlacementPatienceTest, ARepairTakesWhoServesAndReportsAndNobodyElse) {
  for (const MemberId& id : {kA, kB, kC, kD}) Add(id);
  Serve({kA, kB});
  roster_.participants.at(kC).groups[0].cached = true;
  roster_.participants.at(kA).liveness = Liveness::kSilent;
  EXPECT_THAT(Repair(), ElementsAre(kB)) << "one has a cache, and another has none yet";
}

TEST_F(ShardPlacementPatienceTest, WhoIsSlowToFillItsCacheIsWaitedForSoLongAndNoLonger) {
  for (const MemberId& id : {kA, kB, kC}) Add(id);
  Serve({kA});
  roster_.participants.at(kB).groups[0].cached = true;
  EXPECT_THAT(Plan(), ElementsAre(kA));
  EXPECT_THAT(placement_.ahead().at(kC), ElementsAre(0U));
  EXPECT_FALSE(placement_.ahead().contains(kA)) << "it serves";
  EXPECT_FALSE(placement_.ahead().contains(kB)) << "it has a cache";
  now_ += absl::Seconds(10) - absl::Milliseconds(1);
  EXPECT_THAT(Plan(), ElementsAre(kA));
  now_ += absl::Milliseconds(1);
  EXPECT_THAT(Plan(), ElementsAre(kA, kB));
}

TEST_F(ShardPlacementPatienceTest, WhoSaysNothingOfTheShardIsToFetchIt) {
  Add(kA);
  Add(kB);
  roster_.participants.at(kB).groups.clear();  // it has just started
  Serve({kA});
  EXPECT_THAT(Plan(), ElementsAre(kA));
  EXPECT_THAT(placement_.ahead().at(kB), ElementsAre(0U));
}

TEST_F(ShardPlacementPatienceTest, WhoHasHeldTheShardBeforeFetchesNothing) {
  Add(kA);
  Add(kB).state = StateId{3, 1};
  Serve({kA});
  EXPECT_THAT(Plan(), UnorderedElementsAre(kA, kB));
  EXPECT_THAT(placement_.ahead(), IsEmpty());
}

TEST_F(ShardPlacementPatienceTest, AfterARepairPatienceBeginsAnew) {
  for (const MemberId& id : {kA, kB, kC}) Add(id);
  Serve({kA});
  roster_.participants.at(kB).groups[0].cached = true;
  EXPECT_THAT(Plan(), ElementsAre(kA));
  now_ += absl::Seconds(9);
  EXPECT_THAT(Repair(), ElementsAre(kA));
  EXPECT_THAT(placement_.ahead(), IsEmpty()) << "of a view that does not run nothing is fetched";
  now_ += absl::Seconds(9);
  EXPECT_THAT(Plan(), ElementsAre(kA));
  now_ += absl::Seconds(10);
  EXPECT_THAT(Plan(), ElementsAre(kA, kB));
}

// Eight shards on two servers, one of which is too busy: one of its shards moves after five
// seconds.
class BusyPlacementTest : public ShardPlacementPatienceTest {
 protected:
  static constexpr std::size_t kShards = 8;
  BusyPlacementTest() {
    options_.replication = 1;
    options_.shards.clear();
    for (std::uint32_t shard = 0; shard < kShards; ++shard)
      options_.shards.push_back({shard, {0, 100}});
    options_.balance.patience = absl::Seconds(5);
    Add(kA);
    Add(kB);
    Begin();
  }
  // The shards lie where their sizes put them.
  void Begin() {
    placed_.emplace(options_);
    const Chains chains = Place(options_.shards, {kA, kB}, options_.weights, 1);
    for (const MemberId& id : {kA, kB}) roster_.participants.at(id).groups.assign(kShards, {});
    Serve({});
    view_->groups.resize(kShards);
    for (std::size_t shard = 0; shard < kShards; ++shard) {
      const std::vector<MemberId>& chain = chains.at(options_.shards[shard]);
      view_->groups[shard].members = chain;
      roster_.participants.at(chain[0]).groups[shard].state = StateId{7, 1};
    }
    SayLoad(kA, 50'000'000);
    SayLoad(kB, 1'000'000);
  }
  // What each shard that the server serves costs it.
  void SayLoad(const MemberId& server, std::int64_t load) {
    for (std::size_t shard = 0; shard < kShards; ++shard) {
      if (!view_->groups[shard].Has(server)) continue;
      roster_.participants.at(server).groups[shard].load = load;
    }
  }
  std::vector<ReplicaGroup> Look() { return placed_->Plan(Scene()); }
  // The shards that the other server is to fetch.
  std::vector<std::size_t> Moving() const {
    const auto ahead = placed_->ahead().find(kB);
    return ahead == placed_->ahead().end() ? std::vector<std::size_t>() : ahead->second;
  }
  // Looks when the server has been too busy for long enough.
  void Wait() {
    Look();
    now_ += absl::Seconds(5);
    Look();
  }

  ShardPlacement::Options options_ = Options();
  std::optional<ShardPlacement> placed_;
};

TEST_F(BusyPlacementTest, AMoveBeginsWithTheLookThatDecidesIt) {
  Look();
  EXPECT_THAT(Moving(), IsEmpty());
  now_ += absl::Seconds(5) - absl::Milliseconds(1);
  Look();
  EXPECT_THAT(Moving(), IsEmpty());
  now_ += absl::Milliseconds(1);
  Look();
  EXPECT_THAT(Moving(), SizeIs(1));
}

TEST_F(BusyPlacementTest, AMoveToWhomeverLeavesIsForgottenThoughItStaysAfterAll) {
  Wait();
  ASSERT_THAT(Moving(), SizeIs(1));
  roster_.participants.at(kB).leaving = true;
  Look();
  roster_.participants.at(kB).leaving = false;
  Look();
  EXPECT_THAT(Moving(), IsEmpty());
}

TEST_F(BusyPlacementTest, ARepairForgetsTheMoveAndHowLongAServerWasTooBusy) {
  Wait();
  ASSERT_THAT(Moving(), SizeIs(1));
  std::string waiting;
  placed_->Repair(Scene(), waiting);
  Look();
  EXPECT_THAT(Moving(), IsEmpty());
  now_ += absl::Seconds(4);
  placed_->Repair(Scene(), waiting);
  now_ += absl::Seconds(4);
  Look();
  EXPECT_THAT(Moving(), IsEmpty());
}

TEST_F(BusyPlacementTest, WhileChainsAreNotAsTheyShouldBeNobodyIsTooBusy) {
  Look();
  now_ += absl::Seconds(4);
  std::vector<MemberId>& chain = view_->groups[0].members;
  const std::vector<MemberId> other = {chain[0] == kA ? kB : kA};
  const std::vector<MemberId> right = std::exchange(chain, other);
  Look();
  view_->groups[0].members = right;
  now_ += absl::Seconds(4);
  Look();
  EXPECT_THAT(Moving(), IsEmpty()) << "patience begins anew";
  now_ += absl::Seconds(5);
  Look();
  EXPECT_THAT(Moving(), SizeIs(1));
}

TEST_F(BusyPlacementTest, ALoadThatWasEvenMeanwhileIsLookedAtForAsLongAgain) {
  Look();
  now_ += absl::Seconds(4);
  SayLoad(kA, 1'000'000);
  Look();
  SayLoad(kA, 50'000'000);
  now_ += absl::Seconds(4);
  Look();
  EXPECT_THAT(Moving(), IsEmpty());
  now_ += absl::Seconds(4);
  Look();
  EXPECT_THAT(Moving(), IsEmpty()) << "it counts from when it was too busy again";
  now_ += absl::Seconds(1);
  Look();
  EXPECT_THAT(Moving(), SizeIs(1));
}

TEST_F(BusyPlacementTest, AfterAMoveThatNeedsNoCopyPatienceBeginsAnew) {
  for (ShardReport& report : roster_.participants.at(kB).groups) report.state = StateId{7, 1};
  const auto moved = [&] {
    return std::ranges::count_if(view_->groups, [](const auto& group) { return group.by_load; });
  };
  Look();
  now_ += absl::Seconds(5);
  view_->groups = Look();
  ASSERT_EQ(moved(), 1) << "in the look that decides it";
  view_->groups = Look();
  EXPECT_EQ(moved(), 1) << "loads are still those of before";
  now_ += absl::Seconds(5);
  view_->groups = Look();
  EXPECT_EQ(moved(), 2);
}

TEST_F(BusyPlacementTest, AShardThatIsTooLargeForTheOtherServerStaysAndTheNextOneMoves) {
  Wait();
  ASSERT_THAT(Moving(), SizeIs(1));
  const std::size_t first = Moving()[0];
  options_.weights[options_.shards[first]] = 4;
  Begin();
  ASSERT_THAT(view_->groups[first].members, ElementsAre(kA));
  Wait();
  ASSERT_THAT(Moving(), SizeIs(1));
  EXPECT_NE(Moving()[0], first);
}

TEST_F(BusyPlacementTest, WhoSaysNothingOfItsShardsIsNotTooBusy) {
  options_.balance.least = 1;  // byte a second
  Begin();
  SayLoad(kB, 0);
  roster_.participants.at(kA).groups.clear();  // it has just started
  Wait();
  EXPECT_THAT(Moving(), IsEmpty());
}

TEST_F(BusyPlacementTest, AMoveThatIsMadeStaysWithoutBeingUnderWay) {
  Wait();
  ASSERT_THAT(Moving(), SizeIs(1));
  const std::size_t shard = Moving()[0];
  EXPECT_FALSE(Look()[shard].by_load) << "it is still where it was";
  roster_.participants.at(kB).groups[shard].cached = true;
  EXPECT_THAT(Look()[shard].members, ElementsAre(kB));
  EXPECT_TRUE(Look()[shard].by_load);
  view_->groups[shard] = Look()[shard];
  Look();
  view_->groups[shard].members = {kA};
  view_->groups[shard].by_load = false;
  roster_.participants.at(kB).groups[shard].cached = false;
  Look();
  EXPECT_THAT(Moving(), IsEmpty()) << "it would have to be decided on anew";
}

}  // namespace
}  // namespace starling::parameter_server
