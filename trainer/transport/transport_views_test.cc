// SPDX-License-Identifier: Apache-2.0
// What every kind of transport promises of views: who gets into which, and who is turned away.
#include <cstddef>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/testing/transports.h"

namespace starling::transport {
namespace {

using ::starling::transport::testing::Kind;
using ::starling::transport::testing::KindName;
using ::starling::transport::testing::Members;
using ::starling::transport::testing::OnEachRank;
using ::starling::transport::testing::SendText;
using ::starling::transport::testing::Soon;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr Tag kTag{1, 20};

class TransportViews : public ::testing::TestWithParam<Kind> {};

INSTANTIATE_TEST_SUITE_P(Kinds, TransportViews,
                         ::testing::Values(Kind::kTcp, Kind::kInproc, Kind::kShm, Kind::kMixed,
                                           Kind::kEncrypted, Kind::kUdp),
                         [](const auto& kind) { return KindName(kind.param); });

TEST_P(TransportViews, HelloOfALaterViewIsParkedUntilItIsInstalled) {
  Members members(GetParam(), 2);
  auto first = members.OpenAll(1);
  absl::Status opened;
  std::thread early([&] { opened = members.Open(7, 1).status(); });
  // The old view works meanwhile; the new one opens as soon as rank 0 installs it.
  std::vector<std::byte> buffer(8);
  EXPECT_EQ(first[0]->Send(1, kTag, buffer, Soon()), absl::OkStatus());
  EXPECT_EQ(first[1]->Receive(0, kTag, buffer, Soon()), absl::OkStatus());
  const auto late = members.Open(7, 0);
  early.join();
  EXPECT_EQ(late.status(), absl::OkStatus());
  EXPECT_EQ(opened, absl::OkStatus());
}

TEST_P(TransportViews, HelloBelowTheFenceIsRefusedAndToldTheFence) {
  Members members(GetParam(), 2);
  members[0].Fence(9);
  const auto mesh = members.Open(8, 1);
  EXPECT_EQ(mesh.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(mesh.status().message(), HasSubstr("its fence is 9"));
  EXPECT_THAT(UnreachableRanks(mesh.status()), ElementsAre(0));
}

TEST_P(TransportViews, ParkedHelloIsRefusedWhenTheFencePassesIt) {
  Members members(GetParam(), 2);
  absl::Status opened;
  std::thread early([&] { opened = members.Open(7, 1).status(); });
  members[0].Fence(8);
  early.join();
  EXPECT_EQ(opened.code(), absl::StatusCode::kFailedPrecondition) << opened;
}

TEST_P(TransportViews, FenceNeverGoesBackAndEndsAnOpenBelowIt) {
  Members members(GetParam(), 2);
  absl::Status opened;
  std::thread waiting([&] { opened = members.Open(3, 0).status(); });
  members[0].Fence(5);
  members[0].Fence(4);
  waiting.join();
  EXPECT_EQ(opened.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(members[0].fence(), 5);
}

TEST_P(TransportViews, ViewIsOpenedOnce) {
  Members members(GetParam(), 2);
  auto meshes = members.OpenAll(1);
  EXPECT_EQ(members.Open(1, 0).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(members.Open(1, 1).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_P(TransportViews, TwoViewsAtOnceDoNotMix) {
  Members members(GetParam(), 2);
  auto old_view = members.OpenAll(1);
  auto new_view = members.OpenAll(2);
  OnEachRank(2, [&](int rank) {
    const std::string mine = absl::StrCat("old of ", rank);
    EXPECT_EQ(SendText(*new_view[rank], 1 - rank, kTag, "new", Soon()), absl::OkStatus());
    EXPECT_EQ(SendText(*old_view[rank], 1 - rank, kTag, mine, Soon()), absl::OkStatus());
    EXPECT_EQ(old_view[rank]->ReceiveMessage(1 - rank, kTag, 100, Soon()).value_or(""),
              absl::StrCat("old of ", 1 - rank));
    EXPECT_EQ(new_view[rank]->ReceiveMessage(1 - rank, kTag, 100, Soon()).value_or(""), "new");
  });
  old_view[0]->Cancel(absl::AbortedError("over"));
  EXPECT_EQ(new_view[0]->status(), absl::OkStatus());
}

TEST_P(TransportViews, OpenNamesWhoIsMissingWhenTimeIsUp) {
  Members members(GetParam(), 3);
  const auto mesh = members.Open(1, 1, net::Deadline::After(absl::Milliseconds(50)));
  EXPECT_EQ(mesh.status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(mesh.status().message(), HasSubstr("member-2"));
  EXPECT_THAT(UnreachableRanks(mesh.status()), ElementsAre(0, 2));
}

TEST_P(TransportViews, OpenNamesADeadPeerWithoutWaitingForTheDeadline) {
  Options options;
  options.dial_timeout = absl::Milliseconds(20);
  Members members(GetParam(), 3, options);
  members.Kill(0);
  const auto mesh = members.Open(1, 2);
  EXPECT_EQ(mesh.status().code(), absl::StatusCode::kUnavailable) << mesh.status();
  EXPECT_THAT(UnreachableRanks(mesh.status()), ElementsAre(0));
}

TEST_P(TransportViews, OpenCanBeCancelled) {
  Members members(GetParam(), 2);
  Cancellation cancellation;
  std::thread canceller([&] { cancellation.Cancel(absl::AbortedError("a newer view came")); });
  const auto mesh = members.Open(1, 0, Soon(), &cancellation);
  canceller.join();
  EXPECT_EQ(mesh.status(), absl::AbortedError("a newer view came"));
}

TEST_P(TransportViews, MembersWithAnotherSecretOrJobAreRefusedAndHarmNobody) {
  Members members(GetParam(), 2);
  Options thief;
  thief.member = "thief";
  thief.secret = "a guess";
  Options neighbour;
  neighbour.member = "neighbour";
  neighbour.job = "job-b";
  for (const Options& options : {thief, neighbour}) {
    const int index = members.Add(options);
    const std::vector<Peer> view = {members.peers()[0], members.peers()[index]};
    const auto mesh = members[index].Open(1, view, 1, Soon(), nullptr);
    EXPECT_EQ(mesh.status().code(), absl::StatusCode::kUnauthenticated) << mesh.status();
    EXPECT_THAT(mesh.status().message(), HasSubstr("secret"));
  }
  const std::vector<Peer> pair = {members.peers()[0], members.peers()[1]};
  OnEachRank(2, [&](int rank) {
    EXPECT_EQ(members[rank].Open(1, pair, rank, Soon(), nullptr).status(), absl::OkStatus());
  });
}

TEST_P(TransportViews, SuccessorAtAnAddressIsNotTakenForTheMemberBeforeIt) {
  Members members(GetParam(), 2);
  auto view = members.peers();
  view[0].member = "member-0-before";
  const auto mesh = members[1].Open(1, view, 1, Soon(), nullptr);
  EXPECT_EQ(mesh.status().code(), absl::StatusCode::kUnavailable) << mesh.status();
  EXPECT_THAT(mesh.status().message(), HasSubstr("another member"));
}

TEST_P(TransportViews, WhoIsNotInTheViewIsRefused) {
  Members members(GetParam(), 3);
  const std::vector<Peer> ours = {members.peers()[0], members.peers()[1]};
  const std::vector<Peer> theirs = {members.peers()[0], members.peers()[2]};
  OnEachRank(3, [&](int rank) {
    const auto mesh = rank == 2 ? members[2].Open(4, theirs, 1, Soon(), nullptr)
                                : members[rank].Open(4, ours, rank, Soon(), nullptr);
    const auto code = rank == 2 ? absl::StatusCode::kFailedPrecondition : absl::StatusCode::kOk;
    EXPECT_EQ(mesh.status().code(), code) << rank << " " << mesh.status();
  });
}

TEST_P(TransportViews, ViewsThatMakeNoSenseAreRefused) {
  Members members(GetParam(), 2);
  auto twice = members.peers();
  twice[1] = twice[0];
  EXPECT_EQ(members[0].Open(1, twice, 0, Soon(), nullptr).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(members[0].Open(1, members.peers(), 1, Soon(), nullptr).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(members[0].Open(1, members.peers(), 2, Soon(), nullptr).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace starling::transport
