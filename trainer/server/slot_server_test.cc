// SPDX-License-Identifier: Apache-2.0
// Server processes as threads over real links, under the coordinator's own rules: killed at every
// named place, replaced, drained, all of them lost at once. Work is leases of whole numbers, so
// that "exactly once" is an equation.
#include "trainer/server/slot_server.h"

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/server/slot_flock.h"

namespace starling::server {
namespace {

using namespace flock;  // NOLINT(google-build-using-namespace): of these tests

class SlotServerTest : public testing::TestWithParam<Kind> {};
INSTANTIATE_TEST_SUITE_P(Kinds, SlotServerTest, testing::Values(Kind::kTcp, Kind::kInproc),
                         [](const auto& kind) { return transport::testing::KindName(kind.param); });

TEST_P(SlotServerTest, EveryLeaseIsAppliedOnceUndisturbedInOneView) {
  Flock flock(GetParam(), {});
  flock.StartServer(0, 0);
  flock.StartServer(1, 0);
  ExpectExact(flock, 200);
  EXPECT_LE(flock.views(), 3);  // workers and servers may have come one after another
}

// A server is killed at a place, at an early pass and at a later one; its successor joins.
TEST_P(SlotServerTest, AServerKilledAtAnyPlaceLosesNothingAndRepeatsNothing) {
  for (const char* place : {parameter_server::kFailPush, parameter_server::kFailApply,
                            parameter_server::kFailReplicate, parameter_server::kFailAcknowledge}) {
    for (const int passes : {1, 40}) {
      SCOPED_TRACE(absl::StrCat(place, ":", passes));
      Flock flock(GetParam(), {});
      const MemberId first = flock.StartServer(0, 0, Failpoint{place, passes});
      flock.StartServer(1, 0);
      ASSERT_TRUE(flock.Until([&] { return flock.Dead(first); })) << flock.plan().waiting();
      flock.StartServer(0, 1);
      ExpectExact(flock, 200);
    }
  }
}

// The one that hands out copies is killed while a newcomer fills itself.
TEST_P(SlotServerTest, TheOnlyServerKilledWhileItHandsOutACopyCostsNoLease) {
  Flock flock(GetParam(), {});
  const MemberId first = flock.StartServer(0, 0, Failpoint{parameter_server::kFailRebalance, 1});
  ASSERT_TRUE(flock.Until([&] { return flock.Done(20); }));
  flock.StartServer(1, 0);
  ASSERT_TRUE(flock.Until([&] { return flock.Dead(first); }));
  flock.StartServer(0, 1);
  ExpectExact(flock, 200);
}

TEST_P(SlotServerTest, ServersComeAndGoWhileWorkersPush) {
  Flock::Options options;
  options.servers = 1;
  options.leases = 600;
  Flock flock(GetParam(), options);
  flock.StartServer(0, 0);
  ASSERT_TRUE(flock.Until([&] { return flock.Done(20); }));
  flock.WantServers(3);
  const MemberId second = flock.StartServer(1, 0);
  flock.StartServer(2, 0);
  const auto in_chains = [&](const MemberId& id) {
    for (const auto& part : flock.plan().newest().slots) {
      if (std::find(part.chain.begin(), part.chain.end(), id) != part.chain.end()) return true;
    }
    return false;
  };
  ASSERT_TRUE(flock.Until([&] { return in_chains(second) && flock.plan().running(); }));
  flock.WantServers(2);
  flock.Leave(second);
  ASSERT_TRUE(flock.Until([&] { return flock.Gone(second); })) << flock.plan().waiting();
  EXPECT_FALSE(flock.plan().newest().HasServer(second));
  ExpectExact(flock, 600);
}

// With one copy each, and snapshots: all servers die, new ones restore, leases are redone.
TEST_P(SlotServerTest, WhenAllCopiesAreGoneSlotsAreRestoredAndEveryLeaseIsStillAppliedOnce) {
  Flock::Options options;
  options.replication = 1;
  options.leases = 1000;
  options.turn_interval = absl::Milliseconds(20);
  Flock flock(GetParam(), options);
  const MemberId first = flock.StartServer(0, 0, Failpoint{kFailCheckpoint, 2});
  const MemberId second = flock.StartServer(1, 0);
  ASSERT_TRUE(flock.Until([&] { return flock.Dead(first); }));
  EXPECT_GT(flock.Snapshots(), 0);
  flock.Kill(second);
  ASSERT_TRUE(flock.Until([&] { return flock.Dead(second); }));
  flock.StartServer(0, 1);
  flock.StartServer(1, 1);
  ExpectExact(flock, 1000);
}

TEST(FailpointsTest, TheVariableIsANameAndHowOftenItIsPassed) {
  EXPECT_EQ(*ParseFailpoint(""), std::nullopt);
  EXPECT_EQ((*ParseFailpoint("apply"))->passes, 1);
  EXPECT_EQ((*ParseFailpoint("apply:3"))->name, "apply");
  EXPECT_EQ((*ParseFailpoint("apply:3"))->passes, 3);
  EXPECT_EQ((*ParseFailpoint("job-server-1/apply:3"))->pod, "job-server-1");
  EXPECT_EQ((*ParseFailpoint("job-server-1/apply"))->name, "apply");
  for (const char* bad : {"/apply", "pod/", ":3", "apply:", "apply:0", "apply:x", "apply:3x"}) {
    EXPECT_EQ(ParseFailpoint(bad).status().code(), absl::StatusCode::kInvalidArgument) << bad;
  }
  int ended = 0;
  Failpoints points(Failpoint{"apply", 2}, [&] { ++ended; });
  EXPECT_FALSE(points.Hit("apply"));
  EXPECT_FALSE(points.Hit("push"));
  EXPECT_TRUE(points.Hit("apply"));
  EXPECT_FALSE(points.Hit("apply"));
  EXPECT_EQ(ended, 1);
}

}  // namespace
}  // namespace starling::server
