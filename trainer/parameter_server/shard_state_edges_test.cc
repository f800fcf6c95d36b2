// SPDX-License-Identifier: Apache-2.0
// The edges of a shard's state: what it refuses, what it keeps from view to view, and what its
// rules change when one is switched off.
#include <functional>
#include <span>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/checkpoint/safetensors.h"
#include "trainer/testing/shard_testing.h"

namespace starling::parameter_server {
namespace {

using namespace shard_testing;  // NOLINT(google-build-using-namespace): of these tests
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

ShardOptions Dense(const consistency::Options& model = consistency::Asynchronous{}) {
  return OptionsOf(Table(TableKind::kDense, 4, 1), model);
}

Entry One(int client, Sequence sequence, Lease lease = 0, Lease leases = 1) {
  Entry entry = PushOf(C(client), sequence, Range(0, 1, {1}));
  entry.lease = lease;
  entry.leases = leases;
  return entry;
}

Entry Whole(std::vector<Constituent> parts, int client = 0) {
  Entry entry = OfKind(EntryKind::kAggregate, C(client), 0);
  entry.update = Encode(Range(0, 1, {2}));
  entry.parts = std::move(parts);
  return entry;
}

TEST(ShardState, WhoStaysInTheViewIsRememberedAndWhoLeavesIsNot) {
  ShardState shard(Dense());
  shard.OnView({C(0), C(1)});
  shard.Append(One(0, 1, 7));
  shard.OnView({C(0)});
  EXPECT_EQ(shard.LastOf(C(0)), 1);
  EXPECT_EQ(shard.StandingOf(C(0), 1), Standing::kOld);
  EXPECT_EQ(shard.StandingOf(C(1), 1), Standing::kStranger);
  EXPECT_EQ(shard.LastOf(C(1)), 0);
  EXPECT_TRUE(shard.ledger().Has(7));
}

TEST(ShardState, WhoStartsLaterIsAtItsClockForThoseWhoWait) {
  ShardState shard(Dense(consistency::StaleSynchronous{1}));
  shard.OnView({C(0), C(1)});
  for (const Sequence sequence : {1, 2}) shard.Append(One(0, sequence));
  EXPECT_FALSE(shard.MayRead(C(0), 2, 2)) << "the other has completed no clock";
  Entry start = OfKind(EntryKind::kStart, C(1), 1);
  start.clock = 2;
  EXPECT_EQ(shard.Append(start), Outcome::kTaken);
  EXPECT_TRUE(shard.MayRead(C(0), 2, 2));
}

TEST(ShardState, AtRestIsReadWhenEveryClientRests) {
  ShardState shard(Dense());
  shard.OnView({C(0), C(1)});
  EXPECT_FALSE(shard.MayRead(C(0), consistency::kAtRest, 0));
  shard.Append(OfKind(EntryKind::kRest, C(0), 1));
  EXPECT_FALSE(shard.MayRead(C(0), consistency::kAtRest, 0)) << "one works";
  shard.Append(OfKind(EntryKind::kRest, C(1), 1));
  EXPECT_TRUE(shard.MayRead(C(0), consistency::kAtRest, 0));
  shard.Append(OfKind(EntryKind::kWake, C(1), 2));
  EXPECT_FALSE(shard.MayRead(C(0), consistency::kAtRest, 0));
}

TEST(ShardState, APushHoldsFrom1To4096LeasesAndAnUpdate) {
  ShardState shard(Dense());
  shard.OnView({C(0)});
  for (const auto& [leases, good] :
       {std::pair<Lease, bool>{1, true}, {4096, true}, {0, false}, {4097, false}}) {
    EXPECT_EQ(shard.Check(One(0, 1, 2, leases)).ok(), good) << leases;
    Constituent part{C(0), 1, 2};
    part.leases = leases;
    EXPECT_EQ(shard.Check(Whole({part})).ok(), good) << leases;
  }
  Entry empty = One(0, 1);
  empty.update = nullptr;
  EXPECT_EQ(shard.Check(empty).status().code(), absl::StatusCode::kInvalidArgument);
  empty.kind = EntryKind::kRest;
  EXPECT_TRUE(shard.Check(empty).ok()) << "a rest needs none";
}

TEST(ShardState, AnAggregateIsTakenWhereSumsMeanTheSameAsTheirParts) {
  ShardState shard(Dense());
  shard.OnView({C(0), C(1)});
  EXPECT_FALSE(shard.TakesWhole(Whole({{C(0), 1, 10}}, /*client=*/9))) << "summed up by a stranger";
  const std::vector<Constituent> without_leases = {{C(0), 1}, {C(1), 1}};
  EXPECT_TRUE(shard.TakesWhole(Whole(without_leases)));
  shard.Append(Whole(without_leases));
  EXPECT_TRUE(shard.ledger().intervals().empty());
  EXPECT_FALSE(shard.TakesWhole(Whole({{C(0), 2, 1}, {C(1), 2, 1}}))) << "one lease twice";
  shard.Append(Whole({{C(0), 2, 1}, {C(1), 2, 2}}));
  EXPECT_TRUE(shard.ledger().Has(1));

  auto remembering = Table(TableKind::kDense, 4, 1);
  remembering->rule = optimizer::MakeDelayCompensated({});
  ShardState delayed(OptionsOf(remembering));
  delayed.OnView({C(0)});
  EXPECT_FALSE(delayed.TakesWhole(Whole({{C(0), 1}}))) << "its rule asks what each has read";
  auto texts = Table(TableKind::kKeyValue, 0, 1);
  texts->rule = nullptr;
  ShardState pairs(OptionsOf(texts));
  pairs.OnView({C(0)});
  EXPECT_FALSE(pairs.TakesWhole(Whole({{C(0), 1}}))) << "texts have no sum";
}

TEST(ShardState, APushWithoutALeaseIsHeldAgainstNoLedger) {
  ShardState shard(Dense());
  shard.OnView({C(0)});
  EXPECT_EQ(shard.Append(One(0, 1)), Outcome::kTaken);
  EXPECT_EQ(shard.Append(One(0, 2)), Outcome::kTaken);
  EXPECT_TRUE(shard.ledger().intervals().empty());
  EXPECT_EQ(shard.Append(One(0, 3, 1)), Outcome::kTaken);
  EXPECT_EQ(shard.Append(One(0, 4, 1)), Outcome::kSkipped) << "the first lease is one";
  EXPECT_EQ(shard.Append(One(0, 5, 0, 3)), Outcome::kTaken) << "it has none, however many it says";
  Entry assign = One(0, 6);
  assign.kind = EntryKind::kAssign;
  EXPECT_EQ(shard.Append(assign), Outcome::kTaken);
  assign.sequence = 7;
  EXPECT_EQ(shard.Append(assign), Outcome::kTaken);
  EXPECT_THAT(shard.ledger().intervals(), ElementsAre(std::pair<const Lease, Lease>{1, 2}));
}

TEST(ShardState, ASkippedPushEndsItsClockIfItWasTheLast) {
  for (const bool completes : {true, false}) {
    ShardState shard(Dense(consistency::StaleSynchronous{0}));
    shard.OnView({C(0), C(1)});
    shard.Append(One(0, 1, 7));
    Entry again = One(1, 1, 7);
    again.completes = completes;
    ASSERT_EQ(shard.Append(again), Outcome::kSkipped);
    EXPECT_EQ(shard.MayRead(C(0), 1, 1), completes);
  }
}

TEST(ShardState, OnlyTheLatestOutcomesAreKept) {
  ShardState shard(Dense(consistency::BackupWorkers{1}));
  shard.OnView({C(0), C(1)});
  shard.Append(One(0, 1));
  for (Sequence sequence = 1; sequence <= 300; ++sequence) {
    Entry late = One(1, sequence);
    late.clock = 0;
    ASSERT_EQ(shard.Append(late), Outcome::kRefused);
  }
  const Outcomes outcomes = shard.NotTakenOf(C(1));
  EXPECT_EQ(outcomes.begin()->first, 300 - 256);
  EXPECT_EQ(outcomes.rbegin()->first, 300);
  EXPECT_THAT(shard.NotTakenOf(C(9)), IsEmpty());
  // A snapshot has them, too.
  ShardState restored(Dense(consistency::BackupWorkers{1}));
  ASSERT_TRUE(restored.Load(shard.Save()).ok());
  EXPECT_EQ(restored.NotTakenOf(C(1)), outcomes);
}

TEST(ShardState, UpdatesAreNumberedOneByOne) {
  std::vector<std::int64_t> numbers;
  auto table = Table(TableKind::kDense, 4, 1);
  table->learning_rate = [&](std::int64_t number) {
    numbers.push_back(number);
    return 1.0;
  };
  ShardState shard(OptionsOf(table, consistency::SoftSync{1}));
  shard.OnView({C(0), C(1), C(2)});
  Entry assign = One(0, 1);
  assign.kind = EntryKind::kAssign;
  shard.Append(assign);
  EXPECT_THAT(numbers, ElementsAre(1)) << "an assignment is before the update that comes next";
  shard.Append(One(0, 2));
  shard.Append(One(1, 1));
  shard.OnView({C(2)});
  EXPECT_THAT(numbers, ElementsAre(1, 1, 2)) << "two at once";
  assign.client = C(2);
  shard.Append(assign);
  EXPECT_EQ(numbers.back(), 3);
}

TEST(ShardState, AReadWaitsForItsClientsPushesForTheModelOrForEverybodysRest) {
  ShardState shard(Dense(consistency::StaleSynchronous{0}));
  shard.OnView({C(0), C(1)});
  EXPECT_FALSE(shard.MayRead(C(9), 0, 0)) << "a stranger";
  EXPECT_TRUE(shard.MayRead(C(0), 0, 0));
  EXPECT_FALSE(shard.MayRead(C(0), 0, 1)) << "its push is not in";
  EXPECT_FALSE(shard.MayRead(C(0), 1, 0)) << "the other has not completed a clock";
  EXPECT_FALSE(shard.MayRead(C(0), consistency::kAtRest, 0));
  shard.Append(OfKind(EntryKind::kRest, C(0), 1));
  EXPECT_FALSE(shard.MayRead(C(0), consistency::kAtRest, 1)) << "the other is awake";
  shard.Append(OfKind(EntryKind::kRest, C(1), 1));
  EXPECT_TRUE(shard.MayRead(C(0), consistency::kAtRest, 1));
}

TEST(ShardState, RowsThatAreNotThereAreNotRead) {
  ShardState shard(Dense());
  shard.OnView({C(0)});
  for (const Selection& rows : {Selection{0, 5, {}}, Selection{4, 1, {}}}) {
    EXPECT_EQ(shard.Read(rows).status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(shard.ReadRemembered(C(0), rows).status().code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST(ShardState, ASnapshotReplacesAllThatWasThere) {
  const ShardOptions options = Dense(consistency::BulkSynchronous{3});
  ShardState fresh(options), used(options);
  fresh.OnView({C(0)});
  used.OnView({C(1), C(2)});
  used.Append(One(1, 1, 2));
  ASSERT_THAT(used.held(), SizeIs(1));
  const std::string snapshot = fresh.Save();
  ASSERT_TRUE(used.Load(snapshot).ok());
  EXPECT_EQ(used.Save(), snapshot);
  EXPECT_EQ(used.StandingOf(C(1), 2), Standing::kStranger);
}

// A snapshot whose object was changed on its way.
std::string WithObject(const std::string& snapshot,
                       const std::function<void(std::string&)>& change) {
  absl::StatusOr<checkpoint::Decoded> decoded =
      checkpoint::Decode(std::as_bytes(std::span(snapshot)));
  EXPECT_TRUE(decoded.ok()) << decoded.status();
  std::string object;
  for (checkpoint::TensorView& view : decoded->tensors) {
    if (view.name != "object") continue;
    object.assign(reinterpret_cast<const char*>(view.data.data()), view.data.size());
    change(object);
    view.shape = {static_cast<std::int64_t>(object.size())};
    view.data = std::as_bytes(std::span(object));
  }
  return checkpoint::Encode(decoded->tensors, decoded->metadata).value();
}

TEST(ShardState, ASnapshotWhoseObjectIsCutOffIsRefusedWhereverItEnds) {
  const ShardOptions options = Dense(consistency::BulkSynchronous{2});
  ShardState shard(options);
  shard.OnView({C(0), C(1)});
  shard.Append(One(0, 1, 2));
  ASSERT_THAT(shard.held(), SizeIs(1));
  const std::string whole = shard.Save();
  ASSERT_TRUE(ShardState(options).Load(WithObject(whole, [](std::string&) {})).ok());
  std::size_t size = 0;
  WithObject(whole, [&](std::string& object) { size = object.size(); });
  for (std::size_t end = 0; end < size; ++end) {
    const std::string cut = WithObject(whole, [&](std::string& object) { object.resize(end); });
    EXPECT_EQ(ShardState(options).Load(cut).code(), absl::StatusCode::kDataLoss) << end;
  }
}

TEST(ShardState, WhateverADamagedSnapshotSaysAnOutcomeIsOneThatThereIs) {
  const ShardOptions options = Dense(consistency::BackupWorkers{1});
  ShardState shard(options);
  shard.OnView({C(0), C(1)});
  shard.Append(One(0, 1));
  constexpr char kLast = 77;
  for (Sequence sequence = 1; sequence <= kLast; ++sequence) {
    Entry late = One(1, sequence);
    late.clock = 0;
    ASSERT_EQ(shard.Append(late), Outcome::kRefused);
  }
  const std::string whole = shard.Save();
  for (int byte = 0; byte < 256; ++byte) {
    const std::string damaged = WithObject(whole, [&](std::string& object) {
      // Its sequence number, then the outcome.
      const std::string one{kLast, 0, 0, 0, 0, 0, 0, 0, static_cast<char>(Outcome::kRefused)};
      const std::size_t at = object.rfind(one);
      ASSERT_NE(at, std::string::npos);
      object[at + 8] = static_cast<char>(byte);
    });
    ShardState restored(options);
    ASSERT_TRUE(restored.Load(damaged).ok());
    EXPECT_THAT(restored.NotTakenOf(C(1)).at(kLast),
                testing::AnyOf(Outcome::kTaken, Outcome::kSkipped, Outcome::kRefused));
  }
}

TEST(ShardState, ARowThatSeveralPushesNameTakesOneStepOfTheirSum) {
  auto table = Table(TableKind::kSparse, 0, 1);
  table->rule = optimizer::MakeProximalGradient(0.5);  // each step draws a row nearer to 0
  const Keys keys = {7};
  const auto row = [&](int pushes) {
    ShardState shard(OptionsOf(table, consistency::BulkSynchronous{pushes}));
    std::vector<Client> clients;
    for (int client = 0; client < pushes; ++client) clients.push_back(C(client));
    shard.OnView(clients);
    for (int client = 0; client < pushes; ++client) {
      const Floats values = {8.0F / static_cast<float>(pushes)};
      Entry entry = PushOf(C(client), 1, Rows(keys, values));
      entry.lease = consistency::kFirstPortion + static_cast<Lease>(client);
      EXPECT_EQ(shard.Append(entry), Outcome::kTaken);
    }
    return FloatsOf(shard.Read({0, 0, keys}));
  };
  ASSERT_NE(row(1), Floats{0});
  EXPECT_EQ(row(2), row(1));
}

TEST(ShardState, ASnapshotOfOtherRowsOrOfNoShardIsRefusedWithTheReason) {
  ShardOptions options = Dense(), other = Dense();
  options.range = {0, 2};
  other.range = {2, 4};
  const absl::Status status = ShardState(other).Load(ShardState(options).Save());
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("of rows [0, 2)"));
  const std::vector<float> values = {1, 2};
  const std::vector<checkpoint::TensorView> views = {
      checkpoint::MakeView("values", {2, 1}, std::span<const float>(values))};
  const auto no_object = checkpoint::Encode(views, {});
  ASSERT_TRUE(no_object.ok());
  EXPECT_EQ(ShardState(options).Load(*no_object).code(), absl::StatusCode::kDataLoss);
}

// Rules that are switched off, as studies and negative controls do.

TEST(ShardState, WhereTheTablesDoNotGoWithTheParametersAViewForgetsThem) {
  ShardOptions options = Dense();
  options.rules.one_object = false;
  ShardState shard(options);
  shard.OnView({C(0)});
  shard.Append(One(0, 1, 7));
  EXPECT_EQ(shard.StandingOf(C(0), 1), Standing::kOld);
  shard.OnView({C(0)});
  EXPECT_EQ(shard.StandingOf(C(0), 1), Standing::kNext);
  EXPECT_EQ(shard.LastOf(C(0)), 0);
  EXPECT_FALSE(shard.ledger().Has(7));
  EXPECT_TRUE(shard.MayRead(C(0), 0, 1)) << "nothing is known of its pushes";
}

TEST(ShardState, WhereOrderIsNotAskedForAGapIsNone) {
  ShardOptions options = Dense();
  options.rules.in_order = false;
  ShardState shard(options);
  shard.OnView({C(0)});
  EXPECT_EQ(shard.StandingOf(C(0), 3), Standing::kNext);
}

TEST(ShardState, WhereLeasesAreNotLookedUpTheyAreTakenTwice) {
  ShardOptions options = Dense();
  options.rules.lease_dedupe = false;
  ShardState shard(options);
  shard.OnView({C(0)});
  Entry assign = One(0, 1, 7);
  assign.kind = EntryKind::kAssign;
  EXPECT_EQ(shard.Append(assign), Outcome::kTaken);
  assign.sequence = 2;
  EXPECT_EQ(shard.Append(assign), Outcome::kTaken);
  EXPECT_EQ(shard.Append(One(0, 3, 7)), Outcome::kTaken);
}

TEST(ShardState, WherePushesNeedNotBeWholeAPartOfOneIsTaken) {
  for (const bool whole : {true, false}) {
    ShardOptions options = Dense();
    options.rules.whole_pushes = whole;
    ShardState shard(options);
    shard.OnView({C(0)});
    shard.Append(One(0, 1, 7));
    EXPECT_EQ(shard.Append(One(0, 2, 7, 2)), whole ? Outcome::kRefused : Outcome::kTaken);
  }
}

}  // namespace
}  // namespace starling::parameter_server
