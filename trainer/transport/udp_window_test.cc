// SPDX-License-Identifier: Apache-2.0
// Both ends of a stream over datagrams, over a network that loses, repeats and reorders them.
#include "trainer/transport/udp_window.h"

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace starling::transport {
namespace {

constexpr std::size_t kPayload = 1000;
constexpr std::size_t kRoom = 64 * kPayload;
constexpr Nanoseconds kDelay = 1'000'000;
constexpr Nanoseconds kTick = 200'000;

std::vector<std::byte> Numbers(std::size_t count) {
  std::vector<std::byte> bytes(count);
  for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(i * 131 + i / 257);
  return bytes;
}

struct Trouble {
  double loss = 0;
  double repeated = 0;
  Nanoseconds jitter = 0;
  bool timer = true;  // the sender's clock works
};

// Plays one stream until all of it has been read, or for 100 s of its clock; what was read.
class Play {
 public:
  Play(const Trouble& trouble, unsigned seed) : trouble_(trouble), chance_(seed) {}

  std::vector<std::byte> Of(const std::vector<std::byte>& sent) {
    std::vector<std::byte> read;
    Acknowledge();  // the first says how much room there is
    for (; now_ < 100'000'000'000 && read.size() < sent.size(); now_ += kTick) {
      while (!there_.empty() && there_.begin()->first <= now_) {
        const ByteRange bytes = there_.begin()->second;
        there_.erase(there_.begin());
        receiver.Take(bytes.begin, std::span(sent).subspan(bytes.begin, bytes.end - bytes.begin));
        Acknowledge();
      }
      for (auto some = receiver.Readable(); !some.empty(); some = receiver.Readable()) {
        some = some.first(std::min<std::size_t>(some.size(), 777));
        read.insert(read.end(), some.begin(), some.end());
        receiver.Consume(some.size());
      }
      while (!back_.empty() && back_.begin()->first <= now_) {
        sender.OnAcknowledgement(now_, back_.begin()->second);
        back_.erase(back_.begin());
      }
      if (trouble_.timer) sender.OnTimer(now_);
      if (sender.blocked(sent.size())) Acknowledge();  // it asks
      while (const auto bytes = sender.Next(now_, sent.size())) Travel(there_, *bytes);
    }
    return read;
  }

  DatagramSender sender{kPayload, kRoom};
  DatagramReceiver receiver{kRoom};
  Nanoseconds now() const { return now_; }

 private:
  bool Happens(double probability) {
    return std::uniform_real_distribution<>()(chance_) < probability;
  }
  template <typename T>
  void Travel(std::multimap<Nanoseconds, T>& network, const T& what) {
    for (int copy = 0; copy < (Happens(trouble_.repeated) ? 2 : 1); ++copy) {
      const auto late = std::uniform_int_distribution<Nanoseconds>(0, trouble_.jitter)(chance_);
      if (!Happens(trouble_.loss)) network.emplace(now_ + kDelay + late, what);
    }
  }
  void Acknowledge() { Travel(back_, receiver.acknowledgement()); }

  const Trouble trouble_;
  std::mt19937 chance_;
  Nanoseconds now_ = 1;
  std::multimap<Nanoseconds, ByteRange> there_;
  std::multimap<Nanoseconds, Acknowledgement> back_;
};

TEST(UdpWindow, AllBytesArriveInOrderWhateverTheNetworkDoes) {
  const auto sent = Numbers(400'123);
  for (const double loss : {0.0, 0.01, 0.2}) {
    for (unsigned seed = 1; seed <= 40; ++seed) {
      Play play({.loss = loss, .repeated = 0.05, .jitter = 3 * kDelay}, seed);
      ASSERT_EQ(play.Of(sent), sent) << "loss " << loss << ", seed " << seed;
    }
  }
}

TEST(UdpWindow, ANetworkThatLosesNothingIsSentNothingTwice) {
  Play play({}, 1);
  const auto sent = Numbers(1'000'000);
  EXPECT_EQ(play.Of(sent), sent);
  EXPECT_EQ(play.sender.repeated(), 0U);
}

TEST(UdpWindow, WithoutItsTimerTheLastLossWouldBeForEver) {
  const auto sent = Numbers(100'000);
  int stuck = 0;
  for (unsigned seed = 1; seed <= 20; ++seed) {
    Play play({.loss = 0.2, .timer = false}, seed);
    stuck += play.Of(sent) != sent ? 1 : 0;
  }
  EXPECT_GT(stuck, 15);
}

// Everything that may be sent now.
std::vector<ByteRange> SendAll(DatagramSender& sender, Nanoseconds now, std::uint64_t end) {
  std::vector<ByteRange> sent;
  while (const auto bytes = sender.Next(now, end)) sent.push_back(*bytes);
  return sent;
}

TEST(UdpWindow, WhatThreeLaterOnesHaveOvertakenIsSentAgainAtOnceAndHalvesTheWindowOnce) {
  DatagramSender sender(kPayload, 16 * kPayload);
  sender.OnAcknowledgement(0, {.limit = 1 << 20});
  ASSERT_EQ(SendAll(sender, 0, 1 << 20).size(), 16U);
  const std::uint64_t third = 3 * kPayload;
  sender.OnAcknowledgement(kDelay, {.limit = 1 << 20, .ranges = {ByteRange{kPayload, third}}});
  EXPECT_EQ(sender.repeated(), 0U) << "two have overtaken it: their order may have changed";
  const std::size_t before = sender.window();
  sender.OnAcknowledgement(
      kDelay, {.limit = 1 << 20,
               .ranges = {ByteRange{kPayload, third}, ByteRange{4 * kPayload, 9 * kPayload}}});
  const auto again = SendAll(sender, kDelay, 1 << 20);
  ASSERT_GE(again.size(), 2U);
  EXPECT_EQ(again[0], (ByteRange{0, kPayload}));
  EXPECT_EQ(again[1], (ByteRange{third, 4 * kPayload}));
  EXPECT_GE(sender.window(), before / 2) << "two losses of one round trip are one sign";
  EXPECT_LT(sender.window(), before);
}

// A sender whose window is full: so many datagrams were sent at 0.
DatagramSender Full(std::size_t count) {
  DatagramSender sender(kPayload, count * kPayload);
  sender.OnAcknowledgement(0, {.limit = 1 << 20});
  EXPECT_EQ(SendAll(sender, 0, 1 << 20).size(), count);
  return sender;
}

// One that has sent one datagram at 0 and waited for as long as its patience.
DatagramSender WithOneLost() {
  DatagramSender sender(kPayload, 16 * kPayload);
  sender.OnAcknowledgement(0, {.limit = kPayload});
  EXPECT_EQ(SendAll(sender, 0, kPayload).size(), 1U);
  sender.OnTimer(*sender.timer());
  return sender;
}

TEST(UdpWindow, WhatWasLostIsSentAgainOnlyAsFarAsTheWindowAllows) {
  DatagramSender sender = Full(16);
  const Nanoseconds due = *sender.timer();
  sender.OnTimer(due);
  EXPECT_EQ(sender.window(), 8 * kPayload);
  const auto again = SendAll(sender, due, 1 << 20);
  ASSERT_EQ(again.size(), 8U);
  EXPECT_EQ(again.back(), (ByteRange{7 * kPayload, 8 * kPayload}));
  EXPECT_EQ(sender.repeated(), 8U);
}

TEST(UdpWindow, WhatComesAfterItWasTakenForLostIsNotSentAgain) {
  DatagramSender sender = WithOneLost();
  sender.OnAcknowledgement(60 * kDelay, {.expected = kPayload, .limit = kPayload});
  EXPECT_TRUE(SendAll(sender, 60 * kDelay, kPayload).empty());
  EXPECT_EQ(sender.repeated(), 0U);
}

TEST(UdpWindow, TheRoundTripOfWhatWasSentTwiceIsNotMeasured) {
  DatagramSender sender = WithOneLost();
  const Nanoseconds grown = sender.patience();
  ASSERT_EQ(SendAll(sender, 50 * kDelay, kPayload).size(), 1U);
  sender.OnAcknowledgement(51 * kDelay, {.expected = kPayload, .limit = kPayload});
  EXPECT_EQ(sender.acknowledged(), kPayload);
  EXPECT_EQ(sender.patience(), grown) << "nobody knows which of the two has come";
}

TEST(UdpWindow, AnAcknowledgementOfNothingNewLeavesPatienceAsLongAsItHasGrown) {
  DatagramSender sender(kPayload, 16 * kPayload);
  sender.OnAcknowledgement(0, {.limit = 2 * kPayload});
  ASSERT_TRUE(sender.Next(0, kPayload));
  sender.OnAcknowledgement(kDelay, {.expected = kPayload, .limit = 2 * kPayload});
  ASSERT_TRUE(sender.Next(kDelay, 2 * kPayload));
  const Nanoseconds before = sender.patience();
  sender.OnTimer(*sender.timer());
  ASSERT_EQ(sender.patience(), 2 * before);
  sender.OnAcknowledgement(40 * kDelay, {.expected = kPayload, .limit = 3 * kPayload});
  EXPECT_EQ(sender.patience(), 2 * before);
}

TEST(UdpWindow, AfterALossTheWindowGrowsByAboutADatagramInEachRoundTrip) {
  DatagramSender sender = Full(16);
  sender.OnAcknowledgement(
      kDelay, {.limit = 1 << 20, .ranges = {ByteRange{kPayload, std::uint64_t{4} * kPayload}}});
  ASSERT_EQ(sender.window(), 9500U) << "three have overtaken one: half of 16 and 3";
  sender.OnAcknowledgement(kDelay, {.expected = 16 * kPayload, .limit = 1 << 20});
  EXPECT_EQ(sender.window(), 9500U) << "they were sent before the loss was known";
  ASSERT_EQ(SendAll(sender, kDelay, 17 * kPayload).size(), 1U);
  sender.OnAcknowledgement(2 * kDelay, {.expected = 17 * kPayload, .limit = 1 << 20});
  EXPECT_EQ(sender.window(), 9500U + kPayload * kPayload / 9500);
}

TEST(UdpWindow, AWindowOfVeryManyDatagramsGrowsByAByteAtLeast) {
  DatagramSender sender(1, 100);
  sender.OnAcknowledgement(0, {.limit = 1});
  ASSERT_TRUE(sender.Next(0, 1));
  sender.OnTimer(*sender.timer());
  ASSERT_TRUE(sender.Next(50 * kDelay, 1));
  ASSERT_EQ(sender.window(), 50U);
  sender.OnAcknowledgement(51 * kDelay, {.expected = 1, .limit = 1});
  EXPECT_EQ(sender.window(), 51U);
}

TEST(UdpWindow, TheWindowGrowsToNoMoreThan64MiB) {
  constexpr std::size_t kMost = 64 << 20;
  DatagramSender sender(1 << 20, kMost);
  sender.OnAcknowledgement(0, {.limit = kMost});
  ASSERT_TRUE(sender.Next(0, kMost));
  sender.OnAcknowledgement(kDelay, {.expected = 1 << 20, .limit = kMost});
  EXPECT_EQ(sender.window(), kMost);
}

TEST(UdpWindow, ALossOfWhatWasSentAfterALossWasKnownHalvesTheWindowAgain) {
  DatagramSender sender = Full(16);
  sender.OnTimer(*sender.timer());
  ASSERT_EQ(sender.window(), 8 * kPayload);
  sender.OnAcknowledgement(60 * kDelay, {.expected = 16 * kPayload, .limit = 1 << 20});
  ASSERT_EQ(SendAll(sender, 60 * kDelay, 17 * kPayload).size(), 1U);
  sender.OnTimer(*sender.timer());
  EXPECT_EQ(sender.window(), 4 * kPayload);
}

// RFC 6298: the smoothed round trip and four times its deviation, from 10 ms to a second.
TEST(UdpWindow, PatienceFollowsTheRoundTripsThatWereMeasured) {
  const struct {
    std::vector<Nanoseconds> round_trips;
    Nanoseconds patience;
  } cases[] = {
      {{}, 50 * kDelay},
      {{100 * kDelay}, 300 * kDelay},
      {{100 * kDelay, 20 * kDelay}, 320 * kDelay},
      {{kDelay}, 10 * kDelay},
      {{400 * kDelay}, 1000 * kDelay},
      // Within one tick of the clock: a nanosecond, so that it counts as measured.
      {{0}, 10 * kDelay},
      {{0, 100 * kDelay}, 112'499'996},
      {{0, 0, 100 * kDelay}, 112'499'996},
  };
  for (const auto& one : cases) {
    DatagramSender sender(kPayload, 16 * kPayload);
    sender.OnAcknowledgement(0, {.limit = 1 << 20});
    Nanoseconds now = 0;
    std::uint64_t end = 0;
    for (const Nanoseconds round_trip : one.round_trips) {
      end += kPayload;
      ASSERT_TRUE(sender.Next(now, end));
      now += round_trip;
      sender.OnAcknowledgement(now, {.expected = end, .limit = 1 << 20});
    }
    EXPECT_EQ(sender.patience(), one.patience) << ::testing::PrintToString(one.round_trips);
  }
}

TEST(UdpWindow, PatienceDoublesWithEachSilenceAndComesBackWithAnAnswer) {
  DatagramSender sender(kPayload, 16 * kPayload);
  sender.OnAcknowledgement(0, {.limit = kPayload});
  ASSERT_EQ(SendAll(sender, 0, kPayload).size(), 1U);
  const Nanoseconds first = *sender.timer();
  sender.OnTimer(first - 1);
  EXPECT_TRUE(SendAll(sender, first - 1, kPayload).empty());
  sender.OnTimer(first);
  ASSERT_EQ(SendAll(sender, first, kPayload).size(), 1U);
  EXPECT_EQ(*sender.timer() - first, 2 * first);
  sender.OnAcknowledgement(first + 10, {.expected = kPayload, .limit = 2 * kPayload});
  EXPECT_EQ(sender.timer(), std::nullopt);
  EXPECT_EQ(SendAll(sender, first + 20, 2 * kPayload).size(), 1U);
  sender.OnAcknowledgement(first + 20 + kDelay, {.expected = 2 * kPayload, .limit = 3 * kPayload});
  ASSERT_EQ(SendAll(sender, 2 * first, 3 * kPayload).size(), 1U);
  EXPECT_LT(*sender.timer() - 2 * first, first) << "a round trip was measured";
}

TEST(UdpWindow, NothingIsSentBeyondThePeersRoom) {
  DatagramSender sender(kPayload, 1 << 20);
  EXPECT_TRUE(SendAll(sender, 0, 10 * kPayload).empty()) << "before it said that it has any";
  EXPECT_TRUE(sender.blocked(10 * kPayload));
  sender.OnAcknowledgement(0, {.limit = 2 * kPayload + 10});
  EXPECT_EQ(SendAll(sender, 0, 10 * kPayload).back(), (ByteRange{2 * kPayload, 2 * kPayload + 10}));
  EXPECT_FALSE(sender.blocked(10 * kPayload)) << "while something is on the way";
}

TEST(UdpWindow, AnAcknowledgementOfWhatWasNeverSentIsPassedOver) {
  DatagramSender sender(kPayload, 1 << 20);
  sender.OnAcknowledgement(0, {.limit = kPayload});
  ASSERT_EQ(SendAll(sender, 0, kPayload).size(), 1U);
  sender.OnAcknowledgement(1, {.expected = kPayload + 1, .limit = ~std::uint64_t{0}});
  EXPECT_EQ(sender.acknowledged(), 0U);
  EXPECT_TRUE(SendAll(sender, 1, 2 * kPayload).empty());
}

TEST(UdpWindow, TheReceiverKeepsWhatHasRoomAndSaysWhatItHas) {
  const auto bytes = Numbers(100);
  const auto part = [&](std::size_t begin, std::size_t end) {
    return std::span(bytes).subspan(begin, end - begin);
  };
  DatagramReceiver receiver(50);
  receiver.Take(10, part(10, 20));
  receiver.Take(30, part(30, 40));
  receiver.Take(45, part(45, 51));                    // no room for the last of them
  receiver.Take(~std::uint64_t{0} - 3, part(0, 10));  // no such place
  EXPECT_TRUE(receiver.Readable().empty());
  Acknowledgement told = receiver.acknowledgement();
  EXPECT_EQ(told.expected, 0U);
  EXPECT_EQ(told.limit, 50U);
  EXPECT_THAT(told.ranges, ::testing::ElementsAre(ByteRange{10, 20}, ByteRange{30, 40}, ByteRange{},
                                                  ByteRange{}));
  receiver.Take(0, part(0, 15));
  receiver.Take(20, part(20, 30));
  EXPECT_EQ(receiver.acknowledgement().expected, 40U);
  EXPECT_TRUE(std::ranges::equal(receiver.Readable(), part(0, 40)));
  receiver.Consume(40);
  receiver.Take(35, part(35, 90));  // around the ring's end, some of it known
  EXPECT_TRUE(std::ranges::equal(receiver.Readable(), part(40, 50)));
  receiver.Consume(10);
  EXPECT_TRUE(std::ranges::equal(receiver.Readable(), part(50, 90)));
  EXPECT_EQ(receiver.acknowledgement().limit, 100U);
}

TEST(UdpWindow, TheReceiverTellsOfRangesThatTouchAsOfOne) {
  const auto bytes = Numbers(10);
  DatagramReceiver receiver(50);
  for (const std::uint64_t begin : {10, 20, 0}) receiver.Take(begin, bytes);
  EXPECT_EQ(receiver.acknowledgement().expected, 10 + 20U);
  for (const std::uint64_t begin : {32, 42}) receiver.Take(begin, std::span(bytes).first(8));
  receiver.Take(40, std::span(bytes).first(2));
  EXPECT_THAT(receiver.acknowledgement().ranges,
              ::testing::ElementsAre(ByteRange{32, 50}, ByteRange{}, ByteRange{}, ByteRange{}));
}

TEST(UdpWindow, TheReceiverTellsOfEachByteOnce) {
  const auto bytes = Numbers(30);
  DatagramReceiver receiver(50);
  receiver.Take(0, bytes);
  receiver.Take(5, std::span(bytes).first(10));
  EXPECT_EQ(receiver.acknowledgement().expected, 30U);
  EXPECT_THAT(receiver.acknowledgement().ranges, ::testing::Each(ByteRange{}));
}

TEST(UdpWindow, ADatagramThatIsLargerThanTheReceiversRoomIsPassedOver) {
  DatagramReceiver receiver(50);
  receiver.Take(0, Numbers(51));
  EXPECT_EQ(receiver.acknowledgement().expected, 0U);
  EXPECT_TRUE(receiver.Readable().empty());
}

// More would be sent again; what is next in order always comes in.
TEST(UdpWindow, TheReceiverRemembersSixtyFourRangesAndStillTakesWhatIsNext) {
  const auto byte = Numbers(1);
  DatagramReceiver receiver(1000);
  for (std::uint64_t range = 0; range < 65; ++range) receiver.Take(2 * range + 1, byte);
  receiver.Take(0, byte);
  EXPECT_EQ(receiver.acknowledgement().expected, 2U);
  for (std::uint64_t gap = 1; gap < 65; ++gap) receiver.Take(2 * gap, byte);
  EXPECT_EQ(receiver.acknowledgement().expected, 129U) << "the last of them was passed over";
}

}  // namespace
}  // namespace starling::transport
