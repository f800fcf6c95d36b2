// SPDX-License-Identifier: Apache-2.0
// What somebody who does not know the secret, or speaks nonsense, can do to us: nothing.
#include <poll.h>
#include <sys/socket.h>

#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/cord.h"
#include "common/net/socket.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/testing/transports.h"
#include "trainer/transport/frame.h"
#include "trainer/transport/handshake.h"
#include "trainer/transport/socket_stream.h"
#include "trainer/transport/stream_mesh.h"
#include "trainer/transport/stream_transport.h"

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

TEST(Handshake, HelloReadsAsItWasWrittenAndNamesTwoMembers) {
  Hello hello;
  hello.view = 0x0102030405060708;
  hello.network = 0x1112131415161718;
  hello.nonce.fill(std::byte{9});
  hello.dialer = std::string(kMaxMemberIdBytes, 'd');
  hello.acceptor = "a";
  const HelloBytes good = Encode(hello);
  const auto read = DecodeHello(good);
  ASSERT_EQ(read.status(), absl::OkStatus());
  EXPECT_EQ(read->view, hello.view);
  EXPECT_EQ(read->network, hello.network);
  EXPECT_EQ(read->nonce, hello.nonce);
  EXPECT_EQ(read->dialer, hello.dialer);
  EXPECT_EQ(read->acceptor, hello.acceptor);
  constexpr std::size_t kDialer = 8 + 8 + 8 + kNonceBytes, kAcceptor = kDialer + kMemberFieldBytes;
  const std::pair<std::size_t, char> changes[] = {{0, 'x'},               // another magic
                                                  {7, '1'},               // or version
                                                  {kAcceptor, 0},         // nobody
                                                  {kDialer, ' '},         // not printable
                                                  {kDialer + 5, '\x7f'},  // not printable
                                                  {kDialer + kMaxMemberIdBytes, 'd'},  // too long
                                                  {kAcceptor + 5, 'x'},  // something behind its end
                                                  {kAcceptor + kMemberFieldBytes - 1, 'x'}};
  for (const auto& [at, value] : changes) {
    HelloBytes bad = good;
    bad[at] = static_cast<std::byte>(value);
    EXPECT_EQ(DecodeHello(bad).status().code(), absl::StatusCode::kInvalidArgument) << at;
  }
  HelloBytes others = good;
  others[kDialer] = std::byte{'!'};
  others[kDialer + 1] = std::byte{'~'};
  EXPECT_EQ(DecodeHello(others)->dialer.substr(0, 2), "!~");
}

TEST(Handshake, DialerBelievesOnlyWhoKnowsTheKeyAndWasTalkedTo) {
  const HelloBytes hello = AnyHello();
  HelloBytes other = hello;
  other[8] = std::byte{77};
  Handshake acceptor("key", hello), stranger("another", hello), elsewhere("key", other);
  for (Handshake* wrong : {&stranger, &elsewhere}) {
    Handshake dialer("key", hello);
    EXPECT_EQ(dialer.AnswerChallenge(wrong->MakeChallenge()).status().code(),
              absl::StatusCode::kUnauthenticated);
  }
  Handshake dialer("key", hello);
  const auto proof = dialer.AnswerChallenge(acceptor.MakeChallenge());
  ASSERT_EQ(proof.status(), absl::OkStatus());
  EXPECT_TRUE(acceptor.CheckProof(*proof));
  (void)acceptor.MakeChallenge();
  EXPECT_FALSE(acceptor.CheckProof(*proof)) << "each challenge is new";
  EXPECT_EQ(dialer.ReadVerdict(acceptor.MakeVerdict({Answer::kBusy, 3})).status().code(),
            absl::StatusCode::kUnauthenticated);
}

TEST(Ledger, CountsEachDirectionOfEachMemberAndAllOfThem) {
  Ledger ledger;
  ledger.Counter("a")->Sent(1, 2);
  ledger.Counter("a")->Received(3, 4);
  ledger.Counter("b")->Sent(10, 20);
  ledger.Counter("b")->Received(30, 40);
  ledger.Counter("b")->Sent(100, 200);
  EXPECT_EQ(ledger.Read().at("a"), (Traffic{1, 2, 3, 4}));
  EXPECT_EQ(ledger.Read().at("b"), (Traffic{110, 220, 30, 40}));
  EXPECT_EQ(ledger.Total(), (Traffic{111, 222, 33, 44}));
}

