// SPDX-License-Identifier: Apache-2.0
#include "trainer/consistency/downpour.h"

#include "gtest/gtest.h"

namespace starling::consistency {
namespace {

TEST(Downpour, AReplicaFetchesInItsFirstStepAndThenEveryFifth) {
  const Downpour downpour{.fetch_every = 5, .push_every = 1};
  int fetches = 0;
  for (std::int64_t step = 0; step < 100; ++step) fetches += downpour.Fetches(step) ? 1 : 0;
  EXPECT_EQ(fetches, 20);
  EXPECT_TRUE(downpour.Fetches(0));
  EXPECT_FALSE(downpour.Fetches(4));
  EXPECT_TRUE(downpour.Fetches(5));
}

}  // namespace
}  // namespace starling::consistency
