// SPDX-License-Identifier: Apache-2.0
// What arrives over a channel, in which order, and what ends its mesh. That servers and clients
// understand each other over every kind of link stands in server_loop_test.cc.
#include "trainer/parameter_server/message_channel.h"

#include <array>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/testing/transports.h"

namespace starling::parameter_server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using transport::testing::Kind;
using transport::testing::Soon;

// Rank 0 receives what the others send.
class MessageChannelTest : public ::testing::Test {
 protected:
  MessageChannelTest() : members_(Kind::kInproc, 3), meshes_(members_.OpenAll(1)) {
    for (const auto& mesh : meshes_) channels_.push_back(std::make_unique<MessageChannel>(*mesh));
  }
  static net::Deadline AtOnce() { return net::Deadline::After(absl::Milliseconds(20)); }
  static ReadReply Reply(const std::string& values) {
    ReadReply reply;
    reply.values = std::make_shared<const std::string>(values);
    return reply;
  }
  Delivery Next() {
    absl::StatusOr<std::optional<Delivery>> next = channels_[0]->Receive(Soon());
    EXPECT_TRUE(next.ok()) << next.status();
    if (!next.ok() || !next->has_value()) return {};
    return **std::move(next);
  }
  // As a peer that is of another mind sends them.
  void SendRaw(int rank, std::span<const std::byte> bytes) {
    const transport::Tag tag{0, 0x70737276};
    ASSERT_TRUE(meshes_[rank]->Send(0, tag, bytes, Soon()).ok());
  }
  void ExpectEnded(const std::string& why) {
    for (int again = 0; again < 2; ++again) {
      const absl::Status status = channels_[0]->Receive(Soon()).status();
      EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
      EXPECT_THAT(std::string(status.message()), HasSubstr(why));
    }
  }

  transport::testing::Members members_;
  std::vector<std::unique_ptr<transport::Mesh>> meshes_;
  std::vector<std::unique_ptr<MessageChannel>> channels_;
};

TEST_F(MessageChannelTest, MessagesOfAPeerArriveWholeAndInTheirOrder) {
  for (const char* values : {"four", "", "1"}) channels_[1]->Post(0, 5, Reply(values));
  channels_[1]->Post(0, 6, Hello{9, {{"member-1", 0}, 3}});
  channels_[1]->Post(0, 5, Reply("five!"));
  for (const std::string values : {"four", "", "1"}) {
    const Delivery one = Next();
    EXPECT_EQ(one.rank, 1);
    EXPECT_EQ(one.shard, 5U);
    EXPECT_EQ(one.bytes, values.size());
    const auto& reply = std::get<ReadReply>(one.message);
    EXPECT_EQ(reply.values ? *reply.values : "", values);
  }
  const Delivery hello = Next();
  EXPECT_EQ(hello.shard, 6U);
  EXPECT_EQ(hello.bytes, 0U);
  EXPECT_EQ(std::get<Hello>(hello.message).client.joined, 3U);
  EXPECT_EQ(*std::get<ReadReply>(Next().message).values, "five!");
}

TEST_F(MessageChannelTest, WhoeverSpeaksIsHeard) {
  EXPECT_FALSE(channels_[0]->Receive(AtOnce()).value()) << "nobody has spoken";
  channels_[2]->Post(0, 0, Hello{});
  EXPECT_EQ(Next().rank, 2);
  channels_[1]->Post(0, 0, Hello{});
  EXPECT_EQ(Next().rank, 1);
  channels_[1]->Post(0, 0, Hello{});
  channels_[2]->Post(0, 0, Hello{});
  EXPECT_EQ(Next().rank + Next().rank, 3) << "both";
  EXPECT_FALSE(channels_[0]->Receive(AtOnce()).value());
}

TEST_F(MessageChannelTest, WhatArrivesWhileThePostLeavesIsKept) {
  channels_[1]->Post(0, 0, Reply("first"));
  channels_[1]->Post(0, 0, Reply("second"));
  channels_[0]->Post(1, 0, Reply(std::string(std::size_t{32} << 20, 'x')));
  EXPECT_TRUE(channels_[0]->sending());
  const absl::Status status = channels_[0]->Flush(AtOnce());
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << "nobody receives it";
  std::thread receiving([&] { EXPECT_TRUE(channels_[1]->Receive(Soon()).value().has_value()); });
  EXPECT_TRUE(channels_[0]->Flush(Soon()).ok());
  receiving.join();
  EXPECT_FALSE(channels_[0]->sending());
  EXPECT_EQ(*std::get<ReadReply>(Next().message).values, "first");
  EXPECT_EQ(*std::get<ReadReply>(Next().message).values, "second");
}

TEST_F(MessageChannelTest, WhatIsNoPrefixOfOursEndsTheMeshAndNamesThePeer) {
  const std::array<std::byte, kPrefixBytes> zeros{};
  SendRaw(1, zeros);
  ExpectEnded("member-1: a message for parameter servers is malformed: it is none");
}

TEST_F(MessageChannelTest, AHeadThatDoesNotSayWhatItsTypeMustEndsTheMesh) {
  Packet packet = EncodePacket(0, Hello{});
  Prefix prefix;
  std::memcpy(&prefix, packet.prefix.data(), kPrefixBytes);
  prefix.head_bytes = 1;
  SendRaw(1, std::as_bytes(std::span(&prefix, 1)));
  SendRaw(1, std::as_bytes(std::span("x", 1)));
  ExpectEnded("has the wrong length: 1 bytes");
}

TEST(BufferPoolTest, ABufferThatNobodyHoldsIsFilledAgainByWhatHasItsSize) {
  const auto pool = std::make_shared<BufferPool>();
  std::shared_ptr<std::string> held = pool->Take(3), free = pool->Take(3);
  *held = "abc";
  *free = "xyz";
  free.reset();
  EXPECT_EQ(pool->Take(4)->size(), 4U) << "of another size it is another one";
  free = pool->Take(3);
  EXPECT_EQ(*free, "xyz");
  EXPECT_EQ(*pool->Take(3), std::string(3, '\0')) << "one is held, the other one again";
  EXPECT_EQ(*held, "abc");
}

TEST(BufferPoolTest, TheEightLatestThatCameBackAreKept) {
  const auto pool = std::make_shared<BufferPool>();
  std::vector<std::shared_ptr<std::string>> buffers(9);
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    buffers[i] = pool->Take(1);
    *buffers[i] = std::to_string(i + 1);
  }
  for (auto& buffer : buffers) buffer.reset();
  std::vector<std::string> kept;
  for (auto& buffer : buffers) kept.push_back(*(buffer = pool->Take(1)));
  EXPECT_THAT(kept, ElementsAre("2", "3", "4", "5", "6", "7", "8", "9", std::string(1, '\0')));
}

TEST(BufferPoolTest, ABufferMayOutliveItsPool) {
  auto pool = std::make_shared<BufferPool>();
  const std::shared_ptr<std::string> buffer = pool->Take(3);
  pool.reset();
  *buffer = "abc";
  EXPECT_EQ(*buffer, "abc");
}

}  // namespace
}  // namespace starling::parameter_server
