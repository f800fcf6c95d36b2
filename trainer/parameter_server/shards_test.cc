// SPDX-License-Identifier: Apache-2.0
// Each kind of table by itself: what it refuses, what it remembers for whom, and what a snapshot
// holds. What shards make of them is in shard_state_test.cc.
#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/optimizer/server_rules.h"
#include "trainer/parameter_server/table.h"

namespace starling::parameter_server {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using Floats = std::vector<float>;

const Client kAnn{{"ann", 2}, 31}, kBen{{"ben.1", 0}, 4};

std::shared_ptr<TableSpec> Table(TableKind kind, std::unique_ptr<optimizer::Optimizer> rule) {
  auto spec = std::make_shared<TableSpec>();
  spec->name = "weights";
  spec->kind = kind;
  spec->rows = 100;
  spec->width = 2;
  spec->rule = std::move(rule);
  return spec;
}

Floats FloatsOf(const std::string& bytes) {
  Floats floats(bytes.size() / sizeof(float));
  std::memcpy(floats.data(), bytes.data(), bytes.size());
  return floats;
}

Update Range(std::uint64_t first, std::uint64_t rows, const Floats& values) {
  return {UpdateKind::kRange, 0, first, rows, {}, values, {}};
}

void Apply(ShardStore& shard, const Update& update, const Client& client) {
  const Part part{&update, 1, &client};
  shard.Apply({.learning_rate = 0.5, .number = 1}, {&part, 1});
}

absl::StatusOr<std::string> FileOf(const ShardStore& shard) {
  Tensors tensors;
  shard.Save(tensors);
  return checkpoint::Encode(tensors.views, {});
}

absl::Status LoadFile(ShardStore& shard, const std::string& file) {
  const auto decoded = checkpoint::Decode(std::as_bytes(std::span(file)));
  return decoded.ok() ? shard.Load(*decoded) : decoded.status();
}

// Where keys lie. ---------------------------------------------------------------------------------

// Checkpoints have been cut by it: it may never change. These are published values of splitmix64.
TEST(HashOfKey, IsHalfOfWhatSplitMixMakesOfTheKey) {
  EXPECT_EQ(HashOfKey(0), 0xe220a8397b1dcdafULL / 2);
  EXPECT_EQ(HashOfKey(1234567), 6457827717110365317ULL / 2);
}

// What rows begin with. ---------------------------------------------------------------------------

TEST(FillInitial, ValuesAreUniformBetweenMinusTheScaleAndTheScale) {
  const auto spec = Table(TableKind::kDense, optimizer::MakeAdd());
  spec->initial_scale = 0.5F;
  Floats values(1001, 7);
  FillInitial(*spec, 3, std::span(values).first(1000));
  EXPECT_EQ(values.back(), 7) << "it is another row's";
  values.pop_back();
  const auto [least, most] = std::ranges::minmax(values);
  EXPECT_GE(least, -0.5F);
  EXPECT_LT(least, -0.45F);
  EXPECT_LT(most, 0.5F);
  EXPECT_GT(most, 0.45F);
}

TEST(FillInitial, WithoutAScaleARowIsZeroWhateverWasThere) {
  Floats values(100, -1);
  FillInitial(*Table(TableKind::kDense, optimizer::MakeAdd()), 3, values);
  for (const float value : values) EXPECT_EQ(std::bit_cast<std::uint32_t>(value), 0U);
}

// Dense. ------------------------------------------------------------------------------------------

constexpr RowRange kRange{10, 14};

std::unique_ptr<ShardStore> Dense(
    std::unique_ptr<optimizer::Optimizer> rule = optimizer::MakeAdd()) {
  return MakeShard(Table(TableKind::kDense, std::move(rule)), kRange);
}

TEST(DenseShard, BeginsWithItsRowsOwnInitialValues) {
  auto spec = Table(TableKind::kDense, optimizer::MakeAdd());
  spec->initial_scale = 1;
  const Floats all = FloatsOf(MakeShard(spec, {0, 100})->Read({10, 4, {}}));
  EXPECT_EQ(FloatsOf(MakeShard(spec, kRange)->Read({10, 4, {}})), all);
  EXPECT_THAT(all, Not(Each(0.0F)));
}

TEST(DenseShard, TakesRangesOfItsOwnRowsAlone) {
  const auto shard = Dense();
  const std::vector<std::uint64_t> keys = {11};
  const Floats two = {1, 2}, four = {1, 2, 3, 4};
  EXPECT_TRUE(shard->Check(Range(10, 1, two)).ok());
  EXPECT_TRUE(shard->Check(Range(12, 2, four)).ok());
  EXPECT_FALSE(shard->Check(Range(9, 1, two)).ok());
  EXPECT_FALSE(shard->Check(Range(13, 2, four)).ok());
  EXPECT_FALSE(shard->Check(Range(15, 0, {})).ok());
  EXPECT_FALSE(shard->Check(Range(10, 2, two)).ok()) << "too few values";
  for (const UpdateKind kind : {UpdateKind::kRows, UpdateKind::kPairs}) {
    EXPECT_THAT(std::string(shard->Check(Update{kind, 0, 10, 1, keys, two, {}}).message()),
                HasSubstr("takes ranges"));
  }
  EXPECT_FALSE(shard->Check(Selection{10, 1, keys}).ok());
  EXPECT_FALSE(shard->Check(Selection{9, 1, {}}).ok());
  EXPECT_TRUE(shard->Check(Selection{14, 0, {}}).ok());
}

TEST(DenseShard, TakesFactorsOfItsOwnRowsAloneBeforeItLooksAtTheirNumbers) {
  const auto shard = Dense();
  const Floats values = {1, 2, 3};  // of one row of two columns: one error and two inputs
  const auto factors = [&](std::uint64_t first, std::uint64_t rows) {
    return Update{UpdateKind::kFactors, 1, first, rows, {}, values, {}};
  };
  EXPECT_TRUE(shard->Check(factors(13, 1)).ok());
  EXPECT_THAT(std::string(shard->Check(factors(14, 1)).message()), HasSubstr("are not all in"));
  EXPECT_THAT(std::string(shard->Check(factors(10, 2)).message()), HasSubstr("do not fit"));
}

// What a client read, as it was then: AdaRevision wants the sums of gradients.
TEST(DenseShard, RemembersWhatEachClientReadUntilItsNextRead) {
  const bool of_sums[] = {false, true};
  for (const bool sums : of_sums) {
    const auto shard =
        Dense(sums ? optimizer::MakeAdaRevision({}) : optimizer::MakeDelayCompensated({}));
    const Floats ones = {1, 1};
    Apply(*shard, Range(11, 1, ones), kAnn);
    const Floats before = FloatsOf(shard->Read({10, 4, {}}));
    EXPECT_NE(before[2], 0);
    shard->Remember(kAnn, {10, 4, {}});
    Apply(*shard, Range(11, 1, ones), kBen);
    EXPECT_EQ(FloatsOf(*shard->ReadRemembered(kAnn, {10, 4, {}})), before);
    EXPECT_NE(FloatsOf(shard->Read({10, 4, {}})), before);
    EXPECT_EQ(shard->ReadRemembered(kBen, {10, 4, {}}).status().code(),
              absl::StatusCode::kNotFound);
    // A part of the rows is read again.
    shard->Remember(kAnn, {11, 1, {}});
    EXPECT_EQ(FloatsOf(*shard->ReadRemembered(kAnn, {11, 1, {}})),
              FloatsOf(shard->Read({11, 1, {}})));
    shard->KeepOnly({kBen});
    EXPECT_FALSE(shard->ReadRemembered(kAnn, {11, 1, {}}).ok());
  }
}

TEST(DenseShard, ASnapshotHoldsWhatIsRememberedForWhom) {
  const bool of_sums[] = {false, true};
  for (const bool sums : of_sums) {
    const auto make = [&] {
      return Dense(sums ? optimizer::MakeAdaRevision({}) : optimizer::MakeDelayCompensated({}));
    };
    const auto shard = make();
    const Floats ones = {1, 1};
    Apply(*shard, Range(11, 1, ones), kAnn);
    shard->Remember(kBen, {10, 4, {}});
    shard->Remember(kAnn, {10, 4, {}});
    Apply(*shard, Range(11, 1, ones), kAnn);
    const auto file = FileOf(*shard);
    ASSERT_TRUE(file.ok()) << file.status();

    const auto other = make();
    const Client gone{{"gone", 0}, 1};
    other->Remember(gone, {10, 4, {}});
    ASSERT_TRUE(LoadFile(*other, *file).ok());
    EXPECT_EQ(*FileOf(*other), *file);
    EXPECT_EQ(other->bytes(), shard->bytes());
    EXPECT_FALSE(other->ReadRemembered(gone, {10, 1, {}}).ok());
    for (const Client& client : {kAnn, kBen}) {
      const auto read = other->ReadRemembered(client, {10, 4, {}});
      ASSERT_TRUE(read.ok()) << read.status();
      EXPECT_EQ(*read, *shard->ReadRemembered(client, {10, 4, {}}));
    }
    // And the next update of each is made as it would have been.
    for (const auto* one : {&shard, &other}) Apply(**one, Range(11, 1, ones), kBen);
    EXPECT_EQ(other->Read({10, 4, {}}), shard->Read({10, 4, {}}));
  }
}

TEST(DenseShard, ASnapshotOfAnotherRangeOrThatLacksSomethingIsRefused) {
  const auto shard = Dense(optimizer::MakeDelayCompensated({.adaptive = true}));
  shard->Remember(kAnn, {10, 4, {}});
  const Floats whole(8, 1), part(6, 1);
  const auto load = [&](std::vector<std::pair<std::string, const Floats*>> named) {
    std::vector<checkpoint::TensorView> views;
    for (const auto& [name, floats] : named) {
      views.push_back(checkpoint::MakeView(name, {static_cast<std::int64_t>(floats->size())},
                                           std::span(*floats)));
    }
    return LoadFile(*shard, *checkpoint::Encode(views, {}));
  };
  Tensors tensors;
  shard->Save(tensors);
  std::string state;
  for (const auto& view : tensors.views) {
    if (view.name.starts_with("state.")) state = view.name;
  }
  ASSERT_NE(state, "");
  EXPECT_TRUE(load({{"values", &whole}, {state, &whole}}).ok());
  EXPECT_THAT(std::string(load({{state, &whole}}).message()), HasSubstr("lacks values"));
  EXPECT_FALSE(load({{"values", &part}, {state, &whole}}).ok());
  EXPECT_FALSE(load({{"values", &whole}}).ok());
  EXPECT_FALSE(load({{"values", &whole}, {state, &part}}).ok());
  EXPECT_FALSE(load({{"values", &whole}, {state, &whole}, {"wanted.2.31.ann", &part}}).ok());
}

// Sparse. -----------------------------------------------------------------------------------------

TEST(SparseShard, TakesNamedRowsOfItsOwnRangeAlone) {
  const RowRange lower{0, kHashEnd / 2};
  const auto shard = MakeShard(Table(TableKind::kSparse, optimizer::MakeAdd()), lower);
  std::vector<std::uint64_t> mine, others;
  for (std::uint64_t key = 0; mine.empty() || others.empty(); ++key) {
    (lower.Holds(HashOfKey(key)) ? mine : others) = {key};
  }
  const Floats two = {1, 2}, three = {1, 2, 3};
  const auto rows = [](const std::vector<std::uint64_t>& keys, const Floats& values) {
    return Update{UpdateKind::kRows, 0, 0, 0, keys, values, {}};
  };
  EXPECT_TRUE(shard->Check(rows(mine, two)).ok());
  EXPECT_FALSE(shard->Check(rows(others, two)).ok());
  EXPECT_FALSE(shard->Check(rows(mine, three)).ok());
  EXPECT_FALSE(shard->Check(Range(0, 1, two)).ok());
  EXPECT_FALSE(shard->Check(Range(0, 0, {})).ok());
  EXPECT_FALSE(shard->Check(Selection{0, 1, mine}).ok());
  EXPECT_TRUE(shard->Check(Selection{0, 0, mine}).ok());
  EXPECT_FALSE(shard->Check(Selection{0, 0, others}).ok());
}

TEST(SparseShard, PushesThatBecomeOneUpdateAreAddedOrAveragedRowByRow) {
  const std::vector<std::uint64_t> first = {9, 3}, second = {3, 5}, all = {3, 5, 9};
  const Floats ones = {1, 2, 4, 8}, tens = {10, 20, 40, 80};
  for (const Combine combine : {Combine::kSum, Combine::kMean}) {
    auto spec = Table(TableKind::kSparse, optimizer::MakeAdd());
    spec->combine = combine;
    const auto shard = MakeShard(spec, {0, kHashEnd});
    const Update a{UpdateKind::kRows, 0, 0, 0, first, ones, {}};
    const Update b{UpdateKind::kRows, 0, 0, 0, second, tens, {}};
    const Part parts[] = {{&a, 1, &kAnn}, {&b, 3, &kBen}};
    shard->Apply({.learning_rate = 1, .number = 1}, parts);
    const Floats now = FloatsOf(shard->Read({0, 0, all}));
    if (combine == Combine::kSum) {
      EXPECT_THAT(now, ElementsAre(14, 28, 40, 80, 1, 2));
    } else {
      EXPECT_THAT(now, ElementsAre(8.5, 17, 30, 60, 0.25, 0.5)) << "by weight";
    }
  }
}

// A rule whose parameters follow from its state; the dense table is the oracle.
TEST(SparseShard, ARowThatIsAssignedBeginsItsRulesStateAnew) {
  const auto sparse = MakeShard(Table(TableKind::kSparse, optimizer::MakeFtrl({})), {0, kHashEnd});
  const auto dense = Dense(optimizer::MakeFtrl({}));
  const std::vector<std::uint64_t> rows = {10, 11};
  const Floats values = {1, 2, 3, 4}, gradient = {0.5, -1, 2, 0.25};
  sparse->Assign({0.5, 1}, {UpdateKind::kRows, 0, 0, 0, rows, values, {}});
  dense->Assign({0.5, 1}, Range(10, 2, values));
  Apply(*sparse, {UpdateKind::kRows, 0, 0, 0, rows, gradient, {}}, kAnn);
  Apply(*dense, Range(10, 2, gradient), kAnn);
  EXPECT_EQ(FloatsOf(sparse->Read({0, 0, rows})), FloatsOf(dense->Read({10, 2, {}})));
}

TEST(SparseShard, WithoutALivingRowThereIsASnapshotToo) {
  const auto shard =
      MakeShard(Table(TableKind::kSparse, optimizer::MakeAdagrad({})), {0, kHashEnd});
  const auto file = FileOf(*shard);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_TRUE(LoadFile(*shard, *file).ok());
}

TEST(SparseShard, ASnapshotHoldsTheLivingRowsInTheOrderOfTheirBirths) {
  const auto make = [] {
    return MakeShard(Table(TableKind::kSparse, optimizer::MakeAdagrad({})), {0, kHashEnd});
  };
  const auto shard = make();
  const std::vector<std::uint64_t> keys = {9, 3};
  const Floats values = {1, 2, 3, 4};
  Apply(*shard, {UpdateKind::kRows, 0, 0, 0, keys, values, {}}, kAnn);
  const auto file = FileOf(*shard);
  ASSERT_TRUE(file.ok());
  const auto other = make();
  ASSERT_TRUE(LoadFile(*other, *file).ok());
  EXPECT_EQ(*FileOf(*other), *file);
  EXPECT_EQ(other->bytes(), shard->bytes());
  EXPECT_EQ(shard->bytes(), 2 * (8 + 2 * 2 * 4)) << "names, values, and what the rule keeps";
  const std::vector<std::uint64_t> before = {7};
  const auto used = make();
  Apply(*used, {UpdateKind::kRows, 0, 0, 0, before, {values.data(), 2}, {}}, kAnn);
  ASSERT_TRUE(LoadFile(*used, *file).ok());
  EXPECT_THAT(FloatsOf(used->Read({0, 0, before})), Each(0.0F)) << "nothing of before lives";
  for (const auto* one : {&shard, &other}) {
    Apply(**one, {UpdateKind::kRows, 0, 0, 0, keys, values, {}}, kAnn);
  }
  EXPECT_EQ(other->Read({0, 0, keys}), shard->Read({0, 0, keys}));
}

TEST(SparseShard, ASnapshotThatLacksSomethingOrHoldsRowsOfAnotherWidthIsRefused) {
  const auto shard =
      MakeShard(Table(TableKind::kSparse, optimizer::MakeAdagrad({})), {0, kHashEnd});
  const std::vector<std::int64_t> keys = {9, 3};
  const Floats two(4), one(2);
  const auto loads = [&](const std::vector<checkpoint::TensorView>& views) {
    return LoadFile(*shard, *checkpoint::Encode(views, {})).ok();
  };
  const auto of = [](const std::string& name, const Floats& values) {
    return checkpoint::MakeView(name, {static_cast<std::int64_t>(values.size())},
                                std::span(values));
  };
  const checkpoint::TensorView rows = checkpoint::MakeView("keys", {2}, std::span(keys));
  const std::string state = "state." + optimizer::NewState(*optimizer::MakeAdagrad({}), 0)[0].name;
  EXPECT_TRUE(loads({rows, of("values", two), of(state, two)}));
  EXPECT_FALSE(loads({of("values", two), of(state, two)}));
  EXPECT_FALSE(loads({rows, of(state, two)}));
  EXPECT_FALSE(loads({rows, of("values", two)}));
  EXPECT_FALSE(loads({rows, of("values", one), of(state, two)}));
  EXPECT_FALSE(loads({rows, of("values", two), of(state, one)}));
}

// Key-value. --------------------------------------------------------------------------------------

TEST(KeyValueShard, TakesPairsOfItsOwnRangeAlone) {
  const RowRange lower{0, kHashEnd / 2};
  const auto shard = MakeShard(Table(TableKind::kKeyValue, nullptr), lower);
  std::vector<std::uint64_t> mine, others;
  for (std::uint64_t key = 0; mine.size() < 2 || others.size() < 2; ++key) {
    (lower.Holds(HashOfKey(key)) ? mine : others).push_back(key);
  }
  const auto takes = [&](const std::vector<std::uint64_t>& keys, std::string_view text) {
    return shard->Check(Update{UpdateKind::kPairs, 0, 0, 0, keys, {}, text}).ok();
  };
  EXPECT_TRUE(takes({mine[0], 1, mine[1], 1}, "ab"));
  EXPECT_FALSE(takes({others[0], 1}, "a"));
  EXPECT_FALSE(takes({mine[0], 1, others[0], 1}, "ab"));
  EXPECT_THAT(std::string(shard->Check(Range(0, 0, {})).message()), HasSubstr("takes pairs"));
  EXPECT_TRUE(shard->Check(Selection{0, 0, mine}).ok());
  EXPECT_FALSE(shard->Check(Selection{0, 0, others}).ok());
}

// A pair of a key and an empty text is the shortest that there is.
TEST(KeyValueShard, ASnapshotMayHoldAnEmptyText) {
  const auto make = [] { return MakeShard(Table(TableKind::kKeyValue, nullptr), {0, kHashEnd}); };
  const auto shard = make(), other = make();
  const std::vector<std::uint64_t> pair = {1, 0};
  Apply(*shard, {UpdateKind::kPairs, 0, 0, 0, pair, {}, ""}, kAnn);
  const auto file = FileOf(*shard);
  ASSERT_TRUE(file.ok());
  EXPECT_TRUE(LoadFile(*other, *file).ok());
  EXPECT_EQ(other->bytes(), sizeof(std::uint64_t));
}

TEST(KeyValueShard, TheLastPutWinsAndWhatWasNeverPutIsEmpty) {
  const auto make = [] { return MakeShard(Table(TableKind::kKeyValue, nullptr), {0, kHashEnd}); };
  const auto shard = make();
  const std::vector<std::uint64_t> both = {1, 3, 2, 2}, first = {1, 4}, names = {1, 2, 7};
  Apply(*shard, {UpdateKind::kPairs, 0, 0, 0, both, {}, "onetw"}, kAnn);
  shard->Assign({}, {UpdateKind::kPairs, 0, 0, 0, first, {}, "anew"});
  const std::string read = shard->Read({0, 0, names});
  ASSERT_EQ(read.size(), 3 * sizeof(std::uint64_t) + 6);
  std::uint64_t lengths[3];
  std::memcpy(lengths, read.data(), sizeof lengths);
  EXPECT_THAT(lengths, ElementsAre(4, 2, 0));
  EXPECT_EQ(read.substr(sizeof lengths), "anewtw");
  EXPECT_EQ(*shard->ReadRemembered(kAnn, {0, 0, names}), read);
  EXPECT_EQ(shard->bytes(), 2 * sizeof(std::uint64_t) + 6);

  const auto file = FileOf(*shard);
  ASSERT_TRUE(file.ok());
  const auto other = make();
  const std::vector<std::uint64_t> seventh = {7, 1};
  Apply(*other, {UpdateKind::kPairs, 0, 0, 0, seventh, {}, "x"}, kAnn);
  ASSERT_TRUE(LoadFile(*other, *file).ok());
  EXPECT_EQ(other->Read({0, 0, names}), read) << "nothing of before is left";
  EXPECT_FALSE(LoadFile(*other, *checkpoint::Encode({}, {})).ok());
}

}  // namespace
}  // namespace starling::parameter_server
