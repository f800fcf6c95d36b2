// SPDX-License-Identifier: Apache-2.0
// Pods' addresses may be of IPv6: the transports that dial them do so there too.
#include <array>
#include <cstddef>
#include <memory>
#include <vector>

#include "common/net/socket.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/testing/transports.h"

namespace starling::transport {
namespace {

using ::starling::transport::testing::OnEachRank;
using ::starling::transport::testing::Soon;
using ::testing::StartsWith;

using Open = absl::StatusOr<std::unique_ptr<Transport>> (*)(const net::Address&, Options);

void ExpectBytesToPassBothWays(Open open) {
  const net::Address address{"::1", 0};
  if (!net::Listen(address).ok()) GTEST_SKIP() << "this machine has no address ::1";
  std::vector<std::unique_ptr<Transport>> transports;
  std::vector<Peer> peers;
  for (const char* name : {"member-0", "member-1"}) {
    Options options;
    options.job = "job-a";
    options.secret = "secret of the tests";
    options.member = name;
    auto transport = open(address, options);
    ASSERT_TRUE(transport.ok()) << transport.status();
    EXPECT_THAT((*transport)->address(), StartsWith("[::1]:"));
    peers.push_back({name, (*transport)->address()});
    transports.push_back(*std::move(transport));
  }
  OnEachRank(2, [&](int rank) {
    const auto mesh = transports[rank]->Open(1, peers, rank, Soon(), nullptr);
    ASSERT_TRUE(mesh.ok()) << mesh.status();
    const std::array<std::byte, 3> mine = {std::byte(rank), std::byte(2), std::byte(3)};
    std::array<std::byte, 3> theirs{};
    const Tag tag{1, 20};
    const Ticket sent = (*mesh)->PostSend(1 - rank, tag, mine);
    EXPECT_EQ((*mesh)->Receive(1 - rank, tag, theirs, Soon()), absl::OkStatus());
    EXPECT_EQ((*mesh)->Wait(sent, Soon()), absl::OkStatus());
    EXPECT_EQ(theirs[0], std::byte(1 - rank));
  });
}

TEST(IPv6, TcpCarriesBytesOverTheLoopback) { ExpectBytesToPassBothWays(OpenTcpTransport); }

TEST(IPv6, MixedCarriesBytesBetweenPodsOfOneNode) { ExpectBytesToPassBothWays(OpenMixedTransport); }

}  // namespace
}  // namespace starling::transport
