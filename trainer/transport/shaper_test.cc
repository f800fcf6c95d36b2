// SPDX-License-Identifier: Apache-2.0
#include "trainer/transport/shaper.h"

#include <algorithm>
#include <random>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace starling::transport {
namespace {

using ::testing::ElementsAre;

constexpr std::int64_t kMillisecond = 1'000'000;

// A millisecond for 1000 bytes, and two on the way.
Shaper NewShaper() { return Shaper({.delay = absl::Milliseconds(2), .bytes_per_second = 1e6}); }

TEST(Shaper, TakesNoTimeWhereNothingIsEmulated) {
  Shaper shaper;
  EXPECT_EQ(shaper.Depart(1000), 0);
  EXPECT_EQ(shaper.Arrive(0, 1000, 0), 0);
}

TEST(Shaper, SendsOneFrameAfterAnother) {
  Shaper shaper = NewShaper();
  const std::int64_t before = MonotonicNanoseconds();
  const std::int64_t first = shaper.Depart(1000);
  EXPECT_GE(first, before + kMillisecond);
  EXPECT_EQ(shaper.Depart(3000), first + 3 * kMillisecond);
}

TEST(Shaper, ReceivesWhatLeftAtTheSameTimeOneAfterAnother) {
  Shaper shaper = NewShaper();
  const std::int64_t left = 100 * kMillisecond;
  EXPECT_EQ(shaper.Arrive(left, 1000, 0), left + 2 * kMillisecond);
  EXPECT_EQ(shaper.Arrive(left, 1000, 0), left + 3 * kMillisecond);
  EXPECT_EQ(shaper.Arrive(left, 1000, 0), left + 4 * kMillisecond);
  // Before all of these.
  EXPECT_EQ(shaper.Arrive(left - kMillisecond, 1000, 0), left + kMillisecond);
}

TEST(Shaper, KeepsTheOrderOfALink) {
  Shaper shaper = NewShaper();
  const std::int64_t earlier = shaper.Arrive(100 * kMillisecond, 1000, 0);
  EXPECT_GT(shaper.Arrive(90 * kMillisecond, 1000, earlier), earlier);
}

// Which socket is read first is chance; when a sum is complete must not be.
TEST(Shaper, TellsTheSameOfFramesInAnyOrder) {
  // Three peers send one frame each: two at the same time, one while these arrive.
  std::vector<std::int64_t> left = {100 * kMillisecond, 100 * kMillisecond, 101 * kMillisecond};
  do {
    Shaper shaper = NewShaper();
    std::vector<std::int64_t> arrived;
    for (const std::int64_t one : left) arrived.push_back(shaper.Arrive(one, 1000, 0));
    std::sort(arrived.begin(), arrived.end());
    EXPECT_THAT(arrived, ElementsAre(102 * kMillisecond, 103 * kMillisecond, 104 * kMillisecond));
  } while (std::next_permutation(left.begin(), left.end()));
}

// One that left long after the others must not hold up what left before it.
TEST(Shaper, DoesNotMakeEarlyFramesWaitForLateOnes) {
  Shaper shaper = NewShaper();
  EXPECT_EQ(shaper.Arrive(500 * kMillisecond, 1000, 0), 502 * kMillisecond);
  EXPECT_EQ(shaper.Arrive(100 * kMillisecond, 1000, 0), 102 * kMillisecond);
}

TEST(Shaper, KnowsABoundedNumberOfFrames) {
  Shaper shaper = NewShaper();
  for (std::int64_t i = 0; i < 10'000; ++i) {
    ASSERT_EQ(shaper.Arrive(i * 5 * kMillisecond, 1000, 0), (i * 5 + 2) * kMillisecond);
  }
}

// Frames of any sizes, handed over at any times: none is ever in the card with another, nor earlier
// than it can be, so that no stretch of time has more bytes than the rate allows.
TEST(Shaper, NeverReceivesFasterThanItsRate) {
  std::mt19937 random(7);
  for (int turn = 0; turn < 50; ++turn) {
    Shaper shaper = NewShaper();
    std::vector<std::pair<std::int64_t, std::int64_t>> busy;
    for (int i = 0; i < 200; ++i) {
      const std::int64_t left = kMillisecond * (100 + static_cast<std::int64_t>(random() % 300));
      const std::size_t bytes = 1000 * (1 + random() % 3);
      const std::int64_t takes = static_cast<std::int64_t>(bytes) * 1000;
      const std::int64_t end = shaper.Arrive(left, bytes, 0);
      ASSERT_GE(end, left + 2 * kMillisecond);
      busy.emplace_back(end - takes, end);
    }
    std::sort(busy.begin(), busy.end());
    for (std::size_t i = 1; i < busy.size(); ++i) ASSERT_GE(busy[i].first, busy[i - 1].second);
  }
}

// It never falls behind by more than is in its way: a card that is late always works.
TEST(Shaper, IsNeverIdleWhileSomethingWaits) {
  Shaper shaper = NewShaper();
  std::int64_t last = 0;
  for (int i = 0; i < 1000; ++i) {
    last = std::max(last, shaper.Arrive(100 * kMillisecond, 1000, 0));
  }
  EXPECT_EQ(last, (100 + 2 + 999) * kMillisecond);
}

TEST(Shaper, SavesNothingUpWhileIdle) {
  Shaper shaper = NewShaper();
  EXPECT_EQ(shaper.Depart(1000, 10 * kMillisecond), 11 * kMillisecond);
  EXPECT_EQ(shaper.Depart(2000, 1000 * kMillisecond), 1002 * kMillisecond);
}

// Links. ------------------------------------------------------------------------------------------

Shaping WithLinks(std::vector<LinkShaping> links) {
  Shaping shaping{.delay = absl::Milliseconds(2), .bytes_per_second = 1e6};
  shaping.links = std::move(links);
  return shaping;
}

TEST(Links, AreFoundByRoleAndNumberBothWaysAndTheLastOneHolds) {
  const Shaping shaping =
      WithLinks({{.to = "worker-1", .bytes_per_second = 1},
                 {.from = "worker-0", .to = "worker-1", .bytes_per_second = 2}});
  const auto rate = [&](const char* a, const char* b) {
    const LinkShaping* const link = LinkBetween(a, b, shaping);
    return link == nullptr ? 0 : link->bytes_per_second;
  };
  EXPECT_EQ(rate("job-worker-0", "job-worker-1"), 2);
  EXPECT_EQ(rate("job-worker-1", "job-worker-0"), 2);
  EXPECT_EQ(rate("job-worker-1", "job-parameter-server-0"), 1);
  EXPECT_EQ(rate("job-worker-0", "job-worker-2"), 0);
  EXPECT_EQ(rate("job-worker-11", "job-worker-0"), 0);
  EXPECT_EQ(rate("job-hard-worker-1", "job-worker-2"), 1) << "a job's name is its own affair";
  EXPECT_EQ(rate("job-coworker-1", "job-worker-2"), 0);
  EXPECT_EQ(rate("worker-1", "worker-2"), 1) << "that is all of its name";
}

TEST(Links, EmulateANetworkAlone) {
  Shaping shaping;
  EXPECT_FALSE(shaping.enabled());
  shaping.links.push_back({.to = "worker-1", .delay = absl::Milliseconds(1)});
  EXPECT_TRUE(shaping.enabled());
  EXPECT_EQ(TextOf(shaping), "emulated a link of its own");
}

TEST(Wire, IsNoSlowerThanItsCardUnlessItIsSaid) {
  Wire wire;
  EXPECT_EQ(wire.Pass(50 * kMillisecond, kMillisecond, 1000), 50 * kMillisecond);
  Wire between = WireBetween("job-worker-0", "job-worker-1",
                             WithLinks({{.to = "worker-2", .bytes_per_second = 1}}));
  EXPECT_EQ(between.Pass(50 * kMillisecond, kMillisecond, 1000), 50 * kMillisecond);
}

// A card sends 1000 bytes in a millisecond, the wire in four.
TEST(Wire, CarriesOneFrameAfterAnotherAtItsOwnRate) {
  Wire wire = WireBetween("job-worker-0", "job-worker-1",
                          WithLinks({{.to = "worker-1", .bytes_per_second = 0.25e6}}));
  EXPECT_EQ(wire.Pass(10 * kMillisecond, kMillisecond, 1000), 13 * kMillisecond)
      << "its first byte goes on while the last is still to leave";
  EXPECT_EQ(wire.Pass(11 * kMillisecond, kMillisecond, 1000), 17 * kMillisecond);
  EXPECT_EQ(wire.Pass(100 * kMillisecond, kMillisecond, 1000), 103 * kMillisecond);
}

TEST(Wire, HasADelayOfItsOwn) {
  Shaper card = NewShaper();
  for (const int delay : {0, 1, 2, 9}) {
    Wire wire =
        WireBetween("job-worker-0", "job-worker-1",
                    WithLinks({{.to = "worker-1", .delay = delay * absl::Milliseconds(1)}}));
    const std::int64_t left = wire.Pass((100 + 20 * delay) * kMillisecond, kMillisecond, 1000);
    EXPECT_EQ(card.Arrive(left, 1000, 0), (100 + 21 * delay) * kMillisecond);
  }
}

}  // namespace
}  // namespace starling::transport
