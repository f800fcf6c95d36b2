// SPDX-License-Identifier: Apache-2.0
// PS-7: threads that share parameters and lock nothing.
#include <algorithm>
#include <barrier>
#include <cmath>
#include <thread>

#include "tests/techniques/problem.h"
#include "tests/techniques/rows.h"
#include "trainer/kernels/atomic_math.h"
#include "trainer/parameter_server/hogwild.h"

namespace starling::techniques {
namespace {

using parameter_server::SharedParameters;
using parameter_server::SparseSample;

constexpr std::uint32_t kFeatures = 1 << 15;

// Even digits against odd ones. Each pixel together with its neighbour, in coarse steps, is one of
// many features: 63 of 32768 are in a sample.
std::vector<SparseSample> SparseDigits() {
  const std::shared_ptr<const Problem> digits = Digits(0);
  const std::vector<float> pixels = DigitPixels(digits->samples());
  const std::size_t width = pixels.size() / static_cast<std::size_t>(digits->samples());
  std::vector<SparseSample> samples(static_cast<std::size_t>(digits->samples()));
  const auto step = [](float value) {
    return static_cast<std::uint32_t>(std::clamp(value * 2 + 8, 0.0F, 15.0F));
  };
  for (std::size_t i = 0; i < samples.size(); ++i) {
    for (std::size_t pixel = 0; pixel + 1 < width; ++pixel) {
      const std::uint32_t pair =
          step(pixels[i * width + pixel]) * 16 + step(pixels[i * width + pixel + 1]);
      samples[i].indices.push_back(static_cast<std::uint32_t>(pixel) * 256 + pair);
      samples[i].values.push_back(0.25F);
    }
    samples[i].label = digits->Label(static_cast<std::int64_t>(i)) % 2 == 0 ? 1.0F : -1.0F;
  }
  return samples;
}

double LossWith(int threads, const std::vector<SparseSample>& samples, int passes) {
  SharedParameters parameters(kFeatures);
  parameter_server::HogwildOptions options;
  options.threads = threads;
  options.passes = passes;
  TrainHogwild(options, samples, parameters);
  std::vector<float> values(kFeatures);
  parameters.ReadAll(values);
  return LogisticLoss(samples, values);
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
        kernels::AtomicStore(read + 1, shared);
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
  const std::vector<SparseSample> samples = SparseDigits();
  const int passes = setting.thorough ? 20 : 8;
  report.Tell("share of features in a sample",
              static_cast<double>(samples[0].indices.size()) / kFeatures);
  const double serial = LossWith(1, samples, passes);
  report.Tell("loss of one thread", serial);
  report.Each("loss of two threads at equal updates beside it",
              std::abs(LossWith(2, samples, passes) / serial - 1), Rule::kAtMost, 0.01);
  report.Each("2,000 additions by two threads to one element: lost", Lost(true), Rule::kEqual, 0);
  report.Control("one of them read, then written: lost", Lost(false), Rule::kAbove, 0);
}

}  // namespace starling::techniques
