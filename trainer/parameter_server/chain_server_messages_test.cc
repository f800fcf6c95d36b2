// SPDX-License-Identifier: Apache-2.0
// One server of a replica chain, or a few whose messages arrive at once. What replication is for is
// shown in trainer/simulation; here is what each message does, and when it does nothing.
#include <deque>
#include <map>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/parameter_server/chain_server.h"
#include "trainer/testing/shard_testing.h"

namespace starling::parameter_server {
namespace {

using namespace shard_testing;  // NOLINT(google-build-using-namespace): of these tests
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

const MemberId kA{"a", 0}, kB{"b", 0}, kC{"c", 0}, kD{"d", 0};

ShardOptions Options(const consistency::Options& model = consistency::Asynchronous{}) {
  return OptionsOf(Table(TableKind::kDense, 4, 1), model);
}

ShardView ViewOf(ViewNumber number, const std::vector<MemberId>& members) {
  ShardView view;
  view.group.epoch = number;
  view.group.members = members;
  view.clients = {C(0), C(1)};
  return view;
}

Entry One(int client, Sequence sequence) { return PushOf(C(client), sequence, Range(0, 1, {1})); }

parameter_server::Read ReadOf(ViewNumber view, int client, std::int64_t request,
                              Sequence sequence = 0) {
  parameter_server::Read read;
  read.view = view;
  read.client = C(client);
  read.request = request;
  read.sequence = sequence;
  read.rows = 1;
  return read;
}

// Those of one kind, in order.
template <typename Kind>
std::vector<Kind> Only(const Sends& sends) {
  std::vector<Kind> only;
  for (const Send& send : sends) {
    if (const auto* one = std::get_if<Kind>(&send.message)) only.push_back(*one);
  }
  return only;
}

SyncMessage SyncOf(ViewNumber view, const MemberId& id,
                   const std::optional<StateId>& state = std::nullopt) {
  SyncMessage message;
  message.view = message.id.view = view;
  message.id.member = id;
  message.id.state = state;
  return message;
}

// Servers whose messages to one another arrive at once, in order. Those to clients are kept.
class Chain {
 public:
  explicit Chain(ShardOptions options = Options()) : options_(std::move(options)) {}

  ChainServer& operator[](const MemberId& id) {
    const auto [server, is_new] = servers_.try_emplace(id);
    if (is_new) {
      server->second = std::make_unique<ChainServer>(ChainServer::Options{id, options_, {}});
    }
    return *server->second;
  }
  void View(ViewNumber number, const std::vector<MemberId>& members) {
    number_ = number;
    for (const MemberId& id : members) Carry((*this)[id].OnView(ViewOf(number, members)));
    Run();
  }
  void Tell(const MemberId& to, const Message& message) {
    Carry((*this)[to].OnMessage(message));
    Run();
  }
  void Push(const MemberId& head, const Entry& entry) {
    Tell(head, parameter_server::Push{number_, entry});
  }
  // What came to clients since this was called last.
  Sends Answers() { return std::exchange(answers_, {}); }
  // Copies that were sent in this history.
  const std::vector<CopyReply>& copies() const { return copies_; }

 private:
  void Carry(const Sends& sends) {
    under_way_.insert(under_way_.end(), sends.begin(), sends.end());
  }
  void Run() {
    while (!under_way_.empty()) {
      const Send send = under_way_.front();
      under_way_.pop_front();
      if (const auto* copy = std::get_if<CopyReply>(&send.message)) copies_.push_back(*copy);
      const auto server = servers_.find(send.to);
      if (server == servers_.end()) {
        answers_.push_back(send);
      } else {
        Carry(server->second->OnMessage(send.message));
      }
    }
  }

