// SPDX-License-Identifier: Apache-2.0
#include "trainer/consistency/downpour.h"

#include "gtest/gtest.h"

namespace starling::consistency {
namespace {

struct Traffic {
  int fetches = 0;
  int pushes = 0;
  int gathered = 0;  // gradients that were pushed, in all
};

Traffic Of(const Downpour& downpour, std::int64_t steps) {
  Traffic traffic;
  int pending = 0;
  for (std::int64_t step = 0; step < steps; ++step) {
    if (downpour.Fetches(step)) ++traffic.fetches;
    ++pending;
    if (downpour.Pushes(step, step + 1 == steps)) {
      ++traffic.pushes;
      traffic.gathered += pending;
      pending = 0;
    }
  }
  return traffic;
}

TEST(Downpour, EveryFifthStepMovesExactlyAFifthOfTheBytes) {
  const Traffic every = Of({1, 1, 0}, 100), fifth = Of({5, 5, 0}, 100);
  EXPECT_EQ(every.fetches, 100);
  EXPECT_EQ(fifth.fetches * 5, every.fetches);
  EXPECT_EQ(fifth.pushes * 5, every.pushes);
}

TEST(Downpour, NoGradientStaysBehindWhenAReplicaEndsBetweenTwoPushes) {
  const Traffic traffic = Of({5, 5, 0}, 103);
  EXPECT_EQ(traffic.gathered, 103);
  EXPECT_EQ(traffic.pushes, 21);
}

TEST(Downpour, OneReplicaWarmsUpAndTheOthersWaitForItsUpdates) {
  const Downpour downpour{1, 1, 200};
  EXPECT_TRUE(downpour.MayTrain(0, 0));
  EXPECT_FALSE(downpour.MayTrain(1, 199));
  EXPECT_TRUE(downpour.MayTrain(1, 200));
}

}  // namespace
}  // namespace starling::consistency
