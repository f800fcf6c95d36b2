// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime.h>

#include <vector>

#include "gtest/gtest.h"
#include "trainer/cuda/axpy.h"
#include "trainer/cuda/nccl_group.h"

namespace starling::cuda {
namespace {

bool HasDevice() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess && count > 0;
}

TEST(Cuda, NcclIsLinkedAndKnowsItsVersion) {
  const auto version = NcclVersion();
  ASSERT_TRUE(version.ok()) << version.status();
  EXPECT_EQ(version->substr(0, 2), "2.");
}

TEST(Cuda, AKeyOfTheWrongLengthIsRefusedWithTheRemedy) {
  const auto group = NcclGroup::Join("short", 0, 1);
  ASSERT_FALSE(group.ok());
  EXPECT_EQ(group.status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(Cuda, SpansOfDifferentLengthsAreRefused) {
  std::vector<float> x(2), y(3);
  EXPECT_EQ(Axpy(1, x, y, nullptr).code(), absl::StatusCode::kInvalidArgument);
}

TEST(Cuda, AxpyOnTheDeviceEqualsAxpyOnTheHost) {
  if (!HasDevice()) GTEST_SKIP() << "SKIPPED: no CUDA device on this machine";
  std::vector<float> x(1000), y(1000);
  for (int i = 0; i < 1000; ++i) x[i] = static_cast<float>(i), y[i] = 1;
  float* device = nullptr;
  ASSERT_EQ(cudaMalloc(reinterpret_cast<void**>(&device), 8000), cudaSuccess);
  cudaMemcpy(device, x.data(), 4000, cudaMemcpyHostToDevice);
  cudaMemcpy(device + 1000, y.data(), 4000, cudaMemcpyHostToDevice);
  ASSERT_TRUE(Axpy(2, {device, 1000}, {device + 1000, 1000}, nullptr).ok());
  cudaMemcpy(y.data(), device + 1000, 4000, cudaMemcpyDeviceToHost);
  cudaFree(device);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(y[i], 1 + 2 * x[i]);
}

}  // namespace
}  // namespace starling::cuda
