// SPDX-License-Identifier: Apache-2.0
#include "trainer/kernels/atomic_math.h"

#include <atomic>
#include <cstddef>

#include "common/status/check.h"

namespace starling::kernels {

void AtomicAdd(float x, float& shared) {
  std::atomic_ref<float>(shared).fetch_add(x, std::memory_order_relaxed);
}

float AtomicLoad(float& shared) {
  return std::atomic_ref<float>(shared).load(std::memory_order_relaxed);
}

void AtomicStore(float value, float& shared) {
  std::atomic_ref<float>(shared).store(value, std::memory_order_relaxed);
}

void AtomicAxpy(float a, std::span<const float> x, std::span<float> shared) {
  STARLING_CHECK(x.size() == shared.size(), "spans of one call have equal lengths");
  for (std::size_t i = 0; i < x.size(); ++i) AtomicAdd(a * x[i], shared[i]);
}

void AtomicCopy(std::span<float> shared, std::span<float> x) {
  STARLING_CHECK(x.size() == shared.size(), "spans of one call have equal lengths");
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = AtomicLoad(shared[i]);
}

}  // namespace starling::kernels
