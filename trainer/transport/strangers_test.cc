// SPDX-License-Identifier: Apache-2.0
// What somebody who does not know the secret, or speaks nonsense, can do to us: nothing.
#include <poll.h>
#include <sys/socket.h>

#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "common/net/socket.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/testing/transports.h"
#include "trainer/transport/frame.h"
#include "trainer/transport/handshake.h"
#include "trainer/transport/socket_stream.h"
#include "trainer/transport/stream_mesh.h"

namespace starling::transport {
namespace {

using ::starling::transport::testing::Kind;
using ::starling::transport::testing::Members;
using ::starling::transport::testing::OnEachRank;
using ::starling::transport::testing::SendText;
using ::starling::transport::testing::Soon;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr Tag kTag{1, 20};

net::FileDescriptor Dial(Members& members, int index) {
  auto socket = net::Connect(*net::ParseAddress(members[index].address()), Soon());
  EXPECT_EQ(socket.status(), absl::OkStatus());
  return *std::move(socket);
}

void Send(const net::FileDescriptor& socket, std::span<const std::byte> bytes) {
  (void)!::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
}

// What the other side sends before it closes, at most `limit` bytes.
std::string ReadUntilClosed(const net::FileDescriptor& socket, std::size_t limit = 1 << 20) {
  std::string all;
  const net::Deadline deadline = Soon();
  while (all.size() < limit) {
    pollfd poll{socket.get(), POLLIN, 0};
    if (::poll(&poll, 1, deadline.PollTimeout()) != 1) return all + " and stays open";
    char buffer[1000];
    const auto read = ::recv(socket.get(), buffer, std::min(sizeof buffer, limit - all.size()), 0);
    if (read <= 0) return all;
    all.append(buffer, static_cast<std::size_t>(read));
  }
  return all;
}

template <typename Bytes>
Bytes ReadMessage(const net::FileDescriptor& socket) {
  Bytes bytes = {};
  const std::string text = ReadUntilClosed(socket, bytes.size());
  EXPECT_EQ(text.size(), bytes.size());
  std::memcpy(bytes.data(), text.data(), std::min(text.size(), bytes.size()));
  return bytes;
}

HelloBytes AnyHello() {
  Hello hello;
  hello.view = 1;
  hello.dialer = "member-1";
  hello.acceptor = "member-0";
  return Encode(hello);
}

void ExpectThatMembersStillConnect(Members& members) {
  const auto meshes = members.OpenAll(100);
  OnEachRank(members.size(), [&](int rank) {
    const int peer = (rank + 1) % members.size();
    EXPECT_EQ(SendText(*meshes[rank], peer, kTag, "hello", Soon()), absl::OkStatus());
    const int before = (rank + members.size() - 1) % members.size();
    EXPECT_EQ(meshes[rank]->ReceiveMessage(before, kTag, 10, Soon()).value_or(""), "hello");
  });
}

TEST(Strangers, GetNoAnswerToNonsenseOfAnySize) {
  Members members(Kind::kTcp, 2);
  for (const std::size_t size : {kHelloBytes, std::size_t{100'000}}) {
    const auto socket = Dial(members, 0);
    Send(socket, std::vector<std::byte>(size, std::byte{'x'}));
    EXPECT_EQ(ReadUntilClosed(socket), "");
  }
  ExpectThatMembersStillConnect(members);
}

TEST(Strangers, HelloWithoutMemberIsRefused) {
  Members members(Kind::kTcp, 2);
  HelloBytes nameless = AnyHello();
  std::fill(nameless.end() - 2 * kMemberFieldBytes, nameless.end(), std::byte{0});
  HelloBytes unterminated = AnyHello();
  std::fill(unterminated.end() - kMemberFieldBytes, unterminated.end(), std::byte{'m'});
  for (const HelloBytes& hello : {nameless, unterminated}) {
    const auto socket = Dial(members, 0);
    Send(socket, hello);
    EXPECT_EQ(ReadUntilClosed(socket), "");
  }
}

TEST(Strangers, SlowHellosAreCutOffAndNobodyWaitsForThem) {
  Options options;
  options.handshake_timeout = absl::Milliseconds(100);
  Members members(Kind::kTcp, 2, options);
  const auto silent = Dial(members, 0);
  const auto slow = Dial(members, 0);
  const HelloBytes hello = AnyHello();
  Send(slow, std::span(hello).first(10));
  ExpectThatMembersStillConnect(members);
  EXPECT_EQ(ReadUntilClosed(silent), "");
  EXPECT_EQ(ReadUntilClosed(slow), "");
}

TEST(Strangers, CrowdOfSilentOnesKeepsNobodyOut) {
  Options options;
  options.max_half_open = 8;
  options.handshake_timeout = absl::Hours(1);
  options.dial_timeout = absl::Seconds(30);
  Members members(Kind::kTcp, 2, options);
  std::vector<net::FileDescriptor> crowd;
  crowd.reserve(50);
  for (int i = 0; i < 50; ++i) crowd.push_back(Dial(members, 0));
  ExpectThatMembersStillConnect(members);
  EXPECT_EQ(ReadUntilClosed(crowd.front()), "") << "the oldest made room";
}

TEST(Strangers, WrongProofGetsNoVerdict) {
  Members members(Kind::kTcp, 2);
  const auto socket = Dial(members, 0);
  Send(socket, AnyHello());
  (void)ReadMessage<ChallengeBytes>(socket);
  Send(socket, ProofBytes{});
  EXPECT_EQ(ReadUntilClosed(socket), "");
  ExpectThatMembersStillConnect(members);
}

TEST(Strangers, RecordedProofIsWorthNothingAgain) {
  Members members(Kind::kTcp, 2);
  const HelloBytes hello = AnyHello();
  Handshake member(Handshake::Key("secret of the tests", "job-a"), hello);
  const auto first = Dial(members, 0);
  Send(first, hello);
  const auto proof = member.AnswerChallenge(ReadMessage<ChallengeBytes>(first));
  ASSERT_EQ(proof.status(), absl::OkStatus()) << "a member's own proof is good, so this can fail";

  const auto replay = Dial(members, 0);
  Send(replay, hello);
  (void)ReadMessage<ChallengeBytes>(replay);
  Send(replay, *proof);

  EXPECT_EQ(ReadUntilClosed(replay), "");
}

TEST(Strangers, AcceptorsProofSentBackIsNotADialersProof) {
  Members members(Kind::kTcp, 2);
  const auto socket = Dial(members, 0);
  Send(socket, AnyHello());
  const auto challenge = ReadMessage<ChallengeBytes>(socket);
  Send(socket, std::span(challenge).subspan(kNonceBytes));
  EXPECT_EQ(ReadUntilClosed(socket), "");
}

TEST(Handshake, VerdictCannotBeForgedOrChanged) {
  const HelloBytes hello = AnyHello();
  Handshake acceptor("key", hello), dialer("key", hello);
  ASSERT_EQ(dialer.AnswerChallenge(acceptor.MakeChallenge()).status(), absl::OkStatus());
  VerdictBytes verdict = acceptor.MakeVerdict({Answer::kFenced, 7});
  EXPECT_EQ(dialer.ReadVerdict(verdict)->fence, 7);
  verdict[8] = std::byte{200};
  EXPECT_EQ(dialer.ReadVerdict(verdict).status().code(), absl::StatusCode::kUnauthenticated);
}

TEST(Handshake, KeysDifferByJob) {
  EXPECT_NE(Handshake::Key("secret", "a"), Handshake::Key("secret", "b"));
  EXPECT_NE(Handshake::Key("secret", "a"), Handshake::Key("secret2", "a"));
}

// A mesh of two whose other end is the test's bare hands.
struct HalfMesh {
  HalfMesh() {
    auto ends = net::SocketPair();
    EXPECT_EQ(ends.status(), absl::OkStatus());
    other = std::move(ends->second);
    std::vector<std::unique_ptr<Stream>> streams(2);
    streams[1] = std::make_unique<SocketStream>(std::move(ends->first));
    mesh = std::make_unique<StreamMesh>(
        5, std::vector<Peer>{{"member-0", "here"}, {"member-1", "there"}}, 0, std::move(streams),
        Options{}, ledger);
  }
  absl::Status ReceiveAfter(const FrameHeader& header) {
    Send(other, Encode(header));
    std::vector<std::byte> buffer(8);
    return mesh->Receive(1, kTag, buffer, Soon());
  }

  Ledger ledger;
  net::FileDescriptor other;
  std::unique_ptr<StreamMesh> mesh;
};

FrameHeader HeaderOf(std::uint64_t view, std::uint64_t length) {
  FrameHeader header;
  header.channel = kTag.channel;
  header.step = kTag.step;
  header.view = view;
  header.length = length;
  return header;
}

TEST(StreamMesh, RefusesFramesOfAnotherView) {
  HalfMesh half;
  const auto received = half.ReceiveAfter(HeaderOf(4, 8));
  EXPECT_EQ(received.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(received.message(), HasSubstr("frame of view 4"));
}

TEST(StreamMesh, RefusesWhatIsNoFrameAndAllocatesNothingForIt) {
  HalfMesh half;
  FrameHeader header = HeaderOf(5, 8);
  header.magic = 1;
  EXPECT_EQ(half.ReceiveAfter(header).code(), absl::StatusCode::kInternal);
  HalfMesh huge;
  EXPECT_EQ(huge.ReceiveAfter(HeaderOf(5, ~std::uint64_t{0})).code(), absl::StatusCode::kInternal);
}

TEST(StreamMesh, EndWithoutFarewellIsADeathEvenWhileWaitingForNothingFromThatPeer) {
  HalfMesh half;
  half.other.Reset();
  std::vector<std::byte> large(64 << 20);
  const auto sent = half.mesh->Send(1, kTag, large, Soon());
  EXPECT_EQ(sent.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(UnreachableRanks(sent), ElementsAre(1));
}

TEST(StreamMesh, DeathInTheMiddleOfAFrameIsSeen) {
  HalfMesh half;
  Send(half.other, Encode(HeaderOf(5, 8)));
  Send(half.other, std::vector<std::byte>(3));
  half.other.Reset();
  std::vector<std::byte> buffer(8);
  const auto received = half.mesh->Receive(1, kTag, buffer, Soon());
  EXPECT_EQ(received.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(received.message(), HasSubstr("without a farewell"));
}

TEST(StreamMesh, BlameOfUsIsReadAsThePeerBeingOutOfReach) {
  HalfMesh half;
  FrameHeader farewell = HeaderOf(5, 0);
  farewell.channel = kFarewellChannel;
  farewell.step = kBlaming + 0;
  EXPECT_THAT(UnreachableRanks(half.ReceiveAfter(farewell)), ElementsAre(1));
}

}  // namespace
}  // namespace starling::transport
