// SPDX-License-Identifier: Apache-2.0
#include "trainer/parameter_server/host_reducer.h"

#include <algorithm>

#include "common/status/check.h"
#include "trainer/kernels/span_math.h"

namespace starling::parameter_server {

std::optional<HostReducer::Reduced> HostReducer::Add(std::size_t participant,
                                                     std::span<const float> gradient,
                                                     double weight) {
  STARLING_CHECK(gradient.size() == floats_, "all gradients of a host have one size");
  const sync::MutexLock lock(mutex_);
  parts_[participant] = {{gradient.begin(), gradient.end()}, weight, true};
  if (!std::all_of(parts_.begin(), parts_.end(), [](const Part& part) { return part.here; })) {
    return std::nullopt;
  }
  Reduced reduced;
  reduced.gradient.resize(floats_);
  for (const Part& part : parts_) reduced.weight += part.weight;
  for (Part& part : parts_) {
    const double share = reduced.weight > 0 ? part.weight / reduced.weight : 0;
    kernels::Axpy(static_cast<float>(share), part.gradient, reduced.gradient);
    part.here = false;
  }
  return reduced;
}

}  // namespace starling::parameter_server
