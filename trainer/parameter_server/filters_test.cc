// SPDX-License-Identifier: Apache-2.0
#include "trainer/parameter_server/filters.h"

#include <cmath>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/parameter_server/wire.h"

namespace starling::parameter_server {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
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
  push.entry.update =
      std::make_shared<const std::string>(Encode({UpdateKind::kRows, 0, 0, 0, keys, values, {}}));
  return push;
}
Keys KeysIn(const Message& message) {
  if (const auto* read = std::get_if<Read>(&message)) return read->keys;
  const absl::StatusOr<Update> update = DecodeUpdate(*std::get<Push>(message).entry.update);
  return {update->keys.begin(), update->keys.end()};
}
Floats ValuesIn(const Message& message) {
  const absl::StatusOr<Update> update = DecodeUpdate(*std::get<Push>(message).entry.update);
  return {update->values.begin(), update->values.end()};
}
std::size_t BytesOf(const Message& message) {
  const Packet packet = EncodePacket(0, message);
  return packet.head.size() + (packet.body ? packet.body->size() : 0);
}

// One client and the servers of one slot.
struct Ends {
  explicit Ends(const Filters& filters, std::size_t sender_keeps = kMostKeptKeys,
                std::size_t receiver_keeps = kMostKeptKeys)
      : sender(filters, 1, sender_keeps), receiver(receiver_keeps) {}

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
  Ends ends({.key_cache = true});
  const Keys keys = Many();
  const Floats values(1000, 3);
  ASSERT_EQ(KeysIn(ends.Arrived(kHead, ReadOf(keys))), keys);
  const Message push = PushOf(keys, values);
  const Message sent = ends.Sent(kHead, push);
  EXPECT_THAT(KeysIn(sent), IsEmpty());
  EXPECT_EQ(BytesOf(push) - BytesOf(sent), 8000U);
  const Message arrived = ends.Arrived(kHead, push);
  EXPECT_EQ(KeysIn(arrived), keys);
  EXPECT_EQ(ValuesIn(arrived), values);
  EXPECT_EQ(std::get<Push>(arrived).entry.lease, 5u);
  EXPECT_THAT(KeysIn(ends.Sent(kHead, ReadOf(keys))), IsEmpty()) << "reads are named as well";
}

TEST(KeyCache, WithoutItEverythingTravelsAsItIs) {
  Ends ends({});
  for (int i = 0; i < 2; ++i) {
    EXPECT_FALSE(ends.sender.Pack(0, kHead, ReadOf(Many())).has_value());
    EXPECT_FALSE(ends.sender.Pack(0, kHead, PushOf(Many(), Floats(1000))).has_value());
  }
}

TEST(KeyCache, EachServerIsToldByItself) {
  Ends ends({.key_cache = true});
  (void)ends.Sent(kTail, ReadOf(Many()));
  EXPECT_EQ(KeysIn(ends.Sent(kHead, PushOf(Many(), Floats(1000)))), Many());
  EXPECT_THAT(KeysIn(ends.Sent(kTail, ReadOf(Many()))), IsEmpty());
}

