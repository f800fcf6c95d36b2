// SPDX-License-Identifier: Apache-2.0
#include "trainer/parameter_server/hogwild.h"

#include <algorithm>
#include <barrier>
#include <cmath>
#include <thread>

#include "common/status/check.h"
#include "trainer/kernels/atomic_math.h"

namespace starling::parameter_server {

void SharedParameters::Read(std::span<const std::uint32_t> indices, std::span<float> values) {
  STARLING_CHECK(indices.size() == values.size(), "spans of one call have equal lengths");
  for (std::size_t i = 0; i < indices.size(); ++i) {
    values[i] = kernels::AtomicLoad(values_[indices[i]]);
  }
}

void SharedParameters::Add(std::span<const std::uint32_t> indices, std::span<const float> deltas) {
  STARLING_CHECK(indices.size() == deltas.size(), "spans of one call have equal lengths");
  for (std::size_t i = 0; i < indices.size(); ++i) {
    kernels::AtomicAdd(deltas[i], values_[indices[i]]);
  }
}

void SharedParameters::ReadAll(std::span<float> values) { kernels::AtomicCopy(values_, values); }

void SharedParameters::AddAll(std::span<const float> deltas) {
  kernels::AtomicAxpy(1, deltas, values_);
}

void TrainHogwild(const HogwildOptions& options, std::span<const SparseSample> samples,
                  SharedParameters& parameters) {
  const auto stride = static_cast<std::size_t>(std::max(1, options.threads));
  std::barrier pass_done(static_cast<std::ptrdiff_t>(stride));
  const auto work = [&](std::size_t thread) {
    std::vector<float> row;
    double rate = options.learning_rate;
    for (int pass = 0; pass < options.passes; ++pass, rate *= options.decay) {
      for (std::size_t i = thread; i < samples.size(); i += stride) {
        const SparseSample& sample = samples[i];
        row.resize(sample.indices.size());
        parameters.Read(sample.indices, row);
        double score = 0;
        for (std::size_t j = 0; j < row.size(); ++j) {
          score += double{row[j]} * double{sample.values[j]};
        }
        const double slope = double{sample.label} / (1 + std::exp(double{sample.label} * score));
        for (std::size_t j = 0; j < row.size(); ++j) {
          row[j] = static_cast<float>(rate * slope * double{sample.values[j]});
        }
        parameters.Add(sample.indices, row);
      }
      pass_done.arrive_and_wait();
    }
  };
  std::vector<std::thread> threads;
  for (std::size_t thread = 0; thread < stride; ++thread) threads.emplace_back(work, thread);
  for (std::thread& thread : threads) thread.join();
}

double LogisticLoss(std::span<const SparseSample> samples, std::span<const float> parameters) {
  double loss = 0;
  for (const SparseSample& sample : samples) {
    double score = 0;
    for (std::size_t j = 0; j < sample.indices.size(); ++j) {
      score += double{parameters[sample.indices[j]]} * double{sample.values[j]};
    }
    loss += std::log1p(std::exp(-double{sample.label} * score));
  }
  return loss / static_cast<double>(std::max<std::size_t>(1, samples.size()));
}

}  // namespace starling::parameter_server
