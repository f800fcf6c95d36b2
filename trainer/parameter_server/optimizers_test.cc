// SPDX-License-Identifier: Apache-2.0
// Each optimizer of the table, as servers run it: on dense and on sparse shards, cut in any way,
// and across a snapshot. What is expected is what the optimizer does by itself.
#include <cmath>
#include <map>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "starling/v1alpha1/training_job.pb.h"
#include "trainer/optimizer/optimizer.h"
#include "trainer/parameter_server/shard_state.h"
#include "trainer/testing/shard_testing.h"

namespace starling::parameter_server {
namespace {

using namespace shard_testing;  // NOLINT(google-build-using-namespace): of these tests

constexpr std::uint64_t kRows = 12;
constexpr std::uint32_t kWidth = 3;
constexpr double kRate = 0.1;
constexpr int kPushes = 8;

class ServersOptimizer : public ::testing::TestWithParam<optimizer::OptimizerKind> {
 protected:
  std::shared_ptr<const TableSpec> TableOf(TableKind kind) const {
    v1alpha1::Optimizer spec;
    spec.GetReflection()->MutableMessage(
        &spec,
        v1alpha1::Optimizer::descriptor()->FindFieldByCamelcaseName(std::string(GetParam().name)));
    auto rule = optimizer::MakeOptimizer(spec);
    EXPECT_TRUE(rule.ok()) << rule.status();
    auto table = Table(kind, kind == TableKind::kDense ? kRows : 0, kWidth);
    table->rule = *std::move(rule);
    table->learning_rate = [](std::int64_t) { return kRate; };
    return table;
  }
};
INSTANTIATE_TEST_SUITE_P(Each, ServersOptimizer, ::testing::ValuesIn(optimizer::OptimizerKinds()),
                         [](const auto& one) { return std::string(one.param.name); });

Floats Gradient(int push, std::uint64_t row) {
  Floats values(kWidth);
  for (std::uint32_t i = 0; i < kWidth; ++i) {
    values[i] = static_cast<float>(std::sin(push * 1.7 + static_cast<double>(row * kWidth + i)));
  }
  return values;
}

Floats GradientOf(int push, RowRange range) {
  Floats values;
  for (std::uint64_t row = range.begin; row < range.end; ++row) {
    for (const float value : Gradient(push, row)) values.push_back(value);
  }
  return values;
}

// The parameters by row, where update `push` reaches the rows of which `reaches` says so.
template <typename Reaches>
std::map<std::uint64_t, Floats> ByItself(const TableSpec& table, Reaches reaches) {
  std::map<std::uint64_t, Floats> rows;
  for (std::uint64_t row = 0; row < kRows; ++row) {
    Floats& values = rows[row] = Floats(kWidth);
    std::vector<optimizer::StateVector> state = optimizer::NewState(*table.rule, kWidth);
    for (int push = 1; push <= kPushes; ++push) {
      if (!reaches(push, row)) continue;
      optimizer::Apply(*table.rule, {.learning_rate = kRate, .number = push}, values,
                       Gradient(push, row), state);
    }
  }
  return rows;
}

TEST_P(ServersOptimizer, OnDenseShardsDoesWhatItDoesByItselfHoweverTheyAreCut) {
  const auto table = TableOf(TableKind::kDense);
  const auto expected = ByItself(*table, [](int, std::uint64_t) { return true; });
  for (const RowRange range : {RowRange{0, kRows}, RowRange{0, 5}, RowRange{5, kRows}}) {
    ShardOptions options = OptionsOf(table);
    options.range = range;
    ShardState shard(options);
    shard.OnView({C(0)});
    for (int push = 1; push <= kPushes; ++push) {
      const Floats gradient = GradientOf(push, range);
      const Entry entry = PushOf(C(0), push, Range(range.begin, range.size(), gradient));
      ASSERT_TRUE(shard.Check(entry).ok());
      shard.Append(entry);
    }
    for (std::uint64_t row = range.begin; row < range.end; ++row) {
      EXPECT_EQ(FloatsOf(shard.Read({row, 1, {}})), expected.at(row)) << row;
    }
  }
}

bool Reaches(int push, std::uint64_t row) { return (row + static_cast<unsigned>(push)) % 3 != 0; }

TEST_P(ServersOptimizer, OnSparseShardsMovesTheRowsThatArePushedAndNoOthers) {
  const auto table = TableOf(TableKind::kSparse);
  const auto expected = ByItself(*table, Reaches);
  ShardState shard(OptionsOf(table));
  shard.OnView({C(0)});
  for (int push = 1; push <= kPushes; ++push) {
    Keys keys;
    Floats values;
    for (std::uint64_t row = 0; row < kRows; ++row) {
      if (!Reaches(push, row)) continue;
      keys.push_back(row);
      for (const float value : Gradient(push, row)) values.push_back(value);
    }
    const Entry entry = PushOf(C(0), push, Rows(keys, values));
    ASSERT_TRUE(shard.Check(entry).ok());
    shard.Append(entry);
  }
  for (std::uint64_t row = 0; row < kRows; ++row) {
    EXPECT_EQ(FloatsOf(shard.Read({0, 0, Keys{row}})), expected.at(row)) << row;
  }
  const auto dense = ByItself(*table, [](int, std::uint64_t) { return true; });
  EXPECT_NE(FloatsOf(shard.Read({0, 0, Keys{1}})), dense.at(1)) << "not every push reached it";
}

TEST_P(ServersOptimizer, GoesOnFromASnapshotAsIfNothingHadHappened) {
  ShardState shard(OptionsOf(TableOf(TableKind::kDense)));
  shard.OnView({C(0)});
  const auto pushed = [](int push) {
    return PushOf(C(0), push, Range(0, kRows, GradientOf(push, {0, kRows})));
  };
  for (int push = 1; push <= 4; ++push) shard.Append(pushed(push));
  ShardState restored(OptionsOf(TableOf(TableKind::kDense)));
  ASSERT_TRUE(restored.Load(shard.Save()).ok());
  for (ShardState* one : {&shard, &restored}) {
    for (int push = 5; push <= kPushes; ++push) one->Append(pushed(push));
  }
  EXPECT_EQ(restored.Save(), shard.Save());
}

}  // namespace
}  // namespace starling::parameter_server
