// SPDX-License-Identifier: Apache-2.0
// The relay beside a peer that is played by hand: strangers' datagrams, ends, and what is lost.
#include "trainer/transport/udp_relay.h"

#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/net/address.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/testing/transports.h"

namespace starling::transport {
namespace {

using ::starling::transport::testing::Soon;

constexpr std::uint64_t kOwnKey = 17;
constexpr std::uint64_t kPeerKey = 99;

// As it is on the wire.
struct Datagram {
  std::uint64_t key = kPeerKey;
  std::uint64_t begin = 0;
  std::uint32_t length = 0;
  std::uint32_t asks = 0;
  std::uint64_t expected = 0;
  std::uint64_t limit = 1 << 20;
  std::array<std::uint32_t, 8> ranges{};
};

net::FileDescriptor Bound() {
  net::FileDescriptor socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const auto address = *net::ToSocketAddress({"127.0.0.1", 0});
  EXPECT_EQ(::bind(socket.get(), address.get(), address.size), 0);
  return socket;
}

void ConnectTo(const net::FileDescriptor& socket, const net::FileDescriptor& other) {
  const auto address = *net::ToSocketAddress(*net::LocalAddress(other));
  EXPECT_EQ(::connect(socket.get(), address.get(), address.size), 0);
}

bool ReadableWithin(int fd, absl::Duration limit) {
  pollfd poll{fd, POLLIN, 0};
  return ::poll(&poll, 1, static_cast<int>(absl::ToInt64Milliseconds(limit))) == 1;
}

RelayedLink LinkOf(net::FileDescriptor local, net::FileDescriptor control,
                   net::FileDescriptor datagrams) {
  return {.local = std::move(local),
          .control = std::move(control),
          .datagrams = std::move(datagrams),
          .own_key = kOwnKey,
          .peer_key = kPeerKey,
          .payload = 1000,
          .window = 100'000,
          .buffer = 1 << 20};
}

class UdpRelayTest : public ::testing::Test {
 protected:
  UdpRelayTest() {
    auto pair = *net::SocketPair();
    auto control = *net::SocketPair();
    net::FileDescriptor datagrams = Bound();
    peer_ = Bound();
    ConnectTo(peer_, datagrams);
    ConnectTo(datagrams, peer_);
    link_ = std::move(pair.first);
    control_ = std::move(control.first);
    relay_.Add(LinkOf(std::move(pair.second), std::move(control.second), std::move(datagrams)));
  }

  void Say(const Datagram& header, std::string_view payload) {
    std::string datagram(reinterpret_cast<const char*>(&header), sizeof header);
    datagram += payload;
    EXPECT_EQ(::send(peer_.get(), datagram.data(), datagram.size(), 0),
              static_cast<ssize_t>(datagram.size()));
  }
  // The next datagram of the relay that `wanted` takes.
  template <typename Wanted>
  std::pair<Datagram, std::string> Heard(const Wanted& wanted) {
    while (ReadableWithin(peer_.get(), clock::Patience(absl::Seconds(30)))) {
      std::string bytes(2000, ' ');
      const ssize_t size = ::recv(peer_.get(), bytes.data(), bytes.size(), 0);
      if (size < static_cast<ssize_t>(sizeof(Datagram))) break;
      Datagram header;
      std::memcpy(&header, bytes.data(), sizeof header);
      EXPECT_EQ(header.key, kOwnKey);
      if (wanted(header)) {
        return {header,
                bytes.substr(sizeof header, static_cast<std::size_t>(size) - sizeof header)};
      }
    }
    ADD_FAILURE() << "nothing of the kind was sent";
    return {};
  }
  std::string Read() {
    if (!ReadableWithin(link_.get(), clock::Patience(absl::Seconds(30)))) return "nothing came";
    std::string bytes(2000, ' ');
    const ssize_t size = ::recv(link_.get(), bytes.data(), bytes.size(), 0);
    bytes.resize(static_cast<std::size_t>(std::max<ssize_t>(size, 0)));
    return bytes;
  }

