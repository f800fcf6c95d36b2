// SPDX-License-Identifier: Apache-2.0
// Who polls before it sleeps: by the ranks that share memory, the cores, and what somebody has
// said.
#include "trainer/transport/spin.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainer/transport/cores.h"

namespace starling::transport {
namespace {

using ::testing::HasSubstr;

struct Case {
  SpinRule rule;
  int ranks_here;
  int cores;
  bool spins;
};

TEST(Spin, TheRuleTheRanksThatShareMemoryAndTheCoresDecide) {
  const Case cases[] = {
      {SpinRule::kWhereCoresSuffice, 2, 2, true},
      {SpinRule::kWhereCoresSuffice, 3, 2, false},
      {SpinRule::kWhereCoresSuffice, 1, 1, true},
      // A server and a worker on two cores: whoever computes has one of them.
      {SpinRule::kWhereACoreIsLeft, 2, 2, false},
      {SpinRule::kWhereACoreIsLeft, 2, 3, true},
      {SpinRule::kWhereACoreIsLeft, 3, 3, false},
      {SpinRule::kWhereACoreIsLeft, 8, 16, true},
      {SpinRule::kWhereACoreIsLeft, 16, 16, false},
      {SpinRule::kWhereACoreIsLeft, 17, 16, false},
      // All others are behind sockets.
      {SpinRule::kWhereACoreIsLeft, 1, 16, false},
      {SpinRule::kAlways, 1, 1, true},
      {SpinRule::kAlways, 9, 2, true},
  };
  for (const Case& one : cases) {
    const absl::Duration wanted = absl::Microseconds(50);
    EXPECT_EQ(AllowedSpin({wanted, one.rule}, one.ranks_here, one.cores),
              one.spins ? wanted : absl::ZeroDuration())
        << static_cast<int>(one.rule) << ": " << one.ranks_here << " on " << one.cores;
  }
}

TEST(Spin, MembersOfAJobSpinWhereACoreIsLeftUnlessTheVariableSaysOtherwise) {
  const auto by_default = ParseSpin("");
  ASSERT_TRUE(by_default.ok());
  EXPECT_EQ(by_default->time, kJobSpin);
  EXPECT_EQ(by_default->rule, SpinRule::kWhereACoreIsLeft);
  const auto said = ParseSpin("20");
  ASSERT_TRUE(said.ok());
  EXPECT_EQ(AllowedSpin(*said, 9, 1), absl::Microseconds(20));
  const auto never = ParseSpin("0");
  ASSERT_TRUE(never.ok());
  EXPECT_EQ(AllowedSpin(*never, 2, 16), absl::ZeroDuration());
  for (const char* bad : {"-1", "soon", "50us", "1000001", " "}) {
    const auto parsed = ParseSpin(bad);
    EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument) << bad;
    EXPECT_THAT(parsed.status().message(), HasSubstr("STARLING_SPIN")) << bad;
  }
}

TEST(Spin, WhoseProcessHasNoOtherWorkPollsLongerWhereEachRankHasACore) {
  const Spin job = *ParseSpin("");
  const auto allowed = [&](int ranks_here, int cores) {
    return AllowedSpin(job, ranks_here, cores, /*others_idle=*/true);
  };
  EXPECT_EQ(allowed(2, 2), kJobSpinAlone);
  EXPECT_EQ(allowed(2, 3), kJobSpinAlone);
  EXPECT_EQ(allowed(3, 2), absl::ZeroDuration());
  EXPECT_EQ(allowed(1, 16), absl::ZeroDuration());
  // What somebody has said holds for all, and others' meshes never poll.
  EXPECT_EQ(AllowedSpin(*ParseSpin("0"), 2, 16, true), absl::ZeroDuration());
  EXPECT_EQ(AllowedSpin(*ParseSpin("20"), 9, 1, true), absl::Microseconds(20));
  EXPECT_EQ(AllowedSpin(Spin{}, 2, 16, true), absl::ZeroDuration());
}

TEST(Crowding, WhoComesBackLateFromGivingWayDoesNotPollForAWhile) {
  constexpr std::int64_t kStart = 1'000'000'000;
  Crowding crowding;
  EXPECT_FALSE(crowding.At(0));
  crowding.Begin();
  crowding.GaveWay(kStart, kStart + Crowding::kLate - 1);
  EXPECT_FALSE(crowding.At(kStart + Crowding::kLate));
  const std::int64_t back = kStart + Crowding::kLate;
  crowding.GaveWay(kStart, back);
  EXPECT_TRUE(crowding.At(back));
  // That it gave way for a moment since does not say that nobody wants the core.
  crowding.GaveWay(back + 1, back + 2);
  EXPECT_TRUE(crowding.At(back + Crowding::kShortest - 1));
  EXPECT_FALSE(crowding.At(back + Crowding::kShortest));
}

// How long the next one that is late lasts, where it gives way at `now`.
std::int64_t LastsAt(std::int64_t now, Crowding crowding) {
  crowding.Begin();
  crowding.GaveWay(now - Crowding::kLate, now);
  std::int64_t lasts = 0;
  while (crowding.At(now + lasts)) lasts += 50'000;
  return lasts;
}

TEST(Crowding, LastsLongerTheOftenerItIsFoundAndShorterWhereItIsNot) {
  constexpr std::int64_t kNow = 1'000'000'000;
  Crowding crowding;
  const auto polls = [&](std::int64_t gives_way_for) {
    crowding.Begin();
    crowding.GaveWay(0, gives_way_for);
  };
  EXPECT_EQ(LastsAt(kNow, crowding), Crowding::kShortest);
  polls(Crowding::kLate);
  EXPECT_EQ(LastsAt(kNow, crowding), 4 * Crowding::kShortest);
  polls(Crowding::kLate);
  EXPECT_EQ(LastsAt(kNow, crowding), 16 * Crowding::kShortest);
  polls(1);
  EXPECT_EQ(LastsAt(kNow, crowding), 8 * Crowding::kShortest);
  // Who is served before it gives way has learnt nothing.
  crowding.Begin();
  crowding.Begin();
  EXPECT_EQ(LastsAt(kNow, crowding), 8 * Crowding::kShortest);
  for (int i = 0; i < 10; ++i) polls(Crowding::kLate);
  EXPECT_EQ(LastsAt(kNow, crowding), Crowding::kLongest);
  for (int i = 0; i < 10; ++i) polls(1);
  EXPECT_EQ(LastsAt(kNow, crowding), Crowding::kShortest);
}

TEST(Cores, AreThoseThatTheProcessMayRunOnOrItsGroupsLimitWhicheverIsLess) {
  EXPECT_EQ(CoresOf("", 3), 3);
  EXPECT_EQ(CoresOf("max 100000\n", 3), 3);
  EXPECT_EQ(CoresOf("150000 100000\n", 8), 2);
  EXPECT_EQ(CoresOf("50000 100000\n", 8), 1);
  EXPECT_EQ(CoresOf("1600000 100000\n", 8), 8);
  EXPECT_EQ(CoresOf("nonsense", 0), 1);
  EXPECT_GE(CoresHere(), 1);
}

}  // namespace
}  // namespace starling::transport
