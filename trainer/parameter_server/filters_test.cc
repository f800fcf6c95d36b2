// SPDX-License-Identifier: Apache-2.0
#include "trainer/parameter_server/filters.h"

#include <memory>
#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/parameter_server/wire.h"

namespace starling::parameter_server {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;
using Floats = std::vector<float>;

const Client kClient{{"worker", 0}, 1};
const MemberId kHead{"head", 0}, kTail{"tail", 0};

Message ReadOf(const Keys& keys, std::int64_t request = 1) {
  Read read;
  read.view = 1;
  read.client = kClient;
  read.request = request;
  read.keys = keys;
  return read;
}
Message PushOf(const Keys& keys, const Floats& values, Sequence sequence = 1) {
  Push push;
  push.view = 1;
  push.entry.client = kClient;
  push.entry.sequence = sequence;
  push.entry.lease = 5;
  push.entry.update = Encode({UpdateKind::kRows, 0, 0, 0, keys, values, {}});
  return push;
}
Keys KeysIn(const Message& message) {
  if (const auto* read = std::get_if<Read>(&message)) return read->keys;
  const UpdatePtr& update = std::get<Push>(message).entry.update;
  return update->keys ? *update->keys : Keys();
}
std::size_t BytesOf(const Message& message) {
  const Packet packet = EncodePacket(0, message);
  return packet.head.size() + (packet.body ? packet.body->size() : 0);
}

// One client and the servers of one shard.
struct Ends {
  explicit Ends(bool key_cache, std::size_t sender_keeps = kMostKeptKeys,
                std::size_t receiver_keeps = kMostKeptKeys)
      : sender(key_cache, 1, sender_keeps), receiver(receiver_keeps) {}

  Message Sent(const MemberId& to, const Message& message) {
    const std::optional<Message> packed = sender.Pack(0, to, message);
    return packed ? *packed : message;
  }
  // What the server's machine gets, asked for again if need be.
  Message Arrived(const MemberId& to, const Message& message) {
    const Message sent = Sent(to, message);
    const RowReceiver::Unpacked unpacked = receiver.Unpack(sent);
    if (unpacked.answer) {
      ++asked;
      sender.Forget(0, std::get<KeysUnknown>(unpacked.answer->message));
      return Arrived(to, message);
    }
    return unpacked.whole ? *unpacked.whole : sent;
  }

