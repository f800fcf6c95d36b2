// SPDX-License-Identifier: Apache-2.0
// Gradients that travel as products: a fully connected layer's is, for each sample, the errors of
// its outputs times its inputs, and K (M + N) numbers say what M N would (Project Adam, Chilimbi et
// al. 2014). Whoever applies the update multiplies.
//
// A shard is a range of numbers that knows nothing of layers: it may begin and end inside a matrix,
// and hold other gradients as well. So an update of UpdateKind::kFactors is a row of stretches,
// each either plain or a part of one row-major matrix. In its keys three numbers say where each
// lies (Stretch), in its values each has, in turn:
//
//   plain      its elements
//   a product  u (rank x rows()), then v (rank x columns): the gradient of element (i, j) of the
//              rows that it touches is the sum over k of u[k][i] v[k][j]
//
// Without keys all of its rows are one product of the table's width.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "trainer/parameter_server/update.h"

namespace starling::parameter_server {

struct Stretch {
  std::uint64_t elements = 0;
  std::uint64_t columns = 0;  // of the matrix; 0: plain
  std::uint64_t offset = 0;   // elements of the first row that lie before the stretch

  // That it touches, the first and the last perhaps in part.
  std::uint64_t rows() const;
  std::uint64_t values(std::uint64_t rank) const;
  bool operator==(const Stretch&) const = default;
};

// In their order. INVALID_ARGUMENT where they do not cover the update's rows of `width` numbers
// once, or its values do not fit them; no count is believed.
absl::StatusOr<std::vector<Stretch>> StretchesOf(const Update& update, std::uint64_t width);

// The update's rows in full. Only of an update that StretchesOf has taken.
std::vector<float> Multiplied(const Update& update, std::uint64_t width);

}  // namespace starling::parameter_server
