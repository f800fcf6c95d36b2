// SPDX-License-Identifier: Apache-2.0
#include "trainer/sparse/hogwild.h"

#include <algorithm>
#include <atomic>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/sparse/logistic_engine.h"
#include "trainer/testing/count_engine.h"
#include "trainer/testing/random_samples.h"

namespace starling::sparse {
namespace {

using ::testing::Each;
using ::testing::SizeIs;

constexpr std::uint64_t kFeatures = 2000;
constexpr std::size_t kPerSample = 10;  // 0.5 %
constexpr std::size_t kSamples = 20000;

std::shared_ptr<const data::SparseDataset> Samples() {
  return RandomSamples(kSamples, kFeatures, kPerSample);
}

struct Batch {
  std::vector<float> features;
  std::vector<std::int64_t> labels;
};

Batch Numbers(std::size_t count) {
  Batch batch;
  for (std::size_t i = 0; i < count; ++i) batch.features.push_back(static_cast<float>(i));
  batch.labels.assign(count, 0);
  return batch;
}

double LossWith(int threads, const std::shared_ptr<const data::SparseDataset>& samples) {
  LogisticEngine engine(samples, 0);
  Hogwild hogwild(engine, threads);
  Batch batch = Numbers(kSamples);
  for (std::size_t i = 0; i < kSamples; ++i) batch.labels[i] = samples->labels[i] > 0 ? 1 : 0;
  double rate = 0.1;
  for (int pass = 0; pass < 5; ++pass, rate *= 0.9) {
    hogwild.Work(batch.features, batch.labels, engine.AllTouched(), rate);
  }
  return engine.Evaluate(batch.features, batch.labels)->loss / double{kSamples};
}

TEST(Hogwild, TwoThreadsReachTheSerialLossWithinOnePercent) {
  const auto samples = Samples();
  const double serial = LossWith(1, samples);
  EXPECT_LT(serial, 0.4) << "it does learn: a coin's loss is 0.69";
  EXPECT_NEAR(LossWith(2, samples), serial, 0.01 * serial);
}

TEST(Hogwild, ChangesOfWholeNumbersAreExactHoweverManyThreadsAdd) {
  constexpr std::size_t kCount = 5000;
  CountEngine engine(kCount);
  Hogwild hogwild(engine, 4);
  const Batch batch = Numbers(kCount);
  const auto rows = engine.Touched(batch.features);
  for (int pass = 1; pass <= 20; ++pass) {
    EXPECT_EQ(hogwild.Work(batch.features, batch.labels, rows, 1).loss, double{kCount});
    const std::span<const float> changes = engine.gradients();
    EXPECT_THAT(changes.first(kCount), Each(1.0F)) << "of this pass, whatever was there before";
    EXPECT_EQ(changes.back(), float{kCount});
    EXPECT_EQ(engine.parameters().back(), static_cast<float>(pass) * float{kCount});
  }
  EXPECT_THAT(engine.threads(), SizeIs(4));
}

TEST(Hogwild, MoreThreadsThanSamplesWorkEachOffOnce) {
  CountEngine engine(3);
  Hogwild hogwild(engine, 8);
  const Batch batch = Numbers(3);
  EXPECT_EQ(hogwild.Work(batch.features, batch.labels, engine.AllTouched(), 1).loss, 3);
  EXPECT_THAT(engine.gradients().first(3), Each(1.0F));
  EXPECT_EQ(engine.gradients().back(), 3.0F);
}

TEST(Hogwild, OneThreadTakesTheStepsOfPlainDescent) {
  auto samples = std::make_shared<data::SparseDataset>();
  samples->hashed = 4;
  samples->features = {1, 2, 2, 3};
  samples->values = {1, 2, 1, -1};
  samples->offsets = {0, 2, 4};
  samples->labels = {1, -1};
  LogisticEngine engine(samples, 0.1);
  LogisticEngine serial(samples, 0.1);
  for (LogisticEngine* each : {&engine, &serial}) {
    std::ranges::copy(std::vector<float>{9, 0.5F, -0.25F, 1}, each->parameters().begin());
  }
  const std::vector<float> before(engine.parameters().begin(), engine.parameters().end());
  const std::vector<std::int64_t> labels = {1, 0};
  const std::vector<float> features = {0, 1};
  const std::vector<std::uint64_t> rows = {1, 2, 3};
  Hogwild hogwild(engine, 1);
  hogwild.Work(features, labels, rows, 0.5);
  for (std::size_t i = 0; i < 2; ++i) {
    const auto sample = std::span(features).subspan(i, 1);
    ASSERT_TRUE(
        serial.ComputeGradients(sample, std::span(labels).subspan(i, 1), [](std::int64_t) {}).ok());
    for (const std::uint64_t row : serial.Touched(sample)) {
      serial.parameters()[row] -= 0.5F * serial.gradients()[row];
    }
  }
  EXPECT_EQ(engine.parameters()[0], 9) << "no sample uses it";
  for (const std::uint64_t row : rows) {
    EXPECT_NEAR(engine.parameters()[row], serial.parameters()[row], 1e-6) << row;
    EXPECT_EQ(engine.gradients()[row], engine.parameters()[row] - before[row]);
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
}  // namespace starling::sparse
