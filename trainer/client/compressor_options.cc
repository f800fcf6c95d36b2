// SPDX-License-Identifier: Apache-2.0
#include "trainer/client/compressor_options.h"

#include <vector>

namespace starling::client {

compression::CompressorOptions CompressorOptionsOf(const v1alpha1::TrainingJobSpec& spec,
                                                   const workload::Declaration& declaration) {
  std::vector<std::vector<std::int64_t>> shapes;
  for (const engine::Tensor& tensor : declaration.tensors) shapes.push_back(tensor.shape);
  const v1alpha1::Compression& given = spec.compression();
  compression::CompressorOptions options;
  const std::optional<double> momentum = compression::MomentumOf(given.codec());
  options.error_feedback = given.error_feedback() || momentum.has_value();
  options.layout = compression::Layout(shapes);
  options.momentum = momentum.value_or(0);
  options.warmup_steps = given.warmup_steps();
  options.seed = static_cast<std::uint64_t>(spec.seed());
  return options;
}

}  // namespace starling::client
