// SPDX-License-Identifier: Apache-2.0
// What the table of leases does with messages that come late, twice or from nobody; how leases go
// round stands in shard_placement_test.cc.
#include "trainer/parameter_server/lease_table.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace starling::parameter_server {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

const Client kOne{{"one", 0}, 1}, kTwo{{"two", 0}, 1};

membership::View ViewOf(ViewNumber number, const std::vector<Client>& clients,
                        bool restore = false) {
  membership::View view;
  view.number = number;
  view.members.push_back({{"server", 0}, "", 1, "server", "", membership::Role::kServer});
  for (const Client& client : clients) {
    membership::ViewMember member;
    member.id = client.id;
    member.joined = client.joined;
    view.members.push_back(member);
  }
  view.groups.resize(2);
  for (membership::ReplicaGroup& chain : view.groups) chain.members = {{"server", 0}};
  view.groups[0].restore = restore;
  return view;
}

LeaseLedger LedgerOf(const std::vector<Lease>& leases) {
  LeaseLedger ledger;
  for (const Lease lease : leases) ledger.Add(lease);
  return ledger;
}

class LeaseTableOfFour : public testing::Test {
 protected:
  void SetUp() override {
    book_.OnView(ViewOf(1, {kOne, kTwo}));
    for (const std::size_t shard : {0, 1}) book_.OnLedger(1, shard, {});
  }
  std::size_t Deal(Lease end, const std::vector<Client>& clients) {
    return book_.Deal(end, clients, [&](Lease lease) {
      return static_cast<std::size_t>(lease % clients.size());
    });
  }
  LeaseTable book_{4, 2};
  const absl::Time now_ = absl::FromUnixSeconds(1000);
};

TEST_F(LeaseTableOfFour, AViewThatIsNotNewChangesNothing) {
  book_.OnView(ViewOf(1, {}));
  EXPECT_THAT(book_.Take(kOne, 1), ElementsAre(1));
  book_.OnView(ViewOf(3, {kOne}));
  book_.OnView(ViewOf(2, {}));
  EXPECT_THAT(book_.HeldBy(kOne), ElementsAre(1));
}

TEST_F(LeaseTableOfFour, WhoLeftHasFinishedNothing) {
  book_.Take(kOne, 2);
  book_.OnDone(1, kOne);
  EXPECT_EQ(book_.FinishedBy(kOne), 1);
  EXPECT_EQ(book_.FinishedBy(kTwo), 0);
  book_.OnView(ViewOf(2, {kTwo}));
  EXPECT_EQ(book_.FinishedBy(kOne), 0);
  EXPECT_TRUE(book_.Done(1)) << "what it did stays done";
}

TEST_F(LeaseTableOfFour, ALedgerOfAnEarlierViewDoesNotReplaceALaterOne) {
  book_.OnView(ViewOf(2, {kOne}));
  book_.OnLedger(2, 0, LedgerOf({1}));
  book_.OnLedger(1, 0, LedgerOf({1, 2}));
  book_.OnLedger(2, 1, LedgerOf({1, 2}));
  EXPECT_TRUE(book_.Done(1));
  EXPECT_FALSE(book_.Done(2));
  book_.OnLedger(2, 2, LedgerOf({3}));  // of no shard
  book_.OnLedger(2, 3, LedgerOf({3}));
  EXPECT_FALSE(book_.Done(3));
}

TEST_F(LeaseTableOfFour, AfterARestoreNothingIsDoneBeforeAllShardsHaveSaidSo) {
  book_.OnLedger(1, 1, LedgerOf({1}));
  book_.OnView(ViewOf(2, {kOne, kTwo}, /*restore=*/true));
  EXPECT_FALSE(book_.Informed());
  book_.OnLedger(2, 0, LedgerOf({1}));
  EXPECT_FALSE(book_.Done(1)) << "what the other shard said is of before";
  EXPECT_EQ(Deal(5, {kOne}), 0u);
  book_.OnLedger(2, 1, {});
  EXPECT_TRUE(book_.Informed());
  EXPECT_FALSE(book_.Done(1));
  EXPECT_EQ(Deal(5, {kOne}), 4u);
}