TEST(KeyCache, AServerThatKnowsNothingAsksAndGetsTheSamePushWhole) {
  Ends ends({.key_cache = true});
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
  Ends ends({.key_cache = true});
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

// Names of one client mean nothing in another's mouth, and none is used twice.
TEST(KeyCache, ANameIsItsClientsOwnAndNeverUsedForOtherRows) {
  Ends ends({.key_cache = true});
  const std::uint64_t first = std::get<Read>(ends.Sent(kHead, ReadOf({1, 2}))).list;
  ends.sender.OnView();
  EXPECT_GT(std::get<Read>(ends.Sent(kHead, ReadOf({1, 3}))).list, first);
  (void)ends.receiver.Unpack(ends.Sent(kTail, ReadOf({1, 2})));
  Message stolen = ends.Sent(kTail, ReadOf({1, 2}));
  std::get<Read>(stolen).client = {{"another", 0}, 1};
  EXPECT_TRUE(ends.receiver.Unpack(stolen).answer.has_value());
}

TEST(KeyCache, AViewBeginsWithNothingAtBothEnds) {
  Ends ends({.key_cache = true});
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
    Ends ends({.key_cache = true}, sender_keeps, receiver_keeps);
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
  Ends ends({.key_cache = true, .narrow = true});
  Push range, start;
  const Floats values = {1, 2};
  range.entry.update =
      std::make_shared<const std::string>(Encode({UpdateKind::kRange, 0, 0, 2, {}, values, {}}));
  start.entry.kind = EntryKind::kStart;
  Read all;
  all.rows = 7;
  const Message messages[] = {range, start, all, PushOf({}, {}), Hello{1, kClient}};
  for (const Message& message : messages) {
    EXPECT_FALSE(ends.sender.Pack(0, kHead, message).has_value());
    const RowReceiver::Unpacked unpacked = ends.receiver.Unpack(message);
    EXPECT_FALSE(unpacked.whole || unpacked.answer);
  }
}

TEST(Narrow, ValuesOfAPushTakeHalfTheBytesAndArriveRounded) {
  Ends ends({.narrow = true});
  const Message push = PushOf(Many(), Floats(1000, 1.00390625F));
  EXPECT_EQ(BytesOf(push) - BytesOf(ends.Sent(kHead, push)), 2000U);
  for (int i = 0; i < 2; ++i) {  // again: the same
    const Message arrived = ends.Arrived(kHead, push);
    EXPECT_EQ(KeysIn(arrived), Many());
    EXPECT_EQ(ValuesIn(arrived), Floats(1000, 1.0F));
  }
}

TEST(Narrow, GoesWithNamedRows) {
  Ends ends({.key_cache = true, .narrow = true});
  (void)ends.Arrived(kHead, ReadOf({7, 8}));
  const Message arrived = ends.Arrived(kHead, PushOf({7, 8}, {-2, 0.5F}));
  EXPECT_THAT(KeysIn(arrived), ElementsAre(7U, 8U));
  EXPECT_THAT(ValuesIn(arrived), ElementsAre(-2.0F, 0.5F));
}

TEST(Narrow, AThousandthsErrorAndNothingBecomesInfinite) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  Floats values(999);
  for (float& value : values) value = normal(random);
  values[0] = std::numeric_limits<float>::infinity();
  const absl::StatusOr<Floats> wide = Widen(Narrow(values));
  ASSERT_TRUE(wide.ok());
  EXPECT_EQ((*wide)[0], values[0]);
  for (std::size_t i = 1; i < values.size(); ++i) {
    EXPECT_NEAR((*wide)[i], values[i], std::abs(values[i]) / 256);
  }
  EXPECT_TRUE(std::isnan((*Widen(Narrow(Floats{std::nanf("")})))[0]));
  EXPECT_TRUE(std::isfinite((*Widen(Narrow(Floats{std::numeric_limits<float>::max()})))[0]));
  EXPECT_FALSE(Widen("abc").ok());
}

// Of `count` values each third one is not 0.
Floats MostlyZero(std::size_t count) {
  Floats values(count);
  for (std::size_t i = 0; i < count; i += 3) values[i] = static_cast<float>(i) + 0.5F;
  return values;
}

TEST(Zeros, RowsOfZerosTravelAsABitEachAndArriveAsZeros) {
  const Floats values = MostlyZero(1000);
  const Message push = PushOf(Many(), values);
  constexpr std::size_t kBitmap = 125, kZeros = 666;
  for (const bool narrow : {false, true}) {
    Ends with({.key_cache = true, .narrow = narrow, .zeros = true});
    Ends without({.key_cache = true, .narrow = narrow});
    for (Ends* ends : {&with, &without}) (void)ends->Arrived(kHead, ReadOf(Many()));
    const std::size_t saved = BytesOf(without.Sent(kHead, push)) - BytesOf(with.Sent(kHead, push));
    EXPECT_EQ(saved, kZeros * (narrow ? 2 : 4) - kBitmap);
    for (int i = 0; i < 2; ++i) {  // again: the same
      const Message arrived = with.Arrived(kHead, push);
      EXPECT_EQ(KeysIn(arrived), Many());
      EXPECT_EQ(ValuesIn(arrived), ValuesIn(without.Arrived(kHead, push)));
    }
    EXPECT_EQ(with.asked, 0);
  }
}

// What the machine gets is what it would be without the filter, to the byte.
TEST(Zeros, AListThatIsToldAnewIsToldWhole) {
  for (const bool key_cache : {false, true}) {
    Ends ends({.key_cache = key_cache, .zeros = true});
    const Message push = PushOf(Many(), MostlyZero(1000));
    EXPECT_EQ(KeysIn(ends.Sent(kHead, push)), Many());
    ends.sender.OnView();
    EXPECT_EQ(*std::get<Push>(ends.Arrived(kHead, push)).entry.update,
              *std::get<Push>(push).entry.update);
    ends.receiver.OnView();
    EXPECT_EQ(*std::get<Push>(ends.Arrived(kHead, push)).entry.update,
              *std::get<Push>(push).entry.update);
    EXPECT_EQ(ends.asked, key_cache ? 1 : 0);
  }
}

