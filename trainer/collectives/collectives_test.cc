// SPDX-License-Identifier: Apache-2.0
// Collectives over real links, for every type and operation, against a serial loop; what a schedule
// says is what the ledger of the mesh counts.
#include "trainer/collectives/collectives.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include "common/ranges/ranges.h"
#include "common/status/macros.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/buffer/number_format.h"
#include "trainer/collectives/allreduce.h"
#include "trainer/collectives/schedule.h"
#include "trainer/testing/simulate_schedule.h"
#include "trainer/testing/transports.h"

namespace starling::collectives {
namespace {

using ::starling::transport::testing::Kind;
using ::starling::transport::testing::Members;
using ::starling::transport::testing::OnEachRank;
using ::starling::transport::testing::Soon;
using ::testing::Contains;
using ::testing::Each;
using ::testing::HasSubstr;

constexpr transport::Tag kTag{1, kFirstBucketChannel};
using Meshes = std::vector<std::unique_ptr<transport::Mesh>>;
using Body = std::function<absl::Status(const Communicator& communicator)>;

// `body` as every rank; all must succeed.
void AsEachRank(const Meshes& meshes, const Body& body) {
  OnEachRank(static_cast<int>(meshes.size()), [&](int rank) {
    Workspace workspace;
    EXPECT_EQ(body({*meshes[rank], kTag, Soon(), workspace}), absl::OkStatus());
  });
}

// --- Types and operations.

// Small integers as a T, and back: exact in every type, so that any order gives the same bits.
template <typename T>
T FromInteger(int value) {
  if constexpr (std::is_arithmetic_v<T>) {
    return static_cast<T>(value);
  } else {
    const float number = static_cast<float>(value);
    T encoded;
    if constexpr (std::is_same_v<T, buffer::Float16>) {
      buffer::EncodeFloat16(std::span(&number, 1), std::span(&encoded, 1));
    } else {
      buffer::EncodeBFloat16(std::span(&number, 1), std::span(&encoded, 1));
    }
    return encoded;
  }
}

int ValueOf(int rank, std::size_t i, ReduceOp op) {
  const int value = static_cast<int>((static_cast<std::size_t>(rank) * 7 + i * 3) % 9) - 4;
  if (op != ReduceOp::kProduct) return value;
  return value < 0 ? -1 : rank % 8 == 0 ? 2 : 1;  // not more than 2^3 in all
}

int Expected(int ranks, std::size_t i, ReduceOp op) {
  int result = ValueOf(0, i, op);
  for (int rank = 1; rank < ranks; ++rank) {
    const int value = ValueOf(rank, i, op);
    switch (op) {
      case ReduceOp::kSum:
      case ReduceOp::kAverage:
        result += value;
        break;
      case ReduceOp::kMinimum:
        result = std::min(result, value);
        break;
      case ReduceOp::kMaximum:
        result = std::max(result, value);
        break;
      case ReduceOp::kProduct:
        result *= value;
        break;
    }
  }
  return result;
}

template <typename T>
T ExpectedAs(int ranks, std::size_t i, ReduceOp op) {
  const int result = Expected(ranks, i, op);
  if (op != ReduceOp::kAverage) return FromInteger<T>(result);
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(result / ranks);
  } else if constexpr (std::is_floating_point_v<T>) {
    return static_cast<T>(result) / static_cast<T>(ranks);
  } else {
    const float number = static_cast<float>(result) / static_cast<float>(ranks);
    T encoded;
    if constexpr (std::is_same_v<T, buffer::Float16>) {
      buffer::EncodeFloat16(std::span(&number, 1), std::span(&encoded, 1));
    } else {
      buffer::EncodeBFloat16(std::span(&number, 1), std::span(&encoded, 1));
    }
    return encoded;
  }
}

template <typename T>
class EachType : public ::testing::Test {};
using Types = ::testing::Types<float, double, std::int8_t, std::int32_t, std::int64_t,
                               buffer::Float16, buffer::BFloat16>;
TYPED_TEST_SUITE(EachType, Types);

constexpr ReduceOp kOps[] = {ReduceOp::kSum, ReduceOp::kMinimum, ReduceOp::kMaximum,
                             ReduceOp::kProduct, ReduceOp::kAverage};

TYPED_TEST(EachType, IsReducedBitForBitByEveryOperationAndAlgorithm) {
  constexpr std::size_t kLength = 1031;
  for (const int ranks : {1, 2, 3, 4, 7}) {
    Members members(Kind::kShm, ranks);
    const Meshes meshes = members.OpenAll(1);
    for (const Algorithm algorithm :
         {Algorithm::kNaive, Algorithm::kRing, Algorithm::kHalvingDoubling,
          Algorithm::kRecursiveDoubling, Algorithm::kTree, Algorithm::kSharedMemory}) {
      for (const ReduceOp op : kOps) {
        AsEachRank(meshes, [&](const Communicator& communicator) {
          std::vector<TypeParam> data;
          for (std::size_t i = 0; i < kLength; ++i) {
            data.push_back(FromInteger<TypeParam>(ValueOf(communicator.rank(), i, op)));
          }
          const absl::Status reduced = Allreduce(algorithm, communicator, data, op);
          bool right = true;
          for (std::size_t i = 0; i < kLength; ++i) {
            right = right && data[i] == ExpectedAs<TypeParam>(ranks, i, op);
          }
          EXPECT_TRUE(right) << ranks << " ranks, algorithm " << static_cast<int>(algorithm)
                             << ", operation " << static_cast<int>(op);
          return reduced;
        });
      }
    }
  }
}

constexpr Algorithm kInFrames[] = {Algorithm::kNaive, Algorithm::kRing, Algorithm::kHalvingDoubling,
                                   Algorithm::kRecursiveDoubling, Algorithm::kTree};
constexpr int kMostRanks = 17;

TYPED_TEST(EachType, IsSummedBitForBitByAnyNumberOfRanksForLengthsAroundIt) {
  for (int ranks = 1; ranks <= kMostRanks; ++ranks) {
    Members members(Kind::kInproc, ranks);
    const Meshes meshes = members.OpenAll(1);
    AsEachRank(meshes, [&](const Communicator& communicator) -> absl::Status {
      const auto n = static_cast<std::size_t>(ranks);
      for (const std::size_t length : {std::size_t{0}, std::size_t{1}, n - 1, n + 1, 37 * n + 5}) {
        for (const Algorithm algorithm : kInFrames) {
          std::vector<TypeParam> data, sum;
          for (std::size_t i = 0; i < length; ++i) {
            data.push_back(FromInteger<TypeParam>(ValueOf(communicator.rank(), i, ReduceOp::kSum)));
            sum.push_back(ExpectedAs<TypeParam>(ranks, i, ReduceOp::kSum));
          }
          RETURN_IF_ERROR(Allreduce(algorithm, communicator, data));
          EXPECT_TRUE(data == sum) << NameOf(algorithm) << ", " << ranks << ", " << length;
        }
      }
      return absl::OkStatus();
    });
  }
}

TEST(ReduceOp, IntegersWrapAround) {
  std::vector<std::int8_t> x = {127, -128, 100}, y = {1, -1, 3};
  const auto sum = ReducerOf(ReduceOp::kSum, buffer::DType::kI8);
  sum->combine(x.data(), y.data(), 3);
  EXPECT_EQ(y, (std::vector<std::int8_t>{-128, 127, 103}));
  std::vector<std::int64_t> a = {std::int64_t{1} << 62}, b = {4};
  ReducerOf(ReduceOp::kProduct, buffer::DType::kI64)->combine(a.data(), b.data(), 1);
  EXPECT_EQ(b[0], 0);
}

TEST(ReduceOp, TypesWithoutArithmeticAreRefusedByName) {
  const auto refused = ReducerOf(ReduceOp::kSum, buffer::DType::kBool);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(refused.status().message(), HasSubstr("BOOL"));
}

// --- The others, over links.

class CollectivesTest : public ::testing::TestWithParam<Kind> {};
INSTANTIATE_TEST_SUITE_P(Kinds, CollectivesTest,
                         ::testing::Values(Kind::kTcp, Kind::kInproc, Kind::kShm),
                         [](const auto& kind) { return KindName(kind.param); });

std::vector<std::int64_t> Mine(int rank, std::size_t length) {
  std::vector<std::int64_t> data(length);
  for (std::size_t i = 0; i < length; ++i) data[i] = rank * 1'000'000 + static_cast<int>(i);
  return data;
}

std::vector<std::int64_t> Sum(int ranks, std::size_t length) {
  std::vector<std::int64_t> sum(length);
  for (int rank = 0; rank < ranks; ++rank) {
    const auto mine = Mine(rank, length);
    std::transform(mine.begin(), mine.end(), sum.begin(), sum.begin(), std::plus<>());
  }
  return sum;
}

// Part i is rank i's own.
std::vector<std::int64_t> PartsOfAll(int ranks, std::size_t length) {
  std::vector<std::int64_t> all(length);
  for (int rank = 0; rank < ranks; ++rank) {
    const Elements part = EvenParts(length, ranks)(rank);
    const auto mine = Mine(rank, length);
    std::ranges::copy(part.Of(std::span(mine)),
                      all.begin() + static_cast<std::ptrdiff_t>(part.begin));
  }
  return all;
}

TEST_P(CollectivesTest, GiveWhatASerialLoopGives) {
  for (const int ranks : {1, 2, 3, 5, 8}) {
    Members members(GetParam(), ranks);
    const Meshes meshes = members.OpenAll(1);
    const auto n = static_cast<std::size_t>(ranks);
    // More than a piece, too: every transfer is cut.
    for (const std::size_t length : {std::size_t{0}, n - 1, 3 * n, 100'000 * n}) {
      const int root = ranks / 2;
      AsEachRank(meshes, [&](const Communicator& communicator) {
        const int rank = communicator.rank();
        const Elements own = EvenParts(length, ranks)(rank);
        const auto sum = Sum(ranks, length);
        const auto own_of = [&](const std::vector<std::int64_t>& data) {
          const auto part = own.Of(std::span(data));
          return std::vector<std::int64_t>(part.begin(), part.end());
        };

        auto data = Mine(rank, length);
        EXPECT_EQ(ReduceScatter(communicator, data, ReduceOp::kSum), absl::OkStatus());
        EXPECT_TRUE(own_of(data) == own_of(sum));

        data = Mine(rank, length);
        EXPECT_EQ(Allgather(communicator, data), absl::OkStatus());
        EXPECT_TRUE(data == PartsOfAll(ranks, length));

        data = Mine(rank, length);
        EXPECT_EQ(Broadcast(communicator, data, root), absl::OkStatus());
        EXPECT_TRUE(data == Mine(root, length));

        data = Mine(rank, length);
        EXPECT_EQ(Reduce(communicator, data, ReduceOp::kSum, root), absl::OkStatus());
        EXPECT_TRUE(rank != root || data == sum);

        data = Mine(rank, length);
        EXPECT_EQ(Gather(communicator, data, root), absl::OkStatus());
        EXPECT_TRUE(rank != root || data == PartsOfAll(ranks, length));

        data = Mine(rank, length);
        EXPECT_EQ(Scatter(communicator, data, root), absl::OkStatus());
        EXPECT_TRUE(own_of(data) == own_of(Mine(root, length)));
        return absl::OkStatus();
      });
    }
  }
}

TEST_P(CollectivesTest, AllToAllTransposesTheParts) {
  for (const int ranks : {1, 2, 3, 5}) {
    Members members(GetParam(), ranks);
    const Meshes meshes = members.OpenAll(1);
    const std::size_t part = 40'000;
    AsEachRank(meshes, [&](const Communicator& communicator) {
      const auto from = Mine(communicator.rank(), part * static_cast<std::size_t>(ranks));
      std::vector<std::int64_t> to(from.size(), -1);
      const absl::Status sent = AllToAll(communicator, from, to);
      for (int peer = 0; peer < ranks; ++peer) {
        const auto theirs = Mine(peer, from.size());
        const Elements mine = EvenParts(from.size(), ranks)(communicator.rank());
        EXPECT_TRUE(std::ranges::equal(EvenParts(from.size(), ranks)(peer).Of(std::span(to)),
                                       mine.Of(std::span(theirs))));
      }
      return sent;
    });
  }
}

TEST_P(CollectivesTest, AllgatherVTakesPartsOfAnySize) {
  Members members(GetParam(), 4);
  const Meshes meshes = members.OpenAll(1);
  const std::vector<std::size_t> counts = {0, 100'000, 1, 7};
  AsEachRank(meshes, [&](const Communicator& communicator) {
    std::vector<std::int32_t> data(100'008, -1);
    std::vector<std::int32_t> expected;
    for (int rank = 0; rank < 4; ++rank) {
      if (rank == communicator.rank()) {
        std::fill_n(data.begin() + static_cast<std::ptrdiff_t>(expected.size()), counts[rank],
                    rank);
      }
      expected.insert(expected.end(), counts[rank], rank);
    }
    const absl::Status gathered = AllgatherV(communicator, data, counts);
    EXPECT_TRUE(data == expected);
    return gathered;
  });
}

TEST_P(CollectivesTest, NobodyLeavesABarrierBeforeTheLastHasCome) {
  Members members(GetParam(), 5);
  const Meshes meshes = members.OpenAll(1);
  std::atomic<int> came{0};
  for (int round = 0; round < 5; ++round) {
    AsEachRank(meshes, [&](const Communicator& communicator) {
      if (communicator.rank() == round) {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
      }
      ++came;
      const absl::Status passed = Barrier(communicator);
      EXPECT_GE(came.load(), 5 * (round + 1));
      return passed;
    });
  }
}

TEST(Collectives, CallsThatMakeNoSenseAreRefusedBeforeAnythingTravels) {
  Members members(Kind::kInproc, 2);
  const Meshes meshes = members.OpenAll(1);
  AsEachRank(meshes, [&](const Communicator& communicator) {
    std::vector<float> data(5), to(4);
    const std::vector<std::size_t> counts = {2, 2};
    for (const absl::Status& refused :
         {Broadcast(communicator, data, 2), Broadcast(communicator, data, -1),
          Gather(communicator, data, 7), Scatter(communicator, data, 7),
          Reduce(communicator, data, ReduceOp::kSum, 2), AllgatherV(communicator, data, counts),
          AllToAll(communicator, data, to), AllToAll(communicator, data, data)}) {
      EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << refused;
    }
    return Barrier(communicator);  // nothing is left over that it could trip on
  });
}

// The formulas of schedule_test.cc are those of the plans; these are the bytes on the links.
TEST(Collectives, SendTheBytesOfTheirSchedulesForAnyNumberOfRanks) {
  constexpr std::size_t kLength = 70'001;
  const std::pair<Algorithm, Schedule (*)(Place, std::size_t)> plans[] = {
      {Algorithm::kRing, RingAllreducePlan},
      {Algorithm::kHalvingDoubling, HalvingDoublingPlan},
      {Algorithm::kRecursiveDoubling, RecursiveDoublingPlan},
      {Algorithm::kTree, TreePlan}};
  for (int ranks = 2; ranks <= kMostRanks; ++ranks) {
    Members members(Kind::kInproc, ranks);
    std::uint64_t view = 0;
    for (const auto& [algorithm, plan] : plans) {
      const Meshes meshes = members.OpenAll(++view);
      AsEachRank(meshes, [&, algorithm = algorithm](const Communicator& communicator) {
        std::vector<float> data(kLength, 1);
        return Allreduce(algorithm, communicator, data);
      });
      for (int rank = 0; rank < ranks; ++rank) {
        transport::Traffic sent;
        for (int peer = 0; peer < ranks; ++peer) {
          if (peer != rank) sent += meshes[rank]->traffic(peer);
        }
        EXPECT_EQ(sent.payload_sent,
                  testing::ElementsSent(plan({ranks, rank}, kLength)) * sizeof(float))
            << NameOf(algorithm) << ", " << ranks;
        EXPECT_LE(100 * sent.header_sent, sent.payload_sent) << NameOf(algorithm) << ", " << ranks;
      }
    }
  }
}

TEST(Collectives, ADeadRankEndsThemEverywhere) {
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
    while (ended[rank].ok()) ended[rank] = Allgather(communicator, data);
    data.assign(data.size(), 0);  // nobody else touches it any more: sanitizers would see
  });
  for (const int rank : {0, 1, 3}) EXPECT_FALSE(ended[rank].ok()) << rank;
  EXPECT_THAT(transport::UnreachableRanks(ended[1]), Contains(2));
}

}  // namespace
}  // namespace starling::collectives
