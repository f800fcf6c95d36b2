// SPDX-License-Identifier: Apache-2.0
#include "trainer/parameter_server/update.h"

#include <gmock/gmock.h>

#include <cmath>
#include <random>

#include "trainer/parameter_server/wire.h"
#include "trainer/testing/shard_testing.h"

namespace starling::parameter_server {
namespace {

using shard_testing::C;
using shard_testing::Floats;
using shard_testing::OptionsOf;
using shard_testing::PushOf;
using shard_testing::Range;
using shard_testing::Rows;
using shard_testing::Table;

constexpr compression::CodecNumber kBFloat16 = 1;

Keys Many() {
  Keys keys(1000);
  for (std::size_t i = 0; i < keys.size(); ++i) keys[i] = i * i;
  return keys;
}
// Of `count` values each third one is not 0.
Floats MostlyZero(std::size_t count) {
  Floats values(count);
  for (std::size_t i = 0; i < count; i += 3) values[i] = static_cast<float>(i) + 0.5F;
  return values;
}
Floats ValuesIn(const UpdatePtr& update, std::size_t width = 1) {
  const absl::StatusOr<DecodedUpdate> decoded = Decode(update, width);
  EXPECT_TRUE(decoded.ok()) << decoded.status();
  if (!decoded.ok()) return {};
  return {decoded->update.values.begin(), decoded->update.values.end()};
}
// On the wire.
std::size_t BytesOf(const UpdatePtr& update) {
  Push push;
  push.entry.update = update;
  const Packet packet = EncodePacket(0, push);
  return packet.head.size() + (packet.body ? packet.body->size() : 0);
}

TEST(Update, FloatsThatWereReceivedAreUsedWhereTheyLie) {
  const Floats values = {1, 2, 3};
  const UpdatePtr update = Encode(Range(0, 3, values));
  const auto decoded = Decode(update, 1);
  ASSERT_TRUE(decoded.ok());
  EXPECT_EQ(static_cast<const void*>(decoded->update.values.data()), update->body->data());
  EXPECT_EQ(ValuesIn(update), values);
}

TEST(Update, ValuesOfSixteenBitsTakeHalfTheBytesAndArriveRounded) {
  const Floats values(1000, 1.00390625F);
  const Keys keys = Many();
  const UpdatePtr whole = Encode(Rows(keys, values)), half = Encode(Rows(keys, values), kBFloat16);
  EXPECT_EQ(BytesOf(whole) - BytesOf(half), 2000U);
  EXPECT_EQ(ValuesIn(half), Floats(1000, 1.0F));
}

TEST(Update, RowsOfZerosTravelAsABitEachAndArriveAsZeros) {
  constexpr std::size_t kBitmap = 125, kZeros = 666;
  for (const compression::CodecNumber codec : {compression::kIdentity, kBFloat16}) {
    const Keys keys = Many();
    const Floats values = MostlyZero(1000);
    const UpdatePtr all = Encode(Rows(keys, values), codec),
                    some = Encode(Rows(keys, values), codec, /*leave_out_zeros=*/true);
    EXPECT_EQ(BytesOf(all) - BytesOf(some), kZeros * (codec == kBFloat16 ? 2 : 4) - kBitmap);
    EXPECT_EQ(ValuesIn(some), ValuesIn(all));
  }
}

TEST(Update, NothingIsLeftOutWhereThatWouldNotBeLess) {
  const Keys keys = Many();
  const auto told = [&](const Floats& values) {
    return !Encode(Rows(keys, values), compression::kIdentity, true)->told.empty();
  };
  EXPECT_TRUE(told(Floats(1000)));
  EXPECT_FALSE(told(Floats(1000, 1)));
  EXPECT_FALSE(told(Floats(1000, -0.0F))) << "what comes back is what was there, bit for bit";
  Floats one(1000, 1);
  one[7] = 0;
  EXPECT_FALSE(told(one)) << "a bitmap is more than one value";
}

TEST(Update, ARowOfSeveralValuesIsLeftOutIfAllOfThemAreZero) {
  const Keys keys = {1, 2, 3, 4, 5};
  const Floats values = {0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0};
  const UpdatePtr update = Encode(Rows(keys, values), compression::kIdentity, true);
  EXPECT_EQ(update->values, 6U);
  EXPECT_EQ(ValuesIn(update, 3), values);
}

// Ten rows, so two bytes of bits, as a peer may send them that is of another mind.
struct Forged {
  const char* name;
  std::string told;
  Floats values;
  compression::CodecNumber codec = compression::kIdentity;
  std::uint64_t count = 0;  // 0: of the values
  std::size_t cut = 0;      // bytes at the body's end
};
class ForgedUpdate : public ::testing::TestWithParam<Forged> {};

TEST_P(ForgedUpdate, IsRefusedByShardsWithAReason) {
  const Forged& forged = GetParam();
  const Keys keys = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  EncodedUpdate update = *Encode(Rows(keys, forged.values), 0);
  update.told = forged.told;
  update.codec = forged.codec;
  if (forged.count != 0) update.values = forged.count;
  update.body =
      std::make_shared<const std::string>(update.body->substr(0, update.body->size() - forged.cut));
  ShardState shard(OptionsOf(Table(TableKind::kSparse, 0, 1)));
  shard.OnView({C(0)});
  Entry entry = PushOf(C(0), 1, Rows(keys, Floats(10)));
  ASSERT_TRUE(shard.Check(entry).ok()) << shard.Check(entry).status();
  entry.update = std::make_shared<const EncodedUpdate>(update);
  const absl::Status status = shard.Check(entry).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message(), "");
}

INSTANTIATE_TEST_SUITE_P(
    Each, ForgedUpdate,
    ::testing::Values(Forged{"TooFewValues", "", {1}}, Forged{"AShortBitmap", "\1", {1}},
                      Forged{"ALongBitmap", std::string("\1\0\0", 3), {1}},
                      Forged{"MoreValuesThanBits", std::string("\1\0", 2), {1, 2}},
                      Forged{"FewerValuesThanBits", std::string("\3\0", 2), {1}},
                      Forged{"ABitBehindTheLast", std::string("\0\4", 2), {1}},
                      Forged{"HalfAValue", std::string("\1\0", 2), {1}, 0, 0, 2},
                      Forged{"AnotherCodec", std::string("\1\0", 2), {1}, kBFloat16},
                      Forged{"NoCodec", std::string("\1\0", 2), {1}, 200},
                      Forged{"AnAbsurdCount", std::string("\1\0", 2), {1}, 0, 1ULL << 39},
                      Forged{"ACountThatOverflows", std::string("\1\0", 2), {1}, 0, 1ULL << 62}),
    [](const auto& one) { return std::string(one.param.name); });

TEST(Update, HeadsThatWereDamagedAreRefusedOrApplied) {
  std::mt19937 random(5);
  const Floats values = {1, 2, 3};
  bytes::Writer out;
  const UpdatePtr good = Encode(Range(0, 3, values));
  Put(*good, out);
  for (std::size_t cut = 0; cut < out.bytes().size(); ++cut) {
    bytes::Reader in(std::string_view(out.bytes()).substr(0, cut));
    (void)GetUpdate(in, good->body);
    EXPECT_FALSE(in.done()) << cut;
  }
  for (int i = 0; i < 3000; ++i) {
    std::string bad = out.bytes();
    bad[random() % bad.size()] = static_cast<char>(random());
    bytes::Reader in(bad);
    Entry entry = PushOf(C(0), 1, Range(0, 3, values));
    entry.update = GetUpdate(in, good->body);
    ShardState shard(OptionsOf(Table(TableKind::kDense, 3, 1)));
    shard.OnView({C(0)});
    if (in.done() && shard.Check(entry).ok()) shard.Append(entry);
  }
}

// Heads that no Encode makes.
absl::Status StatusOf(const EncodedUpdate& update) {
  return Decode(std::make_shared<const EncodedUpdate>(update), 1).status();
}
void ExpectMalformed(const EncodedUpdate& update, const std::string& why) {
  const absl::Status status = StatusOf(update);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << why;
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr(why));
}

