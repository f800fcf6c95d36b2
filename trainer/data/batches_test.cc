// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/batches.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "gtest/gtest.h"

namespace starling::data {
namespace {

using Ids = std::vector<std::int64_t>;

Ids Epoch(const Batches& batches, std::int64_t epoch) {
  Ids ids;
  const std::int64_t steps = batches.StepsPerEpoch();
  for (std::int64_t step = (epoch - 1) * steps + 1; step <= epoch * steps; ++step) {
    const Ids batch = batches.SampleIds(step);
    ids.insert(ids.end(), batch.begin(), batch.end());
  }
  return ids;
}

Ids Sorted(Ids ids) {
  std::sort(ids.begin(), ids.end());
  return ids;
}

Ids UpTo(std::int64_t count) {
  Ids ids(static_cast<std::size_t>(count));
  std::iota(ids.begin(), ids.end(), 0);
  return ids;
}

TEST(Batches, EveryEpochUsesEverySampleOnceWhateverTheSizes) {
  for (const auto& [samples, batch] : std::vector<std::pair<std::int64_t, std::int64_t>>{
           {1, 1}, {1, 64}, {10, 3}, {64, 64}, {65, 64}, {1438, 64}}) {
    const Batches batches(samples, batch, /*seed=*/1);
    for (std::int64_t epoch = 1; epoch <= 3; ++epoch) {
      EXPECT_EQ(Sorted(Epoch(batches, epoch)), UpTo(samples)) << samples << "/" << batch;
    }
  }
}

TEST(Batches, EpochsAndSeedsHaveOrdersOfTheirOwn) {
  const Batches batches(100, 10, /*seed=*/1);
  EXPECT_NE(Epoch(batches, 1), Epoch(batches, 2));
  EXPECT_NE(Epoch(batches, 1), Epoch(Batches(100, 10, /*seed=*/2), 1));
  EXPECT_EQ(Epoch(batches, 1), Epoch(Batches(100, 10, /*seed=*/1), 1));
}

TEST(Batches, TheOrderDoesNotDependOnTheBatchSize) {
  EXPECT_EQ(Epoch(Batches(100, 7, 1), 2), Epoch(Batches(100, 64, 1), 2));
}

TEST(Batches, TheLastBatchIsShortAndEndsTheEpoch) {
  const Batches batches(10, 4, /*seed=*/1);
  EXPECT_EQ(batches.StepsPerEpoch(), 3);
  EXPECT_EQ(batches.At(3).epoch, 1);
  EXPECT_EQ(batches.At(3).positions, (Range{8, 10}));
  EXPECT_EQ(batches.At(4).epoch, 2);
  EXPECT_EQ(batches.At(4).positions, (Range{0, 4}));
}

TEST(Batches, SamplesAreCountedUpToAStep) {
  const Batches batches(10, 4, /*seed=*/1);
  EXPECT_EQ(batches.SamplesUpTo(0), 0);
  EXPECT_EQ(batches.SamplesUpTo(2), 8);
  EXPECT_EQ(batches.SamplesUpTo(3), 10);
  EXPECT_EQ(batches.SamplesUpTo(4), 14);
}

TEST(Batches, SharesOfAnyNumberOfMembersMakeTheBatchInOrder) {
  const Batches batches(1438, 64, /*seed=*/1);
  for (const std::int64_t step : {1, 22, 23}) {
    for (std::int64_t members = 1; members <= 100; ++members) {
      Ids together;
      for (std::int64_t i = 0; i < members; ++i) {
        const Ids ids = batches.SampleIds(step, Share(batches.BatchSize(step), i, members));
        together.insert(together.end(), ids.begin(), ids.end());
      }
      ASSERT_EQ(together, batches.SampleIds(step)) << members;
    }
  }
}

TEST(Batches, SharesDifferByAtMostOneSample) {
  for (std::int64_t members = 1; members <= 70; ++members) {
    std::int64_t smallest = 64;
    std::int64_t largest = 0;
    for (std::int64_t i = 0; i < members; ++i) {
      smallest = std::min(smallest, Share(64, i, members).size());
      largest = std::max(largest, Share(64, i, members).size());
    }
    EXPECT_LE(largest - smallest, 1);
  }
}

TEST(Groups, DependOnTheBatchAloneAndEachHasOneOwner) {
  for (std::int64_t batch = 1; batch <= 100; ++batch) {
    const std::int64_t groups = GroupCount(batch);
    EXPECT_EQ(groups, std::min<std::int64_t>(batch, 16));
    std::int64_t end = 0;
    for (std::int64_t g = 0; g < groups; ++g) {
      EXPECT_EQ(Group(batch, g).begin, end);
      EXPECT_GE(Group(batch, g).size(), 1);
      end = Group(batch, g).end;
    }
    EXPECT_EQ(end, batch);
  }
}

TEST(Batches, AnAuditLineHasEpochStepAndAllSamples) {
  EXPECT_EQ(Batches(1, 4, /*seed=*/1).AuditLine(7), R"({"epoch":7,"step":7,"samples":[0]})");
  const Ids ids = Batches(9, 2, /*seed=*/1).SampleIds(6);
  EXPECT_EQ(Batches(9, 2, /*seed=*/1).AuditLine(6), "{\"epoch\":2,\"step\":6,\"samples\":[" +
                                                        std::to_string(ids[0]) + "," +
                                                        std::to_string(ids[1]) + "]}");
}

TEST(Batches, TheOrderIsTheOneThatEarlierReleasesHad) {
  // Checkpoints go on in the middle of an epoch: a change of these numbers breaks them.
  EXPECT_EQ(Epoch(Batches(8, 8, /*seed=*/1), 1), (Ids{2, 6, 7, 3, 4, 0, 1, 5}));
}

}  // namespace
}  // namespace starling::data
