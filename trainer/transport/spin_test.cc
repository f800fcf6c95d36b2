// SPDX-License-Identifier: Apache-2.0
// Who polls before it sleeps: by the ranks that share memory, the cores, and what somebody has
// said.
#include "trainer/transport/spin.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

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
    EXPECT_EQ(LimitsOf({wanted, one.rule}, one.ranks_here, one.cores).time,
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
  const SpinLimits limits = LimitsOf(*said, 9, 1);
  EXPECT_EQ(limits.time, absl::Microseconds(20));
  EXPECT_EQ(limits.at_sum, absl::Microseconds(20));
  const auto never = ParseSpin("0");
  ASSERT_TRUE(never.ok());
  for (const absl::Duration limit : {LimitsOf(*never, 2, 16).time, LimitsOf(*never, 2, 16).at_sum,
                                     LimitsOf(*never, 2, 16).others_idle}) {
    EXPECT_EQ(limit, absl::ZeroDuration());
  }
  EXPECT_EQ(ParseSpin("1000000")->time, absl::Seconds(1));
  for (const char* bad : {"-1", "soon", "50us", "1000001", " "}) {
    const auto parsed = ParseSpin(bad);
    EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument) << bad;
    EXPECT_THAT(parsed.status().message(), HasSubstr("STARLING_SPIN")) << bad;
  }
}

TEST(Spin, OfAJobIsWhatItsEnvironmentSays) {
  ::setenv("STARLING_SPIN", "20", 1);
  EXPECT_EQ(SpinOfJob()->time, absl::Microseconds(20));
  ::unsetenv("STARLING_SPIN");
  EXPECT_EQ(SpinOfJob()->time, kJobSpin);
}

TEST(Spin, MembersOfAJobPollLongerWhereOthersAreIdleAndEachRankHasACore) {
  const auto limit = [](int ranks_here, int cores) {
    return LimitsOf(*ParseSpin(""), ranks_here, cores).others_idle;
  };
  EXPECT_EQ(limit(2, 2), kJobSpinOthersIdle);
  EXPECT_EQ(limit(2, 3), kJobSpinOthersIdle);
  EXPECT_EQ(limit(3, 2), absl::ZeroDuration());
  EXPECT_EQ(limit(1, 16), absl::ZeroDuration());
  EXPECT_EQ(LimitsOf(Spin{}, 2, 16).others_idle, absl::ZeroDuration());
}

TEST(Spin, RanksAreOversubscribedWhereThereAreMoreThanCores) {
  EXPECT_FALSE(LimitsOf(Spin{}, 1, 1).oversubscribed);
  EXPECT_FALSE(LimitsOf(Spin{}, 2, 2).oversubscribed);
  EXPECT_TRUE(LimitsOf(Spin{}, 3, 2).oversubscribed);
}

constexpr std::int64_t kBegin = 1'000'000'000;
constexpr std::int64_t kMicro = 1'000;
using Next = SpinWait::Next;

TEST(SpinWait, PollsAndThenYieldsAndThenSleeps) {
  SpinWait wait({.time = absl::Microseconds(50)});
  EXPECT_EQ(wait.Decide(kBegin, kBegin), Next::kPoll);
  EXPECT_EQ(wait.Decide(kBegin, kBegin + SpinWait::kYieldAfter - 1), Next::kPoll);
  EXPECT_EQ(wait.Decide(kBegin, kBegin + SpinWait::kYieldAfter), Next::kYield);
  EXPECT_EQ(wait.Decide(kBegin, kBegin + 50 * kMicro - 1), Next::kYield);
  EXPECT_EQ(wait.Decide(kBegin, kBegin + 50 * kMicro), Next::kSleep);
}

TEST(SpinWait, SleepsAtOnceWhereItMayNotPoll) {
  SpinWait wait({});
  EXPECT_EQ(wait.Decide(kBegin, kBegin), Next::kSleep);
}

TEST(SpinWait, AtASumItsOwnLimitHoldsWhereThatIsLonger) {
  SpinWait wait({.time = absl::Microseconds(20), .at_sum = absl::Microseconds(60)});
  EXPECT_EQ(wait.Decide(kBegin, kBegin + 20 * kMicro), Next::kSleep);
  EXPECT_EQ(wait.Decide(kBegin, kBegin + 60 * kMicro - 1, /*at_sum=*/true), Next::kYield);
  EXPECT_EQ(wait.Decide(kBegin, kBegin + 60 * kMicro, /*at_sum=*/true), Next::kSleep);
  SpinWait longer({.time = absl::Microseconds(90), .at_sum = absl::Microseconds(60)});
  EXPECT_EQ(longer.Decide(kBegin, kBegin + 60 * kMicro, /*at_sum=*/true), Next::kYield);
}