TEST(UnreachableRanks, TravelInsideTheStatus) {
  const absl::Status plain = absl::UnavailableError("gone");
  EXPECT_THAT(UnreachableRanks(plain), ElementsAre());
  EXPECT_EQ(WithUnreachableRanks(plain, {}), plain);
  EXPECT_THAT(UnreachableRanks(WithUnreachableRanks(plain, {3, 0, 12})), ElementsAre(3, 0, 12));
  EXPECT_THAT(UnreachableRanks(WithUnreachableRanks(absl::OkStatus(), {3})), ElementsAre());
  absl::Status strange = plain;
  strange.SetPayload("starling.dev/unreachable-ranks", absl::Cord("x,4,,5"));
  EXPECT_THAT(UnreachableRanks(strange), ElementsAre(4, 5));
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

FrameHeader Farewell(std::uint64_t why) {
  FrameHeader farewell = HeaderOf(5, 0);
  farewell.channel = kFarewellChannel;
  farewell.step = why;
  return farewell;
}

TEST(StreamMesh, FarewellsAreReadAsTheyAreMeant) {
  {
    HalfMesh half;
    const absl::Status ended = half.ReceiveAfter(Farewell(kOrderly));
    EXPECT_EQ(ended.code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(ended.message(), HasSubstr("has left view 5"));
  }
  {
    HalfMesh half;
    const absl::Status ended = half.ReceiveAfter(Farewell(kAborted));
    EXPECT_THAT(ended.message(), HasSubstr("gave up"));
    EXPECT_THAT(UnreachableRanks(ended), ElementsAre()) << "it halts, and can be reached";
  }
  HalfMesh half;
  const absl::Status ended = half.ReceiveAfter(Farewell(kBlaming + 7));
  EXPECT_THAT(ended.message(), HasSubstr("it lost rank 7"));
  EXPECT_THAT(UnreachableRanks(ended), ElementsAre(1)) << "this view has no such rank";
}

TEST(StreamMesh, FarewellAndFramesBeforeItAreToldByWhatIsOnTheWire) {
  HalfMesh half;
  const std::vector<std::byte> sent(3, std::byte{'x'});
  ASSERT_EQ(half.mesh->Send(1, kTag, sent, Soon()), absl::OkStatus());
  half.mesh.reset();
  const std::string all = ReadUntilClosed(half.other);
  ASSERT_EQ(all.size(), 2 * kHeaderBytes + 3);
  const auto header = [&](std::size_t at) {
    return DecodeHeader(reinterpret_cast<const std::byte*>(all.data()) + at);
  };
  EXPECT_EQ(header(0).magic, FrameHeader::kMagic);
  EXPECT_EQ(header(0).view, 5U);
  EXPECT_EQ(header(0).step, kTag.step);
  EXPECT_EQ(header(0).channel, kTag.channel);
  EXPECT_EQ(header(0).length, 3U);
  EXPECT_EQ(header(0).departed, 0);
  EXPECT_EQ(all.substr(kHeaderBytes, 3), "xxx");
  EXPECT_EQ(header(kHeaderBytes + 3).channel, kFarewellChannel);
  EXPECT_EQ(header(kHeaderBytes + 3).view, 5U);
  EXPECT_EQ(header(kHeaderBytes + 3).step, kOrderly);
  EXPECT_EQ(header(kHeaderBytes + 3).length, 0U);
}

TEST(StreamMesh, CancelSaysThatItHaltsAndAPendingTransferSaysNothing) {
  {
    HalfMesh half;
    half.mesh->Cancel(absl::AbortedError("halt"));
    const std::string all = ReadUntilClosed(half.other);
    ASSERT_EQ(all.size(), kHeaderBytes);
    EXPECT_EQ(DecodeHeader(reinterpret_cast<const std::byte*>(all.data())).step, kAborted);
  }
  HalfMesh half;
  std::vector<std::byte> never(3);
  (void)half.mesh->PostReceive(1, kTag, never);
  half.mesh.reset();
  EXPECT_EQ(ReadUntilClosed(half.other), "");
}

TEST(StreamMesh, FrameOfTheLongestLengthIsOneAndALongerOneIsNone) {
  for (const std::uint64_t more : {0, 1}) {
    HalfMesh half;
    const absl::Status received = half.ReceiveAfter(HeaderOf(5, kMaxPayloadBytes + more));
    EXPECT_THAT(received.message(), HasSubstr(more == 0 ? "disagree" : "are no frame"));
  }
}

TEST(Options, WhatATransportCannotWorkWithIsRefusedByName) {
  Options good;
  good.member = std::string(kMaxMemberIdBytes, 'm');
  good.secret = "secret";
  good.max_half_open = 1;
  good.max_parked = 1;
  EXPECT_EQ(CheckOptions(good), absl::OkStatus());
  const auto refused = [&](auto change, const char* why) {
    Options bad = good;
    change(bad);
    const absl::Status status = CheckOptions(bad);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << why;
    EXPECT_THAT(status.message(), HasSubstr(why));
  };
  refused([](Options& options) { options.member = ""; }, "member id");
  refused([](Options& options) { options.member += "m"; }, "1 to 120");
  refused([](Options& options) { options.member[3] = ' '; }, "without spaces");
  refused([](Options& options) { options.member[3] = '\x7f'; }, "printable");
  refused([](Options& options) { options.secret = ""; }, "secret is empty");
  refused([](Options& options) { options.max_half_open = 0; }, "at least one");
  refused([](Options& options) { options.max_parked = 0; }, "at least one");
}

}  // namespace
}  // namespace starling::transport
