// SPDX-License-Identifier: Apache-2.0
// A slot's part of a gradient, as the update that its push carries: a range of it, rows of it, or
// with fully connected layers as the product of their factors (parameter_server/factors.h) where
// that is less to send. K samples of a matrix of M by N are K (M + N) numbers, and every slot that
// holds a part of it gets the M of its rows and all N.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "trainer/engine/engine.h"
#include "trainer/parameter_server/table.h"

namespace starling::worker {

// The KKT filter (Li et al. 2014), a worker's half: where the servers' proximal gradient descent
// would leave a weight at 0 (optimizer::StaysZero), 0 is pushed, which leaves it there as well, and
// which does not travel (parameter_server/filters.h).
struct Kkt {
  std::span<const float> weights;  // as they were read, by row
  double l1 = 0;
  bool narrow = false;  // values travel as bfloat16: what arrives is looked at
};

// All of these are of `gradient` times `scale`; none where a number of it is not finite.
std::optional<std::string> EncodeRange(const parameter_server::RowRange& rows,
                                       std::span<const float> gradient, float scale);
std::optional<std::string> EncodeRows(std::span<const std::uint64_t> rows,
                                      std::span<const float> gradient, float scale,
                                      const std::optional<Kkt>& kkt = std::nullopt);
// `gradient` is `engine`'s, complete in these rows. As a range where every stretch is shorter so.
std::optional<std::string> EncodeFactored(const parameter_server::RowRange& rows,
                                          std::span<const float> gradient, float scale,
                                          const engine::Engine& engine);

}  // namespace starling::worker
