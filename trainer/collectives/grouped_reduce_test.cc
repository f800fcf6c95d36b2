// SPDX-License-Identifier: Apache-2.0
#include "trainer/collectives/grouped_reduce.h"

#include <bit>
#include <random>
#include <vector>

#include "common/ranges/ranges.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/testing/transports.h"

namespace starling::collectives {
namespace {

using ::starling::transport::testing::Kind;
using ::starling::transport::testing::Members;
using ::starling::transport::testing::OnEachRank;
using ::starling::transport::testing::Soon;

constexpr transport::Tag kTag{1, kFirstBucketChannel};

std::vector<std::vector<float>> RandomGroups(int groups, std::size_t length) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  std::vector<std::vector<float>> all(groups, std::vector<float>(length));
  for (auto& group : all) {
    for (float& value : group) value = normal(random);
  }
  return all;
}

std::vector<float> SumInOrder(const std::vector<std::vector<float>>& groups) {
  std::vector<float> sum = groups[0];
  for (std::size_t g = 1; g < groups.size(); ++g) {
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += groups[g][i];
  }
  return sum;
}

std::vector<std::vector<float>> ReduceOn(int ranks, const std::vector<std::vector<float>>& groups,
                                         Kind kind = Kind::kInproc) {
  Members members(kind, ranks);
  const auto meshes = members.OpenAll(1);
  std::vector<std::vector<float>> sums(ranks, std::vector<float>(groups[0].size(), -1));
  OnEachRank(ranks, [&](int rank) {
    Workspace workspace;
    const auto count = static_cast<int>(groups.size());
    const ranges::Range<int> mine = ranges::PartOf(count, rank, ranks);
    std::vector<std::span<const float>> spans;
    for (int g = mine.begin; g < mine.end; ++g) spans.emplace_back(groups[g]);
    EXPECT_EQ(GroupedReduce({*meshes[rank], kTag, Soon(), workspace}, count, spans, sums[rank]),
              absl::OkStatus());
  });
  return sums;
}

TEST(GroupedReduce, GivesTheSameBitsForAnyNumberOfRanks) {
  for (const int groups : {1, 2, 5, 16}) {
    const auto all = RandomGroups(groups, 20'011);
    const auto expected = SumInOrder(all);
    for (const int ranks : {1, 2, 3, 4, 5, 8, 16}) {
      EXPECT_THAT(ReduceOn(ranks, all), ::testing::Each(expected)) << groups << " on " << ranks;
    }
  }
}

TEST(GroupedReduce, WorksForLengthsAroundTheNumberOfRanksAndOverTcp) {
  for (const std::size_t length : {0, 1, 2, 3, 4, 5, 100'003}) {
    const auto all = RandomGroups(7, length);
    EXPECT_THAT(ReduceOn(3, all, Kind::kTcp), ::testing::Each(SumInOrder(all))) << length;
  }
}

TEST(GroupedReduce, AnotherOrderOfGroupsGivesOtherBitsSoTheCheckCanFail) {
  auto all = RandomGroups(16, 1000);
  const auto expected = SumInOrder(all);
  std::swap(all[0], all[15]);
  EXPECT_NE(SumInOrder(all), expected);
}

TEST(GroupedReduce, KeepsTheSignOfZero) {
  const std::vector<std::vector<float>> all(3, std::vector<float>(5, -0.0F));
  for (const auto& sum : ReduceOn(2, all)) {
    for (const float value : sum) EXPECT_EQ(std::bit_cast<std::uint32_t>(value), 0x80000000U);
  }
}

TEST(GroupedReduce, SendsEachGroupOnceToEachOwnerAndEachRangeOnceToAll) {
  constexpr int kRanks = 3;
  constexpr std::size_t kLength = 50'000;
  const auto all = RandomGroups(8, kLength);
  Members members(Kind::kInproc, kRanks);
  const auto meshes = members.OpenAll(1);
  OnEachRank(kRanks, [&](int rank) {
    Workspace workspace;
    const ranges::Range<int> mine = ranges::PartOf(8, rank, kRanks);
    std::vector<std::span<const float>> spans;
    for (int g = mine.begin; g < mine.end; ++g) spans.emplace_back(all[g]);
    std::vector<float> sum(kLength);
    EXPECT_EQ(GroupedReduce({*meshes[rank], kTag, Soon(), workspace}, 8, spans, sum),
              absl::OkStatus());
    const std::size_t own = ranges::PartOf(kLength, rank, kRanks).size();
    std::size_t sent = 0;
    for (int peer = 0; peer < kRanks; ++peer) {
      if (peer != rank) sent += meshes[rank]->traffic(peer).payload_sent;
    }
    EXPECT_EQ(sent, sizeof(float) * (static_cast<std::size_t>(mine.size()) * (kLength - own) +
                                     (kRanks - 1) * own));
  });
}

}  // namespace
}  // namespace starling::collectives