TEST(Update, CountsAndKindsThatCannotBeAreRefusedBeforeTheyAreUsed) {
  const EncodedUpdate good = *Encode(Range(0, 1, {1}));
  ASSERT_TRUE(StatusOf(good).ok());
  for (const int kind : {0, 5, 255}) {
    EncodedUpdate bad = good;
    bad.kind = static_cast<UpdateKind>(kind);
    ExpectMalformed(bad, "its kind is unknown");
  }
  constexpr std::uint64_t kMost = std::uint64_t{1} << 40, kEnd = ~std::uint64_t{0};
  EncodedUpdate rows = good, values = good, end = good;
  rows.rows = kMost;
  EXPECT_TRUE(StatusOf(rows).ok()) << "what a shard has is its own to say";
  rows.rows = kMost + 1;
  ExpectMalformed(rows, "a count is absurd");
  values.values = kMost;
  ExpectMalformed(values, "do not fit its size");
  values.values = kMost + 1;
  ExpectMalformed(values, "a count is absurd");
  end.first = kEnd - 1;
  EXPECT_TRUE(StatusOf(end).ok());
  end.first = kEnd;
  ExpectMalformed(end, "its rows end behind the last");
}

TEST(Update, PairsAreKeysLengthsAndTextsThatFit) {
  const auto pairs = [](const Keys& keys, const std::string& text) {
    EncodedUpdate update = *Encode({UpdateKind::kPairs, 0, 0, 0, keys, {}, text});
    return update;
  };
  EXPECT_TRUE(StatusOf(pairs({7, 2, 8, 0, 9, 1}, "abc")).ok());
  EXPECT_TRUE(StatusOf(pairs({}, "")).ok());
  EXPECT_TRUE(StatusOf(pairs({7, 3}, "abc")).ok());
  const std::string why = "its pairs do not fit";
  ExpectMalformed(pairs({}, "a"), why);
  ExpectMalformed(pairs({7}, ""), why);
  ExpectMalformed(pairs({7, 2, 8}, "ab"), why);
  ExpectMalformed(pairs({7, 2}, "abc"), why);
  ExpectMalformed(pairs({7, 4}, "abc"), why);
  // Together the lengths are those of the text, but not one by one.
  ExpectMalformed(pairs({7, ~std::uint64_t{0}, 8, 4}, "abc"), why);
  EncodedUpdate with_values = pairs({7, 3}, "abc");
  with_values.values = 1;
  ExpectMalformed(with_values, why);
}