TEST(SpinWait, YieldsAtOnceWhereRanksAreOversubscribed) {
  SpinWait wait({.at_sum = absl::Microseconds(60), .oversubscribed = true});
  EXPECT_EQ(wait.Decide(kBegin, kBegin, /*at_sum=*/true), Next::kYield);
  EXPECT_EQ(wait.Decide(kBegin, kBegin), Next::kSleep);
}

TEST(SpinWait, PollsLongerWhileOthersAreIdle) {
  SpinWait wait({.others_idle = absl::Microseconds(300)});
  EXPECT_FALSE(wait.others_idle());
  EXPECT_EQ(wait.Decide(kBegin, kBegin), Next::kSleep);
  wait.SetOthersIdle(true);
  EXPECT_TRUE(wait.others_idle());
  EXPECT_EQ(wait.Decide(kBegin, kBegin + 300 * kMicro - 1), Next::kYield);
  EXPECT_EQ(wait.Decide(kBegin, kBegin + 300 * kMicro), Next::kSleep);
  wait.SetOthersIdle(false);
  EXPECT_EQ(wait.Decide(kBegin, kBegin), Next::kSleep);
}

// How long the time of others_idle is not used after a poll that yields at `now` and comes back
// late.
std::int64_t BackoffAt(std::int64_t now, SpinWait wait) {
  (void)wait.Decide(now, now);
  wait.Yielded(now - SpinWait::kLate, now);
  std::int64_t lasts = 0;
  while (wait.Decide(now, now + lasts + 1) == Next::kSleep && lasts < 100'000'000) lasts += 50'000;
  return lasts;
}

TEST(SpinWait, DoesNotUseThatTimeForAWhileAfterALateYield) {
  SpinWait wait({.others_idle = absl::Hours(1), .at_sum = absl::Microseconds(60)});
  wait.SetOthersIdle(true);
  EXPECT_EQ(wait.Decide(kBegin, kBegin), Next::kPoll);
  wait.Yielded(kBegin, kBegin + SpinWait::kLate - 1);
  EXPECT_EQ(wait.Decide(kBegin, kBegin + SpinWait::kLate), Next::kYield) << "it was not late";
  const std::int64_t back = kBegin + SpinWait::kLate;
  wait.Yielded(kBegin, back);
  EXPECT_EQ(wait.Decide(kBegin, back), Next::kSleep);
  EXPECT_EQ(wait.Decide(back, back + 1, /*at_sum=*/true), Next::kPoll) << "the others stay";
  // That it came back soon from another yield does not say that nobody wants the core.
  wait.Yielded(back + 1, back + 2);
  EXPECT_EQ(wait.Decide(kBegin, back + SpinWait::kShortest - 1), Next::kSleep);
  EXPECT_EQ(wait.Decide(kBegin, back + SpinWait::kShortest), Next::kYield);
}

TEST(SpinWait, BacksOffLongerTheOftenerItIsLateAndShorterWhereItIsNot) {
  SpinWait wait({.others_idle = absl::Hours(1)});
  wait.SetOthersIdle(true);
  std::int64_t now = kBegin;
  const auto polls = [&](std::int64_t yields_for) {
    now += SpinWait::kLongest;
    (void)wait.Decide(now, now);
    wait.Yielded(now - yields_for, now);
  };
  const auto backoff = [&] { return BackoffAt(now + 2 * SpinWait::kLongest, wait); };
  EXPECT_EQ(backoff(), SpinWait::kShortest);
  polls(SpinWait::kLate);
  EXPECT_EQ(backoff(), 4 * SpinWait::kShortest);
  polls(SpinWait::kLate);
  EXPECT_EQ(backoff(), 16 * SpinWait::kShortest);
  polls(1);
  EXPECT_EQ(backoff(), 8 * SpinWait::kShortest);
  // Who is served before it yields has learnt nothing.
  (void)wait.Decide(now, now);
  (void)wait.Decide(now, now);
  EXPECT_EQ(backoff(), 8 * SpinWait::kShortest);
  for (int i = 0; i < 10; ++i) polls(SpinWait::kLate);
  EXPECT_EQ(backoff(), SpinWait::kLongest);
  for (int i = 0; i < 10; ++i) polls(1);
  EXPECT_EQ(backoff(), SpinWait::kShortest);
}

// The communication thread yields to its own process's backward pass, which is over then.
TEST(SpinWait, LateYieldsWhileOthersComputeDoNotCount) {
  SpinWait wait({.time = absl::Microseconds(50), .others_idle = absl::Microseconds(300)});
  (void)wait.Decide(kBegin, kBegin);
  wait.Yielded(kBegin, kBegin + SpinWait::kLate);
  wait.SetOthersIdle(true);
  const std::int64_t back = kBegin + SpinWait::kLate;
  EXPECT_EQ(wait.Decide(back - 200 * kMicro, back), Next::kYield);
}

}  // namespace
}  // namespace starling::transport
