// SPDX-License-Identifier: Apache-2.0
// One client's machine, told what heads and tails would say. Pushing through a group is shown with
// the aggregator, too (aggregator_test.cc).
#include "trainer/parameter_server/shard_client.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/testing/shard_testing.h"

namespace starling::parameter_server {
namespace {

using shard_testing::C;
using shard_testing::PushOf;
using shard_testing::Range;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

using ReadRequest = parameter_server::Read;
using PushRequest = parameter_server::Push;

MemberId Head(std::size_t shard) { return {absl::StrCat("head-", shard), 0}; }
MemberId Tail(std::size_t shard) { return {absl::StrCat("tail-", shard), 0}; }

ClientView ViewOf(ViewNumber number, ViewNumber joined, std::size_t shards = 2) {
  ClientView view;
  view.number = number;
  view.joined = joined;
  for (std::size_t shard = 0; shard < shards; ++shard)
    view.shards.push_back({Head(shard), Tail(shard)});
  return view;
}

Entry Gradient() { return PushOf({}, 0, Range(0, 1, {1})); }

template <typename Kind>
std::vector<Kind> Only(const ClientSends& sends) {
  std::vector<Kind> only;
  for (const ClientSend& send : sends) {
    if (const auto* one = std::get_if<Kind>(&send.send.message)) only.push_back(*one);
  }
  return only;
}
template <typename Kind>
std::vector<Kind> Only(const std::vector<ClientEvent>& events) {
  std::vector<Kind> only;
  for (const ClientEvent& event : events) {
    if (const auto* one = std::get_if<Kind>(&event)) only.push_back(*one);
  }
  return only;
}

class ShardClientMachine : public testing::Test {
 protected:
  const Client self_ = C(1);  // joined in view 1
  ShardClient client_{self_.id, 2};

