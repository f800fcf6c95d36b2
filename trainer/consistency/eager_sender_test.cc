// SPDX-License-Identifier: Apache-2.0
#include "trainer/consistency/eager_sender.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace starling::consistency {
namespace {

using ::testing::ElementsAre;

constexpr absl::Time kStart = absl::UnixEpoch();

EagerSender::Options OptionsOf(Priority priority, double rate) {
  EagerSender::Options options;
  options.bytes_per_second = rate;
  options.priority = priority;
  return options;
}

// The most bytes in any second, of a sender that always has something to send.
std::int64_t BusiestSecond(const EagerSender::Options& options, std::int64_t row_bytes) {
  EagerSender sender(options);
  std::deque<std::pair<absl::Time, std::int64_t>> window;
  std::int64_t inside = 0, most = 0;
  for (int ms = 0; ms < 5000; ++ms) {
    const absl::Time now = kStart + absl::Milliseconds(ms);
    // Two seconds of silence: what could be saved up is bounded.
    if (ms < 1000 || ms > 3000) {
      for (std::uint64_t row = 0; row < 200; ++row) sender.OnUpdate(row, 1, 1, row_bytes);
    }
    for (std::size_t sent = sender.Take(now).size(); sent > 0; --sent) {
      window.emplace_back(now, row_bytes);
      inside += row_bytes;
    }
    while (!window.empty() && window.front().first <= now - absl::Seconds(1)) {
      inside -= window.front().second;
      window.pop_front();
    }
    most = std::max(most, inside);
  }
  return most;
}

TEST(EagerSender, NoSecondCarriesMoreThanTheBudgetAndATwentieth) {
  EXPECT_LE(BusiestSecond(OptionsOf(Priority::kFifo, 1e6), 1000), 1'050'000);
  EXPECT_GE(BusiestSecond(OptionsOf(Priority::kFifo, 1e6), 1000), 950'000);
}

TEST(EagerSender, ALargerBurstWouldBreakTheBudgetSoThatTheCheckCanFail) {
  EagerSender::Options options = OptionsOf(Priority::kFifo, 1e6);
  options.burst = 0.5;
  EXPECT_GT(BusiestSecond(options, 1000), 1'050'000);
}

TEST(EagerSender, RowsGoInTheOrderOfTheirPriority) {
  const auto order = [](Priority priority) {
    EagerSender sender(OptionsOf(priority, 1e6));
    sender.OnUpdate(1, 1, 10, 8);
    sender.OnUpdate(2, 5, 100, 8);
    sender.OnUpdate(3, 0.5, 1, 8);
    sender.OnUpdate(1, 1, 10, 8);  // now a fifth of its value
    return sender.Take(kStart);
  };
  EXPECT_THAT(order(Priority::kFifo), ElementsAre(1, 2, 3));
  EXPECT_THAT(order(Priority::kRelativeMagnitude), ElementsAre(3, 1, 2));
  EXPECT_EQ(order(Priority::kRandom).size(), 3u);
}

TEST(EagerSender, TheFirstChangeOfARowThatWaitsIsItsPlaceAmongTheOthers) {
  EagerSender sender(OptionsOf(Priority::kFifo, 1e6));
  for (const std::uint64_t row : {5, 2, 9, 5}) sender.OnUpdate(row, 1, 1, 8);
  EXPECT_THAT(sender.Take(kStart), ElementsAre(5, 2, 9));
  for (const std::uint64_t row : {9, 5}) sender.OnUpdate(row, 1, 1, 8);
  EXPECT_THAT(sender.Take(kStart), ElementsAre(9, 5)) << "what was sent waits anew";
}

TEST(EagerSender, EquallyUsefulRowsGoInTheOrderOfTheirNumbers) {
  EagerSender sender(OptionsOf(Priority::kRelativeMagnitude, 1e6));
  for (const std::uint64_t row : {5, 2, 9}) sender.OnUpdate(row, 3, 6, 8);
  EXPECT_THAT(sender.Take(kStart), ElementsAre(2, 5, 9));
}

TEST(EagerSender, ARandomOrderIsItsSeedsAndNotThatOfTheRows) {
  const auto order = [](std::uint64_t seed) {
    EagerSender::Options options = OptionsOf(Priority::kRandom, 1e6);
    options.seed = seed;
    EagerSender sender(options);
    for (std::uint64_t row = 0; row < 50; ++row) sender.OnUpdate(row, 1, 1, 8);
    return sender.Take(kStart);
  };
  EXPECT_FALSE(std::ranges::is_sorted(order(1)));
  EXPECT_EQ(order(1), order(1));
  EXPECT_NE(order(1), order(2));
}

TEST(EagerSender, WithoutABudgetAllGoesAtOnceAndWithOneWhenItIsAskedFor) {
  for (const double rate : {1e3, std::numeric_limits<double>::infinity()}) {
    EagerSender sender(OptionsOf(Priority::kFifo, rate));
    for (const std::uint64_t row : {3U, 4U, 5U}) sender.OnUpdate(row, 1, 1, 1'000'000);
    const absl::Time now = absl::UnixEpoch();
    if (std::isinf(rate)) {
      EXPECT_EQ(sender.Next(now), now);
      EXPECT_THAT(sender.Take(now), testing::ElementsAre(3, 4, 5));
    } else {
      EXPECT_THAT(sender.Take(now), testing::SizeIs(1));
      EXPECT_THAT(sender.TakeAll(), testing::ElementsAre(4, 5));
    }
    EXPECT_EQ(sender.Next(now), absl::InfiniteFuture());
    EXPECT_EQ(sender.bytes_sent(), 3'000'000);
  }
}

// With a budget it would be 5, 4, 3: the most useful first.
TEST(EagerSender, WithoutABudgetNoRowWaitsForAMoreUsefulOne) {
  EagerSender sender(
      OptionsOf(Priority::kRelativeMagnitude, std::numeric_limits<double>::infinity()));
  for (const std::uint64_t row : {3U, 4U, 5U}) {
    sender.OnUpdate(row, static_cast<double>(row), 1, 1'000'000);
  }
  EXPECT_EQ(sender.Next(kStart), kStart);
  EXPECT_THAT(sender.Take(kStart), ElementsAre(3, 4, 5));
}

TEST(EagerSender, OneThatIsLargerThanTheBudgetGoesAloneAndIsPaidOff) {
  EagerSender sender(OptionsOf(Priority::kFifo, 1000));
  sender.OnUpdate(1, 1, 1, 500);
  sender.OnUpdate(2, 1, 1, 500);
  EXPECT_THAT(sender.Take(kStart), ElementsAre(1));
  EXPECT_TRUE(sender.Take(kStart + absl::Milliseconds(400)).empty());
  const absl::Time next = sender.Next(kStart + absl::Milliseconds(400));
  EXPECT_EQ(absl::ToInt64Milliseconds(next - kStart), 500);
  EXPECT_THAT(sender.Take(next + absl::Milliseconds(1)), ElementsAre(2));
  EXPECT_EQ(sender.Next(next), absl::InfiniteFuture());
  EXPECT_EQ(sender.bytes_sent(), 1000);
}

}  // namespace
}  // namespace starling::consistency
