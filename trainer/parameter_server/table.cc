// SPDX-License-Identifier: Apache-2.0
#include "trainer/parameter_server/table.h"

#include <algorithm>

#include "common/random/philox.h"
#include "trainer/parameter_server/factors.h"

namespace starling::parameter_server {

std::uint64_t HashOfKey(std::uint64_t key) {
  std::uint64_t x = key + 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return (x ^ (x >> 31)) >> 1;
}

void FillInitial(const TableSpec& spec, std::uint64_t row, std::span<float> values) {
  if (spec.initial_scale == 0) {
    std::fill(values.begin(), values.end(), 0.0F);
    return;
  }
  const random::Philox random(spec.seed, random::Stream::kParameters, row);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(2 * random.Uniform(i) - 1) * spec.initial_scale;
  }
}

namespace {

void SplitRange(const Update& update, std::uint64_t at, std::size_t width, Update& below,
                Update& above, std::vector<float>& scratch) {
  const std::uint64_t end = update.first + update.rows;
  const std::uint64_t cut = std::clamp(at, update.first, end);
  below.rows = cut - update.first;
  above.first = cut;
  above.rows = end - cut;
  if (update.kind == UpdateKind::kCall) return;
  if (update.kind == UpdateKind::kRange) {
    below.values = update.values.first(below.rows * width);
    above.values = update.values.subspan(below.rows * width);
    return;
  }
  // Factors: each half is multiplied. A slot is seldom cut.
  scratch = Multiplied(update, width);
  below.kind = above.kind = UpdateKind::kRange;
  below.rank = above.rank = 0;
  below.keys = above.keys = {};
  below.values = std::span<const float>(scratch).first(below.rows * width);
  above.values = std::span<const float>(scratch).subspan(below.rows * width);
}

}  // namespace

std::pair<std::string, std::string> SplitUpdate(const Update& update, std::uint64_t at,
                                                const TableSpec& spec) {
  Update below = update, above = update;
  std::vector<float> values, more_values;
  std::vector<std::uint64_t> keys, more_keys;
  std::string text, more_text;
  if (update.kind != UpdateKind::kRows && update.kind != UpdateKind::kPairs) {
    SplitRange(update, at, spec.width, below, above, values);
    return {Encode(below), Encode(above)};
  }
  const std::size_t stride = update.kind == UpdateKind::kPairs ? 2 : 1;
  std::string_view rest = update.text;
  for (std::size_t i = 0; i < update.keys.size(); i += stride) {
    const bool low = HashOfKey(update.keys[i]) < at;
    for (std::size_t j = 0; j < stride; ++j) {
      (low ? keys : more_keys).push_back(update.keys[i + j]);
    }
    if (stride == 2) {
      (low ? text : more_text) += rest.substr(0, update.keys[i + 1]);
      rest.remove_prefix(update.keys[i + 1]);
    } else {
      const std::span<const float> row = update.values.subspan(i * spec.width, spec.width);
      std::vector<float>& to = low ? values : more_values;
      to.insert(to.end(), row.begin(), row.end());
    }
  }
  below.keys = keys, below.values = values, below.text = text;
  above.keys = more_keys, above.values = more_values, above.text = more_text;
  return {Encode(below), Encode(above)};
}

std::unique_ptr<Shard> MakeShard(std::shared_ptr<const TableSpec> spec, RowRange range) {
  switch (spec->kind) {
    case TableKind::kDense:
    case TableKind::kArray:
      return MakeDenseShard(std::move(spec), range);
    case TableKind::kSparse:
      return MakeSparseShard(std::move(spec), range);
    case TableKind::kKeyValue:
      break;
  }
  return MakeKeyValueShard(std::move(spec), range);
}

}  // namespace starling::parameter_server
