// SPDX-License-Identifier: Apache-2.0
#include "trainer/parameter_server/table.h"

#include <algorithm>

#include "common/random/philox.h"

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

std::unique_ptr<ShardStore> MakeShard(std::shared_ptr<const TableSpec> spec, RowRange range) {
  switch (spec->kind) {
    case TableKind::kDense:
      return MakeDenseShard(std::move(spec), range);
    case TableKind::kSparse:
      return MakeSparseShard(std::move(spec), range);
    case TableKind::kKeyValue:
      break;
  }
  return MakeKeyValueShard(std::move(spec), range);
}

}  // namespace starling::parameter_server
