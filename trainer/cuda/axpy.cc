// SPDX-License-Identifier: Apache-2.0
#include "trainer/cuda/axpy.h"

#include <cuda_runtime.h>

#include "absl/strings/str_cat.h"
#include "trainer/cuda/launch.h"

namespace starling::cuda {

absl::Status Axpy(float a, std::span<const float> x, std::span<float> y, Stream stream) {
  if (x.size() != y.size()) {
    return absl::InvalidArgumentError(absl::StrCat("axpy needs two spans of one length, not ",
                                                   x.size(), " and ", y.size(), " elements"));
  }
  if (x.empty()) return absl::OkStatus();
  const auto error = static_cast<cudaError_t>(LaunchAxpy(a, x.data(), y.data(), x.size(), stream));
  if (error == cudaSuccess) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("axpy of ", x.size(),
                                          " elements was not launched: ", cudaGetErrorString(error),
                                          "; check the driver with nvidia-smi"));
}

}  // namespace starling::cuda
