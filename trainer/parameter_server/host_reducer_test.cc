// SPDX-License-Identifier: Apache-2.0
#include "trainer/parameter_server/host_reducer.h"

#include <atomic>
#include <thread>

#include "gtest/gtest.h"

namespace starling::parameter_server {
namespace {

using Floats = std::vector<float>;

TEST(HostReducer, OnePushLeavesForAllParticipantsWeightedByTheirSamples) {
  HostReducer host(2, 3);
  EXPECT_FALSE(host.Add(1, Floats{4, 0, 8}, 1));
  const auto reduced = host.Add(0, Floats{0, 4, 8}, 3);
  ASSERT_TRUE(reduced);
  EXPECT_EQ(reduced->gradient, (Floats{1, 3, 8}));
  EXPECT_EQ(reduced->weight, 4);
}

TEST(HostReducer, ARoundBeginsAnewAfterEachPush) {
  HostReducer host(2, 1);
  (void)host.Add(0, Floats{1}, 1);
  (void)host.Add(1, Floats{1}, 1);
  EXPECT_FALSE(host.Add(0, Floats{5}, 1));
  EXPECT_EQ(host.Add(1, Floats{7}, 1)->gradient, Floats{6});
}

TEST(HostReducer, TheSumsBitsDoNotDependOnWhoComesFirst) {
  const std::vector<Floats> parts = {{0.1F}, {1e8F}, {-1e8F}, {0.7F}};
  const auto sum = [&](const std::vector<std::size_t>& order) {
    HostReducer host(parts.size(), 1);
    std::optional<HostReducer::Reduced> reduced;
    for (const std::size_t one : order) reduced = host.Add(one, parts[one], 1);
    return reduced->gradient[0];
  };
  EXPECT_EQ(sum({0, 1, 2, 3}), sum({3, 1, 0, 2}));
}

TEST(HostReducer, ThreadsTogetherMakeExactlyOnePushARound) {
  HostReducer host(4, 1);
  std::atomic<int> pushes{0};
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] { pushes += host.Add(i, Floats{1}, 1) ? 1 : 0; });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(pushes, 1);
}

}  // namespace
}  // namespace starling::parameter_server
