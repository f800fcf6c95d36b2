// SPDX-License-Identifier: Apache-2.0
#include "trainer/parameter_server/filters.h"

#include <cmath>
#include <limits>
#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/optimizer/server_rules.h"

namespace starling::parameter_server {
namespace {

using ::testing::ElementsAre;
using Floats = std::vector<float>;

TEST(KeyCache, TheSecondPushOfTheSameKeysCarriesNoKeyBytesButTheirSignature) {
  Keys keys(1000);
  for (std::size_t i = 0; i < keys.size(); ++i) keys[i] = i * i;
  KeyCacheSender sender;
  KeyCacheReceiver receiver;
  FilterLedger first, second;
  ASSERT_TRUE(receiver.Decode(sender.Encode(keys, first)).ok());
  const KeyList again = sender.Encode(keys, second);
  EXPECT_TRUE(again.keys.empty());
  const auto decoded = receiver.Decode(again);
  ASSERT_TRUE(decoded.ok());
  EXPECT_EQ(Keys(decoded->begin(), decoded->end()), keys);
  EXPECT_EQ(first.key_bytes_sent, 8008);
  EXPECT_EQ(second.key_bytes_sent, 8);
  EXPECT_EQ(second.key_bytes_plain, 8000);
}

TEST(KeyCache, AReceiverThatLostThemAsksForThem) {
  const Keys keys = {1, 2, 3};
  KeyCacheSender sender;
  FilterLedger ledger;
  sender.Encode(keys, ledger);
  KeyCacheReceiver fresh;
  EXPECT_EQ(fresh.Decode(sender.Encode(keys, ledger)).status().code(), absl::StatusCode::kNotFound);
  sender.Forget(SignatureOf(keys));
  EXPECT_TRUE(fresh.Decode(sender.Encode(keys, ledger)).ok());
}

TEST(KeyCache, KeepsWhatWasUsedLastAndBelievesNoWrongSignature) {
  KeyCacheSender sender;
  KeyCacheReceiver receiver(5);
  FilterLedger ledger;
  const Keys a = {1, 2}, b = {3, 4}, c = {5, 6};
  for (const Keys& keys : {a, b}) ASSERT_TRUE(receiver.Decode(sender.Encode(keys, ledger)).ok());
  ASSERT_TRUE(receiver.Decode(sender.Encode(a, ledger)).ok());
  ASSERT_TRUE(receiver.Decode(sender.Encode(c, ledger)).ok());
  EXPECT_TRUE(receiver.Decode(sender.Encode(a, ledger)).ok());
  EXPECT_FALSE(receiver.Decode(sender.Encode(b, ledger)).ok());
  EXPECT_EQ(receiver.Decode({SignatureOf(a), 2, b}).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_NE(SignatureOf(Keys{1, 2}), SignatureOf(Keys{2, 1}));
}

TEST(ValueCodec, Bfloat16HalvesTheBytesForAThousandthsError) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  Floats values(999);
  for (float& value : values) value = normal(random);
  values[0] = std::numeric_limits<float>::infinity();
  FilterLedger ledger;
  const ValueCodec codec = Bfloat16Codec();
  const auto decoded = codec.decode(EncodeValues(codec, values, ledger));
  ASSERT_TRUE(decoded.ok());
  EXPECT_EQ(ledger.value_bytes_sent * 2, ledger.value_bytes_plain);
  EXPECT_EQ((*decoded)[0], values[0]);
  for (std::size_t i = 1; i < values.size(); ++i) {
    EXPECT_NEAR((*decoded)[i], values[i], std::abs(values[i]) / 256);
  }
  const Floats nan = {std::numeric_limits<float>::quiet_NaN()};
  EXPECT_TRUE(std::isnan((*codec.decode(codec.encode(nan)))[0]));
  EXPECT_FALSE(codec.decode("abc").ok());
}

// Proximal descent on 0.5 * (w - target)^2 + l1 * |w|, coordinate by coordinate.
Floats Descend(const Floats& target, float l1, bool filtered, FilterLedger& ledger) {
  Floats w(target.size());
  const KktFilter filter(l1, 0);
  Keys keys(target.size());
  for (std::size_t i = 0; i < keys.size(); ++i) keys[i] = i;
  for (int step = 0; step < 100; ++step) {
    Floats gradient(w.size());
    for (std::size_t i = 0; i < w.size(); ++i) gradient[i] = w[i] - target[i];
    Kept kept{keys, gradient};
    if (filtered) kept = filter.Filter(keys, gradient, w, ledger);
    for (std::size_t k = 0; k < kept.keys.size(); ++k) {
      float& weight = w[kept.keys[k]];
      const float moved = weight - 0.5F * kept.values[k];
      weight = std::copysign(std::max(0.0F, std::abs(moved) - 0.5F * l1), moved);
    }
  }
  return w;
}

TEST(KktFilter, WhatItKeepsBackWouldHaveChangedNothing) {
  const Floats target = {3, -0.5F, 0.2F, -2, 0.9F};
  FilterLedger filtered, all;
  EXPECT_EQ(Descend(target, 1, true, filtered), Descend(target, 1, false, all));
  EXPECT_EQ(filtered.rows_kept_back, 300) << "three of five coordinates, a hundred times";
}

TEST(SmallUpdateFilter, WhatPassedAndWhatWaitsIsWhatWasFed) {
  SmallUpdateFilter filter(0.1F, 2);
  FilterLedger ledger;
  std::map<std::uint64_t, Floats> passed;
  Floats fed(20);
  std::mt19937 random(2);
  for (int step = 0; step < 50; ++step) {
    Keys keys;
    Floats changes, values;
    for (std::uint64_t key = 0; key < 10; ++key) {
      keys.push_back(key);
      for (std::size_t j = 0; j < 2; ++j) {
        changes.push_back(static_cast<float>(random() % 3) - 1);
        fed[key * 2 + j] += changes.back();
        values.push_back(20);
      }
    }
    const Kept kept = filter.Filter(keys, changes, values, ledger);
    for (std::size_t k = 0; k < kept.keys.size(); ++k) {
      Floats& sum = passed[kept.keys[k]];
      sum.resize(2);
      for (std::size_t j = 0; j < 2; ++j) sum[j] += kept.values[k * 2 + j];
    }
  }
  EXPECT_GT(ledger.rows_kept_back, 250);
  EXPECT_LT(ledger.rows_kept_back, 500);
  const Kept rest = filter.Flush();
  for (std::size_t k = 0; k < rest.keys.size(); ++k) {
    Floats& sum = passed[rest.keys[k]];
    sum.resize(2);
    for (std::size_t j = 0; j < 2; ++j) sum[j] += rest.values[k * 2 + j];
  }
  for (std::uint64_t key = 0; key < 10; ++key) {
    EXPECT_THAT(passed[key], ElementsAre(fed[key * 2], fed[key * 2 + 1]));
  }
}

}  // namespace
}  // namespace starling::parameter_server
