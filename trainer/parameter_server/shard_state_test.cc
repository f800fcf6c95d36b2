// SPDX-License-Identifier: Apache-2.0
#include "trainer/parameter_server/shard_state.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/sync/mutex.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "starling/v1alpha1/training_job.pb.h"
#include "trainer/optimizer/server_rules.h"
#include "trainer/testing/shard_testing.h"

namespace starling::parameter_server {
namespace {

using namespace shard_testing;  // NOLINT(google-build-using-namespace): of these tests
using ::testing::ElementsAre;
using ::testing::Pair;

TEST(ShardState, RandomPushesOfRangesEqualOneProcessesSum) {
  ShardState shard(OptionsOf(Table(TableKind::kDense, 50, 3)));
  shard.OnView({C(0), C(1), C(2)});
  std::mt19937 random(1);
  Floats sum(150);
  Sequence sequence[3] = {0, 0, 0};
  for (int i = 0; i < 500; ++i) {
    const std::uint64_t first = random() % 50, rows = random() % (51 - first);
    Floats delta(rows * 3);
    for (float& value : delta) value = static_cast<float>(random() % 9) - 4;
    for (std::size_t j = 0; j < delta.size(); ++j) sum[first * 3 + j] += delta[j];
    const int client = static_cast<int>(random() % 3);
    const Entry entry = PushOf(C(client), ++sequence[client], Range(first, rows, delta));
    ASSERT_TRUE(shard.Check(entry).ok());
    ASSERT_EQ(shard.Append(entry), Outcome::kTaken);
  }
  EXPECT_EQ(FloatsOf(shard.Read({0, 50, {}})), sum);
}

TEST(ShardState, SparseRowsComeToLifeWhenTheyArePushedAndReadAsTheirInitialValuesBefore) {
  auto table = Table(TableKind::kSparse, 0, 2);
  table->initial_scale = 0.5F;
  ShardState shard(OptionsOf(table));
  shard.OnView({C(0)});
  const Keys keys = {7, 1'000'000'007, 7'000'000'000'000};
  const Floats before = FloatsOf(shard.Read({0, 0, keys}));
  EXPECT_EQ(shard.bytes(), 0u) << "reading brings nothing to life";
  EXPECT_NE(before[0], 0);
  const Keys pushed = {1'000'000'007};
  shard.Append(PushOf(C(0), 1, Rows(pushed, {1, 2})));
  EXPECT_EQ(shard.bytes(), 8u + 2 * 4);
  const Floats after = FloatsOf(shard.Read({0, 0, keys}));
  EXPECT_EQ(after[0], before[0]);
  EXPECT_EQ(after[2], before[2] + 1);
  EXPECT_EQ(after[3], before[3] + 2);
}

// Rows are taken at once where they ascend: whatever their order, and if one is named twice, it is
// as if each had been pushed by itself.
TEST(ShardState, SparseRowsOfOnePushAreTakenAsIfOneByOneInAnyOrder) {
  auto table = Table(TableKind::kSparse, 0, 2);
  table->rule = optimizer::MakeFtrl({.beta = 1, .l1 = 0.1, .l2 = 0.2});
  table->initial_scale = 0.5F;
  table->learning_rate = [](std::int64_t) { return 0.3; };
  ShardState whole(OptionsOf(table)), single(OptionsOf(table));
  whole.OnView({C(0)});
  single.OnView({C(0)});
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  Sequence pushed = 0, pushed_single = 0;
  for (int round = 0; round < 10; ++round) {
    Keys keys(60);
    Floats values(2 * keys.size());
    for (std::uint64_t& key : keys) key = random() % 40;  // many twice
    for (float& value : values) value = normal(random);
    if (round % 2 == 0) std::sort(keys.begin(), keys.end());
    whole.Append(PushOf(C(0), ++pushed, Rows(keys, values)));
    for (std::size_t i = 0; i < keys.size(); ++i) {
      const Keys key = {keys[i]};
      const Floats value = {values[2 * i], values[2 * i + 1]};
      single.Append(PushOf(C(0), ++pushed_single, Rows(key, value)));
    }
  }
  Keys all(40);
  std::iota(all.begin(), all.end(), 0);
  const Floats weights = FloatsOf(whole.Read({0, 0, all}));
  EXPECT_EQ(weights, FloatsOf(single.Read({0, 0, all})));
  // In another order a row that is named twice is another.
  Keys twice = {1, 1};
  Floats values = {1, 2, -3, 4}, turned = {-3, 4, 1, 2};
  whole.Append(PushOf(C(0), ++pushed, Rows(twice, values)));
  single.Append(PushOf(C(0), ++pushed_single, Rows(twice, turned)));
  EXPECT_NE(FloatsOf(whole.Read({0, 0, all})), FloatsOf(single.Read({0, 0, all})));
}

TEST(ShardState, OfKeyValuePairsTheLastPutInTheShardsOrderStays) {
  ShardState shard(OptionsOf(Table(TableKind::kKeyValue, 0, 1)));
  shard.OnView({C(0)});
  const Keys pairs = {5, 2, 6, 3};
  shard.Append(PushOf(C(0), 1, {UpdateKind::kPairs, 0, 0, 0, pairs, {}, "abcde"}));
  const Keys again = {6, 1};
  shard.Append(PushOf(C(0), 2, {UpdateKind::kPairs, 0, 0, 0, again, {}, "x"}));
  const Keys keys = {6, 99, 5};
  const auto read = shard.Read({0, 0, keys});
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read->substr(24), "xab");
}

TEST(ShardState, FactorsGiveTheDensePushesWeightsForTheirOwnFewBytes) {
  constexpr std::size_t kRows = 40, kColumns = 30, kSamples = 4;
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  Floats factors(kSamples * (kRows + kColumns)), dense(kRows * kColumns);
  for (float& value : factors) value = normal(random);
  for (std::size_t k = 0; k < kSamples; ++k) {
    for (std::size_t i = 0; i < kRows; ++i) {
      for (std::size_t j = 0; j < kColumns; ++j) {
        dense[i * kColumns + j] +=
            factors[k * kRows + i] * factors[kSamples * kRows + k * kColumns + j];
      }
    }
  }
  ShardState shard(OptionsOf(Table(TableKind::kDense, kRows, kColumns)));
  shard.OnView({C(0)});
  const Update update{UpdateKind::kFactors, kSamples, 0, kRows, {}, factors, {}};
  const Entry entry = PushOf(C(0), 1, update);
  EXPECT_EQ(entry.update->body->size(), 4 * kSamples * (kRows + kColumns));
  ASSERT_TRUE(shard.Check(entry).ok());
  shard.Append(entry);
  const Floats weights = FloatsOf(shard.Read({0, kRows, {}}));
  for (std::size_t i = 0; i < dense.size(); ++i) EXPECT_NEAR(weights[i], dense[i], 1e-5);
}

TEST(ShardState, BulkSynchronousStepsOfUnequalSharesEqualTheWholeBatchsBitForBit) {
  auto table = Table(TableKind::kDense, 3, 1);
  table->combine = Combine::kMean;
  table->rule = *optimizer::MakeOptimizer([] {
    v1alpha1::Optimizer sgd;
    sgd.mutable_sgd();
    return sgd;
  }());
  table->learning_rate = [](std::int64_t) { return 0.25; };
  ShardState shard(OptionsOf(table, consistency::BulkSynchronous{4}));
  shard.OnView({C(0), C(1), C(2)});
  const double counts[] = {8, 4, 4};
  Floats reference(3);
  for (Sequence step = 1; step <= 100; ++step) {
    for (int i = 0; i < 3; ++i) {
      const int client = (i + static_cast<int>(step)) % 3;  // in another order each time
      const auto value = static_cast<float>((step + client) % 5 - 2);
      Entry entry = PushOf(C(client), step, Range(0, 3, {value, 2 * value, 4}));
      entry.weight = counts[client];
      // Two portions are the first client's.
      entry.lease = static_cast<Lease>(4 * step - 2 + (client == 0 ? 0 : client + 1));
      entry.leases = client == 0 ? 2 : 1;
      shard.Append(entry);
    }
    for (std::size_t j = 0; j < 3; ++j) {
      float mean = 0;
      for (int client = 0; client < 3; ++client) {
        const auto value = static_cast<float>((step + client) % 5 - 2);
        const Floats gradient = {value, 2 * value, 4};
        mean += static_cast<float>(counts[client] / 16) * gradient[j];
      }
      reference[j] -= 0.25F * mean;
    }
  }
  EXPECT_EQ(FloatsOf(shard.Read({0, 3, {}})), reference);
}

TEST(ShardState, APushIsTakenOnceInOrderAndByItsLeaseOnce) {
  ShardState shard(OptionsOf(Table(TableKind::kDense, 1, 1)));
  shard.OnView({C(0), C(1)});
  Entry first = PushOf(C(0), 1, Range(0, 1, {1}));
  first.lease = 10;
  EXPECT_EQ(shard.StandingOf(C(0), 1), Standing::kNext);
  shard.Append(first);
  EXPECT_EQ(shard.StandingOf(C(0), 1), Standing::kOld);
  EXPECT_EQ(shard.StandingOf(C(0), 3), Standing::kGap);
  EXPECT_EQ(shard.StandingOf(C(9), 1), Standing::kStranger);
  Entry again = PushOf(C(1), 1, Range(0, 1, {1}));
  again.lease = 10;
  EXPECT_EQ(shard.Append(again), Outcome::kSkipped);
  EXPECT_EQ(shard.StandingOf(C(1), 1), Standing::kOld) << "its number is used up all the same";
  EXPECT_THAT(shard.NotTakenOf(C(1)), ElementsAre(Pair(1, Outcome::kSkipped)));
  EXPECT_THAT(FloatsOf(shard.Read({0, 1, {}})), ElementsAre(1));
}

TEST(ShardState, WhatIsRefusedIsRememberedForItsRetries) {
  ShardState shard(OptionsOf(Table(TableKind::kDense, 1, 1),
                             consistency::Options(consistency::BackupWorkers{1})));
  shard.OnView({C(0), C(1)});
  shard.Append(PushOf(C(0), 1, Range(0, 1, {1})));
  Entry late = PushOf(C(1), 1, Range(0, 1, {1}));
  late.lease = 4;
  EXPECT_EQ(shard.Append(late), Outcome::kRefused);
  EXPECT_FALSE(shard.ledger().Has(4));
  EXPECT_THAT(shard.NotTakenOf(C(1)), ElementsAre(Pair(1, Outcome::kRefused)));
  EXPECT_TRUE(shard.held().empty()) << "its client takes it back";
}

Entry AggregateOf(const std::vector<Constituent>& parts) {
  Entry aggregate = PushOf(C(0), 0, Range(0, 1, {2}));
  aggregate.kind = EntryKind::kAggregate;
  aggregate.parts = parts;
  return aggregate;
}

TEST(ShardState, AnAggregateIsOfTheNextPushesOfDifferentClients) {
  ShardState shard(OptionsOf(Table(TableKind::kDense, 1, 1)));
  shard.OnView({C(0), C(1)});
  EXPECT_TRUE(shard.TakesWhole(AggregateOf({{C(0), 1, 10}, {C(1), 1, 11}})));
  EXPECT_FALSE(shard.TakesWhole(AggregateOf({{C(0), 1, 10}, {C(0), 1, 11}}))) << "one twice";
  EXPECT_FALSE(shard.TakesWhole(AggregateOf({{C(0), 1, 10}, {C(1), 2, 11}}))) << "not the next";
  EXPECT_FALSE(shard.TakesWhole(AggregateOf({{C(0), 1, 10}, {C(1), 1, 10}}))) << "one lease twice";
  EXPECT_FALSE(shard.TakesWhole(AggregateOf({{C(0), 1, 10}, {C(2), 1, 11}}))) << "a stranger";
  EXPECT_FALSE(shard.TakesWhole(AggregateOf({})));
}

// All that a shard can hold: held pushes, remembered reads, rows that came to life.
std::unique_ptr<ShardState> Busy(const ShardOptions& options, int pushes) {
  auto shard = std::make_unique<ShardState>(options);
  shard->OnView({C(0), C(1), C(2)});
  const bool dense = options.table->kind == TableKind::kDense;
  for (int i = 0; i < pushes; ++i) {
    const Keys keys = {static_cast<std::uint64_t>(i * 37 % 11)};
    Entry entry = dense ? PushOf(C(i % 2), i / 2 + 1,
                                 Range(static_cast<std::uint64_t>(i % 3), 2, Floats(8, 1.5F)))
                        : PushOf(C(i % 2), i / 2 + 1, Rows(keys, Floats(4, 1.5F)));
    entry.lease = static_cast<Lease>(i) + 2;
    if (dense && i % 5 == 4) {
      entry.kind = EntryKind::kRemember;
      entry.lease = 0;
    }
    shard->Append(entry);
  }
  return shard;
}

std::vector<ShardOptions> EveryShard() {
  std::vector<ShardOptions> all;
  for (const consistency::Options& model : {consistency::Options(consistency::BulkSynchronous{3}),
                                            consistency::Options(consistency::Asynchronous{})}) {
    for (const TableKind kind : {TableKind::kDense, TableKind::kSparse}) {
      for (int rule = 0; rule < 4; ++rule) {
        auto table = Table(kind, 5, 4);
        if (rule == 1) table->rule = optimizer::MakeAdagrad({});
        if (rule == 2) table->rule = optimizer::MakeDelayCompensated({0.1, true, 0.9, 1e-7});
        if (rule == 3) table->rule = optimizer::MakeAdaRevision({});
        all.push_back(OptionsOf(table, model));
      }
    }
  }
  return all;
}

TEST(ShardState, ASnapshotRestoresAllOfItAndGoesOnToTheSameBytes) {
  for (const ShardOptions& options : EveryShard()) {
    const auto shard = Busy(options, 21);
    ShardState restored(options);
    ASSERT_TRUE(restored.Load(shard->Save()).ok());
    EXPECT_EQ(restored.Save(), shard->Save());
    for (ShardState* one : {shard.get(), &restored}) {
      one->Append(PushOf(C(2), 1,
                         options.table->kind == TableKind::kDense ? Range(0, 5, Floats(20, 2))
                                                                  : Rows(Keys{3}, Floats(4, 2))));
      one->OnView({C(1)});
    }
    EXPECT_EQ(restored.Save(), shard->Save());
  }
}

TEST(ShardState, ADamagedSnapshotIsRefused) {
  const ShardOptions options = EveryShard()[0];
  const std::string good = Busy(options, 21)->Save();
  ShardState shard(options);
  EXPECT_FALSE(shard.Load(good.substr(0, good.size() - 9)).ok());
  EXPECT_FALSE(shard.Load("").ok());
  ShardOptions other = options;
  other.range = {0, 4};
  EXPECT_FALSE(ShardState(other).Load(good).ok());
}

TEST(ShardState, DelayCompensationKeepsOneCopyForEachReaderAndDropsTheDepartedsCopies) {
  auto table = Table(TableKind::kDense, 100, 1);
  table->rule = optimizer::MakeDelayCompensated({});
  ShardState shard(OptionsOf(table));
  shard.OnView({C(0), C(1), C(2)});
  for (int i = 0; i < 3; ++i) {
    Entry read = PushOf(C(i), 1, Range(0, 100, {}));
    read.kind = EntryKind::kRemember;
    ASSERT_TRUE(shard.Check(read).ok());
    shard.Append(read);
  }
  EXPECT_EQ(shard.bytes(), 400u * (1 + 3));
  shard.OnView({C(1)});
  EXPECT_EQ(shard.bytes(), 400u * 2);
}

TEST(ShardState, TheCopyIsWhatWasDeliveredNotWhatIsThereNow) {
  auto table = Table(TableKind::kDense, 1, 1);
  table->rule = optimizer::MakeDelayCompensated({0.5, false, 0, 0});
  ShardState shard(OptionsOf(table));
  shard.OnView({C(0), C(1)});
  Entry read = PushOf(C(0), 1, Range(0, 1, {}));
  read.kind = EntryKind::kRemember;
  shard.Append(read);
  shard.Append(PushOf(C(1), 1, Range(0, 1, {4})));  // w is now -4
  EXPECT_THAT(FloatsOf(shard.ReadRemembered(C(0), {0, 1, {}})), ElementsAre(0));
  shard.Append(PushOf(C(0), 2, Range(0, 1, {2})));
  EXPECT_THAT(FloatsOf(shard.Read({0, 1, {}})), ElementsAre(-4 - (2 + 0.5F * 4 * -4)));
}

TEST(ShardState, ShardsOfManyThreadsNeedNoCommonLock) {
  struct Locked {
    sync::Mutex mutex;
    std::unique_ptr<ShardState> shard ABSL_GUARDED_BY(mutex);
  };
  std::vector<Locked> shards(4);
  for (Locked& one : shards) {
    sync::MutexLock lock(one.mutex);
    one.shard = std::make_unique<ShardState>(OptionsOf(Table(TableKind::kDense, 64, 1)));
    one.shard->OnView({C(0), C(1), C(2), C(3)});
  }
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int client = 0; client < 4; ++client) {
    threads.emplace_back([&shards, client] {
      for (Sequence sequence = 1; sequence <= 200; ++sequence) {
        for (Locked& one : shards) {
          const Entry entry = PushOf(C(client), sequence, Range(0, 64, Floats(64, 1)));
          sync::MutexLock lock(one.mutex);
          one.shard->Append(entry);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (Locked& one : shards) {
    sync::MutexLock lock(one.mutex);
    EXPECT_EQ(FloatsOf(one.shard->Read({0, 64, {}})), Floats(64, 800));
  }
}

TEST(LeaseLedger, HoldsRunsAsOneIntervalHoweverTheyCome) {
  LeaseLedger ledger;
  for (const Lease lease : {3, 1, 2, 7, 5, 6, 2}) ledger.Add(lease);
  EXPECT_EQ(ledger.intervals().size(), 2u);
  EXPECT_TRUE(ledger.Has(3));
  EXPECT_FALSE(ledger.Has(4));
  ledger.Add(4);
  EXPECT_EQ(ledger.intervals().size(), 1u);
  EXPECT_FALSE(ledger.Has(8));
  EXPECT_FALSE(ledger.Has(0));
}

}  // namespace
}  // namespace starling::parameter_server
