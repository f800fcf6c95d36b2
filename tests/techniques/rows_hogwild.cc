// SPDX-License-Identifier: Apache-2.0
// PS-7: threads that share parameters and lock nothing.
#include <algorithm>
#include <atomic>
#include <barrier>
#include <cmath>
#include <thread>

#include "tests/techniques/problem.h"
#include "tests/techniques/rows.h"
#include "trainer/kernels/atomic_math.h"
#include "trainer/sparse/hogwild.h"
#include "trainer/sparse/logistic_engine.h"

namespace starling::techniques {
namespace {

constexpr std::uint64_t kFeatures = 1 << 15;
constexpr double kRate = 0.1;
constexpr double kDecay = 0.9;  // of the rate after each pass
constexpr std::size_t kPush = 16;

// Even digits against odd ones. Each pixel together with its neighbour, in coarse steps, is one of
// many features: 63 of 32768 are in a sample.
std::shared_ptr<const data::SparseDataset> SparseDigits() {
  const std::shared_ptr<const Problem> digits = Digits(0);
  const std::vector<float> pixels = DigitPixels(digits->samples());
  const auto count = static_cast<std::size_t>(digits->samples());
  const std::size_t width = pixels.size() / count;
  auto samples = std::make_shared<data::SparseDataset>();
  samples->hashed = kFeatures;
  const auto step = [](float value) {
    return static_cast<std::uint64_t>(std::clamp(value * 2 + 8, 0.0F, 15.0F));
  };
  for (std::size_t i = 0; i < count; ++i) {
    for (std::size_t pixel = 0; pixel + 1 < width; ++pixel) {
      const std::uint64_t pair =
          step(pixels[i * width + pixel]) * 16 + step(pixels[i * width + pixel + 1]);
      samples->features.push_back(pixel * 256 + pair);
      samples->values.push_back(0.25F);
    }
    samples->offsets.push_back(samples->features.size());
    samples->labels.push_back(digits->Label(static_cast<std::int64_t>(i)) % 2 == 0 ? 1.0F : -1.0F);
  }
  return samples;
}

// Samples as engines are handed them.
struct Numbered {
  explicit Numbered(const data::SparseDataset& samples) {
    for (std::int64_t i = 0; i < samples.size(); ++i) {
      features.push_back(static_cast<float>(i));
      labels.push_back(samples.labels[static_cast<std::size_t>(i)] > 0 ? 1 : 0);
    }
  }
  std::vector<float> features;
  std::vector<std::int64_t> labels;
};

double LossOf(sparse::LogisticEngine& engine, const Numbered& all) {
  return engine.Evaluate(all.features, all.labels)->loss / static_cast<double>(all.labels.size());
}

double LossWith(int threads, const std::shared_ptr<const data::SparseDataset>& samples,
                int passes) {
  sparse::LogisticEngine engine(samples, 0);
  sparse::Hogwild hogwild(engine, threads);
  const Numbered all(*samples);
  double rate = kRate;
  for (int pass = 0; pass < passes; ++pass, rate *= kDecay) {
    hogwild.Work(all.features, all.labels, engine.AllTouched(), rate);
  }
  return LossOf(engine, all);
}

// As in a job: workers fetch at once, each works its next samples off with two threads, and what
// their weights have changed by is added to the servers'.
double LossInAJob(std::size_t workers, const std::shared_ptr<const data::SparseDataset>& samples,
                  int passes) {
  std::vector<std::unique_ptr<sparse::LogisticEngine>> engines;
  std::vector<std::unique_ptr<sparse::Hogwild>> threads;
  for (std::size_t worker = 0; worker < workers; ++worker) {
    engines.push_back(std::make_unique<sparse::LogisticEngine>(samples, 0));
    threads.push_back(std::make_unique<sparse::Hogwild>(*engines.back(), 2));
  }
  const Numbered all(*samples);
  std::vector<float> servers(kFeatures);
  double rate = kRate;
  for (int pass = 0; pass < passes; ++pass, rate *= kDecay) {
    for (std::size_t round = 0; round < all.labels.size(); round += workers * kPush) {
      for (const auto& engine : engines) std::ranges::copy(servers, engine->parameters().begin());
      for (std::size_t worker = 0; worker < workers; ++worker) {
        const std::size_t begin = std::min(round + worker * kPush, all.labels.size());
        const std::size_t count = std::min(kPush, all.labels.size() - begin);
        const auto features = std::span(all.features).subspan(begin, count);
        const std::vector<std::uint64_t> rows = engines[worker]->Touched(features);
        threads[worker]->Work(features, std::span(all.labels).subspan(begin, count), rows, rate);
        for (const std::uint64_t row : rows) servers[row] += engines[worker]->gradients()[row];
      }
    }
  }
  std::ranges::copy(servers, engines[0]->parameters().begin());
  return LossOf(*engines[0], all);
}

// Two threads that each add 1 to one element so many times; how much is missing at the end.
double Lost(bool atomic) {
  constexpr int kAdditions = 1000;
  float shared = 0;
  std::barrier together(2);
  const auto work = [&] {
    for (int i = 0; i < kAdditions; ++i) {
      if (atomic || i > 0) {
        kernels::AtomicAdd(1, shared);
      } else {
        // What `shared += 1` becomes without atomic addition, at its worst moment.
        const float read = kernels::AtomicLoad(shared);
        together.arrive_and_wait();
        std::atomic_ref<float>(shared).store(read + 1);
        together.arrive_and_wait();
      }
    }
  };
  std::thread other(work);
  work();
  other.join();
  return 2.0 * kAdditions - double{shared};
}

}  // namespace

void HogwildThreads(const Setting& setting, Report& report) {
  const std::shared_ptr<const data::SparseDataset> samples = SparseDigits();
  const int passes = setting.thorough ? 20 : 8;
  report.Tell("share of features in a sample",
              static_cast<double>(samples->FeaturesOf(0).size()) / double{kFeatures});
  const double serial = LossWith(1, samples, passes);
  report.Tell("loss of one thread", serial);
  report.Each("loss of two threads at equal updates beside it",
              std::abs(LossWith(2, samples, passes) / serial - 1), Rule::kAtMost, 0.01);
  report.Each("loss of two workers of two threads, whose changes are added, beside it",
              std::abs(LossInAJob(2, samples, passes) / serial - 1), Rule::kAtMost, 0.02);
  report.Each("2,000 additions by two threads to one element: lost", Lost(true), Rule::kEqual, 0);
  report.Control("one of them read, then written: lost", Lost(false), Rule::kAbove, 0);
}

}  // namespace starling::techniques
