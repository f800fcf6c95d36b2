// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime.h>

#include "trainer/cuda/launch.h"

namespace starling::cuda {
namespace {

__global__ void AxpyKernel(float a, const float* x, float* y, std::size_t count) {
  const std::size_t stride = static_cast<std::size_t>(gridDim.x) * blockDim.x;
  for (std::size_t i = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += stride) {
    y[i] += a * x[i];
  }
}

}  // namespace

int LaunchAxpy(float a, const float* x, float* y, std::size_t count, void* stream) {
  constexpr unsigned kThreads = 256;
  constexpr std::size_t kMostBlocks = 4096;
  const std::size_t blocks = (count + kThreads - 1) / kThreads;
  AxpyKernel<<<static_cast<unsigned>(blocks < kMostBlocks ? blocks : kMostBlocks), kThreads, 0,
               static_cast<cudaStream_t>(stream)>>>(a, x, y, count);
  return static_cast<int>(cudaGetLastError());
}

}  // namespace starling::cuda
