// SPDX-License-Identifier: Apache-2.0
// The edges of a slot's state: what it refuses, what it keeps from view to view, and what its rules
// change when one is switched off.
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/checkpoint/safetensors.h"
#include "trainer/testing/slot_testing.h"

namespace starling::parameter_server {
namespace {

using namespace slot_testing;  // NOLINT(google-build-using-namespace): of these tests
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

SlotOptions Dense(const consistency::Options& model = consistency::Asynchronous{}) {
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

TEST(SlotState, WhoStaysInTheViewIsRememberedAndWhoLeavesIsNot) {
  SlotState slot(Dense());
  slot.OnView({C(0), C(1)});
  slot.Append(One(0, 1, 7));
  slot.OnView({C(0)});
  EXPECT_EQ(slot.LastOf(C(0)), 1);
  EXPECT_EQ(slot.StandingOf(C(0), 1), Standing::kOld);
  EXPECT_EQ(slot.StandingOf(C(1), 1), Standing::kStranger);
  EXPECT_EQ(slot.LastOf(C(1)), 0);
  EXPECT_TRUE(slot.ledger().Has(7));
}

TEST(SlotState, WhoStartsLaterIsAtItsClockForThoseWhoWait) {
  SlotState slot(Dense(consistency::StaleSynchronous{1}));
  slot.OnView({C(0), C(1)});
  for (const Sequence sequence : {1, 2}) slot.Append(One(0, sequence));
  EXPECT_FALSE(slot.MayRead(C(0), 2, 2)) << "the other has completed no clock";
  Entry start = OfKind(EntryKind::kStart, C(1), 1);
  start.clock = 2;
  EXPECT_EQ(slot.Append(start), Outcome::kTaken);
  EXPECT_TRUE(slot.MayRead(C(0), 2, 2));
}

TEST(SlotState, AtRestIsReadWhenEveryClientRests) {
  SlotState slot(Dense());
  slot.OnView({C(0), C(1)});
  EXPECT_FALSE(slot.MayRead(C(0), consistency::kAtRest, 0));
  slot.Append(OfKind(EntryKind::kRest, C(0), 1));
  EXPECT_FALSE(slot.MayRead(C(0), consistency::kAtRest, 0)) << "one works";
  slot.Append(OfKind(EntryKind::kRest, C(1), 1));
  EXPECT_TRUE(slot.MayRead(C(0), consistency::kAtRest, 0));
  slot.Append(OfKind(EntryKind::kWake, C(1), 2));
  EXPECT_FALSE(slot.MayRead(C(0), consistency::kAtRest, 0));
}

TEST(SlotState, APushHoldsFrom1To4096LeasesAndAnUpdate) {
  SlotState slot(Dense());
  slot.OnView({C(0)});
  for (const auto& [leases, good] :
       {std::pair<Lease, bool>{1, true}, {4096, true}, {0, false}, {4097, false}}) {
    EXPECT_EQ(slot.Check(One(0, 1, 2, leases)).ok(), good) << leases;
    Constituent part{C(0), 1, 2};
    part.leases = leases;
    EXPECT_EQ(slot.Check(Whole({part})).ok(), good) << leases;
  }
  Entry empty = One(0, 1);
  empty.update = nullptr;
  EXPECT_EQ(slot.Check(empty).status().code(), absl::StatusCode::kInvalidArgument);
  empty.kind = EntryKind::kRest;
  EXPECT_TRUE(slot.Check(empty).ok()) << "a rest needs none";
}

TEST(SlotState, AnAggregateIsTakenWhereSumsMeanTheSameAsTheirParts) {
  SlotState slot(Dense());
  slot.OnView({C(0), C(1)});
  EXPECT_FALSE(slot.TakesWhole(Whole({{C(0), 1, 10}}, /*client=*/9))) << "summed up by a stranger";
  const std::vector<Constituent> without_leases = {{C(0), 1}, {C(1), 1}};
  EXPECT_TRUE(slot.TakesWhole(Whole(without_leases)));
  slot.Append(Whole(without_leases));
  EXPECT_TRUE(slot.ledger().intervals().empty());
  EXPECT_FALSE(slot.TakesWhole(Whole({{C(0), 2, 1}, {C(1), 2, 1}}))) << "one lease twice";
  slot.Append(Whole({{C(0), 2, 1}, {C(1), 2, 2}}));
  EXPECT_TRUE(slot.ledger().Has(1));

  auto remembering = Table(TableKind::kDense, 4, 1);
  remembering->rule = optimizer::MakeDelayCompensated({});
  SlotState delayed(OptionsOf(remembering));
  delayed.OnView({C(0)});
  EXPECT_FALSE(delayed.TakesWhole(Whole({{C(0), 1}}))) << "its rule asks what each has read";
  auto texts = Table(TableKind::kKeyValue, 0, 1);
  texts->rule = nullptr;
  SlotState pairs(OptionsOf(texts));
  pairs.OnView({C(0)});
  EXPECT_FALSE(pairs.TakesWhole(Whole({{C(0), 1}}))) << "texts have no sum";
}

TEST(SlotState, APushWithoutALeaseIsHeldAgainstNoLedger) {
  SlotState slot(Dense());
  slot.OnView({C(0)});
  EXPECT_EQ(slot.Append(One(0, 1)), Outcome::kTaken);
  EXPECT_EQ(slot.Append(One(0, 2)), Outcome::kTaken);
  EXPECT_TRUE(slot.ledger().intervals().empty());
  EXPECT_EQ(slot.Append(One(0, 3, 1)), Outcome::kTaken);
  EXPECT_EQ(slot.Append(One(0, 4, 1)), Outcome::kSkipped) << "the first lease is one";
  EXPECT_EQ(slot.Append(One(0, 5, 0, 3)), Outcome::kTaken) << "it has none, however many it says";
  Entry assign = One(0, 6);
  assign.kind = EntryKind::kAssign;
  EXPECT_EQ(slot.Append(assign), Outcome::kTaken);
  assign.sequence = 7;
  EXPECT_EQ(slot.Append(assign), Outcome::kTaken);
  EXPECT_THAT(slot.ledger().intervals(), ElementsAre(std::pair<const Lease, Lease>{1, 2}));
}

TEST(SlotState, ASkippedPushEndsItsClockIfItWasTheLast) {
  for (const bool completes : {true, false}) {
    SlotState slot(Dense(consistency::StaleSynchronous{0}));
    slot.OnView({C(0), C(1)});
    slot.Append(One(0, 1, 7));
    Entry again = One(1, 1, 7);
    again.completes = completes;
    ASSERT_EQ(slot.Append(again), Outcome::kSkipped);
    EXPECT_EQ(slot.MayRead(C(0), 1, 1), completes);
  }
}

TEST(SlotState, OnlyTheLatestOutcomesAreKept) {
  SlotState slot(Dense(consistency::BackupWorkers{1}));
  slot.OnView({C(0), C(1)});
  slot.Append(One(0, 1));
  for (Sequence sequence = 1; sequence <= 300; ++sequence) {
    Entry late = One(1, sequence);
    late.clock = 0;
    ASSERT_EQ(slot.Append(late), Outcome::kRefused);
  }
  const Outcomes outcomes = slot.NotTakenOf(C(1));
  EXPECT_EQ(outcomes.begin()->first, 300 - 256);
  EXPECT_EQ(outcomes.rbegin()->first, 300);
  EXPECT_THAT(slot.NotTakenOf(C(9)), IsEmpty());
  // A snapshot has them, too.
  SlotState restored(Dense(consistency::BackupWorkers{1}));
  ASSERT_TRUE(restored.Load(slot.Save()).ok());
  EXPECT_EQ(restored.NotTakenOf(C(1)), outcomes);
}

TEST(SlotState, UpdatesAreNumberedOneByOne) {
  std::vector<std::int64_t> numbers;
  auto table = Table(TableKind::kDense, 4, 1);
  table->learning_rate = [&](std::int64_t number) {
    numbers.push_back(number);
    return 1.0;
  };
  SlotState slot(OptionsOf(table, consistency::SoftSync{1}));
  slot.OnView({C(0), C(1), C(2)});
  Entry assign = One(0, 1);
  assign.kind = EntryKind::kAssign;
  slot.Append(assign);
  EXPECT_THAT(numbers, ElementsAre(1)) << "an assignment is before the update that comes next";
  slot.Append(One(0, 2));
  slot.Append(One(1, 1));
  slot.OnView({C(2)});
  EXPECT_THAT(numbers, ElementsAre(1, 1, 2)) << "two at once";
  assign.client = C(2);
  slot.Append(assign);
  EXPECT_EQ(numbers.back(), 3);
}

TEST(SlotState, AReadWaitsForItsClientsPushesForTheModelOrForEverybodysRest) {
  SlotState slot(Dense(consistency::StaleSynchronous{0}));
  slot.OnView({C(0), C(1)});
  EXPECT_FALSE(slot.MayRead(C(9), 0, 0)) << "a stranger";
  EXPECT_TRUE(slot.MayRead(C(0), 0, 0));
  EXPECT_FALSE(slot.MayRead(C(0), 0, 1)) << "its push is not in";
  EXPECT_FALSE(slot.MayRead(C(0), 1, 0)) << "the other has not completed a clock";
  EXPECT_FALSE(slot.MayRead(C(0), consistency::kAtRest, 0));
  slot.Append(OfKind(EntryKind::kRest, C(0), 1));
  EXPECT_FALSE(slot.MayRead(C(0), consistency::kAtRest, 1)) << "the other is awake";
  slot.Append(OfKind(EntryKind::kRest, C(1), 1));
  EXPECT_TRUE(slot.MayRead(C(0), consistency::kAtRest, 1));
}

TEST(SlotState, RowsThatAreNotThereAreNotRead) {
  SlotState slot(Dense());
  slot.OnView({C(0)});
  for (const Selection& rows : {Selection{0, 5, {}}, Selection{4, 1, {}}}) {
    EXPECT_EQ(slot.Read(rows).status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(slot.ReadRemembered(C(0), rows).status().code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST(SlotState, ASnapshotReplacesAllThatWasThere) {
  const SlotOptions options = Dense(consistency::BulkSynchronous{3});
  SlotState fresh(options), used(options);
  fresh.OnView({C(0)});
  used.OnView({C(1), C(2)});
  used.Append(One(1, 1, 2));
  ASSERT_THAT(used.held(), SizeIs(1));
  const std::string snapshot = fresh.Save();
  ASSERT_TRUE(used.Load(snapshot).ok());
  EXPECT_EQ(used.Save(), snapshot);
  EXPECT_EQ(used.StandingOf(C(1), 2), Standing::kStranger);
}

TEST(SlotState, ASnapshotOfOtherRowsOrOfNoSlotIsRefusedWithTheReason) {
  SlotOptions options = Dense(), other = Dense();
  options.range = {0, 2};
  other.range = {2, 4};
  const absl::Status status = SlotState(other).Load(SlotState(options).Save());
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("of rows [0, 2)"));
  const std::vector<float> values = {1, 2};
  const std::vector<checkpoint::TensorView> views = {
      checkpoint::MakeView("values", {2, 1}, std::span<const float>(values))};
  const auto no_object = checkpoint::Encode(views, {});
  ASSERT_TRUE(no_object.ok());
  EXPECT_EQ(SlotState(options).Load(*no_object).code(), absl::StatusCode::kDataLoss);
}

// Rules that are switched off, as studies and negative controls do.

TEST(SlotState, WhereTheTablesDoNotGoWithTheParametersAViewForgetsThem) {
  SlotOptions options = Dense();
  options.rules.one_object = false;
  SlotState slot(options);
  slot.OnView({C(0)});
  slot.Append(One(0, 1, 7));
  EXPECT_EQ(slot.StandingOf(C(0), 1), Standing::kOld);
  slot.OnView({C(0)});
  EXPECT_EQ(slot.StandingOf(C(0), 1), Standing::kNext);
  EXPECT_EQ(slot.LastOf(C(0)), 0);
  EXPECT_FALSE(slot.ledger().Has(7));
  EXPECT_TRUE(slot.MayRead(C(0), 0, 1)) << "nothing is known of its pushes";
}

TEST(SlotState, WhereOrderIsNotAskedForAGapIsNone) {
  SlotOptions options = Dense();
  options.rules.in_order = false;
  SlotState slot(options);
  slot.OnView({C(0)});
  EXPECT_EQ(slot.StandingOf(C(0), 3), Standing::kNext);
}

TEST(SlotState, WhereLeasesAreNotLookedUpTheyAreTakenTwice) {
  SlotOptions options = Dense();
  options.rules.lease_dedupe = false;
  SlotState slot(options);
  slot.OnView({C(0)});
  Entry assign = One(0, 1, 7);
  assign.kind = EntryKind::kAssign;
  EXPECT_EQ(slot.Append(assign), Outcome::kTaken);
  assign.sequence = 2;
  EXPECT_EQ(slot.Append(assign), Outcome::kTaken);
  EXPECT_EQ(slot.Append(One(0, 3, 7)), Outcome::kTaken);
}

TEST(SlotState, WherePushesNeedNotBeWholeAPartOfOneIsTaken) {
  for (const bool whole : {true, false}) {
    SlotOptions options = Dense();
    options.rules.whole_pushes = whole;
    SlotState slot(options);
    slot.OnView({C(0)});
    slot.Append(One(0, 1, 7));
    EXPECT_EQ(slot.Append(One(0, 2, 7, 2)), whole ? Outcome::kRefused : Outcome::kTaken);
  }
}

}  // namespace
}  // namespace starling::parameter_server
