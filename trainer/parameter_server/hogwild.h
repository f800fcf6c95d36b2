// SPDX-License-Identifier: Apache-2.0
// Hogwild! (Niu, Recht, Re, Wright 2011): threads of one process train one model in shared memory
// without locks. Each reads the few elements that its sample touches, and adds its step to them,
// element by element and atomically: nothing waits, nothing is lost, and since samples are sparse
// threads rarely meet. The rate falls by a factor after each pass.
//
// Between processes the same model is the asynchronous one of trainer/consistency; this is its form
// where worker and server are one address space (a mapped segment will do as well).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace starling::parameter_server {

// Thread-safe.
class SharedParameters {
 public:
  explicit SharedParameters(std::size_t count) : values_(count) {}
  std::size_t size() const { return values_.size(); }

  // The elements at `indices`, each as it is at some moment of the call.
  void Read(std::span<const std::uint32_t> indices, std::span<float> values);
  // Adds to each.
  void Add(std::span<const std::uint32_t> indices, std::span<const float> deltas);
  // All of them, in order.
  void ReadAll(std::span<float> values);
  void AddAll(std::span<const float> deltas);

 private:
  std::vector<float> values_;
};

// One sample's sparse features and its label, -1 or 1.
struct SparseSample {
  std::vector<std::uint32_t> indices;
  std::vector<float> values;
  float label = 1;
};

struct HogwildOptions {
  int threads = 2;
  int passes = 5;
  double learning_rate = 0.1;
  double decay = 0.9;  // of the rate after each pass
};

// Logistic regression over `samples`, each once a pass; thread t takes every threads-th of them.
// Nothing waits inside a pass; the rate falls when all have ended it.
void TrainHogwild(const HogwildOptions& options, std::span<const SparseSample> samples,
                  SharedParameters& parameters);

// The mean logistic loss.
double LogisticLoss(std::span<const SparseSample> samples, std::span<const float> parameters);

}  // namespace starling::parameter_server
