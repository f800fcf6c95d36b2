// SPDX-License-Identifier: Apache-2.0
#include "common/random/permutation.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <numeric>
#include <vector>

#include "gtest/gtest.h"

namespace starling::random {
namespace {

std::vector<std::uint64_t> Whole(const Permutation& permutation) {
  std::vector<std::uint64_t> values(permutation.size());
  for (std::uint64_t i = 0; i < values.size(); ++i) values[i] = permutation.At(i);
  return values;
}

bool IsBijection(std::vector<std::uint64_t> values) {
  std::sort(values.begin(), values.end());
  for (std::uint64_t i = 0; i < values.size(); ++i) {
    if (values[i] != i) return false;
  }
  return true;
}

TEST(Permutation, IsABijectionForEverySmallSizeAndSomeLargeOnes) {
  for (std::uint64_t size = 1; size <= 600; ++size) {
    ASSERT_TRUE(IsBijection(Whole(Permutation(1, size % 5, size)))) << size;
  }
  for (const std::uint64_t size : {1438, 4095, 4096, 4097, 65537, 1'000'003}) {
    ASSERT_TRUE(IsBijection(Whole(Permutation(9, 2, size)))) << size;
  }
}

TEST(Permutation, TheBijectionCheckCanFail) {
  std::vector<std::uint64_t> values = Whole(Permutation(1, 1, 100));
  values[3] = values[4];
  EXPECT_FALSE(IsBijection(values));
}

TEST(Permutation, StaysInRangeForHugeSizes) {
  const std::uint64_t size = (std::uint64_t{1} << 40) + 12345;
  const Permutation permutation(1, 1, size);
  for (std::uint64_t i = 0; i < 1000; ++i) EXPECT_LT(permutation.At(size - 1 - i), size);
}

TEST(Permutation, DependsOnSeedAndEpochAndOnNothingElse) {
  EXPECT_EQ(Whole(Permutation(1, 2, 500)), Whole(Permutation(1, 2, 500)));
  EXPECT_NE(Whole(Permutation(1, 2, 500)), Whole(Permutation(1, 3, 500)));
  EXPECT_NE(Whole(Permutation(1, 2, 500)), Whole(Permutation(2, 2, 500)));
}

TEST(Permutation, EveryOrderOfFourIsAboutAsLikely) {
  std::map<std::vector<std::uint64_t>, int> seen;
  constexpr int kEpochs = 24'000;
  for (int epoch = 0; epoch < kEpochs; ++epoch) ++seen[Whole(Permutation(5, epoch, 4))];
  ASSERT_EQ(seen.size(), 24u);
  for (const auto& [order, count] : seen) EXPECT_NEAR(count, kEpochs / 24.0, 160);
}

TEST(Permutation, EverySampleVisitsEveryPlaceEquallyOften) {
  constexpr int kSize = 37;
  constexpr int kEpochs = 20'000;
  std::vector<int> counts(kSize * kSize);
  for (int epoch = 0; epoch < kEpochs; ++epoch) {
    const Permutation permutation(11, epoch, kSize);
    for (int i = 0; i < kSize; ++i) ++counts[i * kSize + static_cast<int>(permutation.At(i))];
  }
  const double expected = static_cast<double>(kEpochs) / kSize;
  double chi_square = 0;
  for (const int count : counts) chi_square += (count - expected) * (count - expected) / expected;
  // 36 * 36 degrees of freedom: mean 1296, standard deviation 51.
  EXPECT_LT(chi_square, 1296 + 5 * 51);
}

TEST(Permutation, NeighboursAreScattered) {
  constexpr std::int64_t kSize = 10'000;
  const Permutation permutation(1, 1, kSize);
  std::int64_t distance = 0;
  for (std::int64_t i = 0; i + 1 < kSize; ++i) {
    distance += std::llabs(static_cast<std::int64_t>(permutation.At(i + 1)) -
                           static_cast<std::int64_t>(permutation.At(i)));
  }
  // Two independent places are kSize / 3 apart on average.
  EXPECT_NEAR(static_cast<double>(distance) / kSize, kSize / 3.0, 100);
}

}  // namespace
}  // namespace starling::random