TEST_F(LeaseTableOfFour, BeforeTheFirstViewNothingIsKnown) {
  EXPECT_FALSE(LeaseTable(4, 2).Informed());
  EXPECT_EQ(LeaseTable(4, 2).done(), 0u);
}

TEST_F(LeaseTableOfFour, OnlyLeasesThatThereAreCanBeDone) {
  book_.OnDone(0, kOne);
  book_.OnDone(5, kOne);
  EXPECT_EQ(book_.done(), 0u);
  book_.OnDone(4, kOne);
  EXPECT_EQ(book_.done(), 1u);
  book_.OnHeld(4, kTwo);
  EXPECT_EQ(book_.outstanding(), 0u) << "what is done is held by nobody";
}

TEST_F(LeaseTableOfFour, AllAreDoneWhenNoneIsOpen) {
  for (const Lease lease : {2, 3, 4}) book_.OnDone(lease, kOne);
  EXPECT_FALSE(book_.AllDone());
  EXPECT_EQ(book_.FirstOpen(), 1u);
  book_.OnDone(1, kOne);
  EXPECT_TRUE(book_.AllDone());
  LeaseTable other(4, 1);
  other.OnView(ViewOf(1, {kOne}));
  for (const Lease lease : {1, 2, 3}) other.OnDone(lease, kOne);
  EXPECT_FALSE(other.AllDone());
}

TEST_F(LeaseTableOfFour, WhoGaveALeaseBackMayHaveItOnceItWasDoneAndLost) {
  book_.Take(kOne, 1);
  ASSERT_TRUE(book_.OnReturned(1, kOne, now_));
  book_.OnDone(1, kTwo);
  book_.OnView(ViewOf(2, {kOne, kTwo}, /*restore=*/true));
  for (const std::size_t shard : {0, 1}) book_.OnLedger(2, shard, {});
  EXPECT_THAT(book_.Take(kOne, 4), ElementsAre(1, 2, 3, 4));
}

TEST_F(LeaseTableOfFour, FreeLeasesAreDealtByRank) {
  EXPECT_EQ(Deal(4, {}), 0u);
  book_.OnHeld(2, kOne);
  EXPECT_EQ(Deal(4, {kOne, kTwo}), 2u) << "below the end, and not held";
  EXPECT_THAT(book_.HeldBy(kOne), ElementsAre(2));
  EXPECT_THAT(book_.HeldBy(kTwo), ElementsAre(1, 3));
  EXPECT_EQ(book_.HighestHeld(), 3u);
  EXPECT_EQ(Deal(9, {kOne, kTwo}), 1u) << "no more than there are";
  EXPECT_EQ(Deal(9, {kOne, kTwo}), 0u);
}

TEST_F(LeaseTableOfFour, WhatAClientGaveBackIsDealtToTheNext) {
  book_.Take(kTwo, 1);
  ASSERT_TRUE(book_.OnReturned(1, kTwo, now_));
  EXPECT_EQ(Deal(2, {kTwo}), 0u) << "there is no other";
  EXPECT_THAT(book_.HeldBy(kTwo), IsEmpty());
  EXPECT_EQ(Deal(2, {kOne, kTwo}), 1u);
  EXPECT_THAT(book_.HeldBy(kOne), ElementsAre(1));
  ASSERT_TRUE(book_.OnReturned(1, kOne, now_));
  EXPECT_EQ(Deal(2, {kOne, kTwo}), 1u) << "whose turn it is has not returned it last";
  EXPECT_THAT(book_.HeldBy(kTwo), ElementsAre(1));
  EXPECT_THAT(book_.HeldBy(kOne), SizeIs(0));
}

}  // namespace
}  // namespace starling::parameter_server
