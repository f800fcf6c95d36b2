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
#include "trainer/server/lane_count.h"
#include "trainer/testing/shard_flock.h"

namespace starling::server {
namespace {

using namespace flock;  // NOLINT(google-build-using-namespace): of these tests

// Over each transport, with one lane and with three.
class ShardServerTest : public testing::TestWithParam<std::tuple<Kind, int>> {
 protected:
  static Kind kind() { return std::get<0>(GetParam()); }
  static Flock::Options Lanes() {
    Flock::Options options;
    options.lanes = {.count = std::get<1>(GetParam()), .least_bytes = 0};
    return options;
  }
};
INSTANTIATE_TEST_SUITE_P(Kinds, ShardServerTest,
                         testing::Combine(testing::Values(Kind::kTcp, Kind::kInproc),
                                          testing::Values(1, 3)),
                         [](const auto& test) {
                           return absl::StrCat(
                               transport::testing::KindName(std::get<0>(test.param)),
                               std::get<1>(test.param), "Lanes");
                         });

TEST_P(ShardServerTest, EveryLeaseIsAppliedOnceUndisturbedInOneView) {
  Flock flock(kind(), Lanes());
  flock.StartServer(0, 0);
  flock.StartServer(1, 0);
  ExpectExact(flock, 200);
  EXPECT_LE(flock.views(), 3);  // workers and servers may have come one after another
}

// A server is killed at a place, at an early pass and at a later one; its successor joins.
TEST_P(ShardServerTest, AServerKilledAtAnyPlaceLosesNothingAndRepeatsNothing) {
  for (const char* place : {parameter_server::kFailPush, parameter_server::kFailApply,
                            parameter_server::kFailReplicate, parameter_server::kFailAcknowledge}) {
    for (const int passes : {1, 40}) {
      SCOPED_TRACE(absl::StrCat(place, ":", passes));
      Flock flock(kind(), Lanes());
      const MemberId first = flock.StartServer(0, 0, control::Failpoint{place, passes});
      flock.StartServer(1, 0);
      ASSERT_TRUE(flock.Until([&] { return flock.Dead(first); })) << flock.plan().waiting();
      flock.StartServer(0, 1);
      ExpectExact(flock, 200);
    }
  }
}

// The one that hands out copies is killed while a newcomer fills itself.
TEST_P(ShardServerTest, TheOnlyServerKilledWhileItHandsOutACopyCostsNoLease) {
  Flock flock(kind(), Lanes());
  const MemberId first =
      flock.StartServer(0, 0, control::Failpoint{parameter_server::kFailRebalance, 1});
  ASSERT_TRUE(flock.Until([&] { return flock.Done(20); }));
  flock.StartServer(1, 0);
  ASSERT_TRUE(flock.Until([&] { return flock.Dead(first); }));
  flock.StartServer(0, 1);
  ExpectExact(flock, 200);
}

TEST_P(ShardServerTest, ServersComeAndGoWhileWorkersPush) {
  Flock::Options options = Lanes();
  options.servers = 1;
  options.leases = 600;
  Flock flock(kind(), options);
  flock.StartServer(0, 0);
  ASSERT_TRUE(flock.Until([&] { return flock.Done(20); }));
  flock.WantServers(3);
  const MemberId second = flock.StartServer(1, 0);
  flock.StartServer(2, 0);
  const auto in_chains = [&](const MemberId& id) {
    const membership::View view = flock.newest();
    for (const auto& part : view.groups) {
      if (std::find(part.members.begin(), part.members.end(), id) != part.members.end())
        return true;
    }
    return false;
  };
  ASSERT_TRUE(flock.Until([&] { return in_chains(second) && flock.plan().running(); }));
  flock.WantServers(2);
  flock.Leave(second);
  ASSERT_TRUE(flock.Until([&] { return flock.Gone(second); })) << flock.plan().waiting();
  EXPECT_FALSE(flock.newest().Has(second));
  ExpectExact(flock, 600);
}

bool Moved(Flock& flock) {
  const auto shards = flock.newest().groups;
  return std::any_of(shards.begin(), shards.end(), [](const auto& part) { return part.by_load; });
}

// The shards of one server are hot. Returns whether its load is shared in the end.
bool Shares(Flock& flock, Lease leases) {
  const MemberId ids[] = {flock.StartServer(0, 0), flock.StartServer(1, 0)};
  EXPECT_TRUE(flock.Until([&] { return flock.Done(20) && flock.plan().running(); }));
  std::set<std::size_t> of_first, of_second;
  const auto shards = flock.newest().groups;
  for (std::size_t shard = 0; shard < shards.size(); ++shard) {
    (shards[shard].members.back() == ids[0] ? of_first : of_second).insert(shard);
  }
  flock.Heat(of_first.size() > of_second.size() ? of_first : of_second);
  // What the busier one does of all is at most three quarters: 1.5 times the mean.
  const auto even = [&] {
    const auto a = static_cast<double>(flock.LoadOf(ids[0]));
    const auto b = static_cast<double>(flock.LoadOf(ids[1]));
    return flock.plan().running() && std::max(a, b) < 0.75 * (a + b);
  };
  const absl::Time limit = absl::Now() + absl::Seconds(flock.by_load() ? 50 : 4);
  EXPECT_TRUE(flock.Until(
      [&] { return (flock.AllDone() && Moved(flock) && even()) || absl::Now() > limit; }));
  const bool shared = even();
  ExpectExact(flock, leases);
  return shared;
}

TEST_P(ShardServerTest, WhereOneServersShardsAreHotSomeMoveAndEveryLeaseIsStillAppliedOnce) {
  for (const bool by_load : {true, false}) {  // the negative control: it stays uneven
    Flock::Options options = Lanes();
    options.replication = 1;
    options.leases = 400;
    options.by_load = by_load;
    Flock flock(kind(), options);
    EXPECT_EQ(Shares(flock, 400), by_load) << flock.Why();
    EXPECT_EQ(Moved(flock), by_load);
  }
}

// With one copy each, and snapshots: all servers die, new ones restore, leases are redone.
TEST_P(ShardServerTest, WhenAllCopiesAreGoneShardsAreRestoredAndEveryLeaseIsStillAppliedOnce) {
  Flock::Options options = Lanes();
  options.replication = 1;
  options.leases = 1000;
  options.turn_interval = absl::Milliseconds(20);
  Flock flock(kind(), options);
  const MemberId first = flock.StartServer(0, 0, control::Failpoint{kFailCheckpoint, 2});
  const MemberId second = flock.StartServer(1, 0);
  ASSERT_TRUE(flock.Until([&] { return flock.Dead(first); }));
  EXPECT_GT(flock.Snapshots(), 0);
  flock.Kill(second);
  ASSERT_TRUE(flock.Until([&] { return flock.Dead(second); }));
  flock.StartServer(0, 1);
  flock.StartServer(1, 1);
  ExpectExact(flock, 1000);
}

TEST(LaneCountTest, ThereIsOneLaneLessThanThePodHasCoresUpToFourUnlessItIsSaid) {
  EXPECT_EQ(*ParseLanes("", 1), 1);
  EXPECT_EQ(*ParseLanes("", 2), 1);
  EXPECT_EQ(*ParseLanes("", 4), 3);
  EXPECT_EQ(*ParseLanes("", 16), kMostLanesByDefault);
  EXPECT_EQ(*ParseLanes("7", 2), 7);
  for (const char* bad : {"0", "-1", "65", "two", "2x"}) {
    EXPECT_EQ(ParseLanes(bad, 2).status().code(), absl::StatusCode::kInvalidArgument) << bad;
  }
}

}  // namespace
}  // namespace starling::server
