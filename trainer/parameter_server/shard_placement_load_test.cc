// SPDX-License-Identifier: Apache-2.0
// Which shards move because a server is too busy; trainer/simulation plays it under faults.
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/testing/shard_placement_testing.h"

namespace starling::parameter_server {
namespace {

using plan_testing::In;
using plan_testing::Job;
using plan_testing::kShards;
using ::testing::ElementsAre;
using ::testing::SizeIs;

// Loads that follow the shards, whoever serves them.
class BusyJob : public Job {
 public:
  BusyJob(int replication, int servers, const Balance& balance = {})
      : Job(replication, 1, 0, balance) {
    for (int i = 0; i < servers; ++i) ids_.push_back(Server(i));
    Settle();
  }
  // Looks for `time`, every 50 ms; the views that were made.
  int Look(absl::Duration time, const std::vector<std::int64_t>& loads) {
    int views = 0;
    for (absl::Duration passed; passed < time; passed += absl::Milliseconds(50)) {
      for (const MemberId& id : ids_) {
        for (std::size_t shard = 0; shard < loads.size(); ++shard) {
          At(id).groups[shard].load = loads[shard];
        }
      }
      views += Settle();
      Pass(absl::Milliseconds(50));
    }
    return views;
  }
  std::vector<std::int64_t> Burdens(const std::vector<std::int64_t>& loads) {
    std::vector<std::int64_t> burdens(ids_.size());
    for (std::size_t shard = 0; shard < loads.size(); ++shard) {
      for (std::size_t i = 0; i < ids_.size(); ++i) {
        if (In(newest().groups[shard].members, ids_[i])) burdens[i] += loads[shard];
      }
    }
    return burdens;
  }
  // All shards of the first server are hot.
  std::vector<std::int64_t> HotOnes() {
    std::vector<std::int64_t> loads;
    for (const ReplicaGroup& part : newest().groups) {
      loads.push_back(In(part.members, ids_[0]) ? 50'000'000 : 1'000'000);
    }
    return loads;
  }
  const std::vector<MemberId>& ids() const { return ids_; }