TEST(Zeros, APushOfNothingElseStillGoesAndOneWithoutAnyGoesAsItIs) {
  Ends ends({.zeros = true});
  const Message zeros = PushOf(Many(), Floats(1000), 9);
  EXPECT_EQ(BytesOf(zeros) - BytesOf(ends.Sent(kHead, zeros)), 4000U - 125U);
  const Message arrived = ends.Arrived(kHead, zeros);
  EXPECT_EQ(ValuesIn(arrived), Floats(1000));
  EXPECT_EQ(std::get<Push>(arrived).entry.sequence, 9);
  EXPECT_EQ(std::get<Push>(arrived).entry.lease, 5u);
  EXPECT_FALSE(ends.sender.Pack(0, kHead, PushOf(Many(), Floats(1000, 1))).has_value());
  EXPECT_FALSE(ends.sender.Pack(0, kHead, PushOf(Many(), Floats(1000, -0.0F))).has_value());
  Floats one = Floats(1000, 1);
  one[7] = 0;
  EXPECT_FALSE(ends.sender.Pack(0, kHead, PushOf(Many(), one)).has_value())
      << "a bitmap is more than one value";
}

TEST(Zeros, ARowOfSeveralValuesIsLeftOutIfAllOfThemAreZero) {
  const Floats values = {0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0};
  Ends ends({.zeros = true});
  ends.receiver = RowReceiver(kMostKeptKeys, 3);
  const Message push = PushOf({1, 2, 3, 4, 5}, values);
  EXPECT_THAT(ValuesIn(ends.Sent(kHead, push)), ElementsAre(0, 1, 0, 0, 0, 2));
  EXPECT_EQ(ValuesIn(ends.Arrived(kHead, push)), values);
}

// Ten rows, so two bytes of bits, as a peer may send them that is of another mind.
struct Forged {
  const char* name;
  std::uint64_t rows;
  Floats values;
  std::string text;
};
class ForgedZeros : public ::testing::TestWithParam<Forged> {};

TEST_P(ForgedZeros, AreRefusedByNameAndNothingIsApplied) {
  const Forged& forged = GetParam();
  const Keys keys = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  for (const bool named : {false, true}) {
    RowReceiver receiver;
    Push push = std::get<Push>(PushOf(keys, Floats(10), 6));
    push.list = 3;
    (void)receiver.Unpack(push);
    const Keys none;
    push.entry.update = std::make_shared<const std::string>(Encode(
        {UpdateKind::kRows, 0, 0, forged.rows, named ? none : keys, forged.values, forged.text}));
    const RowReceiver::Unpacked unpacked = receiver.Unpack(push);
    EXPECT_FALSE(unpacked.whole.has_value());
    ASSERT_TRUE(unpacked.answer.has_value());
    EXPECT_EQ(unpacked.answer->to, kClient.id);
    const auto* rejection = std::get_if<Rejection>(&unpacked.answer->message);
    ASSERT_NE(rejection, nullptr);
    EXPECT_EQ(rejection->sequence, 6);
    EXPECT_EQ(rejection->view, 1U);
    EXPECT_FALSE(rejection->why.ok());
    EXPECT_NE(rejection->why.message(), "");
  }
}

INSTANTIATE_TEST_SUITE_P(
    Each, ForgedZeros,
    ::testing::Values(Forged{"NoBitmap", 10, {1}, ""}, Forged{"AShortBitmap", 10, {1}, "\1"},
                      Forged{"MoreValuesThanBits", 10, {1, 2}, std::string("\1\0", 2)},
                      Forged{"FewerValuesThanBits", 10, {1}, std::string("\3\0", 2)},
                      Forged{"NoValues", 10, {}, std::string("\1\0", 2)},
                      Forged{"ABitBehindTheLast", 10, {1}, std::string("\0\4", 2)},
                      Forged{"AnotherNumberOfRows", 9, {1}, std::string("\1\0", 2)},
                      Forged{"AnAbsurdNumberOfRows", 1ULL << 40, {1}, std::string("\1\0", 2)},
                      Forged{"BothForms", 10, {1}, std::string("\1\0\1\1", 4)},
                      Forged{"HalfAValue", 10, {}, std::string("\1\0\1", 3)}),
    [](const auto& one) { return std::string(one.param.name); });

}  // namespace
}  // namespace starling::parameter_server
