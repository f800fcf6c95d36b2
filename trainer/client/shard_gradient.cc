// SPDX-License-Identifier: Apache-2.0
#include "trainer/client/shard_gradient.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "common/status/check.h"
#include "trainer/kernels/span_math.h"
#include "trainer/optimizer/server_rules.h"
#include "trainer/parameter_server/factors.h"
#include "trainer/parameter_server/update.h"

namespace starling::client {
namespace {

using parameter_server::RowRange;
using parameter_server::Stretch;
using parameter_server::Update;
using parameter_server::UpdateKind;
using parameter_server::UpdatePtr;

// The bytes of `floats`, which lie in a text of just their size.
std::string EncodedBy(const PushEncoding& encoding, const compression::Elements& elements,
                      std::string floats) {
  if (encoding.codec == compression::kIdentity) return floats;
  const std::span values(reinterpret_cast<const float*>(floats.data()),
                         floats.size() / sizeof(float));
  std::string bytes(encoding.compressor.codec().MaxBytes(values.size()), '\0');
  const auto size = encoding.compressor.Encode(encoding.update, elements, values,
                                               std::as_writable_bytes(std::span(bytes)));
  STARLING_CHECK(size.ok(), "floats of the host can be encoded");
  bytes.resize(*size);
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

  UpdatePtr Encoded(const RowRange& rows, compression::CodecNumber codec) const {
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
    return parameter_server::Encode(update, codec);
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

}  // namespace

UpdatePtr EncodeRange(const RowRange& rows, std::span<const float> gradient, float scale,
                      const PushEncoding& encoding) {
  Update update;
  update.first = rows.begin;
  update.rows = rows.size();
  update.values = gradient.subspan(rows.begin, rows.size());
  if (!kernels::AllFinite(update.values)) return nullptr;
  std::string floats(update.values.size_bytes(), '\0');
  const std::span scaled(reinterpret_cast<float*>(floats.data()), update.values.size());
  kernels::Copy(update.values, scaled);
  if (scale != 1) kernels::Scale(scale, scaled);
  return parameter_server::Encoded(update, encoding.codec,
                                   EncodedBy(encoding, {rows.begin}, std::move(floats)));
}

UpdatePtr EncodeRows(std::span<const std::uint64_t> rows, std::span<const float> gradient,
                     float scale, const PushEncoding& encoding, const std::optional<Kkt>& kkt) {
  std::string floats(rows.size() * sizeof(float), '\0');
  const std::span gathered(reinterpret_cast<float*>(floats.data()), rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i) gathered[i] = gradient[rows[i]];
  if (!kernels::AllFinite(gathered)) return nullptr;
  kernels::Scale(scale, gathered);
  Update update;
  update.kind = UpdateKind::kRows;
  update.keys = rows;
  update.values = gathered;
  std::string body = EncodedBy(encoding, {0, rows}, floats);
  if (!kkt) return parameter_server::Encoded(update, encoding.codec, std::move(body));
  const absl::Status decoded =
      encoding.compressor.codec().Decode(std::as_bytes(std::span(body)), gathered);
  STARLING_CHECK(decoded.ok(), "what was encoded is decoded");
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (optimizer::StaysZero(kkt->weights[rows[i]], gathered[i], kkt->l1)) gathered[i] = 0;
  }
  // Encoded again the others stay the same.
  return parameter_server::Encode(update, encoding.codec, /*leave_out_zeros=*/true);
}

UpdatePtr EncodeFactored(const RowRange& rows, std::span<const float> gradient, float scale,
                         const PushEncoding& encoding, const workload::Workload& workload) {
  if (!kernels::AllFinite(gradient.subspan(rows.begin, rows.size()))) return nullptr;
  Stretches stretches(scale);
  const std::vector<engine::Tensor>& tensors = workload.declaration().tensors;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const auto offset = static_cast<std::uint64_t>(tensors[i].offset);
    const std::uint64_t begin = std::max(rows.begin, offset);
    const std::uint64_t end =
        std::min(rows.end, offset + static_cast<std::uint64_t>(tensors[i].size));
    if (begin >= end) continue;
    const RowRange part{begin - offset, end - offset};
    const std::optional<engine::Factors> factors = workload.FactorsOf(i);
    if (factors.has_value() && IsShorter(tensors[i], *factors, part)) {
      stretches.AddProduct(tensors[i], *factors, part);
    } else {
      stretches.AddPlain(gradient.subspan(begin, end - begin));
    }
  }
  return stretches.has_product() ? stretches.Encoded(rows, encoding.codec)
                                 : EncodeRange(rows, gradient, scale, encoding);
}

ShardEncoder NewShardEncoder(const v1alpha1::TrainingJobSpec& spec, workload::Workload& workload,
                             const parameter_server::JobTables& tables,
                             const ParameterReader& reader, compression::Compressor& compressor) {
  const auto encoding = [codec = tables.codec, &compressor](std::uint64_t update) {
    return PushEncoding{codec, compressor, update};
  };
  if (workload.sparse() != nullptr) {
    std::optional<Kkt> kkt;
    if (const std::optional<double> l1 = parameter_server::KktPenaltyOf(spec, /*sparse=*/true)) {
      kkt = Kkt{workload.parameters(), *l1};
    }
    return [=, &reader](std::size_t shard, std::span<const float> gradient, float scale,
                        std::uint64_t update) {
      return EncodeRows(reader.rows(shard), gradient, scale, encoding(update), kkt);
    };
  }
  if (spec.update().has_activations()) {
    workload.KeepFactors();
    return [=, &tables, &workload](std::size_t shard, std::span<const float> gradient, float scale,
                                   std::uint64_t update) {
      return EncodeFactored(tables.shards[shard].range, gradient, scale, encoding(update),
                            workload);
    };
  }
  return [=, &tables](std::size_t shard, std::span<const float> gradient, float scale,
                      std::uint64_t update) {
    return EncodeRange(tables.shards[shard].range, gradient, scale, encoding(update));
  };
}

}  // namespace starling::client
