// SPDX-License-Identifier: Apache-2.0
// One link over a stream whose other end the test plays.
#include "trainer/transport/link.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace starling::transport {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::SizeIs;

constexpr std::uint64_t kView = 7;
constexpr std::int64_t kMillisecond = 1'000'000;
constexpr Tag kFirst{1, 20};
constexpr Tag kSecond{1, 21};
constexpr Tag kThird{1, 22};

struct Peer {
  std::string wrote = {};  // what can be read, so much at once
  std::size_t at_once = 1 << 20;
  absl::Status end = {};  // of what it wrote; OK: nothing more now
  std::string got = {};
  std::size_t takes = 1 << 20;  // in one write
  absl::Status gone = {};       // what a write says
  Overhead overhead = {};       // of the next write or read
  bool hangup_told = false;
  bool closed = false;
  std::string last = {};
  bool orderly = false;
  int reads_in_vain = 0;
};

class PlayedStream : public Stream {
 public:
  explicit PlayedStream(Peer& peer) : peer_(peer) {}

  absl::StatusOr<std::size_t> Write(std::span<const iovec> pieces) override {
    if (!peer_.gone.ok()) return peer_.gone;
    std::size_t written = 0;
    for (const iovec& piece : pieces) {
      const std::size_t part = std::min(piece.iov_len, peer_.takes - written);
      peer_.got.append(static_cast<const char*>(piece.iov_base), part);
      written += part;
    }
    return written;
  }

  absl::StatusOr<std::size_t> Read(std::span<const iovec> pieces) override {
    if (peer_.wrote.empty() && !peer_.end.ok()) return peer_.end;
    std::size_t read = 0;
    for (const iovec& piece : pieces) {
      const std::size_t part =
          std::min({piece.iov_len, peer_.at_once - read, peer_.wrote.size() - read});
      std::copy_n(peer_.wrote.data() + read, part, static_cast<char*>(piece.iov_base));
      read += part;
    }
    peer_.wrote.erase(0, read);
    if (read == 0 && ++peer_.reads_in_vain > 100) return absl::InternalError("reads for ever");
    return read;
  }

  Attention Await(const Interest& /*interest*/) override { return {}; }
  void OnWoken(short /*events*/) override {}
  void OnHangup() override { peer_.hangup_told = true; }
  void Finish(std::span<const std::byte> last, bool orderly) override {
    peer_.closed = true;
    peer_.last.assign(reinterpret_cast<const char*>(last.data()), last.size());
    peer_.orderly = orderly;
  }
  int fd() const override { return -1; }
  bool shares_cores() const override { return false; }
  Overhead TakeOverhead() override { return std::exchange(peer_.overhead, {}); }

 private:
  Peer& peer_;
};

class Owner : public LinkOwner {
 public:
  void OnSent(Ticket ticket) override { sent.push_back(ticket); }
  void OnReceived(Ticket ticket, std::int64_t ready) override {
    received.emplace_back(ticket, ready);
  }

  std::vector<Ticket> sent;
  std::vector<std::pair<Ticket, std::int64_t>> received;  // and when it is ready
};

