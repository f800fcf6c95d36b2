// SPDX-License-Identifier: Apache-2.0
#include "trainer/transport/group_mesh.h"

#include <array>
#include <cstddef>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/testing/transports.h"

namespace starling::transport {
namespace {

using ::starling::transport::testing::Kind;
using ::starling::transport::testing::Members;
using ::starling::transport::testing::OnEachRank;
using ::starling::transport::testing::Soon;

constexpr Tag kTag{1, 20};

std::array<std::byte, 4> Signed(int value) {
  return std::bit_cast<std::array<std::byte, 4>>(value);
}

// Of four members 3 and 1 are the group, in this order.
class GroupMeshTest : public ::testing::Test {
 protected:
  Members members_{Kind::kInproc, 4};
  std::vector<std::unique_ptr<Mesh>> meshes_ = members_.OpenAll(1);
};

TEST_F(GroupMeshTest, RanksAreThoseOfTheGroup) {
  GroupMesh first(*meshes_[3], {3, 1}), second(*meshes_[1], {3, 1});
  EXPECT_EQ(first.size(), 2);
  EXPECT_EQ(first.rank(), 0);
  EXPECT_EQ(second.rank(), 1);
  EXPECT_EQ(first.member(1), meshes_[3]->member(1));
  EXPECT_EQ(second.member(0), meshes_[1]->member(3));

  const auto sent = Signed(42);
  std::array<std::byte, 4> got{};
  ASSERT_TRUE(first.Send(1, kTag, sent, Soon()).ok());
  ASSERT_TRUE(second.Receive(0, kTag, got, Soon()).ok());
  EXPECT_EQ(got, sent);
  EXPECT_GT(first.traffic(1).payload_sent, 0u);
}

TEST_F(GroupMeshTest, WhetherOthersAreIdleIsSaidOfTheMeshBelow) {
  GroupMesh group(*meshes_[3], {3, 1});
  EXPECT_FALSE(group.others_idle());
  group.SetOthersIdle(true);
  EXPECT_TRUE(meshes_[3]->others_idle());
  EXPECT_TRUE(group.others_idle());
  group.SetOthersIdle(false);
  EXPECT_FALSE(meshes_[3]->others_idle());
}

TEST_F(GroupMeshTest, WaitingForAllIsAboutTheGroupsTransfersAlone) {
  GroupMesh first(*meshes_[3], {3, 1}), second(*meshes_[1], {3, 1});
  // Someone below waits for a member that never speaks.
  std::array<std::byte, 4> never{};
  const Ticket open = meshes_[3]->PostReceive(0, {0, 99}, never);
  const auto sent = Signed(7);
  std::array<std::byte, 4> got{}, more{};
  (void)second.PostSend(0, kTag, sent);
  (void)second.PostSend(0, kTag, sent);
  (void)first.PostReceive(1, kTag, got);
  const Ticket last = first.PostReceive(1, kTag, more);
  const Ticket any[] = {last};
  const auto named = first.WaitAny(any, Soon());
  ASSERT_TRUE(named.ok()) << named.status();
  EXPECT_EQ(*named, last);
  EXPECT_TRUE(first.WaitAll(Soon()).ok());
  EXPECT_EQ(got, sent);
  EXPECT_EQ(more, sent);
  EXPECT_TRUE(second.WaitAll(Soon()).ok());

  const Ticket waiting[] = {open};
  const auto still = meshes_[3]->WaitAny(waiting, net::Deadline::After(absl::Milliseconds(1)));
  ASSERT_TRUE(still.ok()) << still.status();
  EXPECT_EQ(*still, std::nullopt) << "it is still open";
}

TEST_F(GroupMeshTest, CancelEndsTheMeshBelow) {
  GroupMesh first(*meshes_[3], {3, 1});
  first.Cancel(absl::AbortedError("a newer view has begun"));
  EXPECT_EQ(meshes_[3]->status().code(), absl::StatusCode::kAborted);
  EXPECT_EQ(first.status().code(), absl::StatusCode::kAborted);
}

TEST_F(GroupMeshTest, WhoCouldNotBeReachedIsSaidInTheViewsRanks) {
  GroupMesh second(*meshes_[1], {3, 1});
  std::array<std::byte, 4> got{};
  (void)meshes_[3]->PostReceive(1, kTag, got);  // it dies amid its work
  meshes_[3].reset();
  (void)second.PostReceive(0, kTag, got);
  EXPECT_THAT(UnreachableRanks(second.WaitAll(Soon())), ::testing::ElementsAre(3));
}

}  // namespace
}  // namespace starling::transport
