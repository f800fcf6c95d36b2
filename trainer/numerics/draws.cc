// SPDX-License-Identifier: Apache-2.0
#include "trainer/numerics/draws.h"

#include <algorithm>
#include <array>

#include "common/random/philox.h"

namespace starling::numerics {

void RoundByDraws(std::uint64_t seed, std::int64_t step, std::int64_t first,
                  const kernels::FixedPointGrid& grid, std::span<float> values) {
  constexpr std::size_t kAtOnce = 1024;
  const random::Philox source(seed, random::Stream::kRounding, static_cast<std::uint64_t>(step));
  std::array<std::uint32_t, kAtOnce> draws;
  auto place = static_cast<std::uint64_t>(first);
  while (!values.empty()) {
    const std::span<float> now = values.first(std::min(values.size(), kAtOnce));
    random::Block block = source.At(place / block.size());
    for (std::size_t i = 0; i < now.size(); ++i, ++place) {
      if (place % block.size() == 0) block = source.At(place / block.size());
      draws[i] = block[place % block.size()];
    }
    kernels::RoundToGridByDraws(grid, std::span(draws).first(now.size()), now);
    values = values.subspan(now.size());
  }
}

}  // namespace starling::numerics