std::string Text(const FrameHeader& header) {
  const auto bytes = Encode(header);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string Frame(Tag tag, std::string_view payload, std::int64_t departed = 0) {
  FrameHeader header;
  header.channel = tag.channel;
  header.view = kView;
  header.step = tag.step;
  header.length = payload.size();
  header.departed = departed;
  return Text(header) + std::string(payload);
}

std::string Farewell(std::uint64_t reason) { return Frame({reason, kFarewellChannel}, ""); }

std::span<const std::byte> Bytes(std::string_view text) { return std::as_bytes(std::span(text)); }
std::span<std::byte> Into(std::string& text) { return std::as_writable_bytes(std::span(text)); }

class LinkTest : public ::testing::Test {
 protected:
  LinkTest() { owner_.early_allowance = 1000; }

  // From now on frames go through an emulated network.
  void Emulate(const Shaping& shaping) {
    owner_.shaper = Shaper(shaping);
    link_ = NewLink(Wire());
  }

  std::unique_ptr<Link> NewLink(std::optional<Wire> wire = std::nullopt) {
    return std::make_unique<Link>(std::make_unique<PlayedStream>(peer_), kView, "rank 2 (member b)",
                                  wire, owner_, counter_, total_);
  }

  // Until no more moves.
  void ReadAll() {
    for (bool moved = true; moved;) {
      const auto read = link_->Read();
      ASSERT_EQ(read.status(), absl::OkStatus());
      moved = *read;
    }
  }

  void ExpectTraffic(const Traffic& traffic) {
    EXPECT_EQ(counter_.Read(), traffic) << "of the peer";
    EXPECT_EQ(total_->Read(), traffic) << "of the transport";
  }

  Peer peer_;
  Owner owner_;
  TrafficCounter counter_;
  std::shared_ptr<TrafficCounter> total_ = std::make_shared<TrafficCounter>();
  std::unique_ptr<Link> link_ = NewLink();
};

TEST_F(LinkTest, SendsOneFrameBehindTheOther) {
  link_->PostSend(1, kFirst, Bytes("one"));
  link_->PostSend(2, kSecond, Bytes(""));
  EXPECT_THAT(owner_.sent, IsEmpty());
  EXPECT_EQ(*link_->Write(), true);
  EXPECT_EQ(peer_.got, Frame(kFirst, "one") + Frame(kSecond, ""));
  EXPECT_THAT(owner_.sent, ElementsAre(1, 2));
  EXPECT_FALSE(link_->WantsWrite());
}

TEST_F(LinkTest, GoesOnWhereAWriteHasStopped) {
  peer_.takes = 7;
  link_->PostSend(1, kFirst, Bytes("the first"));
  link_->PostSend(2, kSecond, Bytes("the second"));
  while (link_->WantsWrite()) ASSERT_EQ(*link_->Write(), true);
  EXPECT_EQ(peer_.got, Frame(kFirst, "the first") + Frame(kSecond, "the second"));
  EXPECT_THAT(owner_.sent, ElementsAre(1, 2));
}

TEST_F(LinkTest, SendsAnyNumberOfFrames) {
  std::string all;
  for (int i = 0; i < 40; ++i) {
    link_->PostSend(1, kFirst, Bytes("data"));
    all += Frame(kFirst, "data");
  }
  while (link_->WantsWrite()) ASSERT_EQ(*link_->Write(), true);
  EXPECT_EQ(peer_.got, all);
  EXPECT_THAT(owner_.sent, SizeIs(40));
}

TEST_F(LinkTest, FrameSaysWhenItLeftAnEmulatedCard) {
  Emulate({.bytes_per_second = 1e6});
  const std::string data(960, 'x');
  const std::int64_t before = MonotonicNanoseconds();
  link_->PostSend(1, kFirst, Bytes(data));
  EXPECT_EQ(*link_->Write(), true);
  const FrameHeader header = DecodeHeader(Bytes(peer_.got).data());
  EXPECT_GE(header.departed, before + kMillisecond) << "1000 bytes, with the header";
}

TEST_F(LinkTest, WithNothingToSendDoesNotAskTheStream) {
  peer_.gone = absl::UnavailableError("is gone");
  const auto written = link_->Write();
  ASSERT_EQ(written.status(), absl::OkStatus());
  EXPECT_FALSE(*written);
}

TEST_F(LinkTest, WritesNothingToAPeerThatHasLeft) {
  peer_.wrote = Farewell(kOrderly);
  ASSERT_EQ(link_->Drain(), absl::OkStatus());
  link_->PostSend(1, kFirst, Bytes("data"));
  EXPECT_EQ(*link_->Write(), false);
  EXPECT_EQ(peer_.got, "");
  EXPECT_TRUE(link_->WaitsInVain());
}

TEST_F(LinkTest, WriteThatFailsFindsTheFarewell) {
  peer_.gone = absl::UnavailableError("is gone");
  peer_.wrote = Farewell(kOrderly);
  link_->PostSend(1, kFirst, Bytes("data"));
  const auto written = link_->Write();
  ASSERT_EQ(written.status(), absl::OkStatus());
  EXPECT_FALSE(*written);
  EXPECT_TRUE(link_->left());
}

TEST_F(LinkTest, WriteThatFailsSaysWhyThePeerGaveUp) {
  peer_.gone = absl::UnavailableError("is gone");
  peer_.wrote = Farewell(kBlaming + 3);
  link_->PostSend(1, kFirst, Bytes("data"));
  EXPECT_THAT(link_->Write().status().message(), HasSubstr("gave up, for it lost rank 3"));
  EXPECT_EQ(link_->blamed(), 3);
}

TEST_F(LinkTest, WriteThatFailsWithoutAFarewellNamesThePeer) {
  peer_.gone = absl::UnavailableError("is gone");
  link_->PostSend(1, kFirst, Bytes("data"));
  EXPECT_EQ(link_->Write().status(),
            absl::UnavailableError("rank 2 (member b) in view 7: is gone"));
}

TEST_F(LinkTest, CountsASentFrameOnceItIsWhole) {
  link_->PostSend(1, kFirst, Bytes("data"));
  peer_.takes = 42;
  EXPECT_EQ(*link_->Write(), true);
  ExpectTraffic({});
  EXPECT_EQ(*link_->Write(), true);
  ExpectTraffic({.payload_sent = 4, .header_sent = 40});
}

TEST_F(LinkTest, CountsAReceivedFrameOnceItIsWhole) {
  std::string data(4, ' ');
  ASSERT_EQ(link_->PostReceive(1, kFirst, Into(data)), absl::OkStatus());
  peer_.wrote = Frame(kFirst, "data");
  peer_.at_once = 42;
  EXPECT_EQ(*link_->Read(), true);
  ExpectTraffic({});
  EXPECT_EQ(*link_->Read(), true);
  ExpectTraffic({.payload_received = 4, .header_received = 40});
}

TEST_F(LinkTest, CountsAsHeadersWhatTheStreamAddsToAWrite) {
  peer_.overhead = {.sent = 5, .received = 3};
  peer_.takes = 1;
  link_->PostSend(1, kFirst, Bytes("data"));
  EXPECT_EQ(*link_->Write(), true);
  ExpectTraffic({.header_sent = 5, .header_received = 3});
}

TEST_F(LinkTest, CountsAsHeadersWhatTheStreamAddsToARead) {
  peer_.overhead = {.sent = 5, .received = 3};
  std::string data(4, ' ');
  ASSERT_EQ(link_->PostReceive(1, kFirst, Into(data)), absl::OkStatus());
  EXPECT_EQ(*link_->Read(), false);
  ExpectTraffic({.header_sent = 5, .header_received = 3});
}

TEST_F(LinkTest, CountsWhatWentBesideTheStreamAsPayload) {
  link_->Count(100, 20);
  ExpectTraffic({.payload_sent = 100, .payload_received = 20});
}

TEST_F(LinkTest, OneReadReceivesAFrameThatIsThere) {
  std::string data(4, ' ');
  ASSERT_EQ(link_->PostReceive(1, kFirst, Into(data)), absl::OkStatus());
  peer_.wrote = Frame(kFirst, "data");
  EXPECT_EQ(*link_->Read(), true);
  EXPECT_EQ(data, "data");
  EXPECT_THAT(owner_.received, ElementsAre(Pair(1, 0)));
  EXPECT_FALSE(link_->WantsRead());
}

TEST_F(LinkTest, ReceivesFramesThatComeByteByByte) {
  std::string first(1, ' ');
  std::string second(3, ' ');
  ASSERT_EQ(link_->PostReceive(1, kFirst, Into(first)), absl::OkStatus());
  ASSERT_EQ(link_->PostReceive(2, kSecond, Into(second)), absl::OkStatus());
  peer_.wrote = Frame(kFirst, "1") + Frame(kSecond, "two");
  peer_.at_once = 1;
  while (!peer_.wrote.empty()) ASSERT_EQ(*link_->Read(), true);
  EXPECT_EQ(first, "1");
  EXPECT_EQ(second, "two");
  EXPECT_THAT(owner_.received, ElementsAre(Pair(1, 0), Pair(2, 0)));
}

// More of them than are read at once, so that reads end within headers.
TEST_F(LinkTest, ReceivesAnyNumberOfSmallFrames) {
  std::string data(300, ' ');
  std::string sent;
  for (std::size_t i = 0; i < data.size(); ++i) {
    sent += static_cast<char>('a' + i % 26);
    ASSERT_EQ(link_->PostReceive(i, kFirst, Into(data).subspan(i, 1)), absl::OkStatus());
    peer_.wrote += Frame(kFirst, std::string_view(sent).substr(i));
  }
  ReadAll();
  EXPECT_EQ(data, sent);
  EXPECT_THAT(owner_.received, SizeIs(300));
}

TEST_F(LinkTest, RestOfALargePayloadTakesOneRead) {
  const std::string sent(100'000, 'x');
  std::string data(sent.size(), ' ');
  ASSERT_EQ(link_->PostReceive(1, kFirst, Into(data)), absl::OkStatus());
  peer_.wrote = Frame(kFirst, sent);
  EXPECT_EQ(*link_->Read(), true);
  EXPECT_EQ(*link_->Read(), true);
  EXPECT_EQ(data, sent);
  EXPECT_THAT(owner_.received, SizeIs(1));
}

TEST_F(LinkTest, LeavesInTheStreamWhatNobodyWaitsFor) {
  const std::string sent = Frame(kFirst, "data");
  peer_.wrote = sent;
  EXPECT_EQ(*link_->Read(), false);
  EXPECT_EQ(peer_.wrote, sent);
}

// The first frame has come, and something of the second along with it.
class CameAlongTest : public LinkTest {
 protected:
  // What the second read says, once the second frame and a third are waited for.
  bool SecondRead(std::string_view second, std::size_t came) {
    std::string first(3, ' ');
    EXPECT_EQ(link_->PostReceive(1, kFirst, Into(first)), absl::OkStatus());
    peer_.wrote = Frame(kFirst, "one") + Frame(kSecond, second).substr(0, came);
    EXPECT_EQ(*link_->Read(), true);
    EXPECT_THAT(owner_.received, SizeIs(1));
    second_.resize(second.size());
    EXPECT_EQ(link_->PostReceive(2, kSecond, Into(second_)), absl::OkStatus());
    EXPECT_EQ(link_->PostReceive(3, kThird, {}), absl::OkStatus());
    return *link_->Read();
  }

  std::string second_;
};

TEST_F(CameAlongTest, WholeFrameIsReceivedWithoutMoreInput) {
  EXPECT_TRUE(SecondRead("two", 43));
  EXPECT_EQ(second_, "two");
  EXPECT_THAT(owner_.received, SizeIs(2));
}

TEST_F(CameAlongTest, EmptyFrameIsReceivedWithoutMoreInput) {
  EXPECT_TRUE(SecondRead("", 40));
  EXPECT_THAT(owner_.received, SizeIs(2));
}

TEST_F(CameAlongTest, PartOfAPayloadMoves) {
  EXPECT_TRUE(SecondRead("two", 42));
  EXPECT_EQ(*link_->Read(), false);
  peer_.wrote = "o";
  EXPECT_EQ(*link_->Read(), true);
  EXPECT_EQ(second_, "two");
}

TEST_F(CameAlongTest, HeaderAloneMovesNothing) { EXPECT_FALSE(SecondRead("two", 40)); }

TEST_F(LinkTest, ReceivesAnEmptyFrameIntoNothing) {
  ASSERT_EQ(link_->PostReceive(1, kFirst, {}), absl::OkStatus());
  peer_.wrote = Frame(kFirst, "");
  EXPECT_EQ(*link_->Read(), true);
  EXPECT_THAT(owner_.received, ElementsAre(Pair(1, 0)));
}

TEST_F(LinkTest, MessageMayBeAsLongAsItsLimit) {
  std::string message;
  ASSERT_EQ(link_->PostReceiveMessage(1, kFirst, &message, 4), absl::OkStatus());
  peer_.wrote = Frame(kFirst, "data");
  EXPECT_EQ(*link_->Read(), true);
  EXPECT_EQ(message, "data");
}

TEST_F(LinkTest, LongerMessageIsAnError) {
  std::string message;
  ASSERT_EQ(link_->PostReceiveMessage(1, kFirst, &message, 4), absl::OkStatus());
  peer_.wrote = Frame(kFirst, "data!");
  EXPECT_EQ(link_->Read().status(),
            absl::InternalError("rank 2 (member b) in view 7: sent a message of 5 bytes for step "
                                "1, channel 20, at most 4 are allowed"));
}

TEST_F(LinkTest, KeepsAnEarlyFrameUntilItsReceiveIsPosted) {
  owner_.early_allowance = 5;
  std::string first(3, ' ');
  ASSERT_EQ(link_->PostReceive(1, kFirst, Into(first)), absl::OkStatus());
  peer_.wrote = Frame(kSecond, "early") + Frame(kFirst, "one");
  EXPECT_EQ(*link_->Read(), true);
  EXPECT_EQ(first, "one");
  EXPECT_THAT(owner_.received, ElementsAre(Pair(1, 0)));
  EXPECT_EQ(owner_.early_allowance, 0);

  std::string second(5, ' ');
  ASSERT_EQ(link_->PostReceive(2, kSecond, Into(second)), absl::OkStatus());
  EXPECT_EQ(second, "early");
  EXPECT_THAT(owner_.received, ElementsAre(Pair(1, 0), Pair(2, 0)));
  EXPECT_EQ(owner_.early_allowance, 5);
  EXPECT_FALSE(link_->WantsRead());
}

TEST_F(LinkTest, EarlyFrameIsReceivedOnce) {
  peer_.wrote = Frame(kFirst, "early");
  ASSERT_EQ(link_->Drain(), absl::OkStatus());
  std::string data(5, ' ');
  ASSERT_EQ(link_->PostReceive(1, kFirst, Into(data)), absl::OkStatus());
  ASSERT_EQ(link_->PostReceive(2, kFirst, Into(data)), absl::OkStatus());
  EXPECT_THAT(owner_.received, ElementsAre(Pair(1, 0)));
  EXPECT_TRUE(link_->WantsRead());
}

TEST_F(LinkTest, EarlyFramesAreFoundByTheirTags) {
  peer_.wrote = Frame(kFirst, "one") + Frame(kSecond, "two");
  ASSERT_EQ(link_->Drain(), absl::OkStatus());
  std::string second(3, ' ');
  ASSERT_EQ(link_->PostReceive(2, kSecond, Into(second)), absl::OkStatus());
  std::string first(3, ' ');
  ASSERT_EQ(link_->PostReceive(1, kFirst, Into(first)), absl::OkStatus());
  EXPECT_EQ(second, "two");
  EXPECT_EQ(first, "one");
}

TEST_F(LinkTest, EarlyFrameOfAnotherSizeIsAnError) {
  peer_.wrote = Frame(kFirst, "early");
  ASSERT_EQ(link_->Drain(), absl::OkStatus());
  std::string data(4, ' ');
  EXPECT_THAT(link_->PostReceive(1, kFirst, Into(data)).message(),
              HasSubstr("sent 5 bytes for step 1, channel 20, but 4 were expected"));
}

TEST_F(LinkTest, ReceiveMayBePostedWhileAnEarlyFrameComes) {
  std::string first(3, ' ');
  ASSERT_EQ(link_->PostReceive(1, kFirst, Into(first)), absl::OkStatus());
  const std::string sent = Frame(kSecond, "early");
  peer_.wrote = sent.substr(0, 42);
  EXPECT_EQ(*link_->Read(), true);
  std::string message;
  ASSERT_EQ(link_->PostReceiveMessage(2, kSecond, &message, 5), absl::OkStatus());
  EXPECT_THAT(owner_.received, IsEmpty());
  peer_.wrote = sent.substr(42);
  EXPECT_EQ(*link_->Read(), true);
  EXPECT_EQ(message, "early");
  EXPECT_THAT(owner_.received, ElementsAre(Pair(2, 0)));
  EXPECT_EQ(owner_.early_allowance, 1000);
}

TEST_F(LinkTest, FrameTooLargeToKeepStaysInTheStream) {
  const std::string sent(10'000, 'x');
  owner_.early_allowance = sent.size() - 1;
  std::string first(3, ' ');
  ASSERT_EQ(link_->PostReceive(1, kFirst, Into(first)), absl::OkStatus());
  peer_.wrote = Frame(kSecond, sent) + Frame(kFirst, "one");
  EXPECT_EQ(*link_->Read(), true);
  const std::size_t left = peer_.wrote.size();
  EXPECT_GT(left, 5000);
  EXPECT_FALSE(link_->WantsInput());
  EXPECT_EQ(*link_->Read(), false);
  EXPECT_EQ(peer_.wrote.size(), left);
  EXPECT_EQ(owner_.early_allowance, sent.size() - 1);

  std::string second(sent.size(), ' ');
  ASSERT_EQ(link_->PostReceive(2, kSecond, Into(second)), absl::OkStatus());
  ReadAll();
  EXPECT_EQ(second, sent);
  EXPECT_THAT(owner_.received, ElementsAre(Pair(2, 0), Pair(1, 0)));
}

TEST_F(LinkTest, KeepsNoFrameThatStandsInNobodysWay) {
  std::string first(3, ' ');
  ASSERT_EQ(link_->PostReceive(1, kFirst, Into(first)), absl::OkStatus());
  peer_.wrote = Frame(kFirst, "one") + Frame(kSecond, "early");
  EXPECT_EQ(*link_->Read(), true);
  EXPECT_EQ(*link_->Read(), false);
  EXPECT_EQ(owner_.early_allowance, 1000);
}

TEST_F(LinkTest, FramesAreReadyInTheirOrder) {
  Emulate({.delay = absl::Milliseconds(2)});
  ASSERT_EQ(link_->PostReceive(1, kFirst, {}), absl::OkStatus());
  ASSERT_EQ(link_->PostReceive(2, kSecond, {}), absl::OkStatus());
  peer_.wrote = Frame(kFirst, "", 10 * kMillisecond) + Frame(kSecond, "", 5 * kMillisecond);
  EXPECT_EQ(*link_->Read(), true);
  EXPECT_THAT(owner_.received, ElementsAre(Pair(1, 12 * kMillisecond), Pair(2, 12 * kMillisecond)));
}

TEST_F(LinkTest, EarlyFrameIsReadyWhenItWouldHaveCome) {
  Emulate({.delay = absl::Milliseconds(2)});
  peer_.wrote = Frame(kFirst, "", 10 * kMillisecond);
  ASSERT_EQ(link_->Drain(), absl::OkStatus());
  ASSERT_EQ(link_->PostReceive(1, kFirst, {}), absl::OkStatus());
  EXPECT_THAT(owner_.received, ElementsAre(Pair(1, 12 * kMillisecond)));
}

TEST_F(LinkTest, DrainReadsUpToTheFarewell) {
  peer_.wrote = Frame(kFirst, "early") + Farewell(kOrderly);
  peer_.at_once = 30;
  EXPECT_TRUE(link_->WantsHangup());
  ASSERT_EQ(link_->Drain(), absl::OkStatus());
  EXPECT_TRUE(peer_.hangup_told);
  EXPECT_TRUE(link_->left());
  EXPECT_EQ(peer_.wrote, "");
}

TEST_F(LinkTest, DrainEndsWhereNothingIsLeft) {
  EXPECT_EQ(link_->Drain(), absl::OkStatus());
  EXPECT_FALSE(link_->left());
  EXPECT_FALSE(link_->WantsHangup()) << "it is known";
}

TEST_F(LinkTest, DrainEndsAtAFrameThatIsTooLargeToKeep) {
  peer_.wrote = Frame(kFirst, std::string(1001, 'x'));
  peer_.end = absl::UnavailableError("ended");
  EXPECT_EQ(link_->Drain(), absl::OkStatus());

  std::string data(1001, ' ');
  ASSERT_EQ(link_->PostReceive(1, kFirst, Into(data)), absl::OkStatus());
  EXPECT_EQ(*link_->Read(), true);
  EXPECT_EQ(data, std::string(1001, 'x'));
}

TEST_F(LinkTest, FarewellIsSaidBeforeAFrameBegins) {
  link_->PostSend(1, kFirst, Bytes("data"));
  link_->Close(kBlaming + 3);
  EXPECT_EQ(peer_.last, Farewell(kBlaming + 3));
  EXPECT_FALSE(peer_.orderly);
}

TEST_F(LinkTest, FarewellIsSaidBehindAFrame) {
  link_->PostSend(1, kFirst, Bytes("data"));
  EXPECT_EQ(*link_->Write(), true);
  link_->Close(kOrderly);
  EXPECT_EQ(peer_.last, Farewell(kOrderly));
  EXPECT_TRUE(peer_.orderly);
}

TEST_F(LinkTest, NoFarewellIsSaidWithinAFrame) {
  for (const std::size_t written : {1, 41}) {
    peer_ = {.takes = written};
    link_ = NewLink();
    link_->PostSend(1, kFirst, Bytes("data"));
    EXPECT_EQ(*link_->Write(), true);
    link_->Close(kAborted);
    EXPECT_TRUE(peer_.closed);
    EXPECT_EQ(peer_.last, "") << "behind " << written << " bytes";
  }
}

TEST_F(LinkTest, NoFarewellIsSaidToAPeerThatHasLeft) {
  peer_.wrote = Farewell(kOrderly);
  ASSERT_EQ(link_->Drain(), absl::OkStatus());
  link_->Close(kOrderly);
  EXPECT_TRUE(peer_.closed);
  EXPECT_EQ(peer_.last, "");
}

TEST_F(LinkTest, SilentEndIsWithoutAFarewell) {
  link_->Close(kSilent);
  EXPECT_TRUE(peer_.closed);
  EXPECT_EQ(peer_.last, "");
}

TEST_F(LinkTest, ForgetsWhatWasPostedWhenItIsClosed) {
  std::string data(4, ' ');
  link_->PostSend(1, kFirst, Bytes("data"));
  ASSERT_EQ(link_->PostReceive(2, kFirst, Into(data)), absl::OkStatus());
  link_->Close(kAborted);
  EXPECT_FALSE(link_->WantsWrite());
  EXPECT_FALSE(link_->WantsRead());
  EXPECT_EQ(link_->fd(), -1);
}

}  // namespace
}  // namespace starling::transport
