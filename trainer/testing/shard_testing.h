// SPDX-License-Identifier: Apache-2.0
// Small tables, pushes and reads for the tests of shards.
#pragma once

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "trainer/optimizer/server_rules.h"
#include "trainer/parameter_server/shard_state.h"

namespace starling::parameter_server::shard_testing {

using Floats = std::vector<float>;
using Keys = std::vector<std::uint64_t>;

inline Client C(int number) { return {{absl::StrCat("worker-", number), 0}, 1}; }

inline std::shared_ptr<TableSpec> Table(TableKind kind, std::uint64_t rows, std::uint32_t width) {
  auto table = std::make_shared<TableSpec>();
  table->name = "t";
  table->kind = kind;
  table->rows = rows;
  table->width = width;
  table->combine = Combine::kSum;
  table->rule = optimizer::MakeAdd();
  return table;
}

inline ShardOptions OptionsOf(std::shared_ptr<const TableSpec> table,
                              consistency::Options model = consistency::Asynchronous{}) {
  const bool hashed = table->kind == TableKind::kSparse || table->kind == TableKind::kKeyValue;
  const RowRange range{0, hashed ? kHashEnd : table->rows};
  return {std::move(table), range, model, {}};
}

inline Entry PushOf(const Client& client, Sequence sequence, const Update& update) {
  Entry entry;
  entry.client = client;
  entry.sequence = sequence;
  entry.clock = sequence - 1;
  entry.update = Encode(update);
  return entry;
}

inline Update Range(std::uint64_t first, std::uint64_t rows, const Floats& values) {
  return {UpdateKind::kRange, 0, first, rows, {}, values, {}};
}
inline Update Rows(const Keys& keys, const Floats& values) {
  return {UpdateKind::kRows, 0, 0, 0, keys, values, {}};
}

inline Floats FloatsOf(const absl::StatusOr<std::string>& bytes) {
  EXPECT_TRUE(bytes.ok()) << bytes.status();
  if (!bytes.ok()) return {};
  Floats values(bytes->size() / sizeof(float));
  std::memcpy(values.data(), bytes->data(), bytes->size());
  return values;
}

inline Entry OfKind(EntryKind kind, const Client& client, Sequence sequence) {
  Entry entry;
  entry.kind = kind;
  entry.client = client;
  entry.sequence = sequence;
  return entry;
}

}  // namespace starling::parameter_server::shard_testing
