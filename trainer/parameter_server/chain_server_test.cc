// SPDX-License-Identifier: Apache-2.0
// What a server of a chain makes of messages that no head would have sent. The rules themselves are
// shown by the histories of trainer/simulation.
#include "trainer/parameter_server/chain_server.h"

#include <deque>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/testing/shard_testing.h"

namespace starling::parameter_server {
namespace {

using namespace shard_testing;  // NOLINT(google-build-using-namespace): of these tests
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Two servers of one dense shard of four numbers and a worker, with a network that loses nothing.
class ChainServerTest : public ::testing::Test {
 protected:
  static ChainServer::Options OptionsFor(const MemberId& id) {
    return {id, OptionsOf(Table(TableKind::kDense, 4, 1)), {}};
  }
  static ShardView ViewOf(ViewNumber number, std::vector<MemberId> members) {
    ShardView view;
    view.group.epoch = number;
    view.group.members = std::move(members);
    view.clients = {C(0)};
    return view;
  }

  void Deliver(Sends sends) {
    std::deque<Send> left(sends.begin(), sends.end());
    while (!left.empty()) {
      const Send send = std::move(left.front());
      left.pop_front();
      ChainServer* to = send.to == kHead ? &head_ : send.to == kTail ? &tail_ : nullptr;
      if (to == nullptr) {
        answers_.push_back(send.message);
        continue;
      }
      for (Send& more : to->OnMessage(send.message)) left.push_back(std::move(more));
    }
  }
  // Both serve a view.
  void Begin(ViewNumber number) {
    const ShardView view = ViewOf(number, {kHead, kTail});
    Sends sends = head_.OnView(view);
    for (Send& send : tail_.OnView(view)) sends.push_back(std::move(send));
    Deliver(std::move(sends));
    ASSERT_TRUE(tail_.open());
  }
  static Push PushIn(ViewNumber view, Sequence sequence, const Update& update) {
    Push push;
    push.view = view;
    push.entry = PushOf(C(0), sequence, update);
    return push;
  }
  Floats TailsValues() const { return FloatsOf(tail_.state()->Read({0, 4, {}})); }