 private:
  std::vector<MemberId> ids_;
};

TEST(ShardPlacementTest, HotShardsMoveOneByOneFromAServerThatIsTooBusyAndThenStay) {
  BusyJob job(1, 2);
  const std::vector<std::int64_t> loads = job.HotOnes();
  const auto before = job.newest();
  EXPECT_EQ(job.Look(absl::Seconds(4), loads), 0) << "it may pass";
  EXPECT_EQ(job.Look(absl::Seconds(2), loads), 2) << "out of one chain by way of both servers";
  int moved = 0;
  for (std::size_t shard = 0; shard < kShards; ++shard) {
    const ReplicaGroup& part = job.newest().groups[shard];
    EXPECT_EQ(part.by_load, part.members != before.groups[shard].members);
    EXPECT_FALSE(part.restore);
    moved += part.by_load ? 1 : 0;
  }
  EXPECT_EQ(moved, 1);
  job.Look(absl::Seconds(60), loads);
  const auto burdens = job.Burdens(loads);
  EXPECT_LT(static_cast<double>(*std::max_element(burdens.begin(), burdens.end())),
            1.5 * static_cast<double>(burdens[0] + burdens[1]) / 2);
  EXPECT_EQ(job.Look(absl::Seconds(60), loads), 0) << "what is even is left alone";
  EXPECT_EQ(job.Look(absl::Seconds(60), std::vector<std::int64_t>(kShards)), 0)
      << "and nothing goes back when the load has gone";
}

// The negative control: sizes alone are even already.
TEST(ShardPlacementTest, WithoutLoadsAHotServerStaysHot) {
  BusyJob job(1, 2, {.by_load = false});
  const std::vector<std::int64_t> loads = job.HotOnes();
  EXPECT_EQ(job.Look(absl::Seconds(60), loads), 0);
  const auto burdens = job.Burdens(loads);
  EXPECT_GT(static_cast<double>(burdens[0]),
            1.5 * static_cast<double>(burdens[0] + burdens[1]) / 2);
}

TEST(ShardPlacementTest, WhoKnowsOnlyTheNewestViewLeavesShardsWhereLoadHasPutThem) {
  BusyJob job(1, 2);
  job.Look(absl::Seconds(6), job.HotOnes());
  const View view = job.newest();
  BusyJob successor(1, 2);
  successor.plan().Learn(view);
  successor.Follow();
  EXPECT_EQ(successor.Settle(), 0);
  EXPECT_EQ(successor.newest(), view);
  // Until a server there has gone.
  for (const ReplicaGroup& part : view.groups) {
    if (part.by_load) successor.End(part.members.back());
  }
  successor.Settle();
  for (const ReplicaGroup& part : successor.newest().groups) EXPECT_FALSE(part.by_load);
}

TEST(ShardPlacementTest, AMoveThatCannotBeMadeAnyMoreIsForgotten) {
  BusyJob job(1, 2);
  const std::vector<std::int64_t> loads = job.HotOnes();
  job.Look(absl::Seconds(5) - absl::Milliseconds(50), loads);
  for (int i = 0; i < 3 && job.FetchAhead(job.ids()[1]).empty(); ++i) {
    job.Pass(absl::Milliseconds(50));
    EXPECT_EQ(job.Plan(), std::nullopt);
  }
  EXPECT_THAT(job.FetchAhead(job.ids()[1]), SizeIs(1));  // one at a time
  job.At(job.ids()[1]).leaving = true;
  job.Settle();
  for (const ReplicaGroup& part : job.newest().groups) {
    EXPECT_THAT(part.members, ElementsAre(job.ids()[0]));
    EXPECT_FALSE(part.by_load);
  }
}

struct Relief {
  const char* name;
  std::vector<BusyShard> shards;
  int servers;
  std::optional<std::pair<std::size_t, std::vector<int>>> move;  // shard, its new chain
};

std::vector<MemberId> Named(const std::vector<int>& servers) {
  std::vector<MemberId> ids;
  ids.reserve(servers.size());
  for (const int server : servers) ids.push_back({absl::StrCat("server-", server), 0});
  return ids;
}
BusyShard Busy(const std::vector<int>& chain, std::vector<double> loads, double weight = 1) {
  return {Named(chain), std::move(loads), weight};
}

TEST(BalanceTest, TheMoveThatEvensOutMostIsMadeAndNoneThatDoesNotHelp) {
  const double m = 1e6;
  const Relief table[] = {
      {"even", {Busy({0}, {9 * m}), Busy({1}, {8 * m})}, 2, {}},
      {"half of the hot", {Busy({0}, {9 * m}), Busy({0}, {9 * m}), Busy({1}, {m})}, 2, {{0, {1}}}},
      {"to whoever has least",
       {Busy({0}, {9 * m}), Busy({0}, {8 * m}), Busy({1}, {2 * m}), Busy({2}, {m})},
       3,
       {{1, {2}}}},
      {"alone is all that the hottest can be", {Busy({0}, {30 * m}), Busy({1}, {m})}, 2, {}},
      {"the cold leave the hot",
       {Busy({0}, {30 * m}), Busy({0}, {6 * m}), Busy({1}, {m})},
       2,
       {{1, {1}}}},
      {"a little is not worth it",
       {Busy({0}, {30 * m}), Busy({0}, {2 * m}), Busy({1}, {m})},
       2,
       {}},
      {"in its place in the chain",
       {Busy({1, 0}, {m, 20 * m}), Busy({2, 0}, {m, 20 * m}), Busy({1, 2}, {m, m})},
       3,
       {{0, {1, 2}}}},
      {"not where it is held already", {Busy({0, 1}, {9 * m, m}), Busy({0, 1}, {9 * m, m})}, 2, {}},
      {"not where there is no room",
       {Busy({0}, {9 * m}, 3), Busy({0}, {8 * m}, 3), Busy({1}, {m}, 7)},
       2,
       {}},
      {"not where nobody does much", {Busy({0}, {9}), Busy({0}, {9}), Busy({1}, {1})}, 2, {}},
  };
  for (const Relief& one : table) {
    std::vector<int> servers(static_cast<std::size_t>(one.servers));
    for (int i = 0; i < one.servers; ++i) servers[static_cast<std::size_t>(i)] = i;
    const auto move = RelieveBusiest(one.shards, Named(servers), {});
    ASSERT_EQ(move.has_value(), one.move.has_value()) << one.name;
    if (!move) continue;
    EXPECT_EQ(move->shard, one.move->first) << one.name;
    EXPECT_EQ(move->chain, Named(one.move->second)) << one.name;
    EXPECT_TRUE(Uneven(one.shards, Named(servers), {})) << one.name;
  }
}

}  // namespace
}  // namespace starling::parameter_server
