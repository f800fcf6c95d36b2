// SPDX-License-Identifier: Apache-2.0
#include "trainer/membership/checkpoint_rounds.h"

#include "gtest/gtest.h"

namespace starling::membership {
namespace {

constexpr absl::Duration kInterval = absl::Seconds(10);
const absl::Time kBegin = absl::FromUnixSeconds(1000);

// A round is first due one interval after it was first asked about.
CheckpointRounds Begun() {
  CheckpointRounds rounds(/*settled=*/-1);
  rounds.Start(3);
  EXPECT_FALSE(rounds.Due(kInterval, 0, false, kBegin));
  return rounds;
}

TEST(CheckpointRounds, ARoundIsDueExactlyOneIntervalAfterTheBegin) {
  CheckpointRounds rounds = Begun();
  EXPECT_FALSE(rounds.Due(kInterval, 0, false, kBegin + kInterval - absl::Milliseconds(1)));
  EXPECT_TRUE(rounds.Due(kInterval, 0, false, kBegin + kInterval));
  EXPECT_EQ(rounds.due(), kBegin + kInterval);
}

TEST(CheckpointRounds, WithoutAnIntervalNoneIsEverDue) {
  CheckpointRounds rounds = Begun();
  EXPECT_FALSE(rounds.Due(absl::ZeroDuration(), 5, false, kBegin + absl::Hours(1)));
  EXPECT_FALSE(rounds.Due(-absl::Seconds(1), 5, false, kBegin + absl::Hours(1)));
}

TEST(CheckpointRounds, NoneIsDueUntilAStepMoreIsSettled) {
  CheckpointRounds rounds = Begun();
  EXPECT_FALSE(rounds.Due(kInterval, -1, false, kBegin + kInterval));
  rounds.Ask(4, kBegin + 2 * kInterval);
  EXPECT_EQ(rounds.settled(), 4);
  EXPECT_FALSE(rounds.Due(kInterval, 4, false, kBegin + 2 * kInterval));
  EXPECT_TRUE(rounds.Due(kInterval, 5, false, kBegin + 2 * kInterval));
}

TEST(CheckpointRounds, ARoundThatIsOutstandingIsGivenUpExactlyAMinuteAfterTheNextWasDue) {
  CheckpointRounds rounds = Begun();
  const absl::Time given_up = kBegin + kInterval + absl::Minutes(1);
  EXPECT_FALSE(rounds.Due(kInterval, 0, true, kBegin + kInterval));
  EXPECT_FALSE(rounds.Due(kInterval, 0, true, given_up - absl::Milliseconds(1)));
  EXPECT_TRUE(rounds.Due(kInterval, 0, true, given_up));
}

TEST(CheckpointRounds, NumbersBeginAboveAllThatAnEarlierIncarnationCanHaveGiven) {
  CheckpointRounds rounds = Begun();
  EXPECT_FALSE(rounds.asked());
  EXPECT_EQ(rounds.number(), std::int64_t{3} << 32);
  EXPECT_EQ(rounds.Ask(0, kBegin), (std::int64_t{3} << 32) + 1);
  EXPECT_TRUE(rounds.asked());
  EXPECT_EQ(rounds.Ask(1, kBegin), (std::int64_t{3} << 32) + 2);
}

}  // namespace
}  // namespace starling::membership
