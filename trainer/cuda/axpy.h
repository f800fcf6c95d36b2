// SPDX-License-Identifier: Apache-2.0
// Arithmetic on device memory: what the GPU does for optimizers and codecs.
//
// To add a kernel: declare it here in terms of spans of device memory and a stream, define it in a
// .cu file of this folder, and test it against the function of the same name in trainer/kernels.
#pragma once

#include <span>

#include "absl/status/status.h"

namespace starling::cuda {

// An asynchronous queue of work on one device: CUDA's cudaStream_t, null for the default one.
using Stream = void*;

// y += a * x on the device, in the order of `stream`. Both spans are device memory of equal length.
// InvalidArgument if the lengths differ, Internal with CUDA's own message if the launch fails.
absl::Status Axpy(float a, std::span<const float> x, std::span<float> y, Stream stream);

}  // namespace starling::cuda
