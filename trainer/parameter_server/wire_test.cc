// SPDX-License-Identifier: Apache-2.0
#include "trainer/parameter_server/wire.h"

#include <algorithm>
#include <random>

#include "gtest/gtest.h"

namespace starling::parameter_server {
namespace {

const Client kClient{{"worker-1", 3}, 0x100000002};
const MemberId kServer{"server-2", 1};

Entry OfKind(EntryKind kind, Entry entry) {
  entry.kind = kind;
  return entry;
}

std::vector<Message> EveryMessage() {
  const auto body = std::make_shared<const std::string>("some bytes of a body");
  Entry entry;
  entry.client = kClient;
  entry.sequence = 7;
  entry.lease = 9;
  entry.leases = 5;
  entry.clock = 4;
  entry.completes = false;
  entry.read = 12;
  entry.weight = 0.5;
  EncodedUpdate update;
  update.kind = UpdateKind::kRows;
  update.rank = 3;
  update.first = 1;
  update.rows = 2;
  update.keys = std::make_shared<const Keys>(Keys{9, 8});
  update.told = "\1";
  update.codec = 2;
  update.values = 10;
  update.body = body;
  entry.update = std::make_shared<const EncodedUpdate>(update);
  Entry whole = OfKind(EntryKind::kAggregate, entry);
  whole.parts = {{kClient, 7, 9, 3, 4, true, 12, 0.5}, {kClient, 8, 12, 1, 4, false, 11, 2}};
  membership::SyncId sync_id;
  sync_id.view = 5;
  sync_id.member = kServer;
  sync_id.state = StateId{4, 17};
  sync_id.checkpoint = {StateId{3, 2}, {}};
  const LogRecord appended{{4, 16}, entry, {}}, viewed{{5, 16}, std::nullopt, {kClient}};
  return {SyncMessage{5, sync_id, StateId{4, 3}},
          CopyRequest{5, kServer},
          CopyReply{5, {4, 17}, body, {}, {}},
          PrefetchRequest{5, kServer},
          PrefetchReply{5, {4, 17}, body},
          Synced{5, kServer},
          Forward{5, 18, true, entry},
          Push{5, entry},
          Read{5, kClient, 3, 4, 7, true, 10, 20, {1, 2, 3}, 6, 1},
          Hello{5, kClient},
          Acknowledgement{5, kClient, 7, Outcome::kRefused, 8},
          Rejection{5, kClient, 7, absl::InvalidArgumentError("why not")},
          ReadReply{5, kClient, 3, 12, absl::OkStatus(), body},
          Welcome{5, kClient, 7, {{2, Outcome::kRefused}, {5, Outcome::kSkipped}}, 4},
          Push{5, OfKind(EntryKind::kAssign, entry)},
          Push{5, OfKind(EntryKind::kWake, entry)},
          CopyReply{5, {4, 17}, nullptr, {4, 15}, {appended, viewed}},
          Push{5, whole},
          Forward{5, 18, false, whole},
          Absent{5, kClient, true},
          Individually{5, kClient, 7},
          KeysUnknown{5, kClient, 6, 7, 3},
          Push{5, entry, 6}};
}

TEST(Wire, EveryMessageArrivesAsItWasSent) {
  const std::vector<Message> messages = EveryMessage();
  ASSERT_GE(messages.size(), std::variant_size_v<Message>);
  for (const Message& message : messages) {
    const Packet packet = EncodePacket(6, message);
    const auto prefix = DecodePrefix(packet.prefix);
    ASSERT_TRUE(prefix.ok()) << prefix.status();
    EXPECT_EQ(prefix->shard, 6u);
    EXPECT_EQ(prefix->head_bytes, packet.head.size());
    EXPECT_EQ(prefix->body_bytes, packet.body ? packet.body->size() : 0);
    const auto decoded = DecodeMessage(*prefix, packet.head, packet.body);
    ASSERT_TRUE(decoded.ok()) << decoded.status();
    EXPECT_EQ(ViewOf(*decoded), 5u);
    // Equal bytes again: nothing was lost on the way.
    const Packet again = EncodePacket(6, *decoded);
    EXPECT_EQ(again.head, packet.head);
    EXPECT_EQ(again.prefix, packet.prefix);
    EXPECT_EQ(again.body, packet.body);
  }
}

// Equal bytes say nothing of what both directions lose.
TEST(Wire, WhatIsInsideOfAMessageArrives) {
  const auto arrived = [](const Message& message) {
    const Packet packet = EncodePacket(0, message);
    return *DecodeMessage(*DecodePrefix(packet.prefix), packet.head, packet.body);
  };
  const std::vector<Message> messages = EveryMessage();
  const auto sync = std::get<SyncMessage>(arrived(messages[0]));
  EXPECT_EQ(sync.cache, (StateId{4, 3}));
  EXPECT_EQ(sync.id.state, (StateId{4, 17}));
  ASSERT_TRUE(sync.id.checkpoint);
  EXPECT_EQ(sync.id.checkpoint->name, (StateId{3, 2}));
  const auto copy = std::get<CopyReply>(arrived(messages[16]));
  ASSERT_EQ(copy.records.size(), 2U);
  EXPECT_EQ(copy.records[0].entry->update->text(), "some bytes of a body");
  EXPECT_EQ(copy.records[0].entry->leases, 5U);
  EXPECT_EQ(copy.records[1].clients, std::vector<Client>{kClient});
  const auto rejection = std::get<Rejection>(arrived(messages[11]));
  EXPECT_EQ(rejection.why, absl::InvalidArgumentError("why not"));
}

// Of each list one item with nothing in it, at the end of its head: no item is shorter than its
// count is held against.
TEST(Wire, TheShortestItemsThatThereAreArrive) {
  Entry sum = OfKind(EntryKind::kAggregate, {});
  sum.parts = {Constituent{}};
  const std::vector<Message> messages = {
      Forward{5, 18, false, sum}, CopyReply{5, {}, nullptr, {}, {LogRecord{}}},
      CopyReply{5, {}, nullptr, {}, {LogRecord{{}, std::nullopt, {Client{}}}}},
      Welcome{5, {}, 7, {{1, Outcome::kTaken}}, 4}};
  for (const Message& message : messages) {
    const Packet packet = EncodePacket(0, message);
    const auto decoded = DecodeMessage(*DecodePrefix(packet.prefix), packet.head, packet.body);
    ASSERT_TRUE(decoded.ok()) << decoded.status();
    EXPECT_EQ(EncodePacket(0, *decoded).head, packet.head);
  }
}

TEST(Wire, AnOutcomeThatThereIsNotIsTakenForOneThatThereIs) {
  const auto forged = [](const Message& taken, const Message& refused) {
    Packet packet = EncodePacket(0, taken);
    const std::string other = EncodePacket(0, refused).head;
    const auto [at, differs] = std::ranges::mismatch(packet.head, other);
    *at = static_cast<char>(*differs + 1);
    return *DecodeMessage(*DecodePrefix(packet.prefix), packet.head, packet.body);
  };
  const Message answer = forged(Acknowledgement{5, kClient, 7, Outcome::kTaken, 8},
                                Acknowledgement{5, kClient, 7, Outcome::kRefused, 8});
  EXPECT_EQ(std::get<Acknowledgement>(answer).outcome, Outcome::kTaken);
  const Message welcome = forged(Welcome{5, kClient, 7, {{2, Outcome::kTaken}}, 4},
                                 Welcome{5, kClient, 7, {{2, Outcome::kRefused}}, 4});
  EXPECT_EQ(std::get<Welcome>(welcome).not_taken.at(2), Outcome::kTaken);
}

TEST(Wire, TheBodyThatWasReceivedIsTheBodyThatIsUsed) {
  const Packet packet = EncodePacket(0, EveryMessage()[7]);
  const auto received = std::make_shared<const std::string>(*packet.body);
  const auto decoded = DecodeMessage(*DecodePrefix(packet.prefix), packet.head, received);
  ASSERT_TRUE(decoded.ok());
  EXPECT_EQ(std::get<Push>(*decoded).entry.update->body.get(), received.get());
}

TEST(Wire, NothingIsBelievedThatIsNotThere) {
  std::mt19937 random(4);
  for (const Message& message : EveryMessage()) {
    const Packet packet = EncodePacket(0, message);
    const Prefix prefix = *DecodePrefix(packet.prefix);
    for (std::size_t cut = 0; cut < packet.head.size(); ++cut) {
      EXPECT_FALSE(DecodeMessage(prefix, packet.head.substr(0, cut), packet.body).ok());
    }
    EXPECT_FALSE(DecodeMessage(prefix, packet.head + "x", packet.body).ok());
    for (int i = 0; i < 500; ++i) {
      std::string head = packet.head;
      head[random() % head.size()] = static_cast<char>(random());
      (void)DecodeMessage(prefix, head, packet.body);  // no crash, no absurd allocation
    }
  }
}

TEST(Wire, APrefixOfAnotherKindOrOfAbsurdLengthsIsRefused) {
  const auto refused = [](void (*spoil)(Prefix&)) {
    Prefix prefix;
    spoil(prefix);
    return !DecodePrefix(std::as_bytes(std::span(&prefix, 1))).ok();
  };
  EXPECT_FALSE(refused([](Prefix&) {}));
  const Prefix whole;
  EXPECT_FALSE(DecodePrefix(std::as_bytes(std::span(&whole, 1)).first(kPrefixBytes - 1)).ok());
  EXPECT_TRUE(refused([](Prefix& p) { p.magic = 1; }));
  EXPECT_TRUE(refused([](Prefix& p) { p.version = 1; }));
  EXPECT_TRUE(refused([](Prefix& p) { p.type = std::variant_size_v<Message>; }));
  EXPECT_TRUE(refused([](Prefix& p) { p.head_bytes = ~std::uint64_t{0}; }));
  EXPECT_TRUE(refused([](Prefix& p) { p.body_bytes = ~std::uint64_t{0}; }));
  EXPECT_FALSE(refused([](Prefix& p) { p.head_bytes = kMaxHeadBytes; }));
  EXPECT_TRUE(refused([](Prefix& p) { p.head_bytes = kMaxHeadBytes + 1; }));
  EXPECT_FALSE(refused([](Prefix& p) { p.body_bytes = kMaxBodyBytes; }));
  EXPECT_TRUE(refused([](Prefix& p) { p.body_bytes = kMaxBodyBytes + 1; }));
}

}  // namespace
}  // namespace starling::parameter_server
