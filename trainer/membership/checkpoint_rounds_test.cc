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

TEST(CheckpointRounds, ARequestIsDueWithTheNextSettledStepWhateverTheInterval) {
  for (const absl::Duration interval : {absl::ZeroDuration(), absl::Hours(24)}) {
    CheckpointRounds rounds(/*settled=*/-1);
    rounds.Start(3);
    rounds.Ask(7, kBegin + interval);
    rounds.Request("now");
    EXPECT_FALSE(rounds.Due(interval, 7, false, kBegin)) << "it would hold nothing new";
    EXPECT_TRUE(rounds.Due(interval, 8, false, kBegin));
    rounds.Ask(8, kBegin + interval);
    EXPECT_FALSE(rounds.Due(interval, 9, true, kBegin));
    EXPECT_EQ(rounds.answered(), "");
    rounds.Saved();
    EXPECT_EQ(rounds.answered(), "now");
    EXPECT_EQ(rounds.answered_settled(), 8);
    rounds.Request("now");
    EXPECT_FALSE(rounds.Due(interval, 10, false, kBegin)) << "it is carried out once";
    rounds.Request("again");
    EXPECT_TRUE(rounds.Due(interval, 10, false, kBegin));
  }
}

TEST(CheckpointRounds, WhatWasAskedForBeforeARequestDoesNotAnswerIt) {
  CheckpointRounds rounds = Begun();
  rounds.Ask(4, kBegin + absl::Hours(1));
  rounds.Request("now");
  EXPECT_FALSE(rounds.Due(kInterval, 5, true, kBegin)) << "one after the other";
  rounds.Saved();
  EXPECT_EQ(rounds.answered(), "");
  EXPECT_TRUE(rounds.Due(kInterval, 5, false, kBegin));
}

TEST(CheckpointRounds, ARequestWhoseRoundWasDroppedOrIsLateIsAskedForAnew) {
  CheckpointRounds rounds = Begun();
  rounds.Request("now");
  rounds.Ask(4, kBegin + absl::Hours(1));
  EXPECT_FALSE(rounds.Due(kInterval, 5, false, kBegin)) << "all have it, which Saved() will say";
  rounds.Dropped();
  EXPECT_TRUE(rounds.Due(kInterval, 5, false, kBegin));
  rounds.Ask(5, kBegin + absl::Hours(1));
  EXPECT_FALSE(rounds.Due(kInterval, 6, true, kBegin));
  EXPECT_FALSE(rounds.Due(kInterval, 6, true, kBegin + absl::Minutes(1) - absl::Milliseconds(1)));
  EXPECT_TRUE(rounds.Due(kInterval, 6, true, kBegin + absl::Minutes(1)));
}

TEST(CheckpointRounds, ARequestThatIsTakenBackIsNotCarriedOut) {
  CheckpointRounds rounds = Begun();
  rounds.Request("now");
  rounds.Request("");
  EXPECT_FALSE(rounds.Due(kInterval, 5, false, kBegin));
  rounds.Ask(5, kBegin + kInterval);
  rounds.Saved();
  EXPECT_EQ(rounds.answered(), "");
}

}  // namespace
}  // namespace starling::membership
