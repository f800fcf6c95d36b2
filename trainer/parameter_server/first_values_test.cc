// SPDX-License-Identifier: Apache-2.0
// What a slot does beside pushes: values that are assigned, clients that rest.
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "starling/v1alpha1/training_job.pb.h"
#include "trainer/optimizer/server_rules.h"
#include "trainer/parameter_server/slot_state.h"
#include "trainer/parameter_server/slot_testing.h"

namespace starling::parameter_server {
namespace {

using namespace slot_testing;  // NOLINT(google-build-using-namespace): of these tests

TEST(SlotState, AnAssignmentIsTakenOnceByItsLeaseAndMovesNoClock) {
  for (const TableKind kind : {TableKind::kDense, TableKind::kSparse}) {
    SlotState slot(OptionsOf(Table(kind, 2, 2), consistency::BulkSynchronous{}));
    slot.OnView({C(0), C(1)});
    const Floats first = {1, 2, 3, 4}, second = {9, 9, 9, 9};
    const Keys keys = {0, 1};
    const auto update = [&](const Floats& values) {
      return kind == TableKind::kDense ? Range(0, 2, values) : Rows(keys, values);
    };
    Entry entry = PushOf(C(0), 1, update(first));
    entry.kind = EntryKind::kAssign;
    entry.lease = 1;
    ASSERT_TRUE(slot.Check(entry).ok());
    EXPECT_EQ(slot.Append(entry), Outcome::kTaken);
    entry = PushOf(C(1), 1, update(second));
    entry.kind = EntryKind::kAssign;
    entry.lease = 1;
    EXPECT_EQ(slot.Append(entry), Outcome::kSkipped);
    const Selection all = kind == TableKind::kDense ? Selection{0, 2, {}} : Selection{0, 0, keys};
    EXPECT_EQ(FloatsOf(slot.Read(all)), first);
    EXPECT_EQ(slot.model().version(), 0);
    EXPECT_EQ(slot.StartOf(C(0)), 0);
    EXPECT_TRUE(slot.ledger().Has(1));
    entry.lease = 0;
    entry.sequence = 2;
    EXPECT_EQ(slot.Append(entry), Outcome::kTaken) << "without a lease it is taken again";
    EXPECT_EQ(FloatsOf(slot.Read(all)), second);
  }
}

TEST(SlotState, OnlyPlainValuesAreAssigned) {
  SlotState slot(OptionsOf(Table(TableKind::kDense, 2, 2)));
  slot.OnView({C(0)});
  const Floats factors = {1, 2, 3, 4};
  Update update = Range(0, 2, factors);
  update.kind = UpdateKind::kFactors;
  update.rank = 1;
  Entry entry = PushOf(C(0), 1, update);
  EXPECT_TRUE(slot.Check(entry).ok());
  entry.kind = EntryKind::kAssign;
  EXPECT_EQ(slot.Check(entry).code(), absl::StatusCode::kInvalidArgument);
}

// Momentum of the values before would carry on; FTRL's parameters would jump back.
TEST(SlotState, AfterAnAssignmentTheRuleBeginsAnew) {
  v1alpha1::Optimizer momentum;
  momentum.mutable_sgd()->set_momentum(0.9);
  for (const bool ftrl : {false, true}) {
    auto table = Table(TableKind::kDense, 1, 2);
    table->learning_rate = [](std::int64_t) { return 0.1; };
    table->rule = ftrl ? optimizer::MakeFtrl({1, 0.01, 0.1}) : *optimizer::MakeOptimizer(momentum);
    SlotState slot(OptionsOf(table));
    slot.OnView({C(0)});
    const Floats gradient = {5, -5}, values = {0.5, -0.25}, nothing = {0, 0};
    slot.Append(PushOf(C(0), 1, Range(0, 1, gradient)));
    Entry entry = PushOf(C(0), 2, Range(0, 1, values));
    entry.kind = EntryKind::kAssign;
    slot.Append(entry);
    slot.Append(PushOf(C(0), 3, Range(0, 1, nothing)));
    const Floats now = FloatsOf(slot.Read({0, 1, {}}));
    EXPECT_NEAR(now[0], 0.5F, 1e-6) << ftrl;
    EXPECT_NEAR(now[1], -0.25F, 1e-6) << ftrl;
  }
}

TEST(SlotState, WhoHasNoWorkIsNotWaitedForUntilItWakes) {
  SlotState slot(OptionsOf(Table(TableKind::kDense, 1, 1), consistency::BulkSynchronous{}));
  slot.OnView({C(0), C(1)});
  const Floats one = {1};
  EXPECT_EQ(slot.Append(PushOf(C(0), 1, Range(0, 1, one))), Outcome::kTaken);
  EXPECT_FALSE(slot.MayRead(C(0), 1, 1));
  EXPECT_EQ(slot.held().size(), 1u);
  slot.Append(OfKind(EntryKind::kRest, C(1), 1));
  EXPECT_TRUE(slot.MayRead(C(0), 1, 1));
  EXPECT_TRUE(slot.held().empty());
  EXPECT_TRUE(slot.MayRead(C(1), 0, 1)) << "who rests may read";
  // It travels with the object.
  SlotState copy(OptionsOf(Table(TableKind::kDense, 1, 1), consistency::BulkSynchronous{}));
  ASSERT_TRUE(copy.Load(slot.Save()).ok());
  copy.OnView({C(0), C(1)});
  copy.Append(PushOf(C(0), 2, Range(0, 1, one)));
  EXPECT_TRUE(copy.MayRead(C(0), 2, 2));
  copy.Append(OfKind(EntryKind::kWake, C(1), 2));
  EXPECT_EQ(copy.StartOf(C(1)), 2);
  copy.Append(PushOf(C(0), 3, Range(0, 1, one)));
  EXPECT_FALSE(copy.MayRead(C(0), 3, 3));
}

}  // namespace
}  // namespace starling::parameter_server
