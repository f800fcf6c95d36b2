// SPDX-License-Identifier: Apache-2.0
#include "trainer/parameter_server/factors.h"

#include <gmock/gmock.h>

#include <random>

#include "trainer/testing/shard_testing.h"

namespace starling::parameter_server {
namespace {

using shard_testing::C;
using shard_testing::Floats;
using shard_testing::FloatsOf;
using shard_testing::Keys;
using shard_testing::OptionsOf;
using shard_testing::PushOf;
using shard_testing::Table;

constexpr std::uint64_t kRank = 3;

// Owns what its update points to.
struct Made {
  Keys keys;
  Floats values;
  Floats gradient;
  Update update() const {
    return {UpdateKind::kFactors, kRank, 0, gradient.size(), keys, values, {}};
  }
};

class Numbers {
 public:
  explicit Numbers(unsigned seed) : random_(seed) {}
  float Next() { return normal_(random_); }
  std::uint64_t Below(std::uint64_t end) { return random_() % end; }

 private:
  std::mt19937 random_;
  std::normal_distribution<float> normal_;
};

// A part of a matrix that begins and ends anywhere.
void AddProduct(Numbers& numbers, Made& made) {
  const std::uint64_t columns = 1 + numbers.Below(9), offset = numbers.Below(columns);
  const Stretch stretch{numbers.Below(40), columns, offset};
  const std::size_t from = made.values.size();
  for (std::uint64_t i = 0; i < stretch.values(kRank); ++i) made.values.push_back(numbers.Next());
  made.keys.insert(made.keys.end(), {stretch.elements, columns, offset});
  const std::size_t v = from + kRank * stretch.rows();
  for (std::uint64_t i = offset; i < offset + stretch.elements; ++i) {
    float sum = 0;
    for (std::uint64_t k = 0; k < kRank; ++k) {
      sum += made.values[from + k * stretch.rows() + i / columns] *
             made.values[v + k * columns + i % columns];
    }
    made.gradient.push_back(sum);
  }
}

void AddPlain(Numbers& numbers, Made& made) {
  const std::uint64_t elements = numbers.Below(20);
  made.keys.insert(made.keys.end(), {elements, 0, 0});
  for (std::uint64_t i = 0; i < elements; ++i) {
    made.values.push_back(numbers.Next());
    made.gradient.push_back(made.values.back());
  }
}

Made RandomGradient(unsigned seed) {
  Numbers numbers(seed);
  Made made;
  for (std::uint64_t i = numbers.Below(6) + 1; i > 0; --i) {
    numbers.Below(2) == 0 ? AddPlain(numbers, made) : AddProduct(numbers, made);
  }
  return made;
}

TEST(Factors, StretchesThatBeginAndEndAnywhereAddWhatTheGradientWould) {
  for (unsigned seed = 0; seed < 300; ++seed) {
    const Made made = RandomGradient(seed);
    ShardState shard(OptionsOf(Table(TableKind::kDense, made.gradient.size(), 1)));
    shard.OnView({C(0)});
    const Entry entry = PushOf(C(0), 1, made.update());
    ASSERT_TRUE(shard.Check(entry).ok()) << shard.Check(entry).status();
    shard.Append(entry);
    EXPECT_THAT(FloatsOf(shard.Read({0, made.gradient.size(), {}})),
                ::testing::Pointwise(::testing::FloatNear(1e-5F), made.gradient))
        << seed;
  }
}

TEST(Factors, CountsThatDoNotFitAreRefused) {
  constexpr std::uint64_t kHuge = ~std::uint64_t{0};
  const Floats values(10, 1.0F);
  // Six elements of two columns: three rows, so 3 + 2 values for the one pair; and five plain.
  const Keys good = {6, 2, 0, 5, 0, 0};
  const auto refused = [&](const Keys& keys, std::uint32_t rank, std::uint64_t rows) {
    return !StretchesOf({UpdateKind::kFactors, rank, 0, rows, keys, values, {}}, 1).ok();
  };
  EXPECT_FALSE(refused(good, 1, 11));
  EXPECT_TRUE(refused(good, 1, 12)) << "a row that no stretch holds";
  EXPECT_TRUE(refused(good, 1, 10));
  EXPECT_TRUE(refused(good, 2, 11)) << "more pairs than values";
  EXPECT_TRUE(refused(good, 0, 11));
  EXPECT_TRUE(refused(good, ~std::uint32_t{0}, 11));
  EXPECT_TRUE(refused({6, 2, 0, 5, 0}, 1, 11)) << "half a stretch";
  EXPECT_TRUE(refused({6, 2, 2, 5, 0, 0}, 1, 11)) << "it begins behind the row's end";
  EXPECT_TRUE(refused({6, 2, 0, 5, 0, 1}, 1, 11)) << "a plain one has no columns to leave out";
  EXPECT_TRUE(refused({6, kHuge, 0, 5, 0, 0}, 1, 11));
  EXPECT_TRUE(refused({6, kHuge, kHuge - 1, 5, 0, 0}, 1, 11));
  EXPECT_TRUE(refused({kHuge, 2, 0, 5, 0, 0}, 1, 11));
  EXPECT_TRUE(refused({6, 2, 0, kHuge, 0, 0}, 1, 11));
  EXPECT_TRUE(refused({}, 1, 11)) << "as one product of the table's width it has other sizes";
  EXPECT_TRUE(refused({6, 2, 0, 4, 0, 0}, 1, 10)) << "a value that no stretch takes";
  EXPECT_TRUE(refused({6, 2, 0, 5, 0, 0, 0, 0}, 1, 11)) << "a stretch and a part of one";
  EXPECT_FALSE(refused({0, 10, 0}, 1, 0)) << "a stretch may have no element";
  EXPECT_FALSE(StretchesOf({UpdateKind::kRange, 1, 0, 11, good, values, {}}, 1).ok());
  EXPECT_EQ((Stretch{5, 0, 0}).rows(), 0U) << "a plain one touches none";
}

// Each of these would fit if a sum or a product that is larger than 64 bits were believed.
TEST(Factors, NoCountRunsOverIntoOneThatFits) {
  constexpr std::uint64_t kHuge = ~std::uint64_t{0}, kHalf = std::uint64_t{1} << 63;
  const Floats values(10, 1.0F);
  const auto refused = [&](const Keys& keys, std::uint32_t rank, std::uint64_t rows) {
    return !StretchesOf({UpdateKind::kFactors, rank, 0, rows, keys, values, {}}, 1).ok();
  };
  EXPECT_FALSE(refused({6, 2, 0, 5, 0, 0}, 1, 11));
  EXPECT_TRUE(refused({6, 2, 2, 4, 0, 0}, 1, 10)) << "the offset is a whole row";
  EXPECT_TRUE(refused({12, 0, 0, kHalf - 2, 1, 0}, 2, kHalf + 10)) << "plain values";
  EXPECT_TRUE(refused({1, kHuge, 0, 10, 0, 0}, 1, 11)) << "columns";
  EXPECT_TRUE(refused({kHuge, 1, 0, 0, 10, 0}, 1, kHuge)) << "rows";
  EXPECT_TRUE(refused({6, 2, 0, kHuge - 49, 0, 0}, 12, kHuge - 43)) << "values of a product";
  EXPECT_TRUE(refused({2, 1, 0, kHuge, 4, 3, 0, 2, 0}, 1, 1)) << "elements";
}

}  // namespace
}  // namespace starling::parameter_server
