// SPDX-License-Identifier: Apache-2.0
#include "trainer/parameter_server/aggregator.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "starling/v1alpha1/training_job.pb.h"
#include "trainer/parameter_server/chain_server.h"
#include "trainer/parameter_server/shard_client.h"
#include "trainer/parameter_server/shard_placement.h"
#include "trainer/testing/shard_testing.h"

namespace starling::parameter_server {
namespace {

using shard_testing::C;
using shard_testing::Floats;
using shard_testing::FloatsOf;
using shard_testing::OptionsOf;
using shard_testing::PushOf;
using shard_testing::Range;
using shard_testing::Table;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

std::vector<MemberId> Ids(const std::vector<int>& numbers) {
  std::vector<MemberId> ids;
  ids.reserve(numbers.size());
  for (const int number : numbers) ids.push_back(C(number).id);
  return ids;
}

Aggregator Of(const std::vector<int>& group, const Reduction& reduction, std::size_t shards = 1) {
  Aggregator aggregator;
  aggregator.OnView(C(group.front()), Ids(group),
                    std::vector<std::optional<Reduction>>(shards, reduction));
  return aggregator;
}

// The client's portion of step `sequence` - 1, of three.
Lease LeaseOf(int client, Sequence sequence) {
  return static_cast<Lease>(3 * (sequence - 1) + client + 1);
}

Entry Gradient(int client, Sequence sequence, const Floats& values, double weight = 1) {
  Entry entry = PushOf(C(client), sequence, Range(0, values.size(), values));
  entry.weight = weight;
  entry.lease = LeaseOf(client, sequence);
  return entry;
}

Floats ValuesOf(const Entry& entry) {
  const absl::StatusOr<DecodedUpdate> decoded = Decode(entry.update, 1);
  EXPECT_TRUE(decoded.ok());
  return {decoded->update.values.begin(), decoded->update.values.end()};
}

// Whoever sums up decodes and encodes: the sum travels as its parts do.
TEST(AggregateTest, ASumIsEncodedAsItsPartsAre) {
  Entry half = Gradient(1, 1, {1, 2}), other = Gradient(2, 1, {3, 4});
  const auto float16 = *compression::CodecNumberOf("float16");
  for (Entry* entry : {&half, &other}) {
    entry->update = Encode(Range(0, 2, ValuesOf(*entry)), float16);
  }
  const std::optional<Entry> whole = Aggregate(C(1), {{C(1), half}, {C(2), other}}, {.sum = true});
  ASSERT_TRUE(whole);
  EXPECT_EQ(whole->update->codec, float16);
  EXPECT_EQ(whole->update->body->size(), 4U);
  EXPECT_THAT(ValuesOf(*whole), ElementsAre(4, 6));
}

TEST(AggregatorTest, AllOfTheGroupMakeOneEntryByWeight) {
  Aggregator aggregator = Of({1, 2, 3}, {});
  EXPECT_THAT(aggregator.Add(0, Gradient(3, 1, {9, 0}, 1)), IsEmpty());
  EXPECT_THAT(aggregator.Add(0, Gradient(1, 1, {1, 4}, 2)), IsEmpty());
  EXPECT_NE(aggregator.gathering(), 0U);

  const std::vector<Gathered> gathered = aggregator.Add(0, Gradient(2, 1, {1, 4}, 1));

  ASSERT_THAT(gathered, SizeIs(1));
  EXPECT_EQ(aggregator.gathering(), 0U);
  const Entry& whole = gathered[0].entry;
  EXPECT_EQ(whole.kind, EntryKind::kAggregate);
  EXPECT_EQ(whole.client, C(1));
  ASSERT_THAT(whole.parts, SizeIs(3));
  EXPECT_EQ(whole.parts[2].lease, LeaseOf(3, 1));  // by client, whoever came first
  EXPECT_THAT(ValuesOf(whole), ElementsAre(3, 3));
}

TEST(AggregatorTest, OfSumsTheSumIsMade) {
  Aggregator aggregator = Of({1, 2}, {.sum = true});
  aggregator.Add(0, Gradient(1, 1, {1, 2}, 5));
  EXPECT_THAT(ValuesOf(aggregator.Add(0, Gradient(2, 1, {10, 20}))[0].entry), ElementsAre(11, 22));
}

TEST(AggregatorTest, PatienceEndsWithWhatIsHere) {
  Aggregator aggregator = Of({1, 2, 3}, {.sum = true}, 2);
  aggregator.Add(0, Gradient(1, 1, {1}));
  aggregator.Add(0, Gradient(2, 1, {1}));
  aggregator.Add(1, Gradient(1, 1, {1}));
  const std::vector<Gathered> gathered = aggregator.Flush();
  ASSERT_THAT(gathered, SizeIs(2));
  EXPECT_THAT(gathered[0].entry.parts, SizeIs(2));
  // What is its own alone is an ordinary push.
  EXPECT_EQ(gathered[1].entry.kind, EntryKind::kPush);
  EXPECT_THAT(aggregator.Flush(), IsEmpty());
}

TEST(AggregatorTest, WhoIsAbsentIsNotWaitedForUntilItPushesAgain) {
  Aggregator aggregator = Of({1, 2}, {.sum = true});
  aggregator.Add(0, Gradient(1, 1, {1}));
  EXPECT_THAT(aggregator.Leave(C(2).id, false), SizeIs(1));
  EXPECT_THAT(aggregator.Add(0, Gradient(1, 2, {1})), SizeIs(1));
  EXPECT_THAT(aggregator.Add(0, Gradient(2, 1, {1})), IsEmpty());
  EXPECT_THAT(aggregator.Add(0, Gradient(1, 3, {1})), SizeIs(1));
}

TEST(AggregatorTest, WhatIsWithdrawnIsNotInTheSum) {
  Aggregator aggregator = Of({1, 2, 3}, {.sum = true});
  aggregator.Add(0, Gradient(2, 1, {5}));
  aggregator.Leave(C(2).id, true);
  aggregator.Add(0, Gradient(1, 1, {1}));
  EXPECT_THAT(ValuesOf(aggregator.Add(0, Gradient(3, 1, {1}))[0].entry), ElementsAre(2));
}

TEST(AggregatorTest, AClientsNextPushDoesNotWaitForItsLast) {
  Aggregator aggregator = Of({1, 2}, {.sum = true});
  aggregator.Add(0, Gradient(2, 1, {1}));
  EXPECT_THAT(aggregator.Add(0, Gradient(2, 2, {1})), SizeIs(1));
  EXPECT_THAT(aggregator.Add(0, Gradient(1, 1, {1})), SizeIs(1));
}

TEST(AggregatorTest, WhereTheModelWantsItOneSumIsOfOneClock) {
  Aggregator aggregator = Of({1, 2, 3}, {.one_clock = true});
  aggregator.Add(0, Gradient(1, 4, {1}));
  const std::vector<Gathered> gathered = aggregator.Add(0, Gradient(2, 3, {1}));
  ASSERT_THAT(gathered, SizeIs(1));
  EXPECT_THAT(aggregator.Flush(), SizeIs(1));
}

TEST(AggregatorTest, StrangersAndShardsThatAreNotSummedUpAreLeftAlone) {
  Aggregator aggregator;
  aggregator.OnView(C(1), Ids({1, 2}), {std::nullopt, Reduction{}});
  EXPECT_THAT(aggregator.Add(0, Gradient(1, 1, {1})), IsEmpty());
  EXPECT_THAT(aggregator.Add(1, Gradient(9, 1, {1})), IsEmpty());
  EXPECT_EQ(aggregator.gathering(), 0U);
}

// What the head makes of it.

ShardState StateOf(const consistency::Options& model, Combine combine, int clients) {
  auto table = Table(TableKind::kDense, 2, 1);
  table->combine = combine;
  ShardState state(OptionsOf(table, model));
  std::vector<Client> all;
  for (int i = 1; i <= clients; ++i) all.push_back(C(i));
  state.OnView(all);
  return state;
}

Entry Whole(const std::vector<Entry>& entries, const Reduction& reduction) {
  std::map<Client, Entry> parts;
  for (const Entry& entry : entries) parts[entry.client] = entry;
  return *Aggregate(C(1), parts, reduction);
}

Floats Read(const ShardState& state) { return FloatsOf(state.Read({0, 2, {}})); }

TEST(AggregateTest, InBulkSynchronousItIsTheMembersOfOneClock) {
  const auto play = [](bool summed) {
    ShardState state = StateOf(consistency::BulkSynchronous{3}, Combine::kMean, 3);
    const Entry one = Gradient(1, 1, {4, 0}, 1), two = Gradient(2, 1, {0, 4}, 3);
    if (summed) {
      const Entry whole = Whole({one, two}, {.one_clock = true});
      EXPECT_TRUE(state.TakesWhole(whole));
      state.Append(whole);
    } else {
      state.Append(one);
      state.Append(two);
    }
    EXPECT_FALSE(state.MayRead(C(1), 1, 1));
    state.Append(Gradient(3, 1, {8, 8}, 4));
    EXPECT_TRUE(state.MayRead(C(1), 1, 1));
    EXPECT_EQ(state.model().version(), 1);
    EXPECT_EQ(state.model().staleness().total(), 3);
    EXPECT_TRUE(state.ledger().Has(LeaseOf(1, 1)) && state.ledger().Has(LeaseOf(2, 1)));
    return Read(state);
  };
  EXPECT_EQ(play(true), play(false));
  EXPECT_THAT(play(true), ElementsAre(4.5, 5.5));
}

TEST(AggregateTest, WhereEveryPushIsAnUpdateItIsTheirSum) {
  ShardState state = StateOf(consistency::Asynchronous{}, Combine::kMean, 2);
  state.Append(Whole({Gradient(1, 1, {1, 2}), Gradient(2, 1, {3, 4})}, {.sum = true}));
  EXPECT_THAT(Read(state), ElementsAre(4, 6));
  EXPECT_EQ(state.LastOf(C(1)), 1);
  EXPECT_EQ(state.LastOf(C(2)), 1);
}

TEST(AggregateTest, StaleSynchronousCountsEverybodysClock) {
  ShardState state = StateOf(consistency::StaleSynchronous{0}, Combine::kMean, 2);
  EXPECT_FALSE(state.MayRead(C(1), 1, 0));
  state.Append(Whole({Gradient(1, 1, {1, 2}), Gradient(2, 1, {3, 4})}, {.sum = true}));
  EXPECT_TRUE(state.MayRead(C(1), 1, 1));
  EXPECT_FALSE(state.MayRead(C(1), 2, 1));
}

TEST(AggregateTest, SoftSyncCountsItsGradients) {
  // Of 4 clients 1-softsync takes 4 gradients for an update.
  ShardState state = StateOf(consistency::SoftSync{1, false}, Combine::kMean, 4);
  state.Append(Whole({Gradient(1, 1, {2, 0}), Gradient(2, 1, {4, 0})}, {}));
  state.Append(Gradient(3, 1, {1, 0}));
  EXPECT_EQ(state.model().version(), 0);
  state.Append(Gradient(4, 1, {1, 0}));
  EXPECT_EQ(state.model().version(), 1);
  EXPECT_THAT(Read(state), ElementsAre(2, 0));
}

TEST(AggregateTest, AllOfItOrNoneIsTaken) {
  const Reduction sum{.sum = true};
  ShardState state = StateOf(consistency::Asynchronous{}, Combine::kSum, 3);
  state.Append(Gradient(2, 1, {1, 1}));
  // Client 2's first is in; client 3's second is not the next.
  EXPECT_FALSE(state.TakesWhole(Whole({Gradient(1, 1, {1, 1}), Gradient(2, 1, {1, 1})}, sum)));
  EXPECT_FALSE(state.TakesWhole(Whole({Gradient(1, 1, {1, 1}), Gradient(3, 2, {1, 1})}, sum)));
  // A lease that another client has pushed, or two parts have.
  Entry redone = Gradient(3, 1, {1, 1});
  redone.lease = LeaseOf(2, 1);
  EXPECT_FALSE(state.TakesWhole(Whole({Gradient(1, 1, {1, 1}), redone}, sum)));
  redone.lease = LeaseOf(1, 1);
  EXPECT_FALSE(state.TakesWhole(Whole({Gradient(1, 1, {1, 1}), redone}, sum)));
  // Nobody that the view does not have; no rows that are not there.
  EXPECT_FALSE(state.TakesWhole(Whole({Gradient(1, 1, {1, 1}), Gradient(7, 1, {1, 1})}, sum)));
  EXPECT_FALSE(state.Check(Whole({Gradient(1, 1, {1, 1, 1}), Gradient(3, 1, {1})}, sum)).ok());
  EXPECT_TRUE(state.TakesWhole(Whole({Gradient(1, 1, {1, 1}), Gradient(3, 1, {1, 1})}, sum)));
}

TEST(AggregateTest, ModelsThatMustSeeEachPushTakeNone) {
  ShardState backups = StateOf(consistency::BackupWorkers{1}, Combine::kMean, 3);
  EXPECT_FALSE(backups.TakesWhole(Whole({Gradient(1, 1, {1, 1}), Gradient(2, 1, {1, 1})}, {})));
  ShardState synchronous = StateOf(consistency::BulkSynchronous{3}, Combine::kMean, 3);
  Entry other_step = Gradient(2, 1, {1, 1});
  EXPECT_TRUE(synchronous.TakesWhole(Whole({Gradient(1, 1, {1, 1}), other_step}, {})));
  other_step.lease = LeaseOf(2, 2);
  EXPECT_FALSE(synchronous.TakesWhole(Whole({Gradient(1, 1, {1, 1}), other_step}, {})));
}

TEST(AggregateTest, ASnapshotKeepsWhatIsHeldOfIt) {
  ShardState state = StateOf(consistency::BulkSynchronous{3}, Combine::kMean, 3);
  state.Append(Whole({Gradient(1, 1, {4, 0}), Gradient(2, 1, {0, 4})}, {.one_clock = true}));
  ShardState copy = StateOf(consistency::BulkSynchronous{3}, Combine::kMean, 3);
  ASSERT_TRUE(copy.Load(state.Save()).ok());
  for (ShardState* one : {&state, &copy}) one->Append(Gradient(3, 1, {1, 1}));
  EXPECT_EQ(Read(state), Read(copy));
  EXPECT_EQ(state.Save(), copy.Save());
}

TEST(AggregateTest, AHeadAnswersEveryOwnerOrTellsEachToPushByItself) {
  const MemberId server{"server", 0};
  ChainServer head({server, OptionsOf(Table(TableKind::kDense, 2, 1)), {}});
  ShardView view;
  view.group.epoch = 5;
  view.group.members = {server};
  view.clients = {C(1), C(2)};
  head.OnView(view);
  const Push whole{5, Whole({Gradient(1, 1, {1, 0}), Gradient(2, 1, {1, 0})}, {.sum = true})};

  const Sends taken = head.OnMessage(whole);
  const Sends again = head.OnMessage(whole);

  ASSERT_THAT(taken, SizeIs(2));
  ASSERT_THAT(again, SizeIs(2));
  for (std::size_t i = 0; i < 2; ++i) {
    const Client owner = C(static_cast<int>(i) + 1);
    EXPECT_EQ(taken[i].to, owner.id);
    EXPECT_EQ(std::get<Acknowledgement>(taken[i].message).client, owner);
    EXPECT_EQ(again[i].to, owner.id);
    EXPECT_EQ(std::get<Individually>(again[i].message).sequence, 1);
  }
  // Each by itself is an old one, and answered as such.
  const Sends alone = head.OnMessage(Push{5, Gradient(2, 1, {1, 0})});
  ASSERT_THAT(alone, SizeIs(1));
  EXPECT_EQ(std::get<Acknowledgement>(alone[0].message).client, C(2));
  EXPECT_THAT(Read(*head.state()), ElementsAre(2, 0));
}

// What cannot be summed up, and what is at the edge. ----------------------------------------------

TEST(AggregateTest, ASumCoversTheRowsOfAllItsParts) {
  const auto part = [](int client, std::uint64_t first, std::uint64_t rows, const Floats& values) {
    Entry entry = Gradient(client, 1, values);
    entry.update = Encode(Range(first, rows, values));
    return entry;
  };
  // Two numbers a row; one part holds none.
  const Entry whole =
      Whole({part(1, 5, 2, {1, 2, 3, 4}), part(2, 3, 3, {1, 1, 1, 1, 10, 10}), part(3, 0, 0, {})},
            {.sum = true});
  const absl::StatusOr<DecodedUpdate> sum = Decode(whole.update, 2);
  ASSERT_TRUE(sum.ok());
  EXPECT_EQ(sum->update.first, 3u);
  EXPECT_EQ(sum->update.rows, 4u);
  EXPECT_THAT(ValuesOf(whole), ElementsAre(1, 1, 1, 1, 11, 12, 3, 4));
  const Entry beside = Whole({part(1, 2, 1, {1}), part(2, 3, 1, {3})}, {.sum = true});
  EXPECT_EQ(beside.update->first, 2u);
  EXPECT_THAT(ValuesOf(beside), ElementsAre(1, 3));
  const Entry gap =
      Whole({part(1, 2, 2, {1, 2}), part(2, 5, 2, {3, 4}), part(3, 2, 1, {5})}, {.sum = true});
  EXPECT_THAT(ValuesOf(gap), ElementsAre(6, 2, 0, 3, 4));
  const Entry nothing = Whole({part(1, 5, 0, {}), part(2, 7, 0, {})}, {.sum = true});
  EXPECT_EQ(nothing.update->first, 5u);
  EXPECT_EQ(nothing.update->rows, 0u);
}

TEST(AggregateTest, PartsFarApartAreNotAddedUpToZeros) {
  Entry near = Gradient(1, 1, {1}), far = Gradient(2, 1, {1});
  const auto add = [&](std::uint64_t row) {
    far.update = Encode(Range(row, 1, {1}));
    return Aggregate(C(1), {{C(1), near}, {C(2), far}}, {.sum = true});
  };
  near.update = Encode(Range(0, 1, {1}));
  EXPECT_TRUE(add(1));
  EXPECT_TRUE(add(46));
  EXPECT_FALSE(add(47)) << "48 rows for two";
  EXPECT_FALSE(add(std::uint64_t{1} << 38)) << "a TiB of zeros";
}

TEST(AggregateTest, WhatIsNoRangeOrOfAnotherWidthIsNotAddedUp) {
  const Entry good = Gradient(1, 1, {1, 2});
  Entry none = good, rows = good, damaged = good, wide = good;
  none.update = nullptr;
  rows.update = Encode(shard_testing::Rows({1, 2}, {1, 2}));
  EncodedUpdate absurd = *good.update;
  absurd.values = 7;
  damaged.update = std::make_shared<const EncodedUpdate>(absurd);
  wide.update = Encode(Range(0, 2, {1, 2, 3, 4}));
  for (Entry* bad : {&none, &rows, &damaged}) {
    bad->client = C(2);
    EXPECT_FALSE(Aggregate(C(1), {{C(1), good}, {C(2), *bad}}, {}));
  }
  // The last one says how wide rows are: four values do not fit into two rows of one.
  wide.client = C(0);
  EXPECT_FALSE(Aggregate(C(1), {{C(0), wide}, {C(1), good}}, {}));
  // Two values would fit into two rows of two, as the first of them.
  wide.client = C(2);
  EXPECT_FALSE(Aggregate(C(1), {{C(1), good}, {C(2), wide}}, {}));
}

TEST(AggregateTest, AMeanIsByWeightAlsoOfSmallOnesAndOfNone) {
  const auto mean = [](double weight) {
    return ValuesOf(Whole({Gradient(1, 1, {2, 0}, weight), Gradient(2, 1, {4, 0}, weight)}, {}));
  };
  EXPECT_THAT(mean(0.25), ElementsAre(3, 0));
  EXPECT_THAT(mean(0), ElementsAre(0, 0)) << "no samples: nothing to be changed";
}

TEST(AggregateTest, ASinglePartIsPassedOnAsItCame) {
  const Entry only = Gradient(2, 1, {1, 2});
  const std::optional<Entry> whole = Aggregate(C(1), {{C(2), only}}, {});
  ASSERT_TRUE(whole);
  EXPECT_EQ(whole->update, only.update);
  EXPECT_EQ(whole->kind, EntryKind::kAggregate);
  EXPECT_EQ(whole->client, C(1));
}

TEST(AggregatorTest, AnothersPushThatWasAloneStaysItsOwners) {
  Aggregator aggregator = Of({1, 2}, {.sum = true});
  aggregator.Add(0, Gradient(2, 1, {1}));
  const std::vector<Gathered> gathered = aggregator.Flush();
  ASSERT_THAT(gathered, SizeIs(1));
  EXPECT_EQ(gathered[0].entry.kind, EntryKind::kAggregate);
  EXPECT_EQ(gathered[0].entry.parts.at(0).client, C(2));
}

TEST(AggregatorTest, PartsThatDoNotAddUpGoEachByItself) {
  Aggregator aggregator = Of({1, 2}, {.sum = true});
  Entry rows = Gradient(2, 1, {1});
  rows.update = Encode(shard_testing::Rows({1}, {1}));
  const Entry range = Gradient(1, 1, {1});
  aggregator.Add(0, range);
  const std::vector<Gathered> gathered = aggregator.Add(0, rows);
  ASSERT_THAT(gathered, SizeIs(2));
  for (const std::size_t i : {0, 1}) {
    const Entry& entry = gathered[i].entry;
    EXPECT_EQ(gathered[i].shard, 0u);
    EXPECT_EQ(entry.kind, EntryKind::kAggregate);
    EXPECT_EQ(entry.client, C(1));
    ASSERT_THAT(entry.parts, SizeIs(1));
    EXPECT_EQ(entry.parts[0].client, C(static_cast<int>(i) + 1));
    EXPECT_EQ(entry.update, i == 0 ? range.update : rows.update);
  }
}

TEST(AggregatorTest, OnlyWhereTheModelWantsItClocksMustBeTheSame) {
  for (const bool one_clock : {true, false}) {
    for (const Clock clock : {0, 1}) {
      Aggregator aggregator = Of({1, 2}, {.sum = true, .one_clock = one_clock});
      aggregator.Add(0, Gradient(1, 1, {1}));
      Entry other = Gradient(2, 1, {1});
      other.clock = clock;
      const std::vector<Gathered> gathered = aggregator.Add(0, other);
      ASSERT_THAT(gathered, SizeIs(1));
      EXPECT_EQ(gathered[0].entry.parts.size() == 2, clock == 0 || !one_clock);
    }
  }
}

TEST(AggregatorTest, WhoPushesAgainIsWaitedForAgain) {
  Aggregator aggregator = Of({1, 2}, {.sum = true});
  aggregator.Leave(C(2).id, false);
  EXPECT_THAT(aggregator.Add(0, Gradient(1, 1, {1})), SizeIs(1));
  aggregator.Add(0, Gradient(2, 1, {1}));
  EXPECT_THAT(aggregator.Add(0, Gradient(1, 2, {1})), SizeIs(1));
  EXPECT_THAT(aggregator.Add(0, Gradient(1, 3, {1})), IsEmpty());
}

TEST(AggregatorTest, WhatIsGatheredHasAnotherNameEachTime) {
  Aggregator aggregator = Of({1, 2}, {.sum = true});
  aggregator.Add(0, Gradient(1, 1, {1}));
  const std::uint64_t first = aggregator.gathering();
  aggregator.Flush();
  aggregator.Add(0, Gradient(1, 2, {1}));
  EXPECT_NE(aggregator.gathering(), first);
  for (const std::size_t shard : {1, 2}) {
    EXPECT_THAT(aggregator.Add(shard, Gradient(1, 1, {1})), IsEmpty()) << "there is one shard";
  }
}

// The clients of a group.

ShardClient ClientIn(const std::vector<int>& group, int self) {
  ShardClient client(C(self).id, 1);
  ClientView view;
  view.number = view.joined = 1;
  view.shards = {{{"server", 0}, {"server", 0}}};
  view.group = Ids(group);
  view.reductions = {Reduction{.sum = true}};
  client.OnView(view);
  client.OnMessage(0, Welcome{1, C(self), 0, {}, 0});
  return client;
}

MemberId SentTo(ShardClient& client, const Floats& values) {
  Sequence sequence = 0;
  Entry entry = Gradient(0, 0, values);
  const ClientSends sends = client.Push(0, entry, sequence);
  return sends.empty() ? MemberId() : sends[0].send.to;
}

TEST(ShardClientTest, APushGoesThroughTheGroupAndByItselfWhereItWasNotTaken) {
  ShardClient member = ClientIn({1, 2}, 2);
  EXPECT_EQ(SentTo(member, {1}), C(1).id);
  EXPECT_NE(member.delegated(), 0U);

  const ClientSends sends = member.OnMessage(0, Individually{1, C(2), 1});
  ASSERT_THAT(sends, SizeIs(1));
  EXPECT_EQ(sends[0].send.to.pod_uid, "server");
  EXPECT_EQ(member.delegated(), 0U);
  member.OnMessage(0, Acknowledgement{1, C(2), 1, Outcome::kTaken, 0});
  EXPECT_THAT(member.OnMessage(0, Individually{1, C(2), 1}), IsEmpty());
}

TEST(ShardClientTest, AWelcomeSettlesWhatIsInByWhatBecameOfIt) {
  ShardClient client(C(1).id, 1);
  ClientView view{1, 1, {{{"server", 0}, {"server", 0}}}};
  client.OnView(view);
  client.OnMessage(0, Welcome{1, C(1), 0, {}, 0});
  for (int push = 0; push < 3; ++push) (void)SentTo(client, {1});
  (void)client.TakeEvents();
  view.number = 2;
  client.OnView(view);
  client.OnMessage(0, Welcome{2, C(1), 3, {{1, Outcome::kSkipped}, {3, Outcome::kRefused}}, 0});
  std::vector<Outcome> outcomes;
  for (const ClientEvent& event : client.TakeEvents()) {
    if (const auto* settled = std::get_if<Acknowledged>(&event)) {
      outcomes.push_back(settled->outcome);
    }
  }
  EXPECT_THAT(outcomes,
              ::testing::ElementsAre(Outcome::kSkipped, Outcome::kTaken, Outcome::kRefused));
}

TEST(ShardClientTest, WhoLosesPatienceGoesByItselfForAWhile) {
  ShardClient member = ClientIn({1, 2}, 2);
  SentTo(member, {1});
  const ClientSends sends = member.PushIndividually(/*clocks=*/2);
  ASSERT_THAT(sends, SizeIs(2));
  EXPECT_EQ(sends[0].send.to.pod_uid, "server");
  EXPECT_TRUE(std::get<Absent>(sends[1].send.message).withdraws);
  EXPECT_EQ(SentTo(member, {1}).pod_uid, "server");
  EXPECT_EQ(SentTo(member, {1}).pod_uid, "server");
  EXPECT_EQ(SentTo(member, {1}), C(1).id);
}

TEST(ShardClientTest, WhoStandsDownSendsWhatItHasAndTheOthersGoByThemselves) {
  ShardClient first = ClientIn({1, 2}, 1);
  ShardClient member = ClientIn({1, 2}, 2);
  EXPECT_EQ(SentTo(first, {1}), MemberId());  // waits for the other's part
  SentTo(member, {1});
  const ClientSends sends = first.StandDown();
  ASSERT_THAT(sends, SizeIs(2));
  EXPECT_EQ(sends[0].send.to.pod_uid, "server");
  EXPECT_EQ(sends[1].send.to, C(2).id);
  EXPECT_THAT(member.OnMessage(0, sends[1].send.message), SizeIs(2));
  EXPECT_EQ(member.delegated(), 0U);
}

// Who sums up whose.

membership::View ViewOf(const std::vector<std::string>& nodes) {
  membership::View view;
  int number = 0;
  for (const std::string& node : nodes) view.members.push_back({C(++number).id, "", 1, "", node});
  return view;
}

TEST(TopologyTest, TheJobFileSaysOverWhomPushesReachServers) {
  v1alpha1::TrainingJobSpec spec;
  v1alpha1::Topology& chosen =
      *spec.mutable_exchange()->mutable_parameter_server()->mutable_topology();
  EXPECT_EQ(TopologyOf(spec).kind, Topology::Kind::kFlat);
  chosen.mutable_host_reduce();
  EXPECT_EQ(TopologyOf(spec).kind, Topology::Kind::kHostReduce);
  chosen.mutable_tree();
  EXPECT_EQ(TopologyOf(spec).kind, Topology::Kind::kTree);
  EXPECT_EQ(TopologyOf(spec).fanout, 4);
  for (const auto& [fanout, used] : {std::pair{8, 8}, {1, 1}, {0, 1}}) {
    chosen.mutable_tree()->set_fanout(fanout);
    EXPECT_EQ(TopologyOf(spec).fanout, used) << fanout;
  }
}

TEST(TopologyTest, WhoIsNotInTheViewIsInNoGroup) {
  const membership::View view = ViewOf({"a", "a", "a", "a", "a", "a"});
  EXPECT_THAT(GroupOf(view, {Topology::Kind::kTree, 4}, C(9).id), IsEmpty());
}

TEST(TopologyTest, AFlatViewHasNoGroups) {
  EXPECT_THAT(GroupOf(ViewOf({"a", "a"}), {}, C(1).id), IsEmpty());
}

TEST(TopologyTest, ATreesGroupsFollowTheViewAndItsDeaths) {
  const Topology tree{Topology::Kind::kTree, 2};
  membership::View view = ViewOf({"", "", "", "", ""});
  EXPECT_EQ(GroupOf(view, tree, C(2).id), Ids({1, 2}));
  EXPECT_EQ(GroupOf(view, tree, C(4).id), Ids({3, 4}));
  EXPECT_THAT(GroupOf(view, tree, C(5).id), IsEmpty());
  view.members.erase(view.members.begin());  // the first aggregator
  EXPECT_EQ(GroupOf(view, tree, C(2).id), Ids({2, 3}));
  EXPECT_EQ(GroupOf(view, tree, C(5).id), Ids({4, 5}));
  EXPECT_THAT(GroupOf(view, tree, C(1).id), IsEmpty());
}

TEST(TopologyTest, AHostsWorkersAreThoseOfItsNode) {
  const Topology hosts{Topology::Kind::kHostReduce, 4};
  const membership::View view = ViewOf({"node-a", "node-b", "node-a", "node-c"});
  EXPECT_EQ(GroupOf(view, hosts, C(3).id), Ids({1, 3}));
  EXPECT_THAT(GroupOf(view, hosts, C(2).id), IsEmpty());
}

TEST(TopologyTest, WhatMustBeSeenByItselfIsNotReduced) {
  const auto of = [](const consistency::Options& model, Combine combine = Combine::kMean) {
    auto table = Table(TableKind::kDense, 2, 1);
    table->combine = combine;
    return ReductionOf(OptionsOf(table, model));
  };
  EXPECT_TRUE(of(consistency::BulkSynchronous{3})->one_clock);
  EXPECT_FALSE(of(consistency::SoftSync{})->sum);
  EXPECT_TRUE(of(consistency::StaleSynchronous{})->sum);
  EXPECT_TRUE(of(consistency::BulkSynchronous{3}, Combine::kSum)->sum) << "as its table does";
  EXPECT_TRUE(of(consistency::SoftSync{}, Combine::kSum)->sum);
  EXPECT_FALSE(of(consistency::BackupWorkers{}));
  EXPECT_FALSE(of(consistency::EagerStaleSynchronous{}));
  auto remembers = Table(TableKind::kDense, 2, 1);
  remembers->rule = std::shared_ptr<const optimizer::Optimizer>(
      optimizer::MakeDelayCompensated({0.04, false, 0.95, 1e-7}));
  EXPECT_FALSE(ReductionOf(OptionsOf(remembers)));
  EXPECT_FALSE(ReductionOf(OptionsOf(Table(TableKind::kSparse, 2, 1))));
}

}  // namespace
}  // namespace starling::parameter_server