  net::FileDescriptor link_, peer_, control_;
  UdpRelay relay_;  // ends first: it waits for what was written
};

TEST_F(UdpRelayTest, OnlyWholeDatagramsWithTheKeyAreHeard) {
  Say({.key = kPeerKey + 1, .length = 3}, "bad");
  Say({.key = kOwnKey, .length = 3}, "own");  // sent back to where it came from
  Say({.length = 4}, "bad");
  Say({.length = 2}, "bad");
  Say({.begin = 0xffffffffffffff00, .length = 3}, "bad");
  Say({.begin = 4 << 20, .length = 3}, "bad");
  Say({.expected = 1 << 30}, "");
  const std::string half = "half a head";
  (void)::send(peer_.get(), half.data(), half.size(), 0);
  (void)::send(peer_.get(), half.data(), 0, 0);
  Say({.length = 4}, "good");
  EXPECT_EQ(Read(), "good");
  (void)Heard([](const Datagram& said) { return said.expected == 4; });
  control_.Reset();
}

TEST_F(UdpRelayTest, WhatNobodyAcknowledgesIsSentAgain) {
  Say({}, "");  // there is room
  ASSERT_EQ(::send(link_.get(), "hello", 5, 0), 5);
  const auto carries = [](const Datagram& said) { return said.length > 0; };
  const auto first = Heard(carries);
  EXPECT_EQ(first.second, "hello");
  const auto again = Heard(carries);
  EXPECT_EQ(again.second, "hello");
  EXPECT_EQ(again.first.begin, 0U);
  control_.Reset();
}

TEST_F(UdpRelayTest, WhoLeavesStaysUntilAllHasArrived) {
  Say({}, "");
  ASSERT_EQ(::send(link_.get(), "farewell", 8, 0), 8);
  link_.Reset();
  (void)Heard([](const Datagram& said) { return said.length == 8; });
  std::byte byte;
  EXPECT_LT(::recv(control_.get(), &byte, 1, MSG_DONTWAIT), 0) << "the peer may not have it yet";
  Say({.expected = 8}, "");
  ASSERT_TRUE(ReadableWithin(control_.get(), clock::Patience(absl::Seconds(30))));
  EXPECT_EQ(::recv(control_.get(), &byte, 1, MSG_DONTWAIT), 0);
}

TEST_F(UdpRelayTest, APeerThatIsGoneEndsTheLinkBehindWhatItHadSaid) {
  Say({.length = 4}, "last");
  (void)Heard([](const Datagram& said) { return said.expected == 4; });
  control_.Reset();
  EXPECT_EQ(Read(), "last");
  EXPECT_EQ(Read(), "") << "the end";
}

TEST_F(UdpRelayTest, ItAsksAPeerThatHasNoRoomUntilItHas) {
  Say({.limit = 3}, "");
  ASSERT_EQ(::send(link_.get(), "hello", 5, 0), 5);
  EXPECT_EQ(Heard([](const Datagram& said) { return said.length > 0; }).second, "hel");
  Say({.expected = 3, .limit = 3}, "");
  for (int i = 0; i < 2; ++i) (void)Heard([](const Datagram& said) { return said.asks == 1; });
  Say({.expected = 3, .limit = 9}, "");
  EXPECT_EQ(Heard([](const Datagram& said) { return said.length > 0; }).second, "lo");
  control_.Reset();
}

TEST(UdpRelay, EndsThoughThePeerNeverAnswers) {
  const absl::Time begin = absl::Now();
  auto control = *net::SocketPair();
  {
    UdpRelay relay;
    auto pair = *net::SocketPair();
    net::FileDescriptor datagrams = Bound();
    const net::FileDescriptor silent = Bound();
    ConnectTo(datagrams, silent);
    relay.Add(LinkOf(std::move(pair.second), std::move(control.second), std::move(datagrams)));
    ASSERT_EQ(::send(pair.first.get(), "unheard", 7, 0), 7);
  }
  EXPECT_GE(absl::Now() - begin, absl::Seconds(2)) << "a peer that is slow is waited for";
}

TEST(UdpRelay, EncryptionGoesOverIt) {
  Options options;
  options.share_memory = false;
  options.datagrams = true;
  options.encrypted = true;
  testing::Members members(testing::Kind::kMixed, 3, options);
  const auto meshes = members.OpenAll(1);
  testing::OnEachRank(3, [&](int rank) {
    Mesh& mesh = *meshes[rank];
    EXPECT_TRUE(mesh.Encrypts((rank + 1) % 3));
    EXPECT_TRUE(mesh.SendsDatagrams((rank + 1) % 3));
    const std::vector<std::byte> mine(3'000'000, static_cast<std::byte>(rank));
    std::vector<std::byte> theirs(mine.size());
    const Ticket sent = mesh.PostSend((rank + 1) % 3, {1, 20}, mine);
    EXPECT_EQ(mesh.Receive((rank + 2) % 3, {1, 20}, theirs, Soon()), absl::OkStatus());
    EXPECT_EQ(mesh.Wait(sent, Soon()), absl::OkStatus());
    EXPECT_EQ(theirs, std::vector<std::byte>(mine.size(), static_cast<std::byte>((rank + 2) % 3)));
  });
}

}  // namespace
}  // namespace starling::transport