  // In view `number`, and greeted by all shards, which admit it at these clocks.
  void Begin(ViewNumber number = 1, Clock first = 0, Clock second = 0) {
    client_.OnView(ViewOf(number, 1));
    client_.OnMessage(0, Welcome{number, self_, 0, {}, first});
    client_.OnMessage(1, Welcome{number, self_, 0, {}, second});
  }
  Sequence PushTo(std::size_t shard) {
    Sequence sequence = 0;
    client_.Push(shard, Gradient(), sequence);
    return sequence;
  }
  ClientSends Acknowledge(std::size_t shard, Sequence sequence, ViewNumber view = 1,
                          Outcome outcome = Outcome::kTaken, Clock start = 0) {
    return client_.OnMessage(shard, Acknowledgement{view, self_, sequence, outcome, start});
  }
};

TEST_F(ShardClientMachine, AViewBeginsWithAGreetingOfEveryTail) {
  const ClientSends sends = client_.OnView(ViewOf(1, 1));
  ASSERT_THAT(sends, SizeIs(2));
  for (std::size_t shard = 0; shard < 2; ++shard) {
    EXPECT_EQ(sends[shard].shard, shard);
    EXPECT_EQ(sends[shard].send.to, Tail(shard));
    EXPECT_EQ(std::get<Hello>(sends[shard].send.message).view, 1u);
    EXPECT_EQ(std::get<Hello>(sends[shard].send.message).client, self_);
  }
  EXPECT_THAT(Only<StartedOver>(client_.TakeEvents()), SizeIs(1));
  EXPECT_FALSE(client_.ready());
  EXPECT_THAT(client_.OnView(ViewOf(1, 1)), IsEmpty()) << "it is not new";
  EXPECT_THAT(client_.Resend(), SizeIs(2)) << "until they are answered";
}

TEST_F(ShardClientMachine, WhoIsNotInTheViewSaysAndBelievesNothing) {
  Begin();
  EXPECT_TRUE(client_.ready());
  client_.TakeEvents();
  PushTo(0);
  EXPECT_THAT(client_.OnView(ViewOf(2, 0)), IsEmpty());
  EXPECT_FALSE(client_.ready());
  EXPECT_THAT(client_.Resend(), IsEmpty());
  client_.OnMessage(0, Acknowledgement{2, {self_.id, 0}, 1, Outcome::kTaken, 0});
  client_.OnMessage(0, Acknowledgement{2, self_, 1, Outcome::kTaken, 0});
  EXPECT_THAT(client_.TakeEvents(), IsEmpty());
}

TEST_F(ShardClientMachine, ItIsReadyWhenAllShardsHaveWelcomedItAtTheHighestOfTheirClocks) {
  client_.OnView(ViewOf(1, 1));
  client_.TakeEvents();
  EXPECT_THAT(client_.OnMessage(0, Welcome{9, self_, 0, {}, 3}), IsEmpty()) << "another view's";
  EXPECT_THAT(client_.OnMessage(0, Welcome{1, C(2), 0, {}, 3}), IsEmpty()) << "another client's";
  EXPECT_THAT(client_.OnMessage(0, Welcome{1, self_, 0, {}, 3}), IsEmpty());
  EXPECT_FALSE(client_.ready());
  const ClientSends sends = client_.OnMessage(1, Welcome{1, self_, 0, {}, 5});
  EXPECT_TRUE(client_.ready());
  // It says so where it was admitted lower.
  ASSERT_THAT(sends, SizeIs(1));
  EXPECT_EQ(sends[0].shard, 0u);
  EXPECT_EQ(sends[0].send.to, Head(0));
  const auto& start = std::get<PushRequest>(sends[0].send.message).entry;
  EXPECT_EQ(start.kind, EntryKind::kStart);
  EXPECT_EQ(start.clock, 5);
  const auto ready = Only<Ready>(client_.TakeEvents());
  ASSERT_THAT(ready, SizeIs(1));
  EXPECT_EQ(ready[0].start, 5);
  EXPECT_THAT(client_.OnMessage(1, Welcome{1, self_, 0, {}, 9}), IsEmpty()) << "it is known";
  EXPECT_THAT(client_.TakeEvents(), IsEmpty());
}

TEST_F(ShardClientMachine, PushesAreNumberedAndWaitUntilTheShardHasWelcomedIt) {
  client_.OnView(ViewOf(1, 1));
  Sequence sequence = 0;
  EXPECT_THAT(client_.Push(0, Gradient(), sequence), IsEmpty());
  EXPECT_EQ(sequence, 1);
  std::int64_t request = 0;
  EXPECT_THAT(client_.Read(0, {}, request), IsEmpty());
  EXPECT_EQ(request, 1);
  const ClientSends sends = client_.OnMessage(0, Welcome{1, self_, 0, {}, 0});
  ASSERT_THAT(sends, SizeIs(2));
  EXPECT_EQ(sends[0].send.to, Head(0));
  const auto& push = std::get<PushRequest>(sends[0].send.message);
  EXPECT_EQ(push.view, 1u);
  EXPECT_EQ(push.entry.client, self_);
  EXPECT_EQ(push.entry.sequence, 1);
  EXPECT_EQ(sends[1].send.to, Tail(0));
  const auto& read = std::get<ReadRequest>(sends[1].send.message);
  EXPECT_EQ(read.view, 1u);
  EXPECT_EQ(read.client, self_);
  EXPECT_EQ(read.request, 1);
  EXPECT_EQ(read.sequence, 1) << "it sees what was pushed before";
  EXPECT_THAT(client_.Push(0, Gradient(), sequence), SizeIs(1)) << "now at once";
  EXPECT_EQ(sequence, 2);
  EXPECT_THAT(client_.Read(0, {}, request), SizeIs(1));
  EXPECT_EQ(request, 2);
  EXPECT_EQ(client_.unacknowledged(0), 2u);
  EXPECT_EQ(PushTo(1), 1) << "each shard has numbers of its own";
}

TEST_F(ShardClientMachine, APushIsKeptUntilItIsAcknowledgedInItsView) {
  Begin(4);
  client_.TakeEvents();
  PushTo(0);
  PushTo(0);
  Acknowledge(0, 1, 3);
  Acknowledge(0, 7, 4);
  client_.OnMessage(0, Acknowledgement{4, C(2), 1, Outcome::kTaken, 0});
  EXPECT_THAT(client_.TakeEvents(), IsEmpty());
  EXPECT_EQ(client_.unacknowledged(0), 2u);
  Acknowledge(0, 1, 4, Outcome::kRefused, 6);
  const auto events = Only<Acknowledged>(client_.TakeEvents());
  ASSERT_THAT(events, SizeIs(1));
  EXPECT_EQ(events[0].shard, 0u);
  EXPECT_EQ(events[0].sequence, 1);
  EXPECT_EQ(events[0].outcome, Outcome::kRefused);
  EXPECT_EQ(events[0].start, 6);
  Acknowledge(0, 1, 4);
  EXPECT_THAT(client_.TakeEvents(), IsEmpty()) << "it is told once";
  const ClientSends open = client_.Resend();
  ASSERT_THAT(open, SizeIs(1));
  EXPECT_EQ(Only<PushRequest>(open).at(0).entry.sequence, 2);
}

TEST_F(ShardClientMachine, InTheNextViewItGreetsAndSendsWhatHasNotArrived) {
  Begin();
  for (int i = 0; i < 3; ++i) PushTo(0);
  std::int64_t request = 0;
  client_.Read(1, {}, request);
  client_.TakeEvents();
  const ClientSends greetings = client_.OnView(ViewOf(2, 1));
  EXPECT_THAT(Only<Hello>(greetings), SizeIs(2));
  EXPECT_THAT(greetings, SizeIs(2));
  EXPECT_TRUE(client_.ready()) << "it goes on";
  const ClientSends sends = client_.OnMessage(0, Welcome{2, self_, 2, {{2, Outcome::kRefused}}, 4});
  ASSERT_THAT(sends, SizeIs(1));
  EXPECT_EQ(Only<PushRequest>(sends).at(0).entry.sequence, 3);
  EXPECT_EQ(Only<PushRequest>(sends).at(0).view, 2u);
  const auto events = client_.TakeEvents();
  EXPECT_THAT(Only<StartedOver>(events), IsEmpty());
  const auto acknowledged = Only<Acknowledged>(events);
  ASSERT_THAT(acknowledged, SizeIs(2));
  EXPECT_EQ(acknowledged[0].outcome, Outcome::kTaken);
  EXPECT_EQ(acknowledged[1].outcome, Outcome::kRefused);
  EXPECT_EQ(acknowledged[1].start, 4);
  EXPECT_THAT(Only<ReadRequest>(client_.OnMessage(1, Welcome{2, self_, 0, {}, 4})), SizeIs(1));
  EXPECT_THAT(client_.TakeEvents(), IsEmpty()) << "it is ready since long";
}

TEST_F(ShardClientMachine, WhoMissedAViewStartsOver) {
  Begin();
  PushTo(0);
  client_.Rest();
  client_.TakeEvents();
  client_.OnView(ViewOf(3, 3));
  EXPECT_EQ(client_.self(), (Client{self_.id, 3}));
  EXPECT_THAT(Only<StartedOver>(client_.TakeEvents()), SizeIs(1));
  EXPECT_FALSE(client_.ready());
  EXPECT_FALSE(client_.rests());
  EXPECT_EQ(client_.unacknowledged(0), 0u);
  EXPECT_EQ(PushTo(0), 1);
  for (const std::size_t shard : {0, 1})
    client_.OnMessage(shard, Welcome{3, client_.self(), 0, {}, 2});
  EXPECT_THAT(Only<Ready>(client_.TakeEvents()), SizeIs(1));
}

TEST_F(ShardClientMachine, ARejectionAndARefusedReadAreTheCallersToHear) {
  Begin();
  PushTo(0);
  std::int64_t request = 0;
  client_.Read(1, {}, request);
  client_.TakeEvents();
  const absl::Status why = absl::InvalidArgumentError("why");
  client_.OnMessage(0, Rejection{2, self_, 1, why});
  client_.OnMessage(1, ReadReply{2, self_, request, 7, why, nullptr});
  EXPECT_THAT(client_.TakeEvents(), IsEmpty()) << "of another view";
  client_.OnMessage(0, Rejection{1, self_, 1, why});
  client_.OnMessage(1, ReadReply{1, self_, request, 7, why, nullptr});
  const auto events = client_.TakeEvents();
  client_.OnMessage(1, ReadReply{1, self_, request, 7, why, nullptr});
  EXPECT_THAT(client_.TakeEvents(), IsEmpty()) << "it is told once";
  ASSERT_THAT(Only<Rejected>(events), SizeIs(1));
  EXPECT_EQ(Only<Rejected>(events)[0].sequence, 1);
  EXPECT_EQ(Only<Rejected>(events)[0].why, why);
  ASSERT_THAT(Only<ReadDone>(events), SizeIs(1));
  EXPECT_EQ(Only<ReadDone>(events)[0].shard, 1u);
  EXPECT_EQ(Only<ReadDone>(events)[0].request, request);
  EXPECT_EQ(Only<ReadDone>(events)[0].version, 7);
}

TEST_F(ShardClientMachine, RestIsSaidOnceToEveryShardAndSoIsTheEndOfIt) {
  Begin();
  client_.TakeEvents();
  EXPECT_THAT(client_.Wake(), IsEmpty()) << "it does not rest";
  const ClientSends rest = client_.Rest();
  ASSERT_THAT(rest, SizeIs(2));
  for (const std::size_t shard : {0, 1}) {
    EXPECT_EQ(rest[shard].send.to, Head(shard));
    EXPECT_EQ(Only<PushRequest>(rest)[shard].entry.kind, EntryKind::kRest);
  }
  EXPECT_TRUE(client_.rests());
  EXPECT_THAT(client_.Rest(), IsEmpty());
  for (const std::size_t shard : {0, 1}) Acknowledge(shard, 1);
  EXPECT_THAT(Only<Ready>(client_.TakeEvents()), IsEmpty());

  const ClientSends wake = client_.Wake();
  ASSERT_THAT(Only<PushRequest>(wake), SizeIs(2));
  EXPECT_EQ(Only<PushRequest>(wake)[1].entry.kind, EntryKind::kWake);
  EXPECT_FALSE(client_.rests());
  EXPECT_THAT(client_.Wake(), IsEmpty());
  EXPECT_THAT(Acknowledge(0, 2, 1, Outcome::kTaken, 8), IsEmpty());
  EXPECT_THAT(Only<Ready>(client_.TakeEvents()), IsEmpty()) << "not all have said where";
  PushTo(1);
  Acknowledge(1, 3, 1, Outcome::kTaken, 50);
  EXPECT_THAT(Only<Ready>(client_.TakeEvents()), IsEmpty()) << "no answer to the waking";
  const ClientSends start = client_.OnMessage(1, Acknowledgement{1, self_, 2, Outcome::kTaken, 6});
  const auto ready = Only<Ready>(client_.TakeEvents());
  ASSERT_THAT(ready, SizeIs(1));
  EXPECT_EQ(ready[0].start, 8) << "the highest";
  ASSERT_THAT(start, SizeIs(1));
  EXPECT_EQ(start[0].shard, 1u) << "where it stood lower";
  EXPECT_EQ(Only<PushRequest>(start)[0].entry.kind, EntryKind::kStart);
  PushTo(0);
  Acknowledge(0, 3);
  EXPECT_THAT(Only<Ready>(client_.TakeEvents()), IsEmpty()) << "it goes on since long";
}

TEST_F(ShardClientMachine, WhatAServerDoesNotKnowIsSentAgainWhole) {
  Begin();
  PushTo(0);
  PushTo(0);
  std::int64_t request = 0;
  client_.Read(0, {}, request);
  EXPECT_THAT(client_.OnMessage(0, KeysUnknown{2, self_, 5, 1, 0}), IsEmpty()) << "another view's";
  const ClientSends push = client_.OnMessage(0, KeysUnknown{1, self_, 5, 2, 0});
  ASSERT_THAT(push, SizeIs(1));
  EXPECT_EQ(push[0].send.to, Head(0));
  EXPECT_EQ(Only<PushRequest>(push).at(0).entry.sequence, 2);
  const ClientSends read = client_.OnMessage(0, KeysUnknown{1, self_, 5, 0, request});
  ASSERT_THAT(read, SizeIs(1));
  EXPECT_EQ(read[0].send.to, Tail(0));
  Acknowledge(0, 2);
  EXPECT_THAT(client_.OnMessage(0, KeysUnknown{1, self_, 5, 2, 99}), IsEmpty());
}

TEST_F(ShardClientMachine, OnlyTheFirstWelcomeOfItsViewMakesItSend) {
  client_.OnView(ViewOf(2, 1));
  EXPECT_EQ(PushTo(0), 1);
  EXPECT_THAT(client_.OnMessage(0, Welcome{1, self_, 0, {}, 0}), IsEmpty()) << "of another view";
  EXPECT_THAT(client_.OnMessage(0, Welcome{2, C(2), 0, {}, 0}), IsEmpty()) << "not its own";
  EXPECT_THAT(client_.OnMessage(0, Welcome{2, self_, 0, {}, 0}), SizeIs(1));
  EXPECT_THAT(client_.OnMessage(0, Welcome{2, self_, 0, {}, 0}), IsEmpty()) << "it is known";
}

TEST_F(ShardClientMachine, WithoutAGroupItPushesToHeadsAndNobodysAbsenceMatters) {
  ClientView view = ViewOf(1, 1);
  view.reductions = {Reduction{.sum = true}, std::nullopt};
  client_.OnView(view);
  client_.OnMessage(0, Welcome{1, self_, 0, {}, 0});
  Sequence sequence = 0;
  const ClientSends sends = client_.Push(0, Gradient(), sequence);
  ASSERT_THAT(sends, SizeIs(1));
  EXPECT_EQ(sends[0].send.to, Head(0));
  EXPECT_THAT(client_.OnMessage(0, Absent{1, C(2), false}), IsEmpty());
}

// What each switch of rules.h turns off; trainer/simulation shows the harm.
TEST_F(ShardClientMachine, WhereRepliesOfAllViewsAreBelievedTheyMustStillBeItsOwn) {
  Rules rules;
  rules.acknowledged_in_view = false;
  ShardClient client(self_.id, 1, rules);
  client.OnView(ViewOf(2, 1, 1));
  Sequence sequence = 0;
  client.Push(0, Gradient(), sequence);
  client.TakeEvents();
  client.OnMessage(0, Acknowledgement{1, C(2), 1, Outcome::kTaken, 0});
  EXPECT_THAT(client.TakeEvents(), IsEmpty());
  client.OnMessage(0, Acknowledgement{1, self_, 1, Outcome::kTaken, 0});
  EXPECT_THAT(Only<Acknowledged>(client.TakeEvents()), SizeIs(1));
}

TEST_F(ShardClientMachine, WhereNobodyStartsOverWhoMissedAViewSendsWhatItHasUnderItsNewName) {
  Rules rules;
  rules.start_over = false;
  ShardClient client(self_.id, 1, rules);
  client.OnView(ViewOf(1, 1, 1));
  EXPECT_THAT(Only<StartedOver>(client.TakeEvents()), SizeIs(1)) << "it begins";
  client.OnMessage(0, Welcome{1, self_, 0, {}, 0});
  Sequence sequence = 0;
  client.Push(0, Gradient(), sequence);
  client.TakeEvents();
  client.OnView(ViewOf(3, 3, 1));
  EXPECT_THAT(client.TakeEvents(), IsEmpty());
  const Client self{self_.id, 3};
  const auto pushes = Only<PushRequest>(client.OnMessage(0, Welcome{3, self, 0, {}, 0}));
  ASSERT_THAT(pushes, SizeIs(1));
  EXPECT_EQ(pushes[0].entry.client, self);
}

// Through a group, of which the client with number 1 sums up. Of the second shard nothing is.
class InAGroup : public ShardClientMachine {
 protected:
  static ClientView GroupView(ViewNumber number, ViewNumber joined = 1) {
    ClientView view = ViewOf(number, joined);
    view.group = {C(1).id, C(2).id, C(3).id};
    view.reductions = {Reduction{.sum = true}, std::nullopt};
    return view;
  }
  static void Enter(ShardClient& client, const Client& self, ViewNumber number = 1) {
    client.OnView(GroupView(number));
    for (const std::size_t shard : {0, 1}) client.OnMessage(shard, Welcome{number, self, 0, {}, 0});
    client.TakeEvents();
  }
  void SetUp() override {
    Enter(client_, C(1));
    Enter(member_, C(2));
  }
  static ClientSends PushOn(ShardClient& client, std::size_t shard = 0,
                            EntryKind kind = EntryKind::kPush) {
    Entry entry = Gradient();
    entry.kind = kind;
    Sequence sequence = 0;
    return client.Push(shard, entry, sequence);
  }
  static MemberId To(const ClientSends& sends) {
    EXPECT_THAT(sends, SizeIs(1));
    return sends.empty() ? MemberId() : sends[0].send.to;
  }
  ShardClient member_{C(2).id, 2};
};

TEST_F(InAGroup, PushesOfGradientsGoThroughItsFirstWhereTheyAreSummedUp) {
  EXPECT_TRUE(client_.sums_up());
  EXPECT_FALSE(member_.sums_up());
  const ClientSends sends = PushOn(member_);
  EXPECT_EQ(To(sends), C(1).id);
  EXPECT_EQ(Only<PushRequest>(sends).at(0).view, 1u);
  EXPECT_EQ(To(PushOn(member_, 1)), Head(1)) << "nothing is summed up there";
  EXPECT_EQ(To(PushOn(member_, 0, EntryKind::kRemember)), Head(0));
  EXPECT_THAT(PushOn(client_), IsEmpty()) << "the others' parts are waited for";
  EXPECT_NE(client_.gathering(), 0u);
  EXPECT_EQ(To(PushOn(client_, 1)), Head(1));
  ClientView few = GroupView(2);
  few.reductions.pop_back();  // of the second shard it says nothing
  member_.OnView(few);
  for (const std::size_t shard : {0, 1}) member_.OnMessage(shard, Welcome{2, C(2), 0, {}, 0});
  EXPECT_EQ(To(PushOn(member_, 1)), Head(1));
}

TEST_F(InAGroup, WhatItWasDelegateedWithNamesTheOldestThatIsOpen) {
  EXPECT_EQ(member_.delegated(), 0u);
  PushOn(member_);
  const std::uint64_t first = member_.delegated();
  PushOn(member_);
  EXPECT_NE(first, 0u);
  EXPECT_EQ(member_.delegated(), first);
  member_.OnMessage(0, Acknowledgement{1, C(2), 1, Outcome::kTaken, 0});
  EXPECT_NE(member_.delegated(), first);
  EXPECT_NE(member_.delegated(), 0u);
  member_.OnView(GroupView(2));
  EXPECT_EQ(member_.delegated(), 0u) << "of this view nothing";
}

TEST_F(InAGroup, TheFirstTakesTheOthersPushesOfItsView) {
  PushOn(client_);
  const Entry part = [&] {
    Entry entry = Gradient();
    entry.client = C(2);
    entry.sequence = 1;
    return entry;
  }();
  EXPECT_THAT(client_.OnMessage(0, PushRequest{2, part}), IsEmpty()) << "of another view";
  Entry other_kind = part;
  other_kind.kind = EntryKind::kRest;
  EXPECT_THAT(client_.OnMessage(0, PushRequest{1, other_kind}), IsEmpty());
  EXPECT_THAT(member_.OnMessage(0, PushRequest{1, part}), IsEmpty()) << "it does not sum up";
  EXPECT_THAT(client_.OnMessage(0, PushRequest{1, part}), IsEmpty());
  Entry last = part;
  last.client = C(3);
  const ClientSends sends = client_.OnMessage(0, PushRequest{1, last});
  EXPECT_EQ(To(sends), Head(0));
  const PushRequest whole = Only<PushRequest>(sends).at(0);
  EXPECT_EQ(whole.view, 1u);
  EXPECT_EQ(whole.entry.kind, EntryKind::kAggregate);
  EXPECT_THAT(whole.entry.parts, SizeIs(3));
  EXPECT_EQ(client_.gathering(), 0u);
}

TEST_F(InAGroup, WhoIsAbsentIsNotWaitedFor) {
  PushOn(client_);
  EXPECT_THAT(client_.OnMessage(0, Absent{2, C(2), false}), IsEmpty()) << "of another view";
  EXPECT_THAT(client_.OnMessage(0, Absent{1, C(2), false}), IsEmpty());
  EXPECT_EQ(To(client_.OnMessage(0, Absent{1, C(3), false})), Head(0));
  EXPECT_THAT(member_.OnMessage(0, Absent{1, C(3), false}), IsEmpty()) << "not its business";
  EXPECT_THAT(member_.OnMessage(0, Absent{2, C(1), false}), IsEmpty());
  PushOn(member_);
  const ClientSends sends = member_.OnMessage(0, Absent{1, C(1), false});
  ASSERT_THAT(sends, SizeIs(2)) << "whoever sums up is: each pushes by itself";
  EXPECT_EQ(sends[0].send.to, Head(0));
  EXPECT_TRUE(std::get<Absent>(sends[1].send.message).withdraws);
}

TEST_F(InAGroup, WhoRestsIsNotWaitedForEither) {
  const ClientSends rest = member_.Rest();
  ASSERT_THAT(rest, SizeIs(3));
  EXPECT_EQ(rest[2].send.to, C(1).id);
  const auto& absent = std::get<Absent>(rest[2].send.message);
  EXPECT_EQ(absent.view, 1u);
  EXPECT_EQ(absent.client, C(2));
  EXPECT_FALSE(absent.withdraws) << "what it gave stays in the sum";
  // The first rests: those that are left make the sum.
  Entry part = Gradient();
  part.sequence = 1;
  for (const int client : {2, 3}) {
    part.client = C(client);
    EXPECT_THAT(client_.OnMessage(0, PushRequest{1, part}), IsEmpty());
  }
  const ClientSends sends = client_.Rest();
  EXPECT_THAT(Only<Absent>(sends), IsEmpty());
  ASSERT_THAT(Only<PushRequest>(sends), SizeIs(3));
  EXPECT_THAT(Only<PushRequest>(sends)[2].entry.parts, SizeIs(2));
  // Out of every view there is nobody to tell.
  ShardClient outside(C(2).id, 2);
  outside.OnView(GroupView(1, 0));
  EXPECT_THAT(outside.Rest(), IsEmpty());
}

TEST_F(InAGroup, AHeadThatDidNotTakeTheSumGetsEachPartByItself) {
  PushOn(member_);
  EXPECT_THAT(member_.OnMessage(0, Individually{2, C(2), 1}), IsEmpty()) << "of another view";
  EXPECT_NE(member_.delegated(), 0u);
  EXPECT_EQ(To(member_.OnMessage(0, Individually{1, C(2), 1})), Head(0));
  EXPECT_EQ(member_.delegated(), 0u);
  EXPECT_THAT(member_.OnMessage(0, Individually{1, C(2), 9}), IsEmpty()) << "it has no such push";
}

TEST_F(InAGroup, WhoHasNoPatienceGoesByItselfForSoManyClocksOfAllShards) {
  PushOn(member_);
  const ClientSends sends = member_.PushIndividually(/*clocks=*/1);
  ASSERT_THAT(sends, SizeIs(2));
  EXPECT_EQ(sends[0].send.to, Head(0));
  EXPECT_EQ(sends[1].send.to, C(1).id);
  EXPECT_EQ(member_.delegated(), 0u);
  EXPECT_EQ(To(PushOn(member_)), Head(0));
  EXPECT_EQ(To(PushOn(member_)), Head(0)) << "one clock is a push to each of two shards";
  EXPECT_EQ(To(PushOn(member_)), C(1).id);
  member_.PushIndividually(1);
  Enter(member_, C(2), 2);
  EXPECT_EQ(To(PushOn(member_)), C(1).id) << "a view begins anew";
  EXPECT_THAT(client_.PushIndividually(), IsEmpty()) << "whoever sums up is nobody's member";
  EXPECT_THAT(ShardClient(C(4).id, 2).PushIndividually(), IsEmpty()) << "nor who has no group";
}

TEST_F(InAGroup, WhoStandsDownSendsItsSumsAndTellsTheOthers) {
  PushOn(client_);
  const ClientSends sends = client_.StandDown();
  ASSERT_THAT(sends, SizeIs(3));
  EXPECT_EQ(sends[0].send.to, Head(0));
  EXPECT_EQ(sends[1].send.to, C(2).id);
  EXPECT_EQ(sends[2].send.to, C(3).id);
  EXPECT_EQ(std::get<Absent>(sends[1].send.message).client, C(1));
  EXPECT_EQ(client_.gathering(), 0u);
  EXPECT_THAT(member_.StandDown(), IsEmpty()) << "it sums nothing up";
}

TEST_F(InAGroup, PatienceEndsWithWhatHasCome) {
  PushOn(client_);
  EXPECT_EQ(To(client_.FlushGathered()), Head(0));
  EXPECT_THAT(client_.FlushGathered(), IsEmpty());
  PushOn(client_);
  client_.OnView(GroupView(2));
  EXPECT_EQ(client_.gathering(), 0u) << "what was gathered in an earlier view is its owners'";
}

TEST_F(InAGroup, WhoSumsUpNothingGathersNothingWhoeverSendsIt) {
  const ClientView of_another = GroupView(1, 0);
  ShardClient outside(C(1).id, 2);
  outside.OnView(of_another);
  for (ShardClient* client : {&member_, &outside}) {
    Entry part = Gradient();
    part.sequence = 1;
    for (const int owner : {1, 2, 3}) {
      part.client = C(owner);
      EXPECT_THAT(client->OnMessage(0, PushRequest{1, part}), IsEmpty());
      EXPECT_EQ(client->gathering(), 0u);
    }
  }
}

TEST_F(InAGroup, WhoSumsUpHasNoOneElseToLosePatienceWith) {
  EXPECT_THAT(client_.PushIndividually(), IsEmpty());
  EXPECT_THAT(PushOn(client_), IsEmpty()) << "its pushes are parts of sums as before";
  const std::uint64_t gathering = client_.gathering();
  EXPECT_NE(gathering, 0u);
  EXPECT_THAT(client_.PushIndividually(), IsEmpty());
  EXPECT_EQ(client_.gathering(), gathering);
}

}  // namespace
}  // namespace starling::parameter_server