  const MemberId kHead = {"server-0", 0};
  const MemberId kTail = {"server-1", 0};
  ChainServer head_{OptionsFor(kHead)};
  ChainServer tail_{OptionsFor(kTail)};
  std::vector<Message> answers_;
};

// Of four numbers only two are there; and a kind of update that a dense shard does not take.
std::vector<Entry> Malformed(Sequence sequence) {
  Entry short_of_values = PushOf(C(0), sequence, Range(0, 4, {1, 1}));
  Entry rows = PushOf(C(0), sequence, Rows({1}, {1}));
  Entry empty = PushOf(C(0), sequence, Range(0, 4, {1, 1, 1, 1}));
  empty.update = nullptr;
  return {short_of_values, rows, empty};
}

TEST_F(ChainServerTest, APushGoesDownTheChainAndIsAnswered) {
  Begin(1);
  Deliver({{kHead, PushIn(1, 1, Range(0, 4, {1, 2, 3, 4}))}});
  EXPECT_THAT(TailsValues(), ElementsAre(1, 2, 3, 4));
  ASSERT_FALSE(answers_.empty());
  EXPECT_TRUE(std::holds_alternative<Acknowledgement>(answers_.back()));
}

// Its first answer was lost: who asks again must not believe that it was applied.
TEST_F(ChainServerTest, APushThatWasSkippedIsAnsweredSoAgainAndAgain) {
  Begin(1);
  for (Sequence i = 1; i <= 2; ++i) {
    Push push = PushIn(1, i, Range(0, 4, {1, 1, 1, 1}));
    push.entry.lease = 7;
    for (int time = 0; time < 2; ++time) {
      Deliver({{kHead, push}});
      EXPECT_EQ(std::get<Acknowledgement>(answers_.back()).outcome,
                i == 1 ? Outcome::kTaken : Outcome::kSkipped);
    }
  }
  Deliver({{kTail, Hello{1, C(0)}}});
  EXPECT_THAT(std::get<Welcome>(answers_.back()).not_taken,
              ElementsAre(::testing::Pair(2, Outcome::kSkipped)));
  EXPECT_THAT(TailsValues(), ElementsAre(1, 1, 1, 1));
}

TEST_F(ChainServerTest, AForwardThatIsNoUpdateOfTheShardHaltsTheReplicaAndNotTheProcess) {
  for (const Entry& bad : Malformed(1)) {
    ChainServer replica{OptionsFor(kTail)};
    ChainServer head{OptionsFor(kHead)};
    const ShardView view = ViewOf(1, {kHead, kTail});
    const Sends hello = head.OnView(view);
    (void)replica.OnView(view);
    for (const Send& send : hello) (void)replica.OnMessage(send.message);
    ASSERT_EQ(replica.phase(), ServerPhase::kRun);
    EXPECT_THAT(replica.OnMessage(Forward{1, 1, false, bad}), IsEmpty()) << "nothing is answered";
    EXPECT_EQ(replica.phase(), ServerPhase::kAborted);
    EXPECT_THAT(std::string(replica.refused().message()), HasSubstr("push 1 of worker-0"));
    EXPECT_EQ(replica.state()->index(), 0) << "nothing was appended";
    EXPECT_THAT(FloatsOf(replica.state()->Read({0, 4, {}})), ElementsAre(0, 0, 0, 0));
  }
}

// Without a word of it the chain would begin anew, although what was trained is still there.
TEST_F(ChainServerTest, ASnapshotThatCannotBeReadNowHaltsTheServerUntilItCanBe) {
  ShardView view = ViewOf(1, {kHead});
  view.group.restore = true;
  EXPECT_THAT(head_.OnView(view, absl::UnavailableError("storage does not answer")), IsEmpty());
  EXPECT_EQ(head_.phase(), ServerPhase::kAborted);
  EXPECT_EQ(head_.state(), nullptr) << "it began anew";
  EXPECT_THAT(std::string(head_.refused().message()), HasSubstr("storage does not answer"));

  view.group.epoch = 2;
  const StateId saved = {1, 7};
  (void)head_.OnView(view, membership::CheckpointOffer{saved, {}});
  EXPECT_TRUE(head_.refused().ok());
  EXPECT_EQ(head_.WantsCheckpoint(), saved);

  view.group.epoch = 3;
  (void)head_.OnView(view, std::nullopt);
  EXPECT_EQ(head_.phase(), ServerPhase::kRun) << "there is none: it begins";
}

TEST_F(ChainServerTest, TheNextViewGoesOnAfterAForwardThatWasRefused) {
  Begin(1);
  Deliver({{kHead, PushIn(1, 1, Range(0, 4, {1, 2, 3, 4}))}});
  (void)tail_.OnMessage(Forward{1, tail_.state()->index() + 1, false, Malformed(2)[0]});
  ASSERT_EQ(tail_.phase(), ServerPhase::kAborted);
  head_.OnBroken(1);
  Begin(2);
  EXPECT_TRUE(tail_.refused().ok());
  Deliver({{kHead, PushIn(2, 2, Range(0, 4, {1, 1, 1, 1}))}});
  EXPECT_THAT(TailsValues(), ElementsAre(2, 3, 4, 5));
}

TEST_F(ChainServerTest, ACopysRecordThatIsNoUpdateOfTheShardHaltsTheCopier) {
  for (const Entry& bad : Malformed(2)) {
    for (const bool damaged : {false, true}) {
      // The tail missed push 2: it asks the head for the records since its own state.
      ChainServer head{OptionsFor(kHead)};
      ChainServer tail{OptionsFor(kTail)};
      const ShardView first = ViewOf(1, {kHead, kTail});
      const Sends of_head = head.OnView(first), of_tail = tail.OnView(first);
      for (const Send& send : of_head) (void)tail.OnMessage(send.message);
      for (const Send& send : of_tail) (void)head.OnMessage(send.message);
      for (Sequence i = 1; i <= 2; ++i) {
        const Sends down = head.OnMessage(PushIn(1, i, Range(0, 4, {1, 1, 1, 1})));
        ASSERT_EQ(down.size(), 1U);
        if (i == 1) (void)tail.OnMessage(down[0].message);
      }
      head.OnBroken(1);
      tail.OnBroken(1);
      const ShardView second = ViewOf(2, {kHead, kTail});
      const Sends heads = head.OnView(second), tails = tail.OnView(second);
      Sends asked;
      for (const Send& send : heads) {
        for (Send& more : tail.OnMessage(send.message)) asked.push_back(std::move(more));
      }
      for (const Send& send : tails) (void)head.OnMessage(send.message);
      ASSERT_EQ(tail.phase(), ServerPhase::kCopy);
      Sends copies;
      for (const Send& send : asked) {
        for (Send& more : head.OnMessage(send.message)) copies.push_back(std::move(more));
      }
      for (Send& send : copies) {
        auto* copy = std::get_if<CopyReply>(&send.message);
        if (copy == nullptr) continue;
        ASSERT_FALSE(copy->records.empty());
        if (damaged) copy->records.back().entry = bad;
        (void)tail.OnMessage(*copy);
      }
      EXPECT_EQ(tail.phase(), damaged ? ServerPhase::kAborted : ServerPhase::kRun);
      EXPECT_EQ(tail.refused().ok(), !damaged);
      EXPECT_EQ(FloatsOf(tail.state()->Read({0, 1, {}})), (Floats{damaged ? 1.0F : 2.0F}));
    }
  }
}

}  // namespace
}  // namespace starling::parameter_server
