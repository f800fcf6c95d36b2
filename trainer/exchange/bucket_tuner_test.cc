// SPDX-License-Identifier: Apache-2.0
#include "trainer/exchange/bucket_tuner.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <random>
#include <set>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace starling::exchange {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

constexpr std::size_t kMega = std::size_t{1} << 20;

using Took = std::function<std::int64_t(const BucketTuner&)>;

// Plays a view until a size is chosen; how many steps that takes.
int Play(BucketTuner& tuner, const Took& took) {
  tuner.Begin(true);
  int steps = 0;
  std::int64_t before = -1;  // a first step's is not to be looked at
  while (tuner.trying()) {
    const std::int64_t now = took(tuner);
    tuner.Ended(before);
    before = now;
    ++steps;
  }
  return steps;
}

// Each sum costs `each`, and what is summed up last, which nothing hides, its bytes.
Took Costs(const std::vector<std::size_t>& buckets, std::int64_t each, std::int64_t mega) {
  return [=](const BucketTuner& tuner) {
    const auto last = tuner.merged().back().Of(std::span(buckets));
    const std::size_t bytes = std::accumulate(last.begin(), last.end(), std::size_t{0});
    return each * static_cast<std::int64_t>(tuner.merged().size()) +
           mega * static_cast<std::int64_t>(bytes / kMega);
  };
}

TEST(BucketTuner, MergesNeighboursUntilTheyHaveTheSizeThatIsTried) {
  BucketTuner tuner({kMega, kMega, 3 * kMega, kMega, kMega / 2});
  tuner.Begin(true);
  std::set<std::vector<ranges::Range<int>>> tried;
  for (int step = 0; tuner.trying(); ++step) {
    tried.insert(tuner.merged());
    tuner.Ended(1);
  }
  using Merged = std::vector<ranges::Range<int>>;
  EXPECT_THAT(tried,
              ElementsAre(Merged{{0, 1}, {1, 2}, {2, 3}, {3, 4}, {4, 5}},
                          Merged{{0, 2}, {2, 3}, {3, 5}}, Merged{{0, 3}, {3, 5}}, Merged{{0, 5}}));
}

TEST(BucketTuner, EveryPlanHasAllBucketsInOrder) {
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    std::vector<std::size_t> buckets(1 + random() % 90);
    for (std::size_t& bytes : buckets) bytes = random() % 5 == 0 ? random() % (40 * kMega) : kMega;
    BucketTuner tuner(buckets);
    Play(tuner, [&](const BucketTuner& now) {
      int next = 0;
      for (const ranges::Range<int>& some : now.merged()) {
        EXPECT_EQ(some.begin, next);
        EXPECT_GT(some.end, some.begin);
        next = some.end;
      }
      EXPECT_EQ(next, static_cast<int>(buckets.size()));
      return std::int64_t{1};
    });
  }
}

TEST(BucketTuner, ChoosesLargeSumsWhereEachCostsMuchAndSmallOnesWhereItCostsNothing) {
  const std::vector<std::size_t> buckets(64, kMega);
  BucketTuner tuner(buckets);
  Play(tuner, Costs(buckets, 1000, 1));
  EXPECT_EQ(tuner.chosen(), 64 * kMega);
  EXPECT_THAT(tuner.merged(), SizeIs(1));
  Play(tuner, Costs(buckets, 1, 1000));
  EXPECT_EQ(tuner.chosen(), kMega);
  EXPECT_THAT(tuner.merged(), SizeIs(64));
  Play(tuner, Costs(buckets, 100, 100));  // 100 (64 / n + n) is least for n of 8
  EXPECT_EQ(tuner.chosen(), 8 * kMega);
}

TEST(BucketTuner, ALargerSizeMustBeWorthIt) {
  const std::vector<std::size_t> buckets(2, kMega);
  BucketTuner tuner(buckets);
  const auto merged_takes = [](std::int64_t time) {
    return [time](const BucketTuner& now) {
      return now.merged().size() == 1 ? time : std::int64_t{1000};
    };
  };
  Play(tuner, merged_takes(981));
  EXPECT_EQ(tuner.chosen(), kMega);
  Play(tuner, merged_takes(979));
  EXPECT_EQ(tuner.chosen(), 2 * kMega);
}

TEST(BucketTuner, DisturbedStepsDoNotDecide) {
  const std::vector<std::size_t> buckets(64, kMega);
  const Took calm = Costs(buckets, 100, 100);
  BucketTuner tuner(buckets);
  std::mt19937 random(1);
  for (int round = 0; round < 100; ++round) {
    int step = 0;
    const int first = static_cast<int>(random() % 40);
    Play(tuner, [&](const BucketTuner& now) {
      // The first steps are slow, and so are a dozen on the way.
      const bool disturbed = step < 3 || (step >= first && step < first + 12);
      ++step;
      return calm(now) * (disturbed ? 50 : 1);
    });
    EXPECT_EQ(tuner.chosen(), 8 * kMega) << first;
  }
}

TEST(BucketTuner, WhereThereIsNothingToChooseNothingIsTried) {
  for (const std::vector<std::size_t>& buckets :
       {std::vector<std::size_t>{}, {0}, {40 * kMega}, {70 * kMega, 80 * kMega}, {1000, 20}}) {
    BucketTuner tuner(buckets);
    tuner.Begin(true);
    EXPECT_FALSE(tuner.trying());
    EXPECT_EQ(tuner.chosen(), 0);
    EXPECT_THAT(tuner.merged(), SizeIs(buckets.size()));
  }
}

TEST(BucketTuner, AViewWithoutTuningForgetsWhatWasChosen) {
  const std::vector<std::size_t> buckets(4, kMega);
  BucketTuner tuner(buckets);
  EXPECT_THAT(tuner.merged(), SizeIs(4));
  EXPECT_FALSE(tuner.trying());
  Play(tuner, Costs(buckets, 1000, 1));
  EXPECT_THAT(tuner.merged(), SizeIs(1));
  tuner.Begin(false);
  EXPECT_THAT(tuner.merged(), SizeIs(4));
  EXPECT_EQ(tuner.chosen(), 0);
  EXPECT_FALSE(tuner.trying());
}

TEST(BucketTuner, ItIsDecidedAfterAsManyStepsAsTheSizesNeed) {
  BucketTuner two(std::vector<std::size_t>(2, kMega));
  EXPECT_EQ(Play(two, [](const BucketTuner&) { return 1; }), 3 + 7 * 2 + 1);
  BucketTuner seven(std::vector<std::size_t>(200, kMega));
  EXPECT_EQ(Play(seven, [](const BucketTuner&) { return 1; }), 3 + 7 * 7 + 1);
}

}  // namespace
}  // namespace starling::exchange
