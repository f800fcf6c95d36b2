// SPDX-License-Identifier: Apache-2.0
// What somebody on the way between members of an encrypted job can hear and do; and, that these
// checks can fail, what they can where links are not encrypted.
#include <atomic>
#include <cstring>
#include <string>
#include <vector>

#include "common/tls/channel.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/testing/middleman.h"
#include "trainer/testing/transports.h"
#include "trainer/transport/encrypted_stream.h"
#include "trainer/transport/frame.h"
#include "trainer/transport/socket_stream.h"

namespace starling::transport {
namespace {

using ::starling::transport::testing::Kind;
using ::starling::transport::testing::KindName;
using ::starling::transport::testing::Members;
using ::starling::transport::testing::Middleman;
using ::starling::transport::testing::OnEachRank;
using ::starling::transport::testing::SendText;
using ::starling::transport::testing::Soon;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr Tag kTag{1, 20};

using Opened = std::vector<absl::StatusOr<std::unique_ptr<Mesh>>>;

// View 1 of all, in which those of `led` reach rank 0 through the middleman only. Rank 0 alone
// waits no longer than `deadline`: what it does then the others feel.
Opened OpenThrough(Members& members, const Middleman& middleman, net::Deadline deadline = Soon(),
                   const std::vector<int>& led = {1}) {
  Opened opened(static_cast<std::size_t>(members.size()));
  OnEachRank(members.size(), [&](int rank) {
    std::vector<Peer> view = members.peers();
    if (std::count(led.begin(), led.end(), rank) > 0) view[0].address = middleman.address();
    opened[static_cast<std::size_t>(rank)] =
        members[rank].Open(1, view, rank, rank == 0 ? deadline : Soon(), nullptr);
  });
  return opened;
}

void ExpectThatAllStillConnect(Members& members) {
  const auto meshes = members.OpenAll(100);
  OnEachRank(members.size(), [&](int rank) {
    const int peer = (rank + 1) % members.size();
    const int before = (rank + members.size() - 1) % members.size();
    EXPECT_EQ(SendText(*meshes[rank], peer, kTag, "hello", Soon()), absl::OkStatus());
    EXPECT_EQ(meshes[rank]->ReceiveMessage(before, kTag, 10, Soon()).value_or(""), "hello");
  });
}

class OnTheWay : public ::testing::TestWithParam<Kind> {
 protected:
  static bool Encrypted() { return GetParam() == Kind::kEncrypted; }
};

INSTANTIATE_TEST_SUITE_P(Kinds, OnTheWay, ::testing::Values(Kind::kTcp, Kind::kEncrypted),
                         [](const auto& kind) { return KindName(kind.param); });

TEST_P(OnTheWay, GradientsCanBeHeardOnlyWhereLinksAreNotEncrypted) {
  Members members(GetParam(), 2);
  const Middleman middleman(members[0].address());
  const Opened meshes = OpenThrough(members, middleman);
  std::vector<float> gradient(100'000);
  for (std::size_t i = 0; i < gradient.size(); ++i) gradient[i] = 1.5F + static_cast<float>(i);
  OnEachRank(2, [&](int rank) {
    ASSERT_TRUE(meshes[rank].ok()) << meshes[rank].status();
    std::vector<float> theirs(gradient.size());
    const auto mine = std::as_bytes(std::span(gradient));
    (void)(*meshes[rank])->PostSend(1 - rank, kTag, mine);
    EXPECT_EQ(
        (*meshes[rank])->Receive(1 - rank, kTag, std::as_writable_bytes(std::span(theirs)), Soon()),
        absl::OkStatus());
    EXPECT_EQ((*meshes[rank])->WaitAll(Soon()), absl::OkStatus());
    EXPECT_EQ(theirs, gradient);
    EXPECT_EQ((*meshes[rank])->Encrypts(1 - rank), Encrypted());
  });
  const std::string heard = middleman.Heard();
  EXPECT_GE(heard.size(), 2 * gradient.size() * sizeof(float)) << "all of it went that way";
  const std::string pattern(reinterpret_cast<const char*>(&gradient[1234]), 4 * sizeof(float));
  EXPECT_EQ(heard.find(pattern) == std::string::npos, Encrypted());
  const std::uint32_t magic = FrameHeader::kMagic;
  const std::string header(reinterpret_cast<const char*>(&magic), sizeof magic);
  EXPECT_EQ(heard.find(header + std::string(1, char{20})) == std::string::npos, Encrypted());
}

TEST_P(OnTheWay, ChangedByteEndsAnEncryptedLinkAndPoisonsAnother) {
  Members members(GetParam(), 2);
  std::atomic<bool> armed{false};
  const Middleman middleman(members[0].address(), [&](bool from_dialer, std::string bytes) {
    if (from_dialer && bytes.size() > 2000 && armed.exchange(false)) bytes[bytes.size() / 2] ^= 1;
    return bytes;
  });
  const Opened meshes = OpenThrough(members, middleman);
  ASSERT_TRUE(meshes[0].ok() && meshes[1].ok());
  armed = true;
  const std::vector<std::byte> sent(50'000, std::byte{7});
  std::vector<std::byte> received(sent.size());
  std::thread sender([&] { (void)(*meshes[1])->Send(0, kTag, sent, Soon()); });
  const absl::Status status = (*meshes[0])->Receive(1, kTag, received, Soon());
  sender.join();
  if (!Encrypted()) {
    EXPECT_EQ(status, absl::OkStatus());
    EXPECT_NE(received, sent);
    return;
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
  EXPECT_THAT(status.message(), HasSubstr("rank 1 (member-1"));
  EXPECT_THAT(status.message(), HasSubstr("the encrypted connection is broken: "));
  EXPECT_THAT(UnreachableRanks(status), ElementsAre(1));
  ExpectThatAllStillConnect(members);
}

TEST_P(OnTheWay, RepeatedBytesEndAnEncryptedLinkAndAreBelievedByAnother) {
  Members members(GetParam(), 2);
  std::atomic<bool> armed{false};
  const Middleman middleman(members[0].address(), [&](bool from_dialer, std::string bytes) {
    return from_dialer && armed ? bytes + bytes : bytes;
  });
  const Opened meshes = OpenThrough(members, middleman);
  ASSERT_TRUE(meshes[0].ok() && meshes[1].ok());
  armed = true;
  ASSERT_EQ(SendText(**meshes[1], 0, kTag, "add five", Soon()), absl::OkStatus());
  EXPECT_EQ((*meshes[0])->ReceiveMessage(1, kTag, 10, Soon()).value_or(""), "add five");
  const auto again = (*meshes[0])->ReceiveMessage(1, kTag, 10, Soon());
  EXPECT_EQ(again.value_or("an error"), Encrypted() ? "an error" : "add five");
  if (Encrypted()) {
    EXPECT_EQ(again.status().code(), absl::StatusCode::kInternal);
  }
}

TEST_P(OnTheWay, EndsOfTwoLinksCanBeCrossedOnlyWhereTheyAreNotEncrypted) {
  Members members(GetParam(), 3);
  const Middleman middleman(members[0].address(), Middleman::Pass, /*cross=*/true);
  const Opened meshes = OpenThrough(members, middleman, Soon(), {1, 2});
  if (Encrypted()) {
    EXPECT_EQ(meshes[0].status().code(), absl::StatusCode::kUnauthenticated) << meshes[0].status();
    ExpectThatAllStillConnect(members);
    return;
  }
  OnEachRank(3, [&](int rank) {
    ASSERT_TRUE(meshes[rank].ok()) << meshes[rank].status();
    if (rank > 0) {
      const std::string mine = absl::StrCat("from ", rank);
      EXPECT_EQ(SendText(**meshes[rank], 0, kTag, mine, Soon()), absl::OkStatus());
      return;
    }
    EXPECT_EQ((*meshes[0])->ReceiveMessage(1, kTag, 10, Soon()).value_or(""), "from 2");
    EXPECT_EQ((*meshes[0])->ReceiveMessage(2, kTag, 10, Soon()).value_or(""), "from 1");
  });
}

// --- TLS's own handshake.

TEST(EncryptedHandshake, PeerThatStallsInItCostsTheDeadlineAndIsNamed) {
  for (const bool silent_dialer : {true, false}) {
    Members members(Kind::kEncrypted, 3);
    const Middleman middleman(members[0].address(), [&](bool from_dialer, std::string bytes) {
      return from_dialer == silent_dialer ? std::string() : bytes;
    });
    const Opened meshes =
        OpenThrough(members, middleman, net::Deadline::After(absl::Milliseconds(200)));
    EXPECT_EQ(meshes[0].status().code(), absl::StatusCode::kDeadlineExceeded);
    EXPECT_THAT(UnreachableRanks(meshes[0].status()), ElementsAre(1)) << meshes[0].status();
    EXPECT_THAT(UnreachableRanks(meshes[1].status()), ElementsAre(0)) << meshes[1].status();
    EXPECT_EQ(meshes[2].status(), absl::OkStatus()) << "it has no part in it";
    ExpectThatAllStillConnect(members);
  }
}

TEST(EncryptedHandshake, ThatIsCutShortIsAnErrorAtBothEndsThatNamesTheOther) {
  for (const bool cut_dialer : {true, false}) {
    for (const std::size_t size : {0, 1, 5, 100, 200}) {
      Members these(Kind::kEncrypted, 2);
      std::size_t left = size;
      const Middleman middleman(
          these[0].address(),
          [&](bool from_dialer, std::string bytes) -> std::optional<std::string> {
            if (from_dialer != cut_dialer) return bytes;
            if (left == 0) return std::nullopt;
            bytes.resize(std::min(left, bytes.size()));
            left -= bytes.size();
            return bytes;
          });
      const Opened meshes =
          OpenThrough(these, middleman, net::Deadline::After(absl::Milliseconds(100)));
      for (const int rank : {0, 1}) {
        EXPECT_FALSE(meshes[rank].ok()) << size;
        EXPECT_THAT(UnreachableRanks(meshes[rank].status()), ElementsAre(1 - rank))
            << meshes[rank].status();
      }
    }
  }
}

TEST(EncryptedHandshake, NonsenseInItIsRefusedByName) {
  for (const bool lying_dialer : {true, false}) {
    Members members(Kind::kEncrypted, 2);
    const Middleman middleman(members[0].address(), [&](bool from_dialer, std::string bytes) {
      return from_dialer == lying_dialer ? std::string(bytes.size(), 'x') : bytes;
    });
    const Opened meshes = OpenThrough(members, middleman);
    const int deceived = lying_dialer ? 0 : 1;
    EXPECT_EQ(meshes[deceived].status().code(), absl::StatusCode::kUnauthenticated);
    EXPECT_THAT(meshes[deceived].status().message(), HasSubstr("the TLS handshake failed: "));
    EXPECT_FALSE(meshes[1 - deceived].ok());
    ExpectThatAllStillConnect(members);
  }
}

TEST(EncryptedHandshake, MembersOfWhichOneDoesNotEncryptRefuseEachOtherByName) {
  Members members(Kind::kTcp, 1);
  Options options;
  options.member = "encrypted";
  options.encrypted = true;
  const int encrypted = members.Add(options);
  const auto dial = [&](int dialer, int acceptor) {
    const std::vector<Peer> view = {members.peers()[acceptor], members.peers()[dialer]};
    const absl::Status status = members[dialer].Open(1, view, 1, Soon(), nullptr).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    EXPECT_THAT(UnreachableRanks(status), ElementsAre(0));
    return std::string(status.message());
  };
  EXPECT_THAT(dial(0, encrypted), HasSubstr("its links are encrypted, this member's are not"));
  EXPECT_THAT(dial(encrypted, 0), HasSubstr("its links are not encrypted, this member's are"));
  // With one that is as it is, each opens the view that it was refused.
  options.member = "encrypted too";
  options.member[9] = '-';
  const int other = members.Add(options);
  const std::vector<Peer> view = {members.peers()[encrypted], members.peers()[other]};
  OnEachRank(2, [&](int rank) {
    EXPECT_EQ(members[rank == 0 ? encrypted : other].Open(2, view, rank, Soon(), nullptr).status(),
              absl::OkStatus());
  });
}

TEST(EncryptedHandshake, MembersOfOneMachineShareMemoryAndDifferAllTheSame) {
  Members members(Kind::kMixed, 0);
  const auto add = [&](const char* name, bool encrypted) {
    Options options;
    options.member = name;
    options.encrypted = encrypted;
    return members.Add(options);
  };
  const int one = add("one", true), two = add("two", true), plain = add("plain", false);
  const std::vector<Peer> mixed = {members.peers()[one], members.peers()[plain]};
  EXPECT_EQ(members[plain].Open(1, mixed, 1, Soon(), nullptr).status().code(),
            absl::StatusCode::kFailedPrecondition);
  const std::vector<Peer> view = {members.peers()[one], members.peers()[two]};
  OnEachRank(2, [&](int rank) {
    const auto mesh = members[rank == 0 ? one : two].Open(2, view, rank, Soon(), nullptr);
    ASSERT_TRUE(mesh.ok()) << mesh.status();
    EXPECT_TRUE((*mesh)->SharesMemory(1 - rank));
    EXPECT_FALSE((*mesh)->Encrypts(1 - rank)) << "it does not leave the machine";
  });
}

TEST(Handshake, LinkKeysBelongToOneConnection) {
  Hello hello;
  hello.dialer = "a";
  hello.acceptor = "b";
  Handshake acceptor("key", Encode(hello)), dialer("key", Encode(hello));
  ASSERT_TRUE(dialer.AnswerChallenge(acceptor.MakeChallenge()).ok());
  EXPECT_EQ(dialer.LinkKey(), acceptor.LinkKey());
  EXPECT_EQ(dialer.LinkKey().size(), 32U);
  const std::string before = acceptor.LinkKey();
  (void)acceptor.MakeChallenge();
  EXPECT_NE(acceptor.LinkKey(), before) << "each challenge is new";
}

TEST(Handshake, HelloSaysWhetherItsLinkIsEncrypted) {
  Hello hello;
  hello.dialer = "a";
  hello.acceptor = "b";
  for (const bool encrypted : {false, true}) {
    hello.encrypted = encrypted;
    EXPECT_EQ(DecodeHello(Encode(hello))->encrypted, encrypted);
  }
}

TEST(EncryptedHandshake, MembersThatAreToldNotToShareMemoryEncryptOnOneMachineToo) {
  Options options;
  options.encrypted = true;
  options.share_memory = *ParseShareMemory("0");
  Members members(Kind::kMixed, 2, options);
  const auto meshes = members.OpenAll(1);
  EXPECT_FALSE(meshes[0]->SharesMemory(1));
  EXPECT_TRUE(meshes[0]->Encrypts(1));
  EXPECT_TRUE(*ParseShareMemory(""));
  for (const char* bad : {"1", "no", " ", "00"}) {
    const absl::Status status = ParseShareMemory(bad).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << bad;
    EXPECT_THAT(status.message(), HasSubstr("STARLING_SHARED_MEMORY")) << bad;
  }
}

// --- The stream.

struct StreamPair {
  StreamPair() {
    auto ends = net::SocketPair();
    EXPECT_EQ(ends.status(), absl::OkStatus());
    const tls::Channels channels;
    const std::string key(32, 'k');
    ours = std::make_unique<EncryptedStream>(std::make_unique<SocketStream>(std::move(ends->first)),
                                             channels.Make(tls::Channel::Side::kClient, key));
    theirs =
        std::make_unique<EncryptedStream>(std::make_unique<SocketStream>(std::move(ends->second)),
                                          channels.Make(tls::Channel::Side::kServer, key));
    bool one = false, other = false;
    for (int turn = 0; turn < 5; ++turn) {
      one = ours->Shake().value_or(false);
      other = theirs->Shake().value_or(false);
    }
    EXPECT_TRUE(one && other);
  }

  // Writes `data` until no more leaves; how much counted as written.
  std::size_t Fill(std::span<std::byte> data) {
    std::size_t written = 0;
    while (written < data.size()) {
      const iovec piece{data.data() + written, data.size() - written};
      const auto part = ours->Write(std::span(&piece, 1));
      EXPECT_EQ(part.status(), absl::OkStatus());
      if (*part == 0) break;
      written += *part;
    }
    return written;
  }
  // All that can be read.
  std::string ReadAll(absl::Status& ended) {
    std::string all;
    std::string part(10'000, '\0');
    while (true) {
      const iovec piece{part.data(), part.size()};
      const auto read = theirs->Read(std::span(&piece, 1));
      ended = read.status();
      if (!read.ok() || *read == 0) return all;
      all.append(part, 0, *read);
    }
  }

  std::unique_ptr<EncryptedStream> ours, theirs;
};

TEST(EncryptedStream, WhatCountsAsWrittenNeedsNoFurtherCallToArrive) {
  StreamPair pair;
  std::vector<std::byte> data(10 << 20);
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::byte>(i * 31 + i / 255);
  const std::string expected(reinterpret_cast<const char*>(data.data()), data.size());
  std::string read;
  std::size_t written = 0;
  int waits = 0;
  while (written < data.size()) {
    written += pair.Fill(std::span(data).subspan(written));
    if (written < data.size()) {
      ++waits;
      EXPECT_NE(pair.ours->Await({.output = true}).events & POLLOUT, 0);
    }
    absl::Status ended;
    read += pair.ReadAll(ended);
    EXPECT_EQ(ended, absl::OkStatus());
    EXPECT_GE(read.size(), written);
  }
  EXPECT_GT(waits, 0) << "the socket was full at least once";
  EXPECT_TRUE(read == expected);
}

TEST(EncryptedStream, FarewellBehindHalfABatchIsNotSaidAndAfterAWholeOneItIs) {
  for (const bool half : {true, false}) {
    StreamPair pair;
    std::vector<std::byte> data(half ? 10 << 20 : 1000, std::byte{'d'});
    const std::vector<std::byte> farewell(40, std::byte{'f'});
    const std::size_t written = pair.Fill(data);
    EXPECT_EQ(written < data.size(), half);
    pair.ours->Finish(farewell, /*orderly=*/false);
    absl::Status ended;
    const std::string read = pair.ReadAll(ended);
    EXPECT_EQ(ended.code(), absl::StatusCode::kUnavailable) << ended;
    EXPECT_GE(read.size(), written);
    EXPECT_EQ(read.find('f') == std::string::npos, half);
  }
}

TEST(EncryptedStream, AddsToTheLedgerWhatItsRecordsAdd) {
  StreamPair pair;
  std::vector<std::byte> data(3 * tls::Channel::kRecordBytes + 1);
  ASSERT_EQ(pair.Fill(data), data.size());
  absl::Status ended;
  EXPECT_EQ(pair.ReadAll(ended).size(), data.size());
  EXPECT_EQ(pair.ours->TakeOverhead().sent, 4 * tls::Channel::kOverheadBytes);
  EXPECT_EQ(pair.theirs->TakeOverhead().received, 4 * tls::Channel::kOverheadBytes);
  EXPECT_EQ(pair.ours->TakeOverhead().sent, 0U) << "each is told once";
}

}  // namespace
}  // namespace starling::transport
