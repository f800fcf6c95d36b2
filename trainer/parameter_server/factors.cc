// SPDX-License-Identifier: Apache-2.0
#include "trainer/parameter_server/factors.h"

#include <algorithm>

#include "absl/status/status.h"
#include "trainer/kernels/span_math.h"

namespace starling::parameter_server {
namespace {

constexpr std::size_t kKeys = 3;  // of a stretch

std::vector<Stretch> Given(const Update& update, std::uint64_t width) {
  if (update.keys.empty()) return {{update.rows * width, width, 0}};
  std::vector<Stretch> stretches;
  for (std::size_t i = 0; i + kKeys <= update.keys.size(); i += kKeys) {
    stretches.push_back({update.keys[i], update.keys[i + 1], update.keys[i + 2]});
  }
  return stretches;
}

// `values`: what is left of the update's.
bool Fits(const Stretch& stretch, std::uint64_t rank, std::uint64_t values) {
  if (stretch.columns == 0) return stretch.offset == 0 && stretch.elements <= values;
  // Each of these keeps the next from running over.
  if (rank == 0 || stretch.columns > values || stretch.offset >= stretch.columns) return false;
  return stretch.rows() <= values && stretch.rows() + stretch.columns <= values / rank;
}

// Adds the product to `made`, the stretch's elements.
void Multiply(const Stretch& stretch, std::size_t rank, std::span<const float> u,
              std::span<const float> v, std::span<float> made) {
  const std::size_t rows = stretch.rows(), columns = stretch.columns;
  std::size_t at = 0;
  for (std::size_t row = 0; row < rows; ++row) {
    const std::size_t from = row == 0 ? stretch.offset : 0;
    const std::size_t count = std::min(columns - from, made.size() - at);
    for (std::size_t k = 0; k < rank; ++k) {
      kernels::Axpy(u[k * rows + row], v.subspan(k * columns + from, count),
                    made.subspan(at, count));
    }
    at += count;
  }
}

}  // namespace

std::uint64_t Stretch::rows() const {
  return columns == 0 ? 0 : (offset + elements + columns - 1) / columns;
}

std::uint64_t Stretch::values(std::uint64_t rank) const {
  return columns == 0 ? elements : rank * (rows() + columns);
}

absl::StatusOr<std::vector<Stretch>> StretchesOf(const Update& update, std::uint64_t width) {
  const auto bad = [] {
    return absl::InvalidArgumentError("the factors do not fit the rows; see factors.h");
  };
  if (update.kind != UpdateKind::kFactors || update.keys.size() % kKeys != 0) return bad();
  std::vector<Stretch> stretches = Given(update, width);
  std::uint64_t elements = update.rows * width, values = update.values.size();
  for (const Stretch& stretch : stretches) {
    if (stretch.elements > elements || !Fits(stretch, update.rank, values)) return bad();
    elements -= stretch.elements;
    values -= stretch.values(update.rank);
  }
  if (elements != 0 || values != 0) return bad();
  return stretches;
}

std::vector<float> Multiplied(const Update& update, std::uint64_t width) {
  std::vector<float> made(update.rows * width);
  std::span<float> to = made;
  std::span<const float> values = update.values;
  for (const Stretch& stretch : Given(update, width)) {
    const std::span<float> into = to.first(stretch.elements);
    if (stretch.columns == 0) {
      kernels::Copy(values.first(stretch.elements), into);
    } else {
      const std::size_t errors = update.rank * stretch.rows();
      Multiply(stretch, update.rank, values.first(errors), values.subspan(errors), into);
    }
    to = to.subspan(stretch.elements);
    values = values.subspan(stretch.values(update.rank));
  }
  return made;
}

}  // namespace starling::parameter_server
