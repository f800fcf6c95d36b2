// SPDX-License-Identifier: Apache-2.0
// The seam between nvcc and the host compiler: plain types only, so that no library header has to
// pass through nvcc. Each function returns a cudaError_t as an int.
#pragma once

#include <cstddef>

namespace starling::cuda {

int LaunchAxpy(float a, const float* x, float* y, std::size_t count, void* stream);

}  // namespace starling::cuda