  const ShardOptions options_;
  ViewNumber number_ = 0;
  std::map<MemberId, std::unique_ptr<ChainServer>> servers_;
  std::deque<Send> under_way_;
  Sends answers_;
  std::vector<CopyReply> copies_;
};

std::string SavedBy(const ChainServer& server) { return server.state()->Save(); }

ChainServer Server(const MemberId& id, const ShardOptions& options = Options()) {
  return ChainServer({id, options, {}});
}

// Views. -----------------------------------------------------------------------------------------

TEST(ChainServer, InAViewItTellsAllOthersWhatItHolds) {
  ChainServer server = Server(kB);
  EXPECT_EQ(server.state_id(), std::nullopt);
  const Sends sends = server.OnView(ViewOf(5, {kA, kB, kC}));
  ASSERT_THAT(sends, SizeIs(2));
  EXPECT_EQ(sends[0].to, kA);
  EXPECT_EQ(sends[1].to, kC);
  const auto& message = std::get<SyncMessage>(sends[0].message);
  EXPECT_EQ(message.view, 5u);
  EXPECT_EQ(message.id.view, 5u);
  EXPECT_EQ(message.id.member, kB);
  EXPECT_EQ(message.id.state, std::nullopt);
  EXPECT_EQ(message.cache, std::nullopt);
  EXPECT_EQ(server.phase(), ServerPhase::kSync);
}

TEST(ChainServer, AViewThatIsNotNewIsIgnored) {
  ChainServer server = Server(kA);
  server.OnView(ViewOf(5, {kA, kB}));
  for (const ViewNumber number : {5, 4}) {
    EXPECT_THAT(server.OnView(ViewOf(number, {kB})), IsEmpty());
    EXPECT_EQ(server.phase(), ServerPhase::kSync) << number;
  }
  EXPECT_EQ(server.fence(), 5u);
}

TEST(ChainServer, WhoLeavesTheChainKeepsItsCopyAndNothingElse) {
  Chain chain;
  chain.View(1, {kA, kB});
  chain.Push(kA, One(0, 1));
  EXPECT_THAT(chain[kA].OnView(ViewOf(2, {kB})), IsEmpty());
  EXPECT_EQ(chain[kA].phase(), ServerPhase::kOut);
  EXPECT_EQ(chain[kA].state_id(), (StateId{1, 1}));
  chain[kA].OnBroken(2);
  EXPECT_EQ(chain[kA].phase(), ServerPhase::kOut) << "it has no links that could break";
  EXPECT_THAT(chain[kA].OnMessage(Push{2, One(0, 2)}), IsEmpty());
  EXPECT_THAT(chain[kA].OnMessage(CopyRequest{2, kC}), IsEmpty());
}

TEST(ChainServer, ACheckpointIsOfferedInARestoreOnly) {
  for (const bool restore : {false, true}) {
    ShardView view = ViewOf(5, {kA, kB});
    view.group.restore = restore;
    const Sends sends = Server(kA).OnView(view, membership::CheckpointOffer{{3, 7}, {}});
    ASSERT_THAT(sends, SizeIs(1));
    EXPECT_EQ(std::get<SyncMessage>(sends[0].message).id.checkpoint.has_value(), restore);
  }
}

TEST(ChainServer, ABrokenLinkOfItsViewHaltsIt) {
  Chain chain;
  chain[kA].OnView(ViewOf(1, {kA, kB}));
  chain[kA].OnBroken(7);
  EXPECT_EQ(chain[kA].phase(), ServerPhase::kSync) << "a link of another view";
  chain[kA].OnBroken(1);
  EXPECT_EQ(chain[kA].phase(), ServerPhase::kAborted);
  EXPECT_THAT(chain[kA].OnMessage(SyncOf(1, kB)), IsEmpty());
  EXPECT_EQ(chain[kA].phase(), ServerPhase::kAborted);
  chain.View(2, {kA});
  ASSERT_EQ(chain[kA].phase(), ServerPhase::kRun);
  chain[kA].OnBroken(2);
  EXPECT_EQ(chain[kA].phase(), ServerPhase::kAborted);
  chain[kB].OnView(ViewOf(3, {kA, kB}));
  chain[kB].OnMessage(SyncOf(3, kA, StateId{2, 0}));
  ASSERT_EQ(chain[kB].phase(), ServerPhase::kCopy);
  chain[kB].OnBroken(3);
  EXPECT_EQ(chain[kB].phase(), ServerPhase::kAborted);
  for (const Message& message :
       {Message(CopyRequest{3, kA}), Message(Hello{3, C(0)}), Message(ReadOf(3, 0, 1)),
        Message(Forward{3, 1, false, One(0, 1)})}) {
    EXPECT_THAT(chain[kB].OnMessage(message), IsEmpty());
  }
  EXPECT_EQ(chain[kB].phase(), ServerPhase::kAborted);
}

TEST(ChainServer, WithoutAWitnessOrWithACheckpointOfAHigherIncarnationItIsLost) {
  ChainServer server = Server(kA);
  ShardView view = ViewOf(5, {kA});
  view.group.since = {{4, {kB}}};
  server.OnView(view);
  EXPECT_EQ(server.phase(), ServerPhase::kLost);
  server.OnBroken(5);
  EXPECT_EQ(server.phase(), ServerPhase::kLost);
  view = ViewOf(6, {kA});
  view.group.restore = true;
  server.OnView(view, membership::CheckpointOffer{{membership::MakeViewNumber(1, 1), 7}, {}});
  EXPECT_EQ(server.phase(), ServerPhase::kLost);
}

// What came in one view is of no use in the next: its senders say it again.
TEST(ChainServer, NothingOfAnEarlierViewIsAnsweredInALaterOne) {
  ChainServer server = Server(kB);
  server.OnView(ViewOf(1, {kA, kB}));
  server.OnMessage(SyncOf(1, kA));
  ASSERT_EQ(server.phase(), ServerPhase::kRun);
  EXPECT_FALSE(server.open()) << "the head has not synced";
  for (const Message& message : {Message(Hello{1, C(0)}), Message(ReadOf(1, 0, 1)),
                                 Message(Forward{1, 1, false, One(0, 1)})}) {
    EXPECT_THAT(server.OnMessage(message), IsEmpty());
  }
  EXPECT_THAT(server.OnView(ViewOf(2, {kB})), IsEmpty());
  EXPECT_TRUE(server.open());
}

TEST(ChainServer, EachViewIsOpenedAnew) {
  Chain chain;
  chain.View(1, {kA, kB});
  EXPECT_TRUE(chain[kB].open());
  chain[kB].OnView(ViewOf(2, {kA, kB}));
  EXPECT_EQ(chain[kB].phase(), ServerPhase::kSync) << "the head has not said what it holds";
  chain[kB].OnMessage(SyncOf(2, kA, StateId{1, 0}));
  EXPECT_EQ(chain[kB].phase(), ServerPhase::kRun);
  EXPECT_FALSE(chain[kB].open());
  EXPECT_THAT(chain[kB].OnMessage(Hello{2, C(0)}), IsEmpty());
  chain[kB].OnMessage(Synced{1, kA});
  EXPECT_FALSE(chain[kB].open()) << "said in another view";
  EXPECT_THAT(Only<Welcome>(chain[kB].OnMessage(Synced{2, kA})), SizeIs(1));
  EXPECT_TRUE(chain[kB].open());
}

TEST(ChainServer, APushThatWaitedForAnEarlierOneIsNotKeptForTheNextView) {
  Chain chain;
  chain.View(1, {kA});
  chain.Push(kA, One(0, 2));
  chain.View(2, {kA});
  chain.Push(kA, One(0, 1));
  EXPECT_EQ(chain[kA].state()->index(), 1);
}

// The sync round. --------------------------------------------------------------------------------

TEST(ChainServer, OnlyThisViewsSyncMessagesCount) {
  ChainServer server = Server(kA);
  server.OnView(ViewOf(2, {kA, kB}));
  server.OnMessage(SyncOf(1, kB));
  EXPECT_EQ(server.phase(), ServerPhase::kSync);
  server.OnMessage(SyncOf(2, kB));
  EXPECT_EQ(server.phase(), ServerPhase::kRun);
  EXPECT_EQ(server.state_id(), (StateId{2, 0})) << "nobody holds anything: all start fresh";
  EXPECT_THAT(server.OnMessage(SyncOf(2, kB, StateId{1, 9})), IsEmpty());
  EXPECT_EQ(server.phase(), ServerPhase::kRun) << "the round is over";
}

TEST(ChainServer, CopiersAreSharedAmongThoseThatHoldTheBase) {
  const auto asked = [](const std::vector<MemberId>& members) {
    ChainServer copier = Server(kC);
    copier.OnView(ViewOf(2, members));
    copier.OnMessage(SyncOf(2, kA, StateId{1, 5}));
    const Sends sends = copier.OnMessage(SyncOf(2, kB, StateId{1, 5}));
    EXPECT_EQ(copier.phase(), ServerPhase::kCopy);
    EXPECT_EQ(std::get<CopyRequest>(sends.at(0).message).from, kC);
    EXPECT_EQ(std::get<CopyRequest>(sends.at(0).message).view, 2u);
    return sends.at(0).to;
  };
  EXPECT_EQ(asked({kC, kA, kB}), kA);
  EXPECT_EQ(asked({kA, kC, kB}), kB);
  EXPECT_EQ(asked({kA, kB, kC}), kA);
}

TEST(ChainServer, ACopyIsOfTheBaseAndWaitsUntilItsHolderRuns) {
  Chain chain;
  chain.View(1, {kA});
  chain.Push(kA, One(0, 1));
  const std::string base = SavedBy(chain[kA]);
  ChainServer& holder = chain[kA];
  holder.OnView(ViewOf(2, {kA, kB}));
  EXPECT_THAT(holder.OnMessage(CopyRequest{1, kB}), IsEmpty());
  EXPECT_THAT(holder.OnMessage(CopyRequest{2, kB}), IsEmpty()) << "it does not know the base yet";
  const Sends sends = holder.OnMessage(SyncOf(2, kB));
  const auto copies = Only<CopyReply>(sends);
  ASSERT_THAT(copies, SizeIs(1)) << "one for each request of this view";
  EXPECT_EQ(copies[0].view, 2u);
  EXPECT_EQ(copies[0].state, (StateId{1, 1}));
  ASSERT_NE(copies[0].snapshot, nullptr);
  EXPECT_EQ(*copies[0].snapshot, base) << "before anything of the new view";
  ASSERT_THAT(Only<Synced>(sends), SizeIs(1));
  EXPECT_EQ(sends.back().to, kB) << "the tail is told";
  // Also once it runs, as long as not all have synced; nobody else's.
  holder.OnMessage(Push{2, One(0, 2)});
  const Sends again = holder.OnMessage(CopyRequest{2, kB});
  ASSERT_THAT(Only<CopyReply>(again), SizeIs(1));
  EXPECT_EQ(*Only<CopyReply>(again)[0].snapshot, base);
  EXPECT_THAT(holder.OnMessage(CopyRequest{2, kC}), IsEmpty());
  EXPECT_THAT(holder.OnMessage(CopyRequest{1, kB}), IsEmpty());
  // Nor does the request outlive its view.
  holder.OnView(ViewOf(3, {kA, kC}));
  EXPECT_THAT(Only<CopyReply>(holder.OnMessage(SyncOf(3, kC))), IsEmpty());
  EXPECT_THAT(holder.OnMessage(CopyRequest{3, kB}), IsEmpty()) << "no copier of this view";
}

TEST(ChainServer, ARequestOfAViewThatEndedIsNotAnsweredInTheNext) {
  Chain chain;
  chain.View(1, {kA});
  chain[kA].OnView(ViewOf(2, {kA, kB}));
  chain[kA].OnMessage(CopyRequest{2, kB});
  chain[kA].OnView(ViewOf(3, {kA, kB}));
  EXPECT_THAT(Only<CopyReply>(chain[kA].OnMessage(SyncOf(3, kB))), IsEmpty());
}

TEST(ChainServer, OnceAllHaveSyncedTheTailKeepsNoCopies) {
  Chain chain;
  chain.View(1, {kA});
  chain.View(2, {kB, kA});
  EXPECT_THAT(chain.copies(), SizeIs(1));
  EXPECT_THAT(chain[kA].OnMessage(CopyRequest{2, kB}), IsEmpty());
}

TEST(ChainServer, WhoIsOnlyBehindGetsWhatHasComeSince) {
  Chain chain;
  chain.View(1, {kA, kB, kC});
  chain.Push(kA, One(0, 1));
  chain.View(2, {kA});
  chain.Push(kA, One(0, 2));
  chain.Push(kA, One(1, 1));
  chain.View(3, {kA, kB});
  ASSERT_THAT(chain.copies(), SizeIs(1));
  const CopyReply copy = chain.copies()[0];
  EXPECT_EQ(copy.snapshot, nullptr);
  EXPECT_EQ(copy.since, (StateId{1, 1}));
  EXPECT_THAT(copy.records, SizeIs(3)) << "a view's clients, and two pushes";
  EXPECT_EQ(SavedBy(chain[kB]), SavedBy(chain[kA]));
  EXPECT_EQ(chain[kB].state_id(), (StateId{3, 3}));
  // Who was given records can give them.
  chain.View(4, {kB, kC});
  ASSERT_THAT(chain.copies(), SizeIs(2));
  EXPECT_EQ(chain.copies()[1].since, (StateId{1, 1}));
  EXPECT_THAT(chain.copies()[1].records, SizeIs(4));
  EXPECT_EQ(SavedBy(chain[kC]), SavedBy(chain[kB]));
}

TEST(ChainServer, WhoHasExactlyWhatAnothersLogBeginsWithGetsRecordsToo) {
  Chain chain;
  chain.View(1, {kA, kC});
  chain.Push(kA, One(0, 1));
  chain.View(2, {kA, kB});  // the second gets a snapshot of what the third holds
  ASSERT_THAT(chain.copies(), SizeIs(1));
  ASSERT_NE(chain.copies()[0].snapshot, nullptr);
  chain.Push(kA, One(0, 2));
  chain.View(3, {kB, kC});
  ASSERT_THAT(chain.copies(), SizeIs(2));
  EXPECT_EQ(chain.copies()[1].since, (StateId{1, 1}));
  EXPECT_THAT(chain.copies()[1].records, SizeIs(2));
  EXPECT_EQ(SavedBy(chain[kB]), SavedBy(chain[kC]));
}

TEST(ChainServer, WhatTheLogHasForgottenIsCopiedWhole) {
  for (const int pushes : {4094, 4095, 4096}) {
    Chain chain;
    chain.View(1, {kA, kB});
    chain.View(2, {kA});  // a record of the log, as each push
    for (int i = 1; i <= pushes; ++i) chain.Push(kA, One(0, i));
    chain.View(3, {kA, kB});
    ASSERT_THAT(chain.copies(), SizeIs(1));
    EXPECT_EQ(chain.copies()[0].snapshot != nullptr, pushes > 4095) << pushes;
    EXPECT_EQ(SavedBy(chain[kA]), SavedBy(chain[kB]));
  }
}

TEST(ChainServer, TheLogHoldsNoMoreThan32MiBOfUpdates) {
  constexpr std::uint64_t kRows = 3 << 20;  // 12 MiB a push
  Chain chain(OptionsOf(Table(TableKind::kDense, kRows, 1)));
  chain.View(1, {kA, kB});
  const Floats values(kRows, 1);
  for (const bool first : {true, false}) {
    const std::size_t before = chain.copies().size();
    const ViewNumber view = first ? 2 : 4;
    chain.View(view, {kA});
    for (int i = 0; i < (first ? 3 : 2); ++i) {
      chain.Push(kA, PushOf(C(0), chain[kA].state()->LastOf(C(0)) + 1, Range(0, kRows, values)));
    }
    chain.View(view + 1, {kA, kB});
    ASSERT_THAT(chain.copies(), SizeIs(before + 1));
    EXPECT_EQ(chain.copies().back().snapshot != nullptr, first);
  }
}

TEST(ChainServer, ACopyThatIsNotTheBaseIsNotTaken) {
  Chain chain;
  chain.View(1, {kA});
  chain.Push(kA, One(0, 1));
  const auto snapshot = std::make_shared<const std::string>(SavedBy(chain[kA]));
  const auto copying = [] {
    ChainServer server = Server(kB);
    server.OnView(ViewOf(2, {kA, kB}));
    server.OnMessage(SyncOf(2, kA, StateId{1, 1}));
    EXPECT_EQ(server.phase(), ServerPhase::kCopy);
    return server;
  };
  const CopyReply good{2, {1, 1}, snapshot, {}, {}};
  ChainServer server = copying();
  CopyReply reply = good;
  reply.view = 1;
  EXPECT_THAT(server.OnMessage(reply), IsEmpty());
  EXPECT_EQ(server.phase(), ServerPhase::kCopy) << "of another view";
  server.OnMessage(good);
  EXPECT_EQ(server.phase(), ServerPhase::kRun);
  EXPECT_EQ(server.state_id(), (StateId{2, 1}));
  server.OnMessage(good);
  EXPECT_EQ(server.phase(), ServerPhase::kRun) << "it has one";

  for (const bool other_state : {true, false}) {
    reply = good;
    if (other_state) {
      reply.state = {1, 0};
    } else {
      reply.snapshot = std::make_shared<const std::string>("damaged");
    }
    ChainServer refusing = copying();
    EXPECT_THAT(refusing.OnMessage(reply), IsEmpty());
    EXPECT_EQ(refusing.phase(), ServerPhase::kAborted);
    EXPECT_EQ(refusing.state(), nullptr);
  }
}

TEST(ChainServer, RecordsMustLeadFromWhatItHasToTheBase) {
  Chain chain;
  chain.View(1, {kA, kB});
  chain.View(2, {kA});
  chain.Push(kA, One(0, 1));
  ChainServer& server = chain[kB];
  CopyReply good{3, {2, 1}, nullptr, {1, 0}, {}};
  good.records = {{{2, 0}, std::nullopt, {C(0), C(1)}}, {{2, 1}, One(0, 1), {}}};
  CopyReply too_short = good, from_elsewhere = good, nothing = good;
  too_short.records.pop_back();
  from_elsewhere.since = {1, 7};
  nothing.records.clear();
  ViewNumber view = 3;
  for (CopyReply reply : {too_short, from_elsewhere, nothing, good}) {
    reply.view = view;
    server.OnView(ViewOf(view, {kA, kB}));
    server.OnMessage(SyncOf(view, kA, StateId{2, 1}));
    ASSERT_EQ(server.phase(), ServerPhase::kCopy);
    server.OnMessage(reply);
    const bool is_good = reply.since == good.since && reply.records.size() == 2;
    EXPECT_EQ(server.phase(), is_good ? ServerPhase::kRun : ServerPhase::kAborted) << view;
    EXPECT_TRUE(is_good || server.state_id() == (StateId{1, 0})) << "its state is whole";
    ++view;
  }
  ChainServer empty = Server(kC);
  empty.OnView(ViewOf(3, {kA, kC}));
  empty.OnMessage(SyncOf(3, kA, StateId{2, 1}));
  empty.OnMessage(good);
  EXPECT_EQ(empty.phase(), ServerPhase::kAborted) << "it has nothing that records could follow";
}

TEST(ChainServer, ARestoredChainGoesOnFromTheNewestSnapshot) {
  Chain old;
  old.View(1, {kA});
  old.Push(kA, One(0, 1));
  const std::string snapshot = SavedBy(old[kA]);
  const auto wanting = [&] {
    ChainServer server = Server(kA);
    ShardView view = ViewOf(5, {kA, kB});
    view.group.restore = true;
    server.OnView(view, membership::CheckpointOffer{{1, 1}, {}});
    server.OnMessage(SyncOf(5, kB));
    EXPECT_EQ(server.phase(), ServerPhase::kCopy);
    EXPECT_EQ(server.WantsCheckpoint(), (StateId{1, 1}));
    return server;
  };
  ChainServer server = wanting();
  EXPECT_THAT(server.OnLoaded(4, snapshot), IsEmpty());
  EXPECT_EQ(server.phase(), ServerPhase::kCopy) << "read for another view";
  const Sends sends = server.OnLoaded(5, snapshot);
  EXPECT_EQ(server.phase(), ServerPhase::kRun);
  EXPECT_EQ(server.WantsCheckpoint(), std::nullopt);
  EXPECT_EQ(server.state_id(), (StateId{5, 1}));
  EXPECT_THAT(Only<Synced>(sends), SizeIs(1));
  EXPECT_THAT(server.OnLoaded(5, snapshot), IsEmpty()) << "it wants none any more";
  // Who has no snapshot gets it whole, whatever it held.
  const Sends copies = server.OnMessage(CopyRequest{5, kB});
  ASSERT_THAT(Only<CopyReply>(copies), SizeIs(1));
  EXPECT_EQ(*Only<CopyReply>(copies)[0].snapshot, snapshot);

  ChainServer damaged = wanting();
  EXPECT_THAT(damaged.OnLoaded(5, "damaged"), IsEmpty());
  EXPECT_EQ(damaged.phase(), ServerPhase::kAborted);
  EXPECT_EQ(damaged.state(), nullptr);

  ChainServer late = wanting();
  late.OnView(ViewOf(6, {kA, kB}));
  EXPECT_EQ(late.WantsCheckpoint(), std::nullopt);
  EXPECT_THAT(late.OnLoaded(6, snapshot), IsEmpty());
}

// Fetched ahead. ---------------------------------------------------------------------------------

TEST(ChainServer, WhatWasFetchedAheadShortensTheCopy) {
  for (const bool more : {true, false}) {
    Chain chain;
    chain.View(1, {kA});
    chain.Push(kA, One(0, 1));
    ChainServer alone = Server(kC);
    EXPECT_THAT(alone.Prefetch(), IsEmpty()) << "it knows no view";
    alone.OnView(ViewOf(1, {}));
    EXPECT_THAT(alone.Prefetch(), IsEmpty()) << "there is nobody to ask";
    ChainServer& joiner = chain[kC];
    joiner.OnView(ViewOf(1, {kB, kA}));
    const Sends request = joiner.Prefetch();
    ASSERT_THAT(request, SizeIs(1));
    EXPECT_EQ(request[0].to, kA) << "the tail";
    const Sends reply = chain[kA].OnMessage(request[0].message);
    ASSERT_THAT(reply, SizeIs(1));
    EXPECT_EQ(reply[0].to, kC);
    joiner.OnMessage(reply[0].message);
    EXPECT_TRUE(joiner.cached());
    EXPECT_EQ(joiner.state(), nullptr) << "it is no state";

    if (more) chain.Push(kA, One(0, 2));
    chain.View(2, {kA, kC});
    ASSERT_THAT(chain.copies(), SizeIs(1));
    EXPECT_EQ(chain.copies()[0].snapshot, nullptr);
    EXPECT_EQ(chain.copies()[0].since, (StateId{1, 1}));
    EXPECT_THAT(chain.copies()[0].records, SizeIs(more ? 1 : 0));
    EXPECT_EQ(joiner.phase(), ServerPhase::kRun);
    EXPECT_FALSE(joiner.cached()) << "it has become the state";
    EXPECT_EQ(SavedBy(joiner), SavedBy(chain[kA]));
    EXPECT_EQ(joiner.state_id(), chain[kA].state_id());
    EXPECT_THAT(joiner.Prefetch(), IsEmpty()) << "it is in the chain";
    // Its log begins where what it fetched ends.
    chain.View(3, {kC});
    chain.View(4, {kC, kA});
    ASSERT_THAT(chain.copies(), SizeIs(2));
    EXPECT_EQ(chain.copies()[1].snapshot, nullptr);
    EXPECT_EQ(SavedBy(joiner), SavedBy(chain[kA]));
  }
}

TEST(ChainServer, OnlyWhoRunsIsCopiedAheadAndOnlyWhoIsOutTakesIt) {
  Chain chain;
  chain.View(1, {kA});
  const auto snapshot = std::make_shared<const std::string>(SavedBy(chain[kA]));
  EXPECT_THAT(chain[kA].OnMessage(PrefetchRequest{9, kC}), IsEmpty()) << "of another view";
  chain[kA].OnMessage(PrefetchReply{1, {1, 0}, snapshot});
  EXPECT_FALSE(chain[kA].cached()) << "it is in the chain";
  chain[kA].OnView(ViewOf(2, {kA, kB}));
  EXPECT_THAT(chain[kA].OnMessage(PrefetchRequest{2, kC}), IsEmpty()) << "it does not run yet";
  ChainServer joiner = Server(kC);
  joiner.OnView(ViewOf(2, {kA}));
  joiner.OnMessage(PrefetchReply{1, {1, 0}, snapshot});
  EXPECT_FALSE(joiner.cached()) << "of another view";
  joiner.OnMessage(PrefetchReply{2, {1, 0}, std::make_shared<const std::string>("damaged")});
  EXPECT_FALSE(joiner.cached());
  joiner.OnMessage(PrefetchReply{2, {1, 0}, snapshot});
  EXPECT_TRUE(joiner.cached());
  const Sends sends = joiner.OnView(ViewOf(3, {kA, kC}));
  EXPECT_EQ(std::get<SyncMessage>(sends.at(0).message).cache, (StateId{1, 0}));
  EXPECT_EQ(std::get<SyncMessage>(sends.at(0).message).id.state, std::nullopt);
}

// Pushes. ----------------------------------------------------------------------------------------

TEST(ChainServer, TheHeadOrdersTheOthersFollowAndTheTailAnswers) {
  Chain chain;
  chain.View(1, {kA, kB, kC});
  chain.Push(kA, One(0, 1));
  const Sends answers = chain.Answers();
  ASSERT_THAT(answers, SizeIs(1));
  const auto& acknowledgement = std::get<Acknowledgement>(answers[0].message);
  EXPECT_EQ(answers[0].to, C(0).id);
  EXPECT_EQ(acknowledgement.view, 1u);
  EXPECT_EQ(acknowledgement.client, C(0));
  EXPECT_EQ(acknowledgement.sequence, 1);
  EXPECT_EQ(acknowledgement.outcome, Outcome::kTaken);
  for (const MemberId& id : {kA, kB, kC}) EXPECT_EQ(chain[id].state()->index(), 1);
  const Sends passed = chain[kA].OnMessage(Push{1, One(0, 2)});
  ASSERT_THAT(passed, SizeIs(1));
  EXPECT_EQ(passed[0].to, kB);
  EXPECT_EQ(std::get<Forward>(passed[0].message).index, 2);
  EXPECT_FALSE(std::get<Forward>(passed[0].message).old);
}

TEST(ChainServer, APushIsTakenByTheHeadOfItsViewFromAClientOfItsView) {
  Chain chain;
  chain.View(1, {kA, kB});
  EXPECT_THAT(chain[kB].OnMessage(Push{1, One(0, 1)}), IsEmpty()) << "not the head";
  EXPECT_THAT(chain[kA].OnMessage(Push{2, One(0, 1)}), IsEmpty()) << "of another view";
  EXPECT_THAT(chain[kA].OnMessage(Push{1, One(9, 1)}), IsEmpty()) << "a stranger";
  chain[kA].OnView(ViewOf(2, {kA, kB}));
  EXPECT_THAT(chain[kA].OnMessage(Push{2, One(0, 1)}), IsEmpty()) << "it does not run yet";
  EXPECT_EQ(chain[kA].state()->index(), 0);
}

TEST(ChainServer, WhatCameBeforeAnEarlierOneWaitsForItButNotWithoutEnd) {
  Chain chain;
  chain.View(1, {kA});
  for (Sequence sequence = 2; sequence <= 300; ++sequence) chain.Push(kA, One(0, sequence));
  EXPECT_THAT(chain.Answers(), IsEmpty());
  EXPECT_EQ(chain[kA].state()->index(), 0);
  chain.Push(kA, One(0, 1));
  EXPECT_EQ(chain[kA].state()->LastOf(C(0)), 257) << "256 wait, the others are sent again";
  EXPECT_THAT(chain.Answers(), SizeIs(257));
  EXPECT_EQ(FloatsOf(chain[kA].state()->Read({0, 1, {}}))[0], 257);
}

TEST(ChainServer, WhatWaitedForAPartOfAnAggregateFollowsIt) {
  Chain chain;
  chain.View(1, {kA});
  chain.Push(kA, One(1, 2));
  Entry whole = One(0, 0);
  whole.kind = EntryKind::kAggregate;
  whole.parts = {{C(0), 1}, {C(1), 1}};
  chain.Push(kA, whole);
  EXPECT_EQ(chain[kA].state()->LastOf(C(1)), 2);
  EXPECT_THAT(chain.Answers(), SizeIs(3));
}

TEST(ChainServer, AnAggregateThatCannotBeAppliedIsGivenBackToItsOwners) {
  Chain chain;
  chain.View(1, {kA});
  Entry whole = PushOf(C(0), 0, Range(3, 2, {1, 1}));  // behind the last row
  whole.kind = EntryKind::kAggregate;
  whole.parts = {{C(0), 1}, {C(1), 4}};
  chain.Push(kA, whole);
  const Sends answers = chain.Answers();
  ASSERT_THAT(Only<Individually>(answers), SizeIs(2));
  EXPECT_EQ(answers[1].to, C(1).id);
  EXPECT_EQ(Only<Individually>(answers)[1].sequence, 4);
  EXPECT_EQ(Only<Individually>(answers)[1].view, 1u);
  EXPECT_EQ(chain[kA].state()->index(), 0);
}

TEST(ChainServer, AMalformedPushIsRejectedAndNeverAppended) {
  Chain chain;
  chain.View(1, {kA});
  chain.Push(kA, PushOf(C(0), 1, Range(3, 2, {1, 1})));
  const auto rejections = Only<Rejection>(chain.Answers());
  ASSERT_THAT(rejections, SizeIs(1));
  EXPECT_EQ(rejections[0].client, C(0));
  EXPECT_EQ(rejections[0].sequence, 1);
  EXPECT_EQ(rejections[0].why.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(chain[kA].state()->index(), 0);
}

TEST(ChainServer, WhatIsPushedAgainIsAnsweredAsItWasTheFirstTime) {
  Chain chain(Options(consistency::BackupWorkers{1}));
  chain.View(1, {kA, kB});
  chain.Push(kA, One(0, 1));
  chain.Push(kA, One(1, 1));  // too late
  const auto first = Only<Acknowledgement>(chain.Answers());
  chain.Push(kA, One(0, 1));
  chain.Push(kA, One(1, 1));
  const auto again = Only<Acknowledgement>(chain.Answers());
  ASSERT_THAT(first, SizeIs(2));
  ASSERT_THAT(again, SizeIs(2));
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(again[i].client, first[i].client);
    EXPECT_EQ(again[i].outcome, first[i].outcome);
  }
  EXPECT_EQ(again[0].outcome, Outcome::kTaken);
  EXPECT_EQ(again[1].outcome, Outcome::kRefused);
  EXPECT_EQ(again[1].start, 1) << "where the running step is";
  EXPECT_EQ(chain[kB].state()->index(), 2);
}

TEST(ChainServer, WhoFollowsTakesWhatIsNextAndHaltsWhereSomethingIsMissing) {
  const auto following = [] {
    ChainServer server = Server(kB);
    server.OnView(ViewOf(1, {kA, kB}));
    server.OnMessage(SyncOf(1, kA));
    server.OnMessage(Synced{1, kA});
    EXPECT_TRUE(server.open());
    return server;
  };
  ChainServer server = following();
  EXPECT_THAT(server.OnMessage(Forward{7, 1, false, One(0, 1)}), IsEmpty()) << "of another view";
  EXPECT_THAT(Only<Acknowledgement>(server.OnMessage(Forward{1, 1, false, One(0, 1)})), SizeIs(1));
  EXPECT_THAT(Only<Acknowledgement>(server.OnMessage(Forward{1, 1, true, One(0, 1)})), SizeIs(1))
      << "an old one is answered";
  EXPECT_EQ(server.state()->index(), 1);
  EXPECT_EQ(server.phase(), ServerPhase::kRun);
  for (const Forward& lost : {Forward{1, 3, false, One(0, 2)}, Forward{1, 2, true, One(0, 1)},
                              Forward{1, 1, false, One(0, 2)}}) {
    ChainServer halting = following();
    halting.OnMessage(Forward{1, 1, false, One(0, 1)});
    EXPECT_THAT(halting.OnMessage(lost), IsEmpty());
    EXPECT_EQ(halting.phase(), ServerPhase::kAborted);
    EXPECT_EQ(halting.state()->index(), 1);
  }
}

TEST(ChainServer, WhatComesDownTheChainBeforeTheBaseWaits) {
  Chain chain;
  chain.View(1, {kA});
  const CopyReply copy{2, {1, 0}, std::make_shared<const std::string>(SavedBy(chain[kA])), {}, {}};
  for (const bool synced : {false, true}) {
    ChainServer server = Server(kB);
    server.OnView(ViewOf(2, {kA, kB}));
    if (synced) server.OnMessage(SyncOf(2, kA, StateId{1, 0}));
    EXPECT_THAT(server.OnMessage(Forward{2, 1, false, One(0, 1)}), IsEmpty());
    if (!synced) server.OnMessage(SyncOf(2, kA, StateId{1, 0}));
    server.OnMessage(copy);
    EXPECT_EQ(server.phase(), ServerPhase::kRun);
    EXPECT_EQ(server.state()->index(), 1);
    EXPECT_THAT(Only<Acknowledgement>(server.OnMessage(Synced{2, kA})), SizeIs(1))
        << "answered once all have the base";
  }
}

TEST(ChainServer, EveryAppendedEntryIsShownToWhoAudits) {
  std::vector<Sequence> seen;
  ChainServer server({kA, Options(), [&](const Entry& entry, Outcome outcome) {
                        EXPECT_EQ(outcome, Outcome::kTaken);
                        seen.push_back(entry.sequence);
                      }});
  server.OnView(ViewOf(1, {kA}));
  server.OnMessage(Push{1, One(0, 1)});
  server.OnMessage(Push{1, One(0, 1)});
  server.OnMessage(Push{1, One(0, 2)});
  EXPECT_THAT(seen, ElementsAre(1, 2));
}

// Reads and greetings. ---------------------------------------------------------------------------

TEST(ChainServer, TheTailAloneGreetsAndSaysWhatHasArrived) {
  Chain chain(Options(consistency::BackupWorkers{1}));
  chain.View(1, {kA, kB});
  chain.Push(kA, One(0, 1));
  chain.Push(kA, One(1, 1));
  chain.Answers();
  EXPECT_THAT(chain[kA].OnMessage(Hello{1, C(1)}), IsEmpty()) << "not the tail";
  EXPECT_THAT(chain[kB].OnMessage(Hello{2, C(1)}), IsEmpty()) << "of another view";
  const Sends sends = chain[kB].OnMessage(Hello{1, C(1)});
  ASSERT_THAT(sends, SizeIs(1));
  EXPECT_EQ(sends[0].to, C(1).id);
  const auto& welcome = std::get<Welcome>(sends[0].message);
  EXPECT_EQ(welcome.view, 1u);
  EXPECT_EQ(welcome.last, 1);
  EXPECT_THAT(welcome.not_taken, ElementsAre(std::pair(1, Outcome::kRefused)));
  EXPECT_EQ(welcome.start, 1);
}

TEST(ChainServer, WhatComesToTheTailBeforeTheBaseWaitsToo) {
  for (const bool synced : {false, true}) {
    ChainServer server = Server(kB);
    server.OnView(ViewOf(2, {kA, kB}));
    if (synced) server.OnMessage(SyncOf(2, kA));
    EXPECT_THAT(server.OnMessage(Hello{2, C(0)}), IsEmpty());
    EXPECT_THAT(server.OnMessage(ReadOf(2, 0, 1)), IsEmpty());
    if (!synced) {
      EXPECT_THAT(Only<Welcome>(server.OnMessage(SyncOf(2, kA))), IsEmpty());
    }
    const Sends sends = server.OnMessage(Synced{2, kA});
    EXPECT_THAT(Only<Welcome>(sends), SizeIs(1));
    EXPECT_THAT(Only<ReadReply>(sends), SizeIs(1));
  }
}

TEST(ChainServer, AReadSeesItsClientsPushesAndIsAnsweredOnce) {
  Chain chain;
  chain.View(1, {kA, kB});
  EXPECT_THAT(chain[kA].OnMessage(ReadOf(1, 0, 1)), IsEmpty()) << "not the tail";
  EXPECT_THAT(chain[kB].OnMessage(ReadOf(2, 0, 1)), IsEmpty()) << "of another view";
  // Of one client twice the same, and others.
  for (const auto& [client, request] : {std::pair{0, 1}, {0, 1}, {0, 2}, {1, 1}}) {
    chain.Tell(kB, ReadOf(1, client, request, 1));
  }
  EXPECT_THAT(chain.Answers(), IsEmpty()) << "their pushes are not in";
  chain.Push(kA, One(0, 1));
  auto replies = Only<ReadReply>(chain.Answers());
  ASSERT_THAT(replies, SizeIs(2));
  EXPECT_EQ(replies[0].request, 1);
  EXPECT_EQ(replies[1].request, 2);
  EXPECT_EQ(replies[0].client, C(0));
  EXPECT_EQ(replies[0].view, 1u);
  EXPECT_EQ(replies[0].version, 1);
  ASSERT_NE(replies[0].values, nullptr);
  EXPECT_THAT(FloatsOf(*replies[0].values), ElementsAre(1));
  chain.Push(kA, One(1, 1));
  replies = Only<ReadReply>(chain.Answers());
  ASSERT_THAT(replies, SizeIs(1));
  EXPECT_EQ(replies[0].client, C(1));
}

TEST(ChainServer, AReadIsEncodedAsItsReaderAsks) {
  Chain chain;
  chain.View(1, {kA});
  chain.Push(kA, One(0, 1));
  chain.Answers();
  const auto status_of = [&](const parameter_server::Read& read, std::size_t bytes) {
    chain.Tell(kA, read);
    const auto replies = Only<ReadReply>(chain.Answers());
    EXPECT_THAT(replies, SizeIs(1));
    EXPECT_EQ(replies.at(0).values ? replies[0].values->size() : 0, bytes);
    EXPECT_EQ(replies[0].status.ok(), bytes > 0);
    return replies[0].status.code();
  };
  parameter_server::Read read = ReadOf(1, 0, 1);
  read.rows = 4;
  EXPECT_EQ(status_of(read, 16), absl::StatusCode::kOk);
  read.codec = *compression::CodecNumberOf("float16");
  EXPECT_EQ(status_of(read, 8), absl::StatusCode::kOk);
  read.codec = 200;
  EXPECT_NE(status_of(read, 0), absl::StatusCode::kOk) << "no such codec";
  read.codec = compression::kIdentity;
  read.rows = 5;
  EXPECT_EQ(status_of(read, 0), absl::StatusCode::kInvalidArgument) << "behind the last";
  read.rows = 4;
  read.remembered = true;
  EXPECT_EQ(status_of(read, 0), absl::StatusCode::kNotFound) << "nothing is remembered";
}

// What the log knows. ----------------------------------------------------------------------------

// In view 5 it begins alone from a snapshot of the state (3, 7).
void Restore(ChainServer& server, const std::string& snapshot) {
  ShardView view = ViewOf(5, {kA});
  view.group.restore = true;
  EXPECT_THAT(server.OnView(view, membership::CheckpointOffer{{3, 7}, {}}), IsEmpty())
      << "it asks nobody for what it has itself";
  ASSERT_EQ(server.WantsCheckpoint(), (StateId{3, 7}));
  server.OnLoaded(5, snapshot);
  ASSERT_EQ(server.phase(), ServerPhase::kRun);
}

// It is in view 3, with seven pushes.
std::string SevenPushes(Chain& chain, const MemberId& id) {
  chain.View(3, {id});
  for (Sequence sequence = 1; sequence <= 7; ++sequence) chain.Push(id, One(0, sequence));
  return SavedBy(chain[id]);
}

TEST(ChainServer, WhatItLoggedBeforeItTookASnapshotLeadsNowhere) {
  Chain others;
  const std::string snapshot = SevenPushes(others, kC);
  Chain chain;
  chain.View(1, {kA, kB, kD});
  chain.Push(kA, One(0, 1));
  Restore(chain[kA], snapshot);
  chain.View(6, {kA, kB});
  ASSERT_THAT(chain.copies(), SizeIs(1));
  EXPECT_NE(chain.copies()[0].snapshot, nullptr) << "loaded: it does not follow from (1, 1)";
  EXPECT_EQ(SavedBy(chain[kB]), SavedBy(chain[kA]));
  chain.View(7, {kB, kD});
  ASSERT_THAT(chain.copies(), SizeIs(2));
  EXPECT_NE(chain.copies()[1].snapshot, nullptr) << "copied: nor does this";
  EXPECT_EQ(SavedBy(chain[kD]), SavedBy(chain[kA]));
}

TEST(ChainServer, ItsLogBeginsWithTheSnapshotThatItLoaded) {
  Chain chain;
  Restore(chain[kA], SevenPushes(chain, kC));
  chain.View(6, {kA, kC});
  ASSERT_THAT(chain.copies(), SizeIs(1));
  EXPECT_EQ(chain.copies()[0].snapshot, nullptr);
  EXPECT_EQ(chain.copies()[0].since, (StateId{3, 7}));
  EXPECT_THAT(chain.copies()[0].records, SizeIs(1)) << "the clients of view 5";
  EXPECT_EQ(SavedBy(chain[kC]), SavedBy(chain[kA]));
}

TEST(ChainServer, ItsLogBeginsWithWhatItFetchedAhead) {
  Chain chain;
  chain.View(1, {kA, kB, kD});
  chain.Push(kA, One(0, 1));
  chain.View(2, {kA, kC});
  chain.Push(kA, One(0, 2));
  chain[kB].OnView(ViewOf(2, {kA, kC}));
  chain[kB].OnMessage(chain[kC].OnMessage(PrefetchRequest{2, kB}).at(0).message);
  ASSERT_TRUE(chain[kB].cached());
  chain.View(3, {kA, kB});
  const std::size_t before = chain.copies().size();
  chain.View(4, {kB, kC, kD});
  ASSERT_THAT(chain.copies(), SizeIs(before + 2));
  int records = 0;
  for (std::size_t i = before; i < before + 2; ++i) {
    const CopyReply& copy = chain.copies()[i];
    if (copy.snapshot) continue;
    EXPECT_EQ(copy.since, (StateId{2, 2})) << "of what it held before it knows nothing";
    ++records;
  }
  EXPECT_EQ(records, 1);
  EXPECT_EQ(SavedBy(chain[kC]), SavedBy(chain[kB]));
  EXPECT_EQ(SavedBy(chain[kD]), SavedBy(chain[kB]));
}

TEST(ChainServer, TheLogHoldsExactly32MiBAndWhatWasClearedCountsNoMore) {
  constexpr std::size_t kMost = 32 << 20;
  const std::size_t beside = One(0, 1).update->bytes() - sizeof(float);
  ASSERT_EQ(beside % sizeof(float), 0u);
  const std::uint64_t rows = (kMost - beside) / sizeof(float);
  Chain chain(OptionsOf(Table(TableKind::kDense, rows, 1)));
  chain.View(1, {kA, kB});
  chain.Push(kA, One(0, 1));
  chain[kA].OnMessage(Push{1, One(0, 2)});
  const auto snapshot = std::make_shared<const std::string>(SavedBy(chain[kA]));
  ChainServer& server = chain[kB];
  server.OnView(ViewOf(2, {kA, kB}));
  server.OnMessage(SyncOf(2, kA, StateId{1, 2}));
  server.OnMessage(CopyReply{2, {1, 2}, snapshot, {}, {}});
  server.OnView(ViewOf(3, {kB}));
  ASSERT_EQ(server.state_id(), (StateId{3, 2}));
  server.OnMessage(Push{3, PushOf(C(0), 3, Range(0, rows, Floats(rows, 1)))});
  ASSERT_EQ(server.state_id(), (StateId{3, 3}));
  server.OnView(ViewOf(4, {kB, kC}));
  server.OnMessage(CopyRequest{4, kC});
  const auto copies = Only<CopyReply>(server.OnMessage(SyncOf(4, kC, StateId{3, 2})));
  ASSERT_THAT(copies, SizeIs(1));
  EXPECT_EQ(copies[0].snapshot, nullptr);
  EXPECT_THAT(copies[0].records, SizeIs(1));
}

TEST(ChainServer, EntriesWithoutAnUpdateAreLoggedAndForgottenLikeOthers) {
  for (const int pushes : {1, 4100}) {
    Chain chain;
    chain.View(1, {kA, kB});
    chain.View(2, {kA});
    chain.Push(kA, OfKind(EntryKind::kRest, C(1), 1));
    for (int i = 1; i <= pushes; ++i) chain.Push(kA, One(0, i));
    chain.View(3, {kA, kB});
    ASSERT_THAT(chain.copies(), SizeIs(1));
    EXPECT_EQ(chain.copies()[0].snapshot != nullptr, pushes > 1);
    EXPECT_EQ(SavedBy(chain[kA]), SavedBy(chain[kB]));
  }
}

TEST(ChainServer, RecordsAdmitTheClientsThatPushedMeanwhile) {
  Chain chain;
  chain.View(1, {kA, kB});
  ShardView view = ViewOf(2, {kA});
  view.clients.push_back(C(2));
  chain[kA].OnView(view);
  chain[kA].OnMessage(Push{2, One(2, 1)});
  ASSERT_EQ(chain[kA].state()->LastOf(C(2)), 1);
  view = ViewOf(3, {kA, kB});
  view.clients.push_back(C(2));
  const Sends told = chain[kB].OnView(view);
  ASSERT_THAT(told, SizeIs(1));
  chain[kA].OnView(view);
  chain.Tell(kB, SyncOf(3, kA, StateId{2, 1}));
  chain.Tell(kA, told[0].message);
  ASSERT_EQ(chain[kB].phase(), ServerPhase::kRun);
  EXPECT_EQ(chain.copies().back().snapshot, nullptr);
  EXPECT_EQ(chain[kB].state()->LastOf(C(2)), 1);
  EXPECT_EQ(SavedBy(chain[kA]), SavedBy(chain[kB]));
}

TEST(ChainServer, WhereARecordIsNoUpdateItsStateIsNamedAfterTheLastThatWas) {
  Chain chain;
  chain.View(1, {kB});
  ChainServer& server = chain[kB];
  Entry bad = One(0, 2);
  bad.update = nullptr;
  server.OnView(ViewOf(3, {kA, kB}));
  server.OnMessage(SyncOf(3, kA, StateId{2, 2}));
  CopyReply reply{3, {2, 2}, nullptr, {1, 0}, {}};
  reply.records = {{{2, 0}, std::nullopt, {C(0)}}, {{2, 1}, One(0, 1), {}}, {{2, 2}, bad, {}}};
  server.OnMessage(reply);
  EXPECT_EQ(server.phase(), ServerPhase::kAborted);
  EXPECT_EQ(server.state_id(), (StateId{2, 1}));
}

TEST(ChainServer, RecordsFollowWhatTheyAreSaidToFollow) {
  Chain chain;
  chain.View(1, {kA, kB});
  const auto early = std::make_shared<const std::string>(SavedBy(chain[kA]));
  chain.Push(kA, One(0, 1));
  ChainServer& server = chain[kB];
  // What was fetched is older than its state: the records follow the state.
  server.OnView(ViewOf(2, {kA}));
  server.OnMessage(PrefetchReply{2, {1, 0}, early});
  ASSERT_TRUE(server.cached());
  server.OnView(ViewOf(3, {kA, kB}));
  server.OnMessage(SyncOf(3, kA, StateId{2, 1}));
  server.OnMessage(CopyReply{3, {2, 1}, nullptr, {1, 1}, {{{2, 1}, std::nullopt, {C(0), C(1)}}}});
  ASSERT_EQ(server.phase(), ServerPhase::kRun);
  EXPECT_EQ(server.state_id(), (StateId{3, 1}));
  EXPECT_FALSE(server.cached()) << "it is behind the state for good";
  // What was fetched once is no more there to be followed.
  server.OnView(ViewOf(4, {kA, kB}));
  server.OnMessage(SyncOf(4, kA, StateId{3, 2}));
  server.OnMessage(CopyReply{4, {3, 2}, nullptr, {1, 0}, {{{3, 2}, One(0, 2), {}}}});
  EXPECT_EQ(server.phase(), ServerPhase::kAborted);
  EXPECT_EQ(server.state_id(), (StateId{3, 1})) << "its state is whole";
}

TEST(ChainServer, AWholeCopyMakesWhatWasFetchedAheadUseless) {
  Chain chain;
  chain.View(1, {kA});
  const auto early = std::make_shared<const std::string>(SavedBy(chain[kA]));
  chain.Push(kA, One(0, 1));
  ChainServer server = Server(kB);
  server.OnView(ViewOf(1, {kA}));
  server.OnMessage(PrefetchReply{1, {1, 0}, early});
  server.OnView(ViewOf(2, {kA, kB}));
  server.OnMessage(SyncOf(2, kA, StateId{1, 1}));
  server.OnMessage(
      CopyReply{2, {1, 1}, std::make_shared<const std::string>(SavedBy(chain[kA])), {}, {}});
  EXPECT_EQ(server.state_id(), (StateId{2, 1}));
  EXPECT_FALSE(server.cached());
}

TEST(ChainServer, WhatASnapshotBeginsIsCopiedWholeToWhomeverItFindsThere) {
  Chain chain;
  chain.View(1, {kA});
  chain.Push(kA, One(0, 1));
  const std::string snapshot = SavedBy(chain[kA]);
  ChainServer server = Server(kA);
  ShardView view = ViewOf(5, {kA, kB});
  view.group.restore = true;
  server.OnView(view, membership::CheckpointOffer{{1, 1}, {}});
  SyncMessage other = SyncOf(5, kB);
  other.cache = StateId{1, 1};
  EXPECT_THAT(server.OnMessage(other), IsEmpty());
  EXPECT_THAT(server.OnMessage(CopyRequest{5, kB}), IsEmpty()) << "it has to load it first";
  const auto copies = Only<CopyReply>(server.OnLoaded(5, snapshot));
  ASSERT_THAT(copies, SizeIs(1));
  ASSERT_NE(copies[0].snapshot, nullptr);
  EXPECT_EQ(*copies[0].snapshot, snapshot);
}

// What comes when nobody waits for it. -----------------------------------------------------------

TEST(ChainServer, ACopyThatComesLateTakesNothingBack) {
  Chain chain;
  chain.View(1, {kA});
  const CopyReply copy{2, {1, 0}, std::make_shared<const std::string>(SavedBy(chain[kA])), {}, {}};
  ChainServer server = Server(kB);
  server.OnView(ViewOf(2, {kA, kB}));
  server.OnMessage(SyncOf(2, kA, StateId{1, 0}));
  server.OnMessage(copy);
  server.OnMessage(Forward{2, 1, false, One(0, 1)});
  ASSERT_EQ(server.state_id(), (StateId{2, 1}));
  EXPECT_THAT(server.OnMessage(copy), IsEmpty());
  EXPECT_EQ(server.state_id(), (StateId{2, 1}));
}

TEST(ChainServer, ASnapshotIsLoadedByWhoWantsItAndHasNotHalted) {
  Chain chain;
  chain.View(1, {kA});
  const std::string snapshot = SavedBy(chain[kA]);
  ChainServer server = Server(kB);
  ShardView view = ViewOf(5, {kA, kB});
  view.group.restore = true;
  server.OnView(view, membership::CheckpointOffer{{1, 1}, {}});
  SyncMessage later = SyncOf(5, kA);
  later.id.checkpoint = membership::CheckpointOffer{{1, 2}, {}};
  EXPECT_THAT(Only<CopyRequest>(server.OnMessage(later)), SizeIs(1));
  EXPECT_THAT(server.OnLoaded(5, snapshot), IsEmpty()) << "a peer's is later";
  EXPECT_EQ(server.phase(), ServerPhase::kCopy);
  view.group.epoch = 6;
  view.group.members = {kB};
  server.OnView(view, membership::CheckpointOffer{{1, 1}, {}});
  ASSERT_TRUE(server.WantsCheckpoint());
  server.OnBroken(6);
  EXPECT_THAT(server.OnLoaded(6, snapshot), IsEmpty());
  EXPECT_EQ(server.phase(), ServerPhase::kAborted);
}

TEST(ChainServer, ASnapshotThatCannotBeReadMattersInARestoreOnly) {
  ChainServer server = Server(kA);
  server.OnView(ViewOf(1, {kA}), absl::UnavailableError("storage does not answer"));
  EXPECT_EQ(server.phase(), ServerPhase::kRun);
  EXPECT_TRUE(server.refused().ok());
}

TEST(ChainServer, WhatComesToATailThatCopiesWaitsForTheCopy) {
  Chain chain;
  chain.View(1, {kA});
  ChainServer server = Server(kB);
  server.OnView(ViewOf(2, {kA, kB}));
  server.OnMessage(SyncOf(2, kA, StateId{1, 0}));
  ASSERT_EQ(server.phase(), ServerPhase::kCopy);
  EXPECT_THAT(server.OnMessage(Hello{2, C(0)}), IsEmpty());
  EXPECT_THAT(server.OnMessage(ReadOf(2, 0, 1)), IsEmpty());
  server.OnMessage(
      CopyReply{2, {1, 0}, std::make_shared<const std::string>(SavedBy(chain[kA])), {}, {}});
  const Sends sends = server.OnMessage(Synced{2, kA});
  EXPECT_THAT(Only<Welcome>(sends), SizeIs(1));
  EXPECT_THAT(Only<ReadReply>(sends), SizeIs(1));
}

TEST(ChainServer, WhoIsInNoChainAnswersNobody) {
  ChainServer server = Server(kA);
  server.OnView(ViewOf(1, {}));
  EXPECT_THAT(server.OnMessage(Hello{1, C(0)}), IsEmpty());
  EXPECT_THAT(server.OnMessage(ReadOf(1, 0, 1)), IsEmpty());
  EXPECT_THAT(server.OnMessage(CopyRequest{1, kB}), IsEmpty());
}

TEST(ChainServer, WhoIsNotTheTailAnswersNobodyThoughItIsToldThatAllHaveSynced) {
  Chain chain;
  chain.View(1, {kA, kB});
  chain[kA].OnMessage(Synced{1, kA});
  chain[kA].OnMessage(Synced{1, kB});
  EXPECT_THAT(chain[kA].OnMessage(Hello{1, C(0)}), IsEmpty());
  EXPECT_THAT(chain[kA].OnMessage(ReadOf(1, 0, 1)), IsEmpty());
}

TEST(ChainServer, NoShardIsOpenBeforeItsTailRunsWhoeverHasSynced) {
  ChainServer server = Server(kB);
  server.OnView(ViewOf(2, {kA, kB}));
  server.OnMessage(Synced{2, kA});
  EXPECT_THAT(server.OnMessage(Synced{2, kC}), IsEmpty());
  EXPECT_FALSE(server.open());
}

TEST(ChainServer, WhatWaitsForAnEarlierPushWaitsForEachOfThem) {
  Chain chain;
  chain.View(1, {kA});
  chain.Push(kA, One(0, 3));
  chain.Push(kA, One(0, 1));
  EXPECT_EQ(chain[kA].state()->LastOf(C(0)), 1);
  chain.Push(kA, One(0, 2));
  EXPECT_EQ(chain[kA].state()->LastOf(C(0)), 3);
}

TEST(ChainServer, AnAggregateNeedsAnUpdateAndAllOfItsParts) {
  Chain chain;
  chain.View(1, {kA});
  Entry malformed = PushOf(C(0), 0, Range(3, 2, {1, 1}));  // behind the last row
  malformed.kind = EntryKind::kAggregate;
  malformed.parts = {{C(0), 1}, {C(1), 1}};
  Entry gap = One(0, 0);
  gap.kind = EntryKind::kAggregate;
  gap.parts = {{C(0), 1}, {C(1), 4}};
  for (const Entry& whole : {malformed, gap}) {
    chain.Push(kA, whole);
    EXPECT_THAT(Only<Individually>(chain.Answers()), SizeIs(2));
    EXPECT_EQ(chain[kA].state()->index(), 0);
  }
}

TEST(ChainServer, TextsAreReadAsTheyAre) {
  Chain chain(OptionsOf(Table(TableKind::kKeyValue, 0, 1)));
  chain.View(1, {kA});
  const Keys pairs = {5, 2, 6, 3};
  chain.Push(kA, PushOf(C(0), 1, {UpdateKind::kPairs, 0, 0, 0, pairs, {}, "abcde"}));
  chain.Answers();
  parameter_server::Read read = ReadOf(1, 0, 1);
  read.rows = 0;
  read.keys = {6, 5};
  chain.Tell(kA, read);
  const auto replies = Only<ReadReply>(chain.Answers());
  ASSERT_THAT(replies, SizeIs(1));
  ASSERT_NE(replies[0].values, nullptr);
  EXPECT_EQ(replies[0].values->substr(16), "cdeab");
}

// What each switch of rules.h turns off; trainer/simulation shows the harm.
// ------------------------

TEST(ChainServer, WhereNotOnlyTheTailAnswersTheHeadDoesToo) {
  ShardOptions options = Options();
  options.rules.tail_only = false;
  Chain chain(options);
  chain[kA].OnView(ViewOf(1, {kA, kB}));
  EXPECT_THAT(chain[kA].OnMessage(ReadOf(1, 0, 1)), IsEmpty()) << "it has nothing yet";
  chain.View(2, {kA, kB});
  chain.Push(kA, One(0, 1));
  const Sends again = chain[kA].OnMessage(Push{2, One(0, 1)});
  ASSERT_THAT(again, SizeIs(1));
  EXPECT_EQ(again[0].to, C(0).id);
  EXPECT_THAT(Only<ReadReply>(chain[kA].OnMessage(ReadOf(2, 0, 1))), SizeIs(1));
  EXPECT_THAT(chain[kA].OnMessage(Hello{2, C(0)}), IsEmpty()) << "it does not know who has synced";
  options.rules.open = false;
  Chain never_waiting(options);
  never_waiting.View(1, {kA, kB});
  EXPECT_THAT(Only<Welcome>(never_waiting[kA].OnMessage(Hello{1, C(0)})), SizeIs(1));
}

TEST(ChainServer, WhereViewsDoNotMatterForwardsOfOthersAreTaken) {
  ShardOptions options = Options();
  options.rules.same_view_chain = false;
  ChainServer server = Server(kB, options);
  server.OnView(ViewOf(2, {kA, kB}));
  server.OnMessage(SyncOf(2, kA));
  server.OnMessage(Forward{1, 1, false, One(0, 1)});
  EXPECT_EQ(server.state()->index(), 1);
  server.OnMessage(Forward{1, 5, false, One(0, 2)});
  EXPECT_EQ(server.phase(), ServerPhase::kRun);
  EXPECT_EQ(server.state()->index(), 1);
}

TEST(ChainServer, WhereAggregatesNeedNotBeWholeOnlyMalformedOnesAreGivenBack) {
  ShardOptions options = Options();
  options.rules.whole_aggregates = false;
  Chain chain(options);
  chain.View(1, {kA});
  Entry whole = PushOf(C(0), 0, Range(3, 2, {1, 1}));
  whole.kind = EntryKind::kAggregate;
  whole.parts = {{C(0), 1}, {C(1), 4}};
  chain.Push(kA, whole);
  EXPECT_THAT(Only<Individually>(chain.Answers()), SizeIs(2));
  EXPECT_EQ(chain[kA].state()->index(), 0);
  whole.update = One(0, 0).update;
  chain.Push(kA, whole);
  EXPECT_THAT(Only<Individually>(chain.Answers()), IsEmpty());
  EXPECT_EQ(chain[kA].state()->index(), 1);
}

TEST(ChainServer, WhereWhatWasFetchedAheadIsAStateTheLaterOfBothIsTold) {
  ShardOptions options = Options();
  options.rules.cache_is_no_state = false;
  Chain chain(options);
  chain.View(1, {kA});
  chain.Push(kA, One(0, 1));
  const auto snapshot = std::make_shared<const std::string>(SavedBy(chain[kA]));
  const auto told = [](ChainServer& server, ViewNumber number) {
    const Sends sends = server.OnView(ViewOf(number, {kB, kC}));
    return std::get<SyncMessage>(sends.at(0).message).id.state;
  };
  ChainServer joiner = Server(kC, options);
  joiner.OnView(ViewOf(1, {kA}));
  joiner.OnMessage(PrefetchReply{1, {1, 1}, snapshot});
  EXPECT_EQ(told(joiner, 2), (StateId{1, 1}));
  EXPECT_EQ(joiner.state_id(), (StateId{1, 1}));
  EXPECT_FALSE(joiner.cached());
  joiner.OnView(ViewOf(3, {kA}));
  for (const StateId& fetched : {StateId{1, 0}, StateId{1, 1}}) {
    joiner.OnMessage(PrefetchReply{joiner.fence(), fetched, snapshot});
    EXPECT_EQ(told(joiner, joiner.fence() + 1), (StateId{1, 1}));
    EXPECT_TRUE(joiner.cached()) << "it is no later than the state";
    joiner.OnView(ViewOf(joiner.fence() + 1, {kA}));
  }
}

}  // namespace
}  // namespace starling::parameter_server
