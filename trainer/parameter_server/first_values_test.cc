// SPDX-License-Identifier: Apache-2.0
// What a shard does beside pushes: values that are assigned, clients that rest.
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "starling/v1alpha1/training_job.pb.h"
#include "trainer/optimizer/server_rules.h"
#include "trainer/parameter_server/shard_state.h"
#include "trainer/testing/shard_testing.h"

namespace starling::parameter_server {
namespace {

using namespace shard_testing;  // NOLINT(google-build-using-namespace): of these tests

TEST(ShardState, AnAssignmentIsTakenOnceByItsLeaseAndMovesNoClock) {
  for (const TableKind kind : {TableKind::kDense, TableKind::kSparse}) {
    ShardState shard(OptionsOf(Table(kind, 2, 2), consistency::BulkSynchronous{}));
    shard.OnView({C(0), C(1)});
    const Floats first = {1, 2, 3, 4}, second = {9, 9, 9, 9};
    const Keys keys = {0, 1};
    const auto update = [&](const Floats& values) {
      return kind == TableKind::kDense ? Range(0, 2, values) : Rows(keys, values);
    };
    Entry entry = PushOf(C(0), 1, update(first));
    entry.kind = EntryKind::kAssign;
    entry.lease = 1;
    ASSERT_TRUE(shard.Check(entry).ok());
    EXPECT_EQ(shard.Append(entry), Outcome::kTaken);
    entry = PushOf(C(1), 1, update(second));
    entry.kind = EntryKind::kAssign;
    entry.lease = 1;
    EXPECT_EQ(shard.Append(entry), Outcome::kSkipped);
    const Selection all = kind == TableKind::kDense ? Selection{0, 2, {}} : Selection{0, 0, keys};
    EXPECT_EQ(FloatsOf(shard.Read(all)), first);
    EXPECT_EQ(shard.model().version(), 0);
    EXPECT_EQ(shard.StartOf(C(0)), 0);
    EXPECT_TRUE(shard.ledger().Has(1));
    entry.lease = 0;
    entry.sequence = 2;
    EXPECT_EQ(shard.Append(entry), Outcome::kTaken) << "without a lease it is taken again";
    EXPECT_EQ(FloatsOf(shard.Read(all)), second);
  }
}

TEST(ShardState, OnlyPlainValuesAreAssigned) {
  ShardState shard(OptionsOf(Table(TableKind::kDense, 2, 2)));
  shard.OnView({C(0)});
  const Floats factors = {1, 2, 3, 4};
  Update update = Range(0, 2, factors);
  update.kind = UpdateKind::kFactors;
  update.rank = 1;
  Entry entry = PushOf(C(0), 1, update);
  EXPECT_TRUE(shard.Check(entry).ok());
  entry.kind = EntryKind::kAssign;
  EXPECT_EQ(shard.Check(entry).status().code(), absl::StatusCode::kInvalidArgument);
}

// Momentum of the values before would carry on; FTRL's parameters would jump back.
TEST(ShardState, AfterAnAssignmentTheRuleBeginsAnew) {
  v1alpha1::Optimizer momentum;
  momentum.mutable_sgd()->set_momentum(0.9);
  for (const bool ftrl : {false, true}) {
    auto table = Table(TableKind::kDense, 1, 2);
    table->learning_rate = [](std::int64_t) { return 0.1; };
    table->rule = ftrl ? optimizer::MakeFtrl({1, 0.01, 0.1}) : *optimizer::MakeOptimizer(momentum);
    ShardState shard(OptionsOf(table));
    shard.OnView({C(0)});
    const Floats gradient = {5, -5}, values = {0.5, -0.25}, nothing = {0, 0};
    shard.Append(PushOf(C(0), 1, Range(0, 1, gradient)));
    Entry entry = PushOf(C(0), 2, Range(0, 1, values));
    entry.kind = EntryKind::kAssign;
    shard.Append(entry);
    shard.Append(PushOf(C(0), 3, Range(0, 1, nothing)));
    const Floats now = FloatsOf(shard.Read({0, 1, {}}));
    EXPECT_NEAR(now[0], 0.5F, 1e-6) << ftrl;
    EXPECT_NEAR(now[1], -0.25F, 1e-6) << ftrl;
  }
}

TEST(ShardState, WhoHasNoWorkIsNotWaitedForUntilItWakes) {
  const ShardOptions options =
      OptionsOf(Table(TableKind::kDense, 1, 1), consistency::StaleSynchronous{0});
  ShardState shard(options);
  shard.OnView({C(0), C(1)});
  const Floats one = {1};
  EXPECT_EQ(shard.Append(PushOf(C(0), 1, Range(0, 1, one))), Outcome::kTaken);
  EXPECT_FALSE(shard.MayRead(C(0), 1, 1));
  shard.Append(OfKind(EntryKind::kRest, C(1), 1));
  EXPECT_TRUE(shard.MayRead(C(0), 1, 1));
  EXPECT_TRUE(shard.MayRead(C(1), 0, 1)) << "who rests may read";
  // It travels with the object.
  ShardState copy(options);
  ASSERT_TRUE(copy.Load(shard.Save()).ok());
  copy.OnView({C(0), C(1)});
  copy.Append(PushOf(C(0), 2, Range(0, 1, one)));
  EXPECT_TRUE(copy.MayRead(C(0), 2, 2));
  copy.Append(OfKind(EntryKind::kWake, C(1), 2));
  EXPECT_EQ(copy.StartOf(C(1)), 2);
  copy.Append(PushOf(C(0), 3, Range(0, 1, one)));
  EXPECT_FALSE(copy.MayRead(C(0), 3, 3));
}

// Bulk-synchronous steps of three portions.

Entry Portions(const Client& client, Sequence sequence, Lease lease, Lease leases, float value) {
  const Floats values = {value};
  Entry entry = PushOf(client, sequence, Range(0, 1, values));
  entry.lease = lease;
  entry.leases = leases;
  return entry;
}

TEST(ShardState, AStepIsItsPortionsWhoeverPushesThem) {
  const auto options = OptionsOf(Table(TableKind::kDense, 1, 1), consistency::BulkSynchronous{3});
  ShardState shard(options);
  shard.OnView({C(0), C(1)});
  shard.Append(Portions(C(0), 1, 3, 2, 1));  // the second and third of step 0
  shard.Append(OfKind(EntryKind::kRest, C(1), 1));
  EXPECT_FALSE(shard.MayRead(C(0), 1, 1)) << "rests make no step";
  shard.OnView({C(0)});
  EXPECT_FALSE(shard.MayRead(C(0), 1, 1)) << "nor do departures";
  EXPECT_EQ(shard.held().size(), 1u);
  // What is held travels with the object.
  ShardState copy(options);
  ASSERT_TRUE(copy.Load(shard.Save()).ok());
  copy.OnView({C(2)});
  EXPECT_EQ(copy.Append(Portions(C(2), 1, 2, 1, 4)), Outcome::kTaken);
  EXPECT_TRUE(copy.MayRead(C(2), 1, 1));
  EXPECT_FALSE(copy.MayRead(C(2), 2, 1));
  EXPECT_EQ(copy.model().version(), 1);
  EXPECT_EQ(FloatsOf(copy.Read({0, 1, {}})), Floats{5});
}

TEST(ShardState, APushOfWhichSomeIsInIsGivenBackToBeDoneOneByOne) {
  ShardState shard(OptionsOf(Table(TableKind::kDense, 1, 1), consistency::BulkSynchronous{3}));
  shard.OnView({C(0), C(1)});
  EXPECT_EQ(shard.Append(Portions(C(0), 1, 3, 1, 1)), Outcome::kTaken);
  EXPECT_EQ(shard.Append(Portions(C(1), 1, 2, 3, 7)), Outcome::kRefused);
  EXPECT_TRUE(shard.NotTakenOf(C(1)).contains(1));
  EXPECT_EQ(shard.Append(Portions(C(1), 2, 2, 1, 1)), Outcome::kTaken);
  EXPECT_EQ(shard.Append(Portions(C(1), 3, 3, 1, 7)), Outcome::kSkipped);
  EXPECT_EQ(shard.Append(Portions(C(1), 4, 4, 1, 1)), Outcome::kTaken);
  EXPECT_EQ(FloatsOf(shard.Read({0, 1, {}})), Floats{3});
  EXPECT_EQ(shard.Append(Portions(C(1), 5, 2, 3, 7)), Outcome::kSkipped) << "all of it is in";
  EXPECT_EQ(shard.Append(Portions(C(1), 6, 6, 3, 7)), Outcome::kRefused) << "of two steps";
  EXPECT_FALSE(shard.Check(Portions(C(1), 7, 8, 0, 1)).ok());
  EXPECT_FALSE(shard.Check(Portions(C(1), 7, 8, Lease{1} << 40, 1)).ok());
}

// A job that is suspended may be given other portions: what is in stays in, and the steps are those
// that the ledger makes.
TEST(ShardState, OtherPortionsGoOnFromTheLedger) {
  const auto of = [](std::int64_t portions) {
    return OptionsOf(Table(TableKind::kDense, 1, 1), consistency::BulkSynchronous{portions});
  };
  ShardState shard(of(4));
  shard.OnView({C(0)});
  shard.Append(Portions(C(0), 1, 2, 4, 1));
  shard.Append(Portions(C(0), 2, 6, 3, 1));  // three of step 1
  ShardState finer(of(2));
  ASSERT_TRUE(finer.Load(shard.Save()).ok());
  finer.OnView({C(1)});
  EXPECT_TRUE(finer.MayRead(C(1), 3, 0));
  EXPECT_FALSE(finer.MayRead(C(1), 4, 0));
  EXPECT_EQ(finer.Append(Portions(C(1), 1, 9, 1, 1)), Outcome::kTaken);
  EXPECT_TRUE(finer.MayRead(C(1), 4, 1));
  EXPECT_EQ(FloatsOf(finer.Read({0, 1, {}})), Floats{3});
}

}  // namespace
}  // namespace starling::parameter_server