TEST(Update, BitsAreOfRowsOnlyAndOfNoMoreThanThereAre) {
  const Keys ten = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, eight = {1, 2, 3, 4, 5, 6, 7, 8};
  const auto told = [](const Keys& keys, const std::string& bits, const Floats& values) {
    EncodedUpdate update = *Encode(Rows(keys, values));
    update.told = bits;
    return update;
  };
  EXPECT_THAT(
      ValuesIn(std::make_shared<const EncodedUpdate>(told(ten, std::string("\0\2", 2), {5}))),
      ::testing::ElementsAre(0, 0, 0, 0, 0, 0, 0, 0, 0, 5))
      << "the last row's";
  EXPECT_TRUE(StatusOf(told(eight, "\200", {5})).ok());
  for (const char* spare : {"\0\4", "\0\200"}) {
    ExpectMalformed(told(ten, std::string(spare, 2), {5}), "behind those of its rows");
  }
  EncodedUpdate range = *Encode(Range(0, 1, {1}));
  range.told = std::string("\0", 1);
  ExpectMalformed(range, "another number of rows");
  range.told.clear();
  EXPECT_TRUE(StatusOf(range).ok());
  range = told(eight, "\200", {5});
  range.kind = UpdateKind::kRange;
  ExpectMalformed(range, "another number of rows");
  Keys fifteen = ten;
  for (std::uint64_t key = 11; key <= 15; ++key) fifteen.push_back(key);
  EXPECT_TRUE(StatusOf(told(fifteen, std::string("\0\100", 2), {5})).ok());
  ExpectMalformed(told(fifteen, std::string("\0\200", 2), {5}), "behind those of its rows");
  EncodedUpdate no_keys = told(eight, "", {5});
  no_keys.keys = nullptr;
  no_keys.told = std::string("\1", 1);
  ExpectMalformed(no_keys, "its 0");
}

TEST(Update, ABitmapThatSavesNothingIsNotSent) {
  Keys keys(32);
  for (std::size_t i = 0; i < keys.size(); ++i) keys[i] = i;
  Floats values(32, 1);
  values[3] = 0;
  EXPECT_TRUE(Encode(Rows(keys, values), compression::kIdentity, true)->told.empty())
      << "four bytes of bits for four of a row";
  values[4] = 0;
  EXPECT_FALSE(Encode(Rows(keys, values), compression::kIdentity, true)->told.empty());
  EXPECT_TRUE(Encode(Rows({}, {}), compression::kIdentity, true)->told.empty());
}

TEST(Update, WhatTheCallerHasEncodedIsTheSameUpdate) {
  const Keys keys = {1, 2};
  const Floats values = {3, 4};
  const UpdatePtr by_us = Encode(Rows(keys, values), kBFloat16);
  const UpdatePtr by_caller = Encoded(Rows(keys, values), kBFloat16, *by_us->body);
  EXPECT_EQ(by_caller->codec, kBFloat16);
  EXPECT_EQ(by_caller->values, 2u);
  EXPECT_EQ(ValuesIn(by_caller), values);
  EXPECT_EQ(by_caller->bytes(), by_us->bytes());
  EXPECT_EQ(by_us->bytes(), 48u + 2 * 8 + 4) << "head, keys and values";
  EXPECT_EQ(EncodedUpdate().bytes(), 48u);
}

TEST(Update, WhatIsHeldIsSavedAsItCameAndAppliedTheSame) {
  auto table = Table(TableKind::kDense, 3, 1);
  const ShardOptions options = OptionsOf(table, consistency::BulkSynchronous{2});
  ShardState shard(options), restored(options);
  shard.OnView({C(0), C(1)});
  const Floats values = {1, 2, 3};
  for (int client = 0; client < 2; ++client) {
    Entry entry = PushOf(C(client), 1, Range(0, 3, values));
    entry.update = Encode(Range(0, 3, values), kBFloat16);
    entry.lease = consistency::kFirstPortion + static_cast<Lease>(client);
    shard.Append(entry);
    if (client == 1) break;
    ASSERT_EQ(shard.held().size(), 1U);
    ASSERT_TRUE(restored.Load(shard.Save()).ok());
    EXPECT_EQ(restored.held().begin()->second.from->codec, kBFloat16);
    restored.OnView({C(0), C(1)});
    entry.client = C(1);
    entry.lease += 1;
    restored.Append(entry);
  }
  EXPECT_EQ(shard.held().size(), 0U);
  EXPECT_EQ(*shard.Read({0, 3, {}}), *restored.Read({0, 3, {}}));
}

}  // namespace
}  // namespace starling::parameter_server
