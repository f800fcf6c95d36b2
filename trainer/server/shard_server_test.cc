// SPDX-License-Identifier: Apache-2.0
// Server processes as threads over real links, under the coordinator's own rules: killed at every
// named place, replaced, drained, all of them lost at once. Work is leases of whole numbers, so
// that "exactly once" is an equation.
#include "trainer/server/shard_server.h"

#include <algorithm>
#include <set>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/server/executor_count.h"
#include "trainer/testing/server_threads.h"

namespace starling::server {
namespace {

using namespace cluster;  // NOLINT(google-build-using-namespace): of these tests

// Over each transport, with one executor and with three.
class ShardServerTest : public testing::TestWithParam<std::tuple<Kind, int>> {
 protected:
  static Kind kind() { return std::get<0>(GetParam()); }
  static Cluster::Options Executors() {
    Cluster::Options options;
    options.executors = {.count = std::get<1>(GetParam()), .least_bytes = 0};
    return options;
  }
};
INSTANTIATE_TEST_SUITE_P(Kinds, ShardServerTest,
                         testing::Combine(testing::Values(Kind::kTcp, Kind::kInproc),
                                          testing::Values(1, 3)),
                         [](const auto& test) {
                           return absl::StrCat(
                               transport::testing::KindName(std::get<0>(test.param)),
                               std::get<1>(test.param), "Executors");
                         });

TEST_P(ShardServerTest, EveryLeaseIsAppliedOnceUndisturbedInOneView) {
  Cluster cluster(kind(), Executors());
  cluster.StartServer(0, 0);
  cluster.StartServer(1, 0);
  ExpectExact(cluster, 200);
  EXPECT_LE(cluster.views(), 3);  // workers and servers may have come one after another
}

// A server is killed at a place, at an early pass and at a later one; its successor joins.
TEST_P(ShardServerTest, AServerKilledAtAnyPlaceLosesNothingAndRepeatsNothing) {
  for (const char* place : {parameter_server::kFailPush, parameter_server::kFailApply,
                            parameter_server::kFailReplicate, parameter_server::kFailAcknowledge}) {
    for (const int passes : {1, 40}) {
      SCOPED_TRACE(absl::StrCat(place, ":", passes));
      Cluster cluster(kind(), Executors());
      const MemberId first = cluster.StartServer(0, 0, control::Failpoint{place, passes});
      cluster.StartServer(1, 0);
      ASSERT_TRUE(cluster.Until([&] { return cluster.Dead(first); })) << cluster.plan().waiting();
      cluster.StartServer(0, 1);
      ExpectExact(cluster, 200);
    }
  }
}

// The one that hands out copies is killed while a newcomer fills itself.
TEST_P(ShardServerTest, TheOnlyServerKilledWhileItHandsOutACopyCostsNoLease) {
  Cluster cluster(kind(), Executors());
  const MemberId first =
      cluster.StartServer(0, 0, control::Failpoint{parameter_server::kFailRebalance, 1});
  ASSERT_TRUE(cluster.Until([&] { return cluster.Done(20); }));
  cluster.StartServer(1, 0);
  ASSERT_TRUE(cluster.Until([&] { return cluster.Dead(first); }));
  cluster.StartServer(0, 1);
  ExpectExact(cluster, 200);
}

TEST_P(ShardServerTest, ServersComeAndGoWhileWorkersPush) {
  Cluster::Options options = Executors();
  options.servers = 1;
  options.leases = 600;
  Cluster cluster(kind(), options);
  cluster.StartServer(0, 0);
  ASSERT_TRUE(cluster.Until([&] { return cluster.Done(20); }));
  cluster.WantServers(3);
  const MemberId second = cluster.StartServer(1, 0);
  cluster.StartServer(2, 0);
  const auto in_chains = [&](const MemberId& id) {
    const membership::View view = cluster.newest();
    for (const auto& part : view.groups) {
      if (std::find(part.members.begin(), part.members.end(), id) != part.members.end())
        return true;
    }
    return false;
  };
  ASSERT_TRUE(cluster.Until([&] { return in_chains(second) && cluster.plan().running(); }));
  cluster.WantServers(2);
  cluster.Leave(second);
  ASSERT_TRUE(cluster.Until([&] { return cluster.Gone(second); })) << cluster.plan().waiting();
  EXPECT_FALSE(cluster.newest().Has(second));
  ExpectExact(cluster, 600);
}

bool Moved(Cluster& cluster) {
  const auto shards = cluster.newest().groups;
  return std::any_of(shards.begin(), shards.end(), [](const auto& part) { return part.by_load; });
}

// The shards of one server are hot. Returns whether its load is shared in the end.
bool Shares(Cluster& cluster, Lease leases) {
  const MemberId ids[] = {cluster.StartServer(0, 0), cluster.StartServer(1, 0)};
  EXPECT_TRUE(cluster.Until([&] { return cluster.Done(20) && cluster.plan().running(); }));
  std::set<std::size_t> of_first, of_second;
  const auto shards = cluster.newest().groups;
  for (std::size_t shard = 0; shard < shards.size(); ++shard) {
    (shards[shard].members.back() == ids[0] ? of_first : of_second).insert(shard);
  }
  cluster.Heat(of_first.size() > of_second.size() ? of_first : of_second);
  // What the busier one does of all is at most three quarters: 1.5 times the mean.
  const auto even = [&] {
    const auto a = static_cast<double>(cluster.LoadOf(ids[0]));
    const auto b = static_cast<double>(cluster.LoadOf(ids[1]));
    return cluster.plan().running() && std::max(a, b) < 0.75 * (a + b);
  };
  const absl::Time limit = absl::Now() + absl::Seconds(cluster.by_load() ? 50 : 4);
  EXPECT_TRUE(cluster.Until(
      [&] { return (cluster.AllDone() && Moved(cluster) && even()) || absl::Now() > limit; }));
  const bool shared = even();
  ExpectExact(cluster, leases);
  return shared;
}

TEST_P(ShardServerTest, WhereOneServersShardsAreHotSomeMoveAndEveryLeaseIsStillAppliedOnce) {
  for (const bool by_load : {true, false}) {  // the negative control: it stays uneven
    Cluster::Options options = Executors();
    options.replication = 1;
    options.leases = 400;
    options.by_load = by_load;
    Cluster cluster(kind(), options);
    EXPECT_EQ(Shares(cluster, 400), by_load) << cluster.Why();
    EXPECT_EQ(Moved(cluster), by_load);
  }
}

// With one copy each, and snapshots: all servers die, new ones restore, leases are redone.
TEST_P(ShardServerTest, WhenAllCopiesAreGoneShardsAreRestoredAndEveryLeaseIsStillAppliedOnce) {
  Cluster::Options options = Executors();
  options.replication = 1;
  options.leases = 1000;
  options.turn_interval = absl::Milliseconds(20);
  Cluster cluster(kind(), options);
  const MemberId first = cluster.StartServer(0, 0, control::Failpoint{kFailCheckpoint, 2});
  const MemberId second = cluster.StartServer(1, 0);
  ASSERT_TRUE(cluster.Until([&] { return cluster.Dead(first); }));
  EXPECT_GT(cluster.Snapshots(), 0);
  cluster.Kill(second);
  ASSERT_TRUE(cluster.Until([&] { return cluster.Dead(second); }));
  cluster.StartServer(0, 1);
  cluster.StartServer(1, 1);
  ExpectExact(cluster, 1000);
}

TEST(ExecutorCountTest, ThereIsOneExecutorLessThanThePodHasCoresUpToFourUnlessItIsSaid) {
  EXPECT_EQ(*ParseExecutors("", 1), 1);
  EXPECT_EQ(*ParseExecutors("", 2), 1);
  EXPECT_EQ(*ParseExecutors("", 4), 3);
  EXPECT_EQ(*ParseExecutors("", 16), kMostExecutorsByDefault);
  EXPECT_EQ(*ParseExecutors("7", 2), 7);
  for (const char* bad : {"0", "-1", "65", "two", "2x"}) {
    EXPECT_EQ(ParseExecutors(bad, 2).status().code(), absl::StatusCode::kInvalidArgument) << bad;
  }
}

}  // namespace
}  // namespace starling::server
