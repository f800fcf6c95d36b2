// SPDX-License-Identifier: Apache-2.0
// The rules one at a time; trainer/simulation plays them together, under faults.
#include "trainer/parameter_server/shard_placement.h"

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/parameter_server/lease_table.h"
#include "trainer/testing/shard_placement_testing.h"

namespace starling::parameter_server {
namespace {

using plan_testing::In;
using plan_testing::Job;
using plan_testing::kShards;
using plan_testing::Phase;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST(ShardPlacementTest, TheFirstViewHasEveryoneAndLetsServersOfferSnapshots) {
  Job job(2);
  job.roster().servers.most = 1;
  EXPECT_EQ(job.Plan(), std::nullopt);
  EXPECT_THAT(job.plan().waiting(), HasSubstr("waits for parameter servers"));
  job.Server(0);
  job.Server(1);
  EXPECT_TRUE(job.Plan());
  const View& view = job.newest();
  EXPECT_EQ(view.number, membership::MakeViewNumber(1, 1));
  ASSERT_THAT(view.groups, SizeIs(kShards));
  for (const ReplicaGroup& part : view.groups) {
    EXPECT_THAT(part.members, SizeIs(2));
    EXPECT_TRUE(part.restore);
  }
  EXPECT_EQ(job.Plan(), std::nullopt);  // one at a time
  job.Follow();
  EXPECT_EQ(job.Plan(), std::nullopt);  // and none without a reason
  EXPECT_TRUE(job.plan().running());
}

TEST(ShardPlacementTest, WorkersComeAndGoAndKeepTheViewTheyJoinedIn) {
  Job job(1);
  job.Server(0);
  const MemberId first = job.Worker(0);
  job.Settle();
  const ViewNumber joined = job.newest().workers()[0].joined;
  const MemberId second = job.Worker(1);
  EXPECT_EQ(job.Settle(), 1);
  EXPECT_EQ(job.newest().workers()[0].joined, joined);
  EXPECT_GT(job.newest().workers()[1].joined, joined);
  job.At(first).liveness = Liveness::kSilent;
  EXPECT_EQ(job.Settle(), 1);
  EXPECT_THAT(job.newest().workers(), SizeIs(1));
  job.At(first).liveness = Liveness::kReporting;  // it missed a view: another client
  EXPECT_EQ(job.Settle(), 1);
  EXPECT_GT(job.newest().workers()[0].joined, joined);
  EXPECT_FALSE(HasClient(job.newest(), {first, joined}));
}

TEST(ShardPlacementTest, AServersDeathLeavesTheRestOfTheChainAndADeadViewIsForgotten) {
  Job job(2);
  const MemberId a = job.Server(0), b = job.Server(1);
  job.Settle();
  job.End(a);
  ASSERT_TRUE(job.Plan());
  for (const ReplicaGroup& part : job.newest().groups) {
    EXPECT_THAT(part.members, ElementsAre(b));
    EXPECT_THAT(part.since, SizeIs(1));
    EXPECT_THAT(part.waived, IsEmpty());
    EXPECT_FALSE(part.restore);
  }
  job.Follow();
  EXPECT_EQ(job.Plan(), std::nullopt);
  job.Worker(0);
  ASSERT_TRUE(job.Plan());
  const auto& since = job.newest().groups[0].since;
  ASSERT_THAT(since, SizeIs(1));  // the view of both is overtaken
  EXPECT_EQ(since[0].number, membership::MakeViewNumber(1, 2));
}

TEST(ShardPlacementTest, AServerThatIsOnlySilentIsWaitedForWhereItAloneKnows) {
  Job job(1);
  const MemberId a = job.Server(0), b = job.Server(1);
  job.Settle();
  job.At(a).liveness = Liveness::kSilent;
  EXPECT_EQ(job.Plan(), std::nullopt);
  EXPECT_THAT(job.plan().waiting(), HasSubstr("servers that do not answer"));
  job.End(a);  // now it is certain
  ASSERT_TRUE(job.Plan());
  int restored = 0;
  for (const ReplicaGroup& part : job.newest().groups) {
    EXPECT_THAT(part.members, ElementsAre(b));
    restored += part.restore ? 1 : 0;
    EXPECT_EQ(part.restore, !part.waived.empty());
  }
  EXPECT_GT(restored, 0);
  EXPECT_LT(restored, static_cast<int>(kShards));
}

TEST(ShardPlacementTest, WhereAShardIsRestoredAllClientsStartOver) {
  Job job(1);
  const MemberId a = job.Server(0);
  const MemberId worker = job.Worker(0);
  job.Settle();
  const ViewNumber joined = job.newest().workers()[0].joined;
  job.End(a);
  job.roster().servers.most = 1;
  EXPECT_EQ(job.Plan(), std::nullopt);  // nobody serves
  job.Server(1);
  job.roster().servers.most = 2;
  ASSERT_TRUE(job.Plan());
  EXPECT_FALSE(HasClient(job.newest(), {worker, joined}));
  EXPECT_THAT(job.newest().workers(), SizeIs(1));
}

TEST(ShardPlacementTest, AJoinerFirstFillsItsCacheAndThenTakesItsShare) {
  Job job(1);
  const MemberId a = job.Server(0);
  job.Settle();
  const MemberId b = job.Server(1);
  ASSERT_TRUE(job.Plan());
  EXPECT_TRUE(job.newest().Has(b));
  for (const ReplicaGroup& part : job.newest().groups) EXPECT_THAT(part.members, ElementsAre(a));
  job.Follow();
  EXPECT_EQ(job.Plan(), std::nullopt);
  const std::vector<std::size_t> ahead = job.FetchAhead(b);
  ASSERT_THAT(ahead, Not(IsEmpty()));
  for (const std::size_t shard : ahead) job.At(b).groups[shard].cached = true;
  // A cache is no witness: where the chain moves as a whole, who holds the shard hands it over.
  ASSERT_TRUE(job.Plan());
  for (const std::size_t shard : ahead) {
    EXPECT_THAT(job.newest().groups[shard].members, ElementsAre(a, b));
  }
  job.Follow();
  job.Settle();
  for (std::size_t shard = 0; shard < kShards; ++shard) {
    const bool moved = std::find(ahead.begin(), ahead.end(), shard) != ahead.end();
    EXPECT_THAT(job.newest().groups[shard].members, ElementsAre(moved ? b : a));
    EXPECT_FALSE(job.newest().groups[shard].restore);
  }
}

TEST(ShardPlacementTest, ASlowCacheDoesNotHoldUpTheOthersForEver) {
  Job job(2);
  const MemberId a = job.Server(0);
  job.Settle();
  const MemberId b = job.Server(1);
  ASSERT_TRUE(job.Plan());
  job.Follow();
  EXPECT_EQ(job.Plan(), std::nullopt);
  job.At(b).groups[2].cached = true;
  EXPECT_EQ(job.Plan(), std::nullopt);
  job.Pass(absl::Seconds(11));
  ASSERT_TRUE(job.Plan());
  for (std::size_t shard = 0; shard < kShards; ++shard) {
    EXPECT_EQ(In(job.newest().groups[shard].members, b), shard == 2);
    EXPECT_TRUE(In(job.newest().groups[shard].members, a));
  }
}

TEST(ShardPlacementTest, ALeavingServerGoesWhenOthersHoldAllOfItsShards) {
  Job job(2);
  const MemberId a = job.Server(0), b = job.Server(1);
  job.Server(2);
  job.Settle();
  job.At(b).leaving = true;
  EXPECT_FALSE(job.Released(b));
  EXPECT_GT(job.Settle(), 0);
  EXPECT_FALSE(job.newest().Has(b));
  for (const ReplicaGroup& part : job.newest().groups) EXPECT_THAT(part.members, SizeIs(2));
  EXPECT_TRUE(job.Released(b));
  EXPECT_FALSE(job.Released(a));
}

TEST(ShardPlacementTest, TheLastServerStaysUntilSomebodyElseHoldsItsShards) {
  Job job(1);
  const MemberId a = job.Server(0);
  job.Settle();
  job.At(a).leaving = true;
  EXPECT_EQ(job.Settle(), 0);
  EXPECT_TRUE(job.newest().Has(a));
  EXPECT_FALSE(job.Released(a));
}

TEST(ShardPlacementTest, FewerServersAreWantedAndTheHighestIndicesGo) {
  Job job(1);
  const MemberId a = job.Server(0), b = job.Server(1);
  job.Settle();
  job.roster().servers.most = 1;
  EXPECT_GT(job.Settle(), 0);
  for (const ReplicaGroup& part : job.newest().groups) EXPECT_THAT(part.members, ElementsAre(a));
  EXPECT_FALSE(job.newest().Has(b));
}

TEST(ShardPlacementTest, ABrokenMeshIsReplacedWhenAllSaySoOrAfterAMoment) {
  Job job(1);
  const MemberId a = job.Server(0), worker = job.Worker(0);
  job.Settle();
  job.At(a).phase = Phase::kAborted;
  EXPECT_EQ(job.Plan(), std::nullopt);
  job.Pass(absl::Milliseconds(260));
  EXPECT_TRUE(job.Plan());
  job.Follow();
  job.At(a).phase = Phase::kAborted;
  job.At(worker).phase = Phase::kAborted;
  EXPECT_TRUE(job.Plan());
}

TEST(ShardPlacementTest, ASuccessorAdoptsTheViewThatRuns) {
  Job before(1);
  const MemberId a = before.Server(0), worker = before.Worker(0);
  before.Settle();
  const View running = before.newest();
  Job after(1, 2, running.number);
  after.Server(0);
  after.Worker(0);
  after.At(a) = before.At(a);
  after.At(worker).liveness = Liveness::kUnclear;
  after.plan().Learn(running);
  after.plan().OnTakenOver(running.number);
  EXPECT_EQ(after.Plan(), std::nullopt);
  EXPECT_FALSE(after.plan().running());
  after.At(worker) = before.At(worker);
  EXPECT_EQ(after.Plan(), std::nullopt);
  EXPECT_TRUE(after.plan().running());
  EXPECT_EQ(after.newest(), running);
}

TEST(ShardPlacementTest, ASuccessorReplacesAViewThatNotEveryoneHas) {
  Job before(1);
  const MemberId a = before.Server(0), worker = before.Worker(0);
  before.Settle();
  const View running = before.newest();
  Job after(1, 2, running.number);
  after.Server(0);
  after.Worker(0);
  after.At(a) = before.At(a);
  after.At(worker).fence = 0;  // it will refuse the old coordinator's view from now on
  after.At(worker).installed = 0;
  after.plan().Learn(running);
  after.plan().OnTakenOver(running.number);
  ASSERT_TRUE(after.Plan());
  EXPECT_EQ(after.newest().number, membership::MakeViewNumber(2, 1));
  EXPECT_FALSE(after.newest().groups[0].restore);
}

TEST(ShardPlacementTest, AViewOfWhichNobodyIsLeftToTellMeansARestore) {
  Job job(1, 3, membership::MakeViewNumber(2, 9));
  job.Server(0);
  ASSERT_TRUE(job.Plan());
  EXPECT_TRUE(job.newest().groups[0].restore);
}

TEST(ShardPlacementTest, AServerWithoutAWitnessIsNotSentThereAgain) {
  Job job(1);
  const MemberId a = job.Server(0);
  job.Settle();
  job.Worker(0);
  job.Settle();
  job.At(a).groups[0].lost = true;
  EXPECT_EQ(job.Plan(), std::nullopt);
  EXPECT_THAT(job.plan().waiting(), HasSubstr("waits for a server that knows the last updates"));
}

TEST(ShardPlacementTest, MachinesAndMeshSeeTheSameView) {
  Job job(2);
  const MemberId a = job.Server(0), b = job.Server(1), worker = job.Worker(0);
  job.Settle();
  const View& view = job.newest();
  const ShardView shard = ShardViewOf(view, 0);
  EXPECT_EQ(shard.group.epoch, view.number);
  EXPECT_THAT(shard.group.members, SizeIs(2));
  EXPECT_EQ(shard.clients, (std::vector<Client>{{worker, view.number}}));
  EXPECT_TRUE(HasClient(view, {worker, view.number}));
  EXPECT_FALSE(HasClient(view, {a, view.number})) << "a server is no client";
  const ClientView client = ClientViewOf(view, worker);
  EXPECT_EQ(client.number, view.number);
  EXPECT_EQ(client.joined, view.number);
  EXPECT_EQ(client.shards[0].head, view.groups[0].members.front());
  EXPECT_EQ(client.shards[0].tail, view.groups[0].members.back());
  EXPECT_EQ(ClientViewOf(view, a).joined, 0U);
  EXPECT_THAT(RanksOf(view), ElementsAre(a, b, worker));
}

TEST(ShardPlacementTest, AHeadThatTheViewDoesNotNameIsAServersStill) {
  View view;
  view.number = 1;
  view.groups.push_back({1, {{"nobody", 0}}, {}, {}, false});
  EXPECT_THAT(ClientViewOf(view, {"worker", 0}).shards, SizeIs(1));
}

View ViewOf(ViewNumber number, const std::vector<Client>& clients, bool restore = false) {
  View view;
  view.number = number;
  view.members.push_back({{"server", 0}, "", 1, "server", "", membership::Role::kServer});
  for (const Client& client : clients) view.members.push_back({client.id, "", client.joined, ""});
  view.groups.resize(2);
  for (ReplicaGroup& chain : view.groups) chain.members = {{"server", 0}};
  view.groups[1].restore = restore;
  return view;
}

LeaseLedger LedgerOf(const std::vector<Lease>& leases) {
  LeaseLedger ledger;
  for (const Lease lease : leases) ledger.Add(lease);
  return ledger;
}

class LeaseTableTest : public testing::Test {
 protected:
  // The first view, and what the shards say in it.
  void Begin(const std::vector<Lease>& first, const std::vector<Lease>& second) {
    book_.OnView(ViewOf(1, {a_, b_}));
    book_.OnLedger(1, 0, LedgerOf(first));
    book_.OnLedger(1, 1, LedgerOf(second));
  }
  const Client a_{{"a", 0}, 1}, b_{{"b", 0}, 1};
  LeaseTable book_{4, 2};
};

TEST_F(LeaseTableTest, NothingIsGivenOutBeforeTheLedgersAreKnown) {
  book_.OnView(ViewOf(1, {a_}));
  book_.OnLedger(1, 0, {});
  EXPECT_THAT(book_.Take(a_, 2), IsEmpty());
  book_.OnLedger(1, 1, {});
  EXPECT_THAT(book_.Take(a_, 2), ElementsAre(1, 2));
  EXPECT_THAT(book_.Take(a_, 9), ElementsAre(3, 4));
}

TEST_F(LeaseTableTest, DoneMeansInEveryShard) {
  Begin({1, 2}, {2, 3});
  EXPECT_FALSE(book_.Done(1));
  EXPECT_TRUE(book_.Done(2));
  EXPECT_FALSE(book_.Done(3));
  EXPECT_THAT(book_.Take(a_, 9), ElementsAre(1, 3, 4));
  EXPECT_FALSE(book_.AllDone());
  for (const Lease lease : {1, 3, 4}) book_.OnDone(lease, a_);
  EXPECT_TRUE(book_.AllDone());
}

TEST_F(LeaseTableTest, WhatSomebodyHeldIsAnothersOnceItIsOutOfTheView) {
  Begin({}, {});
  EXPECT_THAT(book_.Take(a_, 4), SizeIs(4));
  EXPECT_THAT(book_.Take(b_, 4), IsEmpty());
  book_.OnDone(2, a_);
  book_.OnView(ViewOf(2, {b_}));
  EXPECT_THAT(book_.Take(a_, 4), IsEmpty());
  EXPECT_THAT(book_.Take(b_, 4), ElementsAre(1, 3, 4));
}

TEST_F(LeaseTableTest, OnlyClientsOfTheNewestViewAreBelieved) {
  Begin({}, {});
  book_.OnDone(1, {{"a", 0}, 7});
  EXPECT_FALSE(book_.Done(1));
  book_.OnDone(1, a_);
  EXPECT_TRUE(book_.Done(1));
}

TEST_F(LeaseTableTest, ARestoreForgetsWhatIsInNoLedger) {
  Begin({}, {});
  book_.Take(a_, 2);
  book_.OnDone(1, a_);
  book_.OnDone(2, a_);
  const Client again{{"a", 0}, 2};
  book_.OnView(ViewOf(2, {again}, /*restore=*/true));
  book_.OnLedger(1, 0, LedgerOf({1, 2, 3, 4}));  // of before: not to be believed
  EXPECT_THAT(book_.Take(again, 4), IsEmpty());
  book_.OnLedger(2, 0, LedgerOf({1, 2}));
  book_.OnLedger(2, 1, LedgerOf({1}));
  EXPECT_THAT(book_.Take(again, 4), ElementsAre(2, 3, 4));
}

TEST_F(LeaseTableTest, WhatIsGivenBackIsAnothersAndItsOwnOnlyLater) {
  const absl::Time now = absl::FromUnixSeconds(1000);
  Begin({}, {});
  EXPECT_THAT(book_.Take(a_, 2), ElementsAre(1, 2));
  EXPECT_FALSE(book_.OnReturned(1, b_, now)) << "it is not its holder";
  EXPECT_FALSE(book_.OnReturned(3, a_, now));
  EXPECT_TRUE(book_.OnReturned(1, a_, now));
  EXPECT_THAT(book_.HeldBy(a_), ElementsAre(2));
  EXPECT_THAT(book_.Take(a_, 1), ElementsAre(3));
  EXPECT_THAT(book_.Take(b_, 1), ElementsAre(1));

  EXPECT_TRUE(book_.OnReturned(1, b_, now));
  book_.ForgetReturned(now);
  EXPECT_THAT(book_.Take(b_, 1), ElementsAre(4));
  book_.ForgetReturned(now + absl::Seconds(1));
  EXPECT_THAT(book_.Take(b_, 1), ElementsAre(1));
}

TEST_F(LeaseTableTest, WhatIsGivenBackAndDoneElsewhereStaysDone) {
  Begin({}, {});
  book_.Take(a_, 1);
  EXPECT_TRUE(book_.OnReturned(1, a_, absl::FromUnixSeconds(1000)));
  EXPECT_THAT(book_.Take(b_, 1), ElementsAre(1));
  book_.OnDone(1, b_);
  EXPECT_THAT(book_.Take(a_, 1), ElementsAre(2));
  EXPECT_FALSE(book_.OnReturned(1, b_, absl::FromUnixSeconds(1000)));
}

TEST_F(LeaseTableTest, ASuccessorLearnsWhoHoldsWhat) {
  Begin({}, {});
  book_.OnHeld(1, a_);
  book_.OnHeld(2, {{"gone", 0}, 1});
  EXPECT_THAT(book_.Take(b_, 2), ElementsAre(2, 3));
}

}  // namespace
}  // namespace starling::parameter_server
