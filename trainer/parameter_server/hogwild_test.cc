// SPDX-License-Identifier: Apache-2.0
#include "trainer/parameter_server/hogwild.h"

#include <atomic>
#include <barrier>
#include <random>
#include <thread>

#include "gtest/gtest.h"
#include "trainer/kernels/atomic_math.h"

namespace starling::parameter_server {
namespace {

constexpr std::uint32_t kFeatures = 2000;
constexpr std::size_t kPerSample = 10;  // 0.5 %

std::vector<SparseSample> Samples() {
  std::mt19937 random(11);
  std::normal_distribution<float> normal;
  std::vector<float> truth(kFeatures);
  for (float& value : truth) value = normal(random);
  std::vector<SparseSample> samples(20000);
  for (SparseSample& sample : samples) {
    double score = 0;
    for (std::size_t j = 0; j < kPerSample; ++j) {
      sample.indices.push_back(static_cast<std::uint32_t>(random() % kFeatures));
      sample.values.push_back(normal(random));
      score += double{truth[sample.indices[j]]} * double{sample.values[j]};
    }
    sample.label = score > 0 ? 1 : -1;
  }
  return samples;
}

double LossWith(int threads, const std::vector<SparseSample>& samples) {
  SharedParameters parameters(kFeatures);
  HogwildOptions options;
  options.threads = threads;
  TrainHogwild(options, samples, parameters);
  std::vector<float> values(kFeatures);
  parameters.ReadAll(values);
  return LogisticLoss(samples, values);
}

TEST(Hogwild, TwoThreadsReachTheSerialLossWithinOnePercent) {
  const std::vector<SparseSample> samples = Samples();
  const double serial = LossWith(1, samples);
  EXPECT_LT(serial, 0.4) << "it does learn: a coin's loss is 0.69";
  EXPECT_NEAR(LossWith(2, samples), serial, 0.01 * serial);
}

TEST(Hogwild, SumsOfWholeNumbersAreExactHoweverManyThreadsAdd) {
  SharedParameters parameters(64);
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&] {
      const std::vector<float> ones(64, 1);
      for (int i = 0; i < 5000; ++i) parameters.AddAll(ones);
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<float> values(64);
  parameters.ReadAll(values);
  EXPECT_EQ(values, std::vector<float>(64, 20000));
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
      kernels::AtomicStore(read + 1, shared);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(shared, 1);
}

}  // namespace
}  // namespace starling::parameter_server
