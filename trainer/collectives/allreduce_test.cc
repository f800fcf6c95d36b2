// SPDX-License-Identifier: Apache-2.0
#include "trainer/collectives/allreduce.h"

#include <bit>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/ranges/ranges.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/collectives/schedule.h"
#include "trainer/testing/simulate_schedule.h"
#include "trainer/testing/transports.h"
#include "trainer/transport/frame.h"

namespace starling::collectives {
namespace {

using ::starling::transport::testing::Kind;
using ::starling::transport::testing::KindName;
using ::starling::transport::testing::Members;
using ::starling::transport::testing::OnEachRank;
using ::starling::transport::testing::Soon;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;

constexpr transport::Tag kTag{1, kFirstBucketChannel};
using Arrays = std::vector<std::vector<float>>;
using Meshes = std::vector<std::unique_ptr<transport::Mesh>>;

// Small integers: every order of addition is exact, so all algorithms give the serial sum.
Arrays Integers(int ranks, std::size_t length, std::uint32_t seed) {
  std::mt19937 random(seed);
  Arrays arrays(ranks, std::vector<float>(length));
  for (auto& array : arrays) {
    for (float& value : array) value = static_cast<float>(random() % 2001) - 1000;
  }
  return arrays;
}

Arrays Reals(int ranks, std::size_t length, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  Arrays arrays(ranks, std::vector<float>(length));
  for (auto& array : arrays) {
    for (float& value : array) value = normal(random);
  }
  return arrays;
}

// Adds in rank order, beginning with the rank that `first` gives for an element.
std::vector<float> SumFrom(const Arrays& arrays,
                           const std::function<std::size_t(std::size_t)>& first) {
  const std::size_t ranks = arrays.size();
  std::vector<float> sum(arrays[0].size());
  for (std::size_t i = 0; i < sum.size(); ++i) {
    const std::size_t begin = first(i);
    sum[i] = arrays[begin][i];
    for (std::size_t k = 1; k < ranks; ++k) sum[i] += arrays[(begin + k) % ranks][i];
  }
  return sum;
}
std::vector<float> SerialSum(const Arrays& arrays) {
  return SumFrom(arrays, [](std::size_t) { return 0; });
}
std::vector<float> RingOrderSum(const Arrays& arrays) {
  const std::size_t length = arrays[0].size();
  std::vector<std::size_t> chunk_of(length);
  for (std::size_t chunk = 0; chunk < arrays.size(); ++chunk) {
    const ranges::Range<std::size_t> range = ranges::PartOf(length, chunk, arrays.size());
    for (std::size_t i = range.begin; i < range.end; ++i) chunk_of[i] = chunk;
  }
  return SumFrom(arrays, [&](std::size_t i) { return chunk_of[i]; });
}

Arrays AllreduceAll(Algorithm algorithm, const Meshes& meshes, Arrays arrays) {
  OnEachRank(static_cast<int>(meshes.size()), [&](int rank) {
    Workspace workspace;
    const Communicator communicator{*meshes[rank], kTag, Soon(), workspace};
    EXPECT_EQ(Allreduce(algorithm, communicator, arrays[rank]), absl::OkStatus());
  });
  return arrays;
}

std::vector<std::size_t> LengthsFor(int ranks) {
  const auto n = static_cast<std::size_t>(ranks);
  std::vector<std::size_t> lengths = {0, 1, n - 1, n, n + 1, 1000};
  if (ranks <= 3) lengths.push_back(1'000'003);
  return lengths;
}

class AllreduceTest : public ::testing::TestWithParam<std::tuple<Kind, Algorithm, int>> {
 protected:
  Kind kind() const { return std::get<0>(GetParam()); }
  Algorithm algorithm() const { return std::get<1>(GetParam()); }
  int ranks() const { return std::get<2>(GetParam()); }
};

std::string NameOfTest(const ::testing::TestParamInfo<std::tuple<Kind, Algorithm, int>>& test) {
  return absl::StrCat(KindName(std::get<0>(test.param)),
                      std::string(NameOf(std::get<1>(test.param))), std::get<2>(test.param));
}

INSTANTIATE_TEST_SUITE_P(InFrames, AllreduceTest,
                         ::testing::Combine(::testing::Values(Kind::kTcp, Kind::kInproc),
                                            ::testing::Values(Algorithm::kNaive, Algorithm::kRing,
                                                              Algorithm::kHalvingDoubling,
                                                              Algorithm::kRecursiveDoubling,
                                                              Algorithm::kTree),
                                            ::testing::Values(1, 2, 3, 4, 5, 6, 7, 8)),
                         NameOfTest);
INSTANTIATE_TEST_SUITE_P(InMemory, AllreduceTest,
                         ::testing::Combine(::testing::Values(Kind::kShm, Kind::kMixed),
                                            ::testing::Values(Algorithm::kSharedMemory),
                                            ::testing::Values(1, 2, 3, 4, 5, 8)),
                         NameOfTest);

TEST_P(AllreduceTest, IntegersGiveTheSerialSumBitForBit) {
  Members members(kind(), ranks());
  const Meshes meshes = members.OpenAll(1);
  for (const std::size_t length : LengthsFor(ranks())) {
    const Arrays arrays = Integers(ranks(), length, 1);
    EXPECT_THAT(AllreduceAll(algorithm(), meshes, arrays), Each(SerialSum(arrays))) << length;
  }
}

// What the schedules of `plan` compute, by their definition.
std::vector<float> PlannedSum(Schedule (*plan)(Place, std::size_t), Arrays arrays) {
  std::vector<Schedule> schedules;
  const auto size = static_cast<int>(arrays.size());
  for (int rank = 0; rank < size; ++rank) {
    schedules.push_back(plan({size, rank}, arrays[0].size()));
  }
  testing::Simulate<float>(schedules, arrays, arrays, std::plus<>());
  return arrays[0];
}

std::vector<float> SumInOrderOf(Algorithm algorithm, const Arrays& arrays) {
  switch (algorithm) {
    case Algorithm::kHalvingDoubling:
      return PlannedSum(HalvingDoublingPlan, arrays);
    case Algorithm::kRecursiveDoubling:
      return PlannedSum(RecursiveDoublingPlan, arrays);
    case Algorithm::kTree:
      return PlannedSum(TreePlan, arrays);
    case Algorithm::kNaive:
      return SerialSum(arrays);
    default:
      return RingOrderSum(arrays);
  }
}

TEST_P(AllreduceTest, RealsGiveTheSumInTheDocumentedOrderOnAllRanks) {
  Members members(kind(), ranks());
  const Meshes meshes = members.OpenAll(1);
  for (const std::size_t length : LengthsFor(ranks())) {
    const Arrays arrays = Reals(ranks(), length, 2);
    const auto expected = SumInOrderOf(algorithm(), arrays);
    EXPECT_THAT(AllreduceAll(algorithm(), meshes, arrays), Each(expected)) << length;
  }
}

TEST_P(AllreduceTest, SendsExactlyTheBytesOfItsFormula) {
  // Of the others, collectives_test.cc counts the bytes, and schedule_test.cc has the formulas.
  const bool in_memory = algorithm() == Algorithm::kSharedMemory;
  if (!in_memory && algorithm() != Algorithm::kNaive && algorithm() != Algorithm::kRing) return;
  Members members(kind(), ranks());
  const Meshes meshes = members.OpenAll(1);
  const std::size_t length = 70'001;
  AllreduceAll(algorithm(), meshes, Integers(ranks(), length, 3));

  const auto n = static_cast<std::size_t>(ranks());
  for (std::size_t rank = 0; rank < n; ++rank) {
    std::size_t expected = (n - 1) * length;
    if (algorithm() == Algorithm::kRing) {
      // All chunks but rank+1 in the first half, all but rank+2 in the second.
      expected = 2 * length - ranges::PartOf(length, (rank + 1) % n, n).size() -
                 ranges::PartOf(length, (rank + 2) % n, n).size();
      if (n == 1) expected = 0;
    }
    if (in_memory) {
      // Its parts of the others' chunks, and its own chunk's sum to each of them.
      const std::size_t own = ranges::PartOf(length, rank, n).size();
      expected = length - own + (n - 1) * own;
    }
    transport::Traffic total;
    for (std::size_t peer = 0; peer < n; ++peer) {
      if (peer == rank) continue;
      const transport::Traffic traffic = meshes[rank]->traffic(static_cast<int>(peer));
      if (algorithm() == Algorithm::kRing && peer != (rank + 1) % n) {
        EXPECT_EQ(traffic.payload_sent, 0) << "a ring sends to the right only";
      }
      total += traffic;
    }
    // By which they have agreed on an arena and shown their windows: four words to each, and of
    // rank 0 a byte more.
    const std::size_t agreed = in_memory ? (n - 1) * (4 * 8 + (rank == 0 ? 1 : 0)) : 0;
    EXPECT_EQ(total.payload_sent, expected * sizeof(float) + agreed);
    EXPECT_LE(static_cast<double>(total.header_sent),
              0.01 * static_cast<double>(total.payload_sent));
  }
}

TEST(Allreduce, OrdersOfAdditionDifferSoTheOrderTestCanFail) {
  const Arrays arrays = Reals(5, 1000, 2);
  EXPECT_NE(RingOrderSum(arrays), SerialSum(arrays));
}

TEST(Allreduce, CallsFollowOneAnotherWithoutMixing) {
  Members members(Kind::kTcp, 3);
  const Meshes meshes = members.OpenAll(1);
  OnEachRank(3, [&](int rank) {
    Workspace workspace;
    for (std::uint64_t step = 0; step < 50; ++step) {
      for (std::uint32_t bucket = 0; bucket < 3; ++bucket) {
        const Communicator communicator{
            *meshes[rank], {step, kFirstBucketChannel + bucket}, Soon(), workspace};
        std::vector<float> data(100 * bucket + 7, static_cast<float>(step + bucket));
        const auto algorithm = bucket == 1 ? Algorithm::kNaive : Algorithm::kRing;
        ASSERT_EQ(Allreduce(algorithm, communicator, data), absl::OkStatus());
        ASSERT_THAT(data, Each(3 * static_cast<float>(step + bucket)));
      }
    }
  });
}

class RankFailure : public ::testing::TestWithParam<Algorithm> {};
INSTANTIATE_TEST_SUITE_P(All, RankFailure,
                         ::testing::Values(Algorithm::kNaive, Algorithm::kRing,
                                           Algorithm::kHalvingDoubling,
                                           Algorithm::kRecursiveDoubling, Algorithm::kTree),
                         [](const auto& test) { return std::string(NameOf(test.param)); });

TEST_P(RankFailure, DeathEndsTheCallOnEveryRankAndNamesTheDead) {
  Members members(Kind::kTcp, 4);
  Meshes meshes = members.OpenAll(1);
  std::vector<absl::Status> ended(4);
  OnEachRank(4, [&](int rank) {
    std::vector<float> data(3'000'000, 1);
    if (rank == 2) {  // dies with half a transfer on its way
      (void)meshes[2]->PostSend(3, kTag, std::as_bytes(std::span(data)));
      meshes[2].reset();
      return;
    }
    Workspace workspace;
    const Communicator communicator{*meshes[rank], kTag, Soon(), workspace};
    ended[rank] = Allreduce(GetParam(), communicator, data);
    data.assign(data.size(), 0);  // nobody else touches it any more: sanitizers would see
  });
  for (const int rank : {0, 1, 3}) {
    EXPECT_FALSE(ended[rank].ok()) << rank;
  }
  EXPECT_THAT(transport::UnreachableRanks(ended[1]), Contains(2));
}

TEST_P(RankFailure, SilenceEndsTheCallAtTheDeadline) {
  Members members(Kind::kInproc, 3);
  const Meshes meshes = members.OpenAll(1);
  std::vector<absl::Status> ended(3);
  OnEachRank(3, [&](int rank) {
    if (rank == 1) return;
    Workspace workspace;
    std::vector<float> data(1000, 1);
    const Communicator communicator{*meshes[rank], kTag,
                                    net::Deadline::After(absl::Milliseconds(50)), workspace};
    ended[rank] = Allreduce(GetParam(), communicator, data);
  });
  EXPECT_FALSE(ended[0].ok());
  EXPECT_FALSE(ended[2].ok());
}

TEST(Allreduce, LengthsThatDifferAreAnErrorNotACorruption) {
  Members members(Kind::kInproc, 2);
  const Meshes meshes = members.OpenAll(1);
  OnEachRank(2, [&](int rank) {
    Workspace workspace;
    std::vector<float> data(rank == 0 ? 10 : 12);
    const Communicator communicator{*meshes[rank], kTag, Soon(), workspace};
    EXPECT_FALSE(Allreduce(Algorithm::kNaive, communicator, data).ok());
  });
}

}  // namespace
}  // namespace starling::collectives
