// SPDX-License-Identifier: Apache-2.0
#include "trainer/workload/hogwild.h"

#include <algorithm>
#include <atomic>
#include <numeric>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/testing/count_workload.h"
#include "trainer/testing/random_samples.h"
#include "trainer/workload/sparse_logistic_regression.h"

namespace starling::workload {
namespace {

using ::testing::Each;
using ::testing::SizeIs;

constexpr std::uint64_t kFeatures = 2000;
constexpr std::size_t kPerSample = 10;  // 0.5 %
constexpr std::size_t kSamples = 20000;

std::shared_ptr<const data::SparseDataset> Samples() {
  return RandomSamples(kSamples, kFeatures, kPerSample);
}

std::vector<std::int64_t> Numbers(std::size_t count) {
  std::vector<std::int64_t> numbers(count);
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

double LossWith(int threads, const std::shared_ptr<const data::SparseDataset>& samples) {
  SparseLogisticRegression workload(samples, samples, 0);
  Hogwild hogwild(workload, threads);
  const std::vector<std::int64_t> all = Numbers(kSamples);
  double rate = 0.1;
  for (int pass = 0; pass < 5; ++pass, rate *= 0.9) {
    hogwild.Work(all, workload.AllRows(), rate);
  }
  return MeansOf(*workload.Evaluate(0, kSamples), workload.declaration())[0];
}

TEST(Hogwild, TwoThreadsReachTheSerialLossWithinOnePercent) {
  const auto samples = Samples();
  const double serial = LossWith(1, samples);
  EXPECT_LT(serial, 0.4) << "it does learn: a coin's loss is 0.69";
  EXPECT_NEAR(LossWith(2, samples), serial, 0.01 * serial);
}

TEST(Hogwild, ChangesOfWholeNumbersAreExactHoweverManyThreadsAdd) {
  constexpr std::size_t kCount = 5000;
  CountWorkload workload(kCount);
  Hogwild hogwild(workload, 4);
  const std::vector<std::int64_t> batch = Numbers(kCount);
  const auto rows = workload.Rows(batch);
  for (int pass = 1; pass <= 20; ++pass) {
    EXPECT_EQ(hogwild.Work(batch, rows, 1)[0].sum, double{kCount});
    const std::span<const float> changes = workload.gradients();
    EXPECT_THAT(changes.first(kCount), Each(1.0F)) << "of this pass, whatever was there before";
    EXPECT_EQ(changes.back(), float{kCount});
    EXPECT_EQ(workload.parameters().back(), static_cast<float>(pass) * float{kCount});
  }
  EXPECT_THAT(workload.threads(), SizeIs(4));
}

TEST(Hogwild, MoreThreadsThanSamplesWorkEachOffOnce) {
  CountWorkload workload(3);
  Hogwild hogwild(workload, 8);
  const std::vector<std::int64_t> batch = Numbers(3);
  EXPECT_EQ(hogwild.Work(batch, workload.AllRows(), 1)[0].sum, 3);
  EXPECT_THAT(workload.gradients().first(3), Each(1.0F));
  EXPECT_EQ(workload.gradients().back(), 3.0F);
}

TEST(Hogwild, OneThreadTakesTheStepsOfPlainDescent) {
  auto samples = std::make_shared<data::SparseDataset>();
  samples->hashed = 4;
  samples->features = {1, 2, 2, 3};
  samples->values = {1, 2, 1, -1};
  samples->offsets = {0, 2, 4};
  samples->labels = {1, -1};
  SparseLogisticRegression workload(samples, nullptr, 0.1);
  SparseLogisticRegression serial(samples, nullptr, 0.1);
  for (SparseLogisticRegression* each : {&workload, &serial}) {
    std::ranges::copy(std::vector<float>{9, 0.5F, -0.25F, 1}, each->parameters().begin());
  }
  const std::vector<float> before(workload.parameters().begin(), workload.parameters().end());
  const std::vector<std::int64_t> both = {0, 1};
  const std::vector<std::uint64_t> rows = {1, 2, 3};
  Hogwild hogwild(workload, 1);
  hogwild.Work(both, rows, 0.5);
  for (std::size_t i = 0; i < 2; ++i) {
    const auto sample = std::span(both).subspan(i, 1);
    ASSERT_TRUE(serial.Compute(sample, {}).ok());
    for (const std::uint64_t row : serial.Rows(sample)) {
      serial.parameters()[row] -= 0.5F * serial.gradients()[row];
    }
  }
  EXPECT_EQ(workload.parameters()[0], 9) << "no sample uses it";
  for (const std::uint64_t row : rows) {
    EXPECT_NEAR(workload.parameters()[row], serial.parameters()[row], 1e-6) << row;
    EXPECT_EQ(workload.gradients()[row], workload.parameters()[row] - before[row]);
  }
}

// What a compiler makes of `shared += x` without atomic addition: a read, then a write.
TEST(Hogwild, ReadingAndThenWritingLosesUpdatesSoThatTheCheckCanFail) {
  float shared = 0;
  std::barrier both_have_read(2);
  std::vector<std::thread> threads;
  threads.reserve(2);
  for (int thread = 0; thread < 2; ++thread) {
    threads.emplace_back([&] {
      const float read = kernels::AtomicLoad(shared);
      both_have_read.arrive_and_wait();
      std::atomic_ref<float>(shared).store(read + 1);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(shared, 1);
}

}  // namespace
}  // namespace starling::workload
