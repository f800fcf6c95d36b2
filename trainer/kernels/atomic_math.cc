// SPDX-License-Identifier: Apache-2.0
#include "trainer/kernels/atomic_math.h"

#include <atomic>

namespace starling::kernels {

void AtomicAdd(float x, float& shared) {
  std::atomic_ref<float>(shared).fetch_add(x, std::memory_order_relaxed);
}

float AtomicLoad(float& shared) {
  return std::atomic_ref<float>(shared).load(std::memory_order_relaxed);
}

}  // namespace starling::kernels