  RowSender sender;
  RowReceiver receiver;
  int asked = 0;
};

Keys Many() {
  Keys keys(1000);
  for (std::size_t i = 0; i < keys.size(); ++i) keys[i] = i * i;
  return keys;
}

TEST(KeyCache, APushOfTheRowsThatWereReadDoesNotListThem) {
  Ends ends(true);
  const Keys keys = Many();
  const Floats values(1000, 3);
  ASSERT_EQ(KeysIn(ends.Arrived(kHead, ReadOf(keys))), keys);
  const Message push = PushOf(keys, values);
  const Message sent = ends.Sent(kHead, push);
  EXPECT_THAT(KeysIn(sent), IsEmpty());
  EXPECT_EQ(BytesOf(push) - BytesOf(sent), 8000U);
  const Message arrived = ends.Arrived(kHead, push);
  EXPECT_EQ(KeysIn(arrived), keys);
  EXPECT_EQ(std::get<Push>(arrived).entry.update->body, std::get<Push>(push).entry.update->body)
      << "the values are nobody's business here: not even copied";
  EXPECT_EQ(std::get<Push>(arrived).entry.lease, 5u);
  EXPECT_THAT(KeysIn(ends.Sent(kHead, ReadOf(keys))), IsEmpty()) << "reads are named as well";
}

TEST(KeyCache, WithoutItEverythingTravelsAsItIs) {
  Ends ends(false);
  for (int i = 0; i < 2; ++i) {
    EXPECT_FALSE(ends.sender.Pack(0, kHead, ReadOf(Many())).has_value());
    EXPECT_FALSE(ends.sender.Pack(0, kHead, PushOf(Many(), Floats(1000))).has_value());
  }
}

TEST(KeyCache, EachServerIsToldByItself) {
  Ends ends(true);
  (void)ends.Sent(kTail, ReadOf(Many()));
  EXPECT_EQ(KeysIn(ends.Sent(kHead, PushOf(Many(), Floats(1000)))), Many());
  EXPECT_THAT(KeysIn(ends.Sent(kTail, ReadOf(Many()))), IsEmpty());
}

TEST(KeyCache, AServerThatKnowsNothingAsksAndGetsTheSamePushWhole) {
  Ends ends(true);
  (void)ends.Arrived(kHead, ReadOf(Many()));
  ends.receiver = RowReceiver();
  const Message arrived = ends.Arrived(kHead, PushOf(Many(), Floats(1000, 2), 7));
  EXPECT_EQ(KeysIn(arrived), Many());
  EXPECT_EQ(std::get<Push>(arrived).entry.sequence, 7);
  EXPECT_EQ(ends.asked, 1);
  EXPECT_EQ(KeysIn(ends.Arrived(kHead, ReadOf(Many()))), Many());
  EXPECT_EQ(ends.asked, 1) << "it was told with the push";
}

TEST(KeyCache, AnAnswerNamesWhatItIsAbout) {
  Ends ends(true);
  (void)ends.Sent(kHead, ReadOf(Many()));
  RowReceiver other;
  const auto read = other.Unpack(ends.Sent(kHead, ReadOf(Many(), 9))).answer;
  const auto push = other.Unpack(ends.Sent(kHead, PushOf(Many(), Floats(1000), 4))).answer;
  ASSERT_TRUE(read && push);
  EXPECT_EQ(read->to, kClient.id);
  EXPECT_EQ(std::get<KeysUnknown>(read->message).request, 9);
  EXPECT_EQ(std::get<KeysUnknown>(read->message).sequence, 0);
  EXPECT_EQ(std::get<KeysUnknown>(push->message).sequence, 4);
  EXPECT_EQ(std::get<KeysUnknown>(push->message).request, 0);
}

TEST(KeyCache, WhatTellsItsListIsTakenAsItCame) {
  Ends ends(true);
  for (const Message& message : {ReadOf({1, 2}), PushOf({3, 4}, {1, 2})}) {
    const Message told = ends.Sent(kHead, message);
    ASSERT_THAT(KeysIn(told), SizeIs(2));
    const RowReceiver::Unpacked unpacked = ends.receiver.Unpack(told);
    EXPECT_FALSE(unpacked.whole || unpacked.answer);
  }
}

// Names of one client mean nothing in another's mouth, and none is used twice.
TEST(KeyCache, ANameIsItsClientsOwnAndNeverUsedForOtherRows) {
  Ends ends(true);
  const std::uint64_t first = std::get<Read>(ends.Sent(kHead, ReadOf({1, 2}))).list;
  ends.sender.OnView();
  EXPECT_GT(std::get<Read>(ends.Sent(kHead, ReadOf({1, 3}))).list, first);
  (void)ends.receiver.Unpack(ends.Sent(kTail, ReadOf({1, 2})));
  Message stolen = ends.Sent(kTail, ReadOf({1, 2}));
  std::get<Read>(stolen).client = {{"another", 0}, 1};
  EXPECT_TRUE(ends.receiver.Unpack(stolen).answer.has_value());
}

TEST(KeyCache, AViewBeginsWithNothingAtBothEnds) {
  Ends ends(true);
  (void)ends.Arrived(kHead, ReadOf(Many()));
  const Message named = ends.Sent(kHead, ReadOf(Many()));
  ends.receiver.OnView();
  EXPECT_TRUE(ends.receiver.Unpack(named).answer.has_value());
  ends.sender.OnView();
  EXPECT_EQ(KeysIn(ends.Sent(kHead, ReadOf(Many()))), Many());
}

TEST(KeyCache, BothEndsKeepWhatWasUsedLastAndNoMoreThanTheyMay) {
  const Keys a = {1, 2}, b = {3, 4}, c = {5, 6}, large = {1, 2, 3, 4, 5, 6};
  for (const auto& [sender_keeps, receiver_keeps] : {std::pair{5U, 100U}, std::pair{100U, 5U}}) {
    Ends ends(true, sender_keeps, receiver_keeps);
    for (const Keys& keys : {a, b, a, c}) {
      EXPECT_EQ(KeysIn(ends.Arrived(kHead, ReadOf(keys))), keys);
    }
    EXPECT_THAT(KeysIn(ends.Sent(kHead, ReadOf(a))), IsEmpty());
    EXPECT_EQ(KeysIn(ends.Arrived(kHead, ReadOf(a))), a);
    EXPECT_EQ(ends.asked, 0);
    EXPECT_EQ(KeysIn(ends.Arrived(kHead, ReadOf(b))), b);
    EXPECT_EQ(ends.asked, sender_keeps > receiver_keeps ? 1 : 0) << "b is told anew, or asked for";
    for (int i = 0; i < 2; ++i) EXPECT_EQ(KeysIn(ends.Arrived(kHead, ReadOf(large))), large);
  }
}

TEST(KeyCache, WhatListsNoRowsStaysAsItIs) {
  Ends ends(true);
  Push range, start;
  const Floats values = {1, 2};
  range.entry.update = Encode({UpdateKind::kRange, 0, 0, 2, {}, values, {}});
  start.entry.kind = EntryKind::kStart;
  Read all;
  all.rows = 7;
  Push assign = std::get<Push>(PushOf({1, 2}, values)), pairs, skip;
  assign.entry.kind = EntryKind::kAssign;
  const Keys pair = {1, 2};
  pairs.entry.update = Encode({UpdateKind::kPairs, 0, 0, 0, pair, {}, "ab"});
  const Message messages[] = {range,  start, all, PushOf({}, {}), Hello{1, kClient},
                              assign, pairs, skip};
  for (const Message& message : messages) {
    EXPECT_FALSE(ends.sender.Pack(0, kHead, message).has_value());
    const RowReceiver::Unpacked unpacked = ends.receiver.Unpack(message);
    EXPECT_FALSE(unpacked.whole || unpacked.answer);
  }
}

TEST(KeyCache, WhoNamesRowsOfAPushThatHasNoneIsNotAsked) {
  RowReceiver receiver;
  const Floats values = {1, 2};
  Push range;
  range.list = 5;
  range.entry.update = Encode({UpdateKind::kRange, 0, 0, 2, {}, values, {}});
  const RowReceiver::Unpacked unpacked = receiver.Unpack(range);
  EXPECT_FALSE(unpacked.whole || unpacked.answer);
}

Message Named(std::uint64_t list, const Keys& keys) {
  Message read = ReadOf(keys);
  std::get<Read>(read).list = list;
  return read;
}

// Whether the server knows the list of this name, which it then has used last.
bool Knows(RowReceiver& receiver, std::uint64_t list) {
  return receiver.Unpack(Named(list, {})).whole.has_value();
}

TEST(KeyCache, ExactlyAsManyRowsAreKeptAsMayBe) {
  Ends ends(true, 5, 5);
  const Keys a = {1, 2}, b = {3, 4, 5}, whole = {1, 2, 3, 4, 5}, more = {1, 2, 3, 4, 5, 6};
  (void)ends.Arrived(kHead, ReadOf(a));
  (void)ends.Arrived(kHead, ReadOf(b));
  for (const Keys& keys : {a, b}) {
    EXPECT_THAT(KeysIn(ends.Sent(kHead, ReadOf(keys))), IsEmpty());
    EXPECT_EQ(KeysIn(ends.Arrived(kHead, ReadOf(keys))), keys);
  }
  EXPECT_EQ(ends.asked, 0);
  (void)ends.Sent(kHead, ReadOf(whole));
  EXPECT_THAT(KeysIn(ends.Sent(kHead, ReadOf(whole))), IsEmpty());
  EXPECT_EQ(KeysIn(ends.Sent(kHead, ReadOf(a))), a) << "there was no room for it any more";
  EXPECT_FALSE(ends.sender.Pack(0, kHead, ReadOf(more)).has_value());
}

TEST(KeyCache, ListsComeAndGoWithoutEnd) {
  Ends ends(true, 5, 5);
  for (std::uint64_t i = 0; i < 200; ++i) {
    const Keys keys = {i, i + 1};
    ASSERT_EQ(KeysIn(ends.Arrived(kHead, ReadOf(keys))), keys);
    ASSERT_EQ(KeysIn(ends.Arrived(kHead, ReadOf(keys))), keys);
    ASSERT_THAT(KeysIn(ends.Sent(kHead, ReadOf(keys))), IsEmpty());
  }
  EXPECT_EQ(ends.asked, 0);
}

TEST(KeyCache, BothEndsKeepTwoHundredAndFiftySixLists) {
  RowSender sender(true, 1);
  RowReceiver receiver;
  const auto names = [&](std::uint64_t row) {
    const Keys keys = {row};
    return KeysIn(*sender.Pack(0, kHead, ReadOf(keys))).empty();
  };
  for (std::uint64_t row = 1; row <= 256; ++row) {
    EXPECT_FALSE(names(row));
    (void)receiver.Unpack(Named(row, {row}));
  }
  EXPECT_TRUE(names(1));
  EXPECT_TRUE(Knows(receiver, 1));
  EXPECT_FALSE(names(257));
  (void)receiver.Unpack(Named(257, {257}));
  EXPECT_TRUE(names(1)) << "it was used meanwhile";
  EXPECT_TRUE(Knows(receiver, 1));
  EXPECT_FALSE(names(2));
  EXPECT_FALSE(Knows(receiver, 2));
}

// A message that is sent again after a reconnect tells the same list once more.
TEST(KeyCache, AListThatIsToldTwiceIsKeptOnceAndWasUsedLast) {
  RowReceiver receiver(5);
  (void)receiver.Unpack(Named(1, {1, 2}));
  (void)receiver.Unpack(Named(2, {3, 4}));
  (void)receiver.Unpack(Named(1, {1, 2}));
  EXPECT_TRUE(Knows(receiver, 2)) << "both still fit";
  (void)receiver.Unpack(Named(1, {1, 2}));
  (void)receiver.Unpack(Named(3, {5, 6}));
  EXPECT_FALSE(Knows(receiver, 2));
  EXPECT_TRUE(Knows(receiver, 1));
}

}  // namespace
}  // namespace starling::parameter_server
