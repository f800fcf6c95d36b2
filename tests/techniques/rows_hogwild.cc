// SPDX-License-Identifier: Apache-2.0
// PS-7: threads that share parameters and lock nothing.
#include <algorithm>
#include <atomic>
#include <barrier>
#include <cmath>
#include <numeric>
#include <thread>

#include "tests/techniques/problem.h"
#include "tests/techniques/rows.h"
#include "trainer/kernels/atomic_math.h"
#include "trainer/workload/hogwild.h"
#include "trainer/workload/sparse_logistic_regression.h"

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

using workload::SparseLogisticRegression;

std::vector<std::int64_t> Numbers(const data::SparseDataset& samples) {
  std::vector<std::int64_t> numbers(static_cast<std::size_t>(samples.size()));
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

double LossOf(SparseLogisticRegression& model, std::int64_t samples) {
  return MeansOf(*model.Evaluate(0, samples), model.declaration())[0];
}

double LossWith(int threads, const std::shared_ptr<const data::SparseDataset>& samples,
                int passes) {
  SparseLogisticRegression model(samples, samples, 0);
  workload::Hogwild hogwild(model, threads);
  const std::vector<std::int64_t> all = Numbers(*samples);
  double rate = kRate;
  for (int pass = 0; pass < passes; ++pass, rate *= kDecay) {
    hogwild.Work(all, model.AllRows(), rate);
  }
  return LossOf(model, samples->size());
}

// As in a job: workers fetch at once, each works its next samples off with two threads, and what
// their weights have changed by is added to the servers'. Without `added` the weights themselves
// are written there, so that of two changes of one weight the first is lost: what would become of
// threads that read, add and write.
double LossInAJob(std::size_t workers, const std::shared_ptr<const data::SparseDataset>& samples,
                  int passes, bool added) {
  std::vector<std::unique_ptr<SparseLogisticRegression>> models;
  std::vector<std::unique_ptr<workload::Hogwild>> threads;
  for (std::size_t worker = 0; worker < workers; ++worker) {
    models.push_back(std::make_unique<SparseLogisticRegression>(samples, samples, 0));
    threads.push_back(std::make_unique<workload::Hogwild>(*models.back(), 2));
  }
  const std::vector<std::int64_t> all = Numbers(*samples);
  std::vector<float> servers(kFeatures);
  double rate = kRate;
  for (int pass = 0; pass < passes; ++pass, rate *= kDecay) {
    for (std::size_t round = 0; round < all.size(); round += workers * kPush) {
      const std::vector<float> fetched = servers;
      for (const auto& model : models) std::ranges::copy(fetched, model->parameters().begin());
      for (std::size_t worker = 0; worker < workers; ++worker) {
        const std::size_t begin = std::min(round + worker * kPush, all.size());
        const auto mine = std::span(all).subspan(begin, std::min(kPush, all.size() - begin));
        const std::vector<std::uint64_t> rows = models[worker]->Rows(mine);
        threads[worker]->Work(mine, rows, rate);
        for (const std::uint64_t row : rows) {
          servers[row] = (added ? servers[row] : fetched[row]) + models[worker]->gradients()[row];
        }
      }
    }
  }
  std::ranges::copy(servers, models[0]->parameters().begin());
  return LossOf(*models[0], samples->size());
}

// Two threads that each add 1 to one element a thousand times, again until some of it is missing or
// so many rounds are over: how much is.
double Lost(bool atomic, int rounds) {
  constexpr int kAdditions = 1000;
  double lost = 0;
  for (int round = 0; round < rounds && lost == 0; ++round) {
    float shared = 0;
    std::barrier together(2);
    const auto work = [&] {
      together.arrive_and_wait();
      for (int i = 0; i < kAdditions; ++i) {
        if (atomic) {
          kernels::AtomicAdd(1, shared);
        } else {  // what `shared += 1` is
          std::atomic_ref<float>(shared).store(kernels::AtomicLoad(shared) + 1);
        }
      }
    };
    std::thread other(work);
    work();
    other.join();
    lost = 2.0 * kAdditions - double{shared};
  }
  return lost;
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
              std::abs(LossInAJob(2, samples, passes, true) / serial - 1), Rule::kAtMost, 0.02);
  report.Control("four workers, whose weights are written over one another: loss beside it",
                 LossInAJob(4, samples, passes, false) / serial - 1, Rule::kAbove, 0.02);
  report.Each("additions by two threads to one element, 100 rounds of 2,000: lost", Lost(true, 100),
              Rule::kEqual, 0);
  report.Control("read, then written, until one is lost: lost", Lost(false, 100000), Rule::kAbove,
                 0);
}

}  // namespace starling::techniques
