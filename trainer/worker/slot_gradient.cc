// SPDX-License-Identifier: Apache-2.0
#include "trainer/worker/slot_gradient.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "trainer/kernels/span_math.h"
#include "trainer/optimizer/server_rules.h"
#include "trainer/parameter_server/factors.h"
#include "trainer/parameter_server/filters.h"
#include "trainer/parameter_server/update.h"

namespace starling::worker {
namespace {

using parameter_server::RowRange;
using parameter_server::Stretch;
using parameter_server::Update;
using parameter_server::UpdateKind;

std::string EncodeScaled(const Update& update, float scale) {
  std::string bytes = parameter_server::Encode(update);
  if (scale == 1) return bytes;
  auto* floats = reinterpret_cast<float*>(bytes.data() + parameter_server::kUpdateHeaderBytes +
                                          update.keys.size_bytes());
  kernels::Scale(scale, std::span(floats, update.values.size()));
  return bytes;
}

// Samples that the factors are of.
std::uint64_t RankOf(const engine::Factors& factors, const engine::Tensor& tensor) {
  return factors.errors.size() / static_cast<std::uint64_t>(tensor.shape[0]);
}

// Gathers the stretches of an update of factors.
class Stretches {
 public:
  explicit Stretches(float scale) : scale_(scale) {}

  void AddPlain(std::span<const float> gradient) {
    if (stretches_.empty() || stretches_.back().columns != 0) stretches_.push_back({});
    stretches_.back().elements += gradient.size();
    AddScaled(gradient);
  }

  // Elements [part) of the matrix `tensor`.
  void AddProduct(const engine::Tensor& tensor, const engine::Factors& factors,
                  const RowRange& part) {
    const auto outputs = static_cast<std::uint64_t>(tensor.shape[0]);
    const std::uint64_t columns = static_cast<std::uint64_t>(tensor.size) / outputs;
    rank_ = RankOf(factors, tensor);
    const Stretch stretch{part.size(), columns, part.begin % columns};
    for (std::uint64_t k = 0; k < rank_; ++k) {
      AddScaled(factors.errors.subspan(k * outputs + part.begin / columns, stretch.rows()));
    }
    values_.insert(values_.end(), factors.activations.begin(), factors.activations.end());
    stretches_.push_back(stretch);
  }

  bool has_product() const { return rank_ > 0; }

  std::string Encoded(const RowRange& rows) const {
    std::vector<std::uint64_t> keys;
    for (const Stretch& stretch : stretches_) {
      keys.insert(keys.end(), {stretch.elements, stretch.columns, stretch.offset});
    }
    Update update;
    update.kind = UpdateKind::kFactors;
    update.rank = static_cast<std::uint32_t>(rank_);
    update.first = rows.begin;
    update.rows = rows.size();
    update.keys = keys;
    update.values = values_;
    return parameter_server::Encode(update);
  }

 private:
  void AddScaled(std::span<const float> values) {
    for (const float value : values) values_.push_back(scale_ * value);
  }

  const float scale_;
  std::uint64_t rank_ = 0;
  std::vector<Stretch> stretches_;
  std::vector<float> values_;
};

bool IsShorter(const engine::Tensor& tensor, const engine::Factors& factors, const RowRange& part) {
  const std::uint64_t columns =
      static_cast<std::uint64_t>(tensor.size) / static_cast<std::uint64_t>(tensor.shape[0]);
  const Stretch stretch{part.size(), columns, part.begin % columns};
  return stretch.values(RankOf(factors, tensor)) < stretch.elements;
}

std::vector<float> WithZeros(std::span<const std::uint64_t> rows, const Kkt& kkt,
                             std::vector<float> gradient) {
  // Rounded again they stay the same.
  if (kkt.narrow) gradient = *parameter_server::Widen(parameter_server::Narrow(gradient));
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (optimizer::StaysZero(kkt.weights[rows[i]], gradient[i], kkt.l1)) gradient[i] = 0;
  }
  return gradient;
}

}  // namespace

std::optional<std::string> EncodeRange(const RowRange& rows, std::span<const float> gradient,
                                       float scale) {
  Update update;
  update.first = rows.begin;
  update.rows = rows.size();
  update.values = gradient.subspan(rows.begin, rows.size());
  if (!kernels::AllFinite(update.values)) return std::nullopt;
  return EncodeScaled(update, scale);
}

std::optional<std::string> EncodeRows(std::span<const std::uint64_t> rows,
                                      std::span<const float> gradient, float scale,
                                      const std::optional<Kkt>& kkt) {
  std::vector<float> gathered;
  gathered.reserve(rows.size());
  for (const std::uint64_t row : rows) gathered.push_back(gradient[row]);
  if (!kernels::AllFinite(gathered)) return std::nullopt;
  kernels::Scale(scale, gathered);
  if (kkt) gathered = WithZeros(rows, *kkt, std::move(gathered));
  Update update;
  update.kind = UpdateKind::kRows;
  update.keys = rows;
  update.values = gathered;
  return parameter_server::Encode(update);
}

std::optional<std::string> EncodeFactored(const RowRange& rows, std::span<const float> gradient,
                                          float scale, const engine::Engine& engine) {
  if (!kernels::AllFinite(gradient.subspan(rows.begin, rows.size()))) return std::nullopt;
  Stretches stretches(scale);
  const std::span<const engine::Tensor> tensors = engine.tensors();
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const auto offset = static_cast<std::uint64_t>(tensors[i].offset);
    const std::uint64_t begin = std::max(rows.begin, offset);
    const std::uint64_t end =
        std::min(rows.end, offset + static_cast<std::uint64_t>(tensors[i].size));
    if (begin >= end) continue;
    const RowRange part{begin - offset, end - offset};
    const std::optional<engine::Factors> factors = engine.FactorsOf(i);
    if (factors.has_value() && IsShorter(tensors[i], *factors, part)) {
      stretches.AddProduct(tensors[i], *factors, part);
    } else {
      stretches.AddPlain(gradient.subspan(begin, end - begin));
    }
  }
  return stretches.has_product() ? stretches.Encoded(rows) : EncodeRange(rows, gradient, scale);
}

}  // namespace starling::worker
