// SPDX-License-Identifier: Apache-2.0
// Two coordinator processes, one of which waits, with real streams between them and to members.
#include <memory>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/coordinator/shell_testing.h"

namespace starling::coordinator {
namespace {

using ::testing::HasSubstr;

constexpr std::uint64_t kPrimary = 1;
constexpr std::uint64_t kFollows = 2;
const std::vector<std::string> kBoth = {"127.0.0.2", "127.0.0.3"};

class StandbyShellTest : public CoordinatorShellTest {
 protected:
  // Two members run under a coordinator whose standby could take over.
  void TrainWithAStandby() {
    standby_ = Start(a_.port(), kTimeout, "waits");
    above_ = std::make_unique<Controller>(standby_->port());
    ASSERT_TRUE(above_->Read());
    above_->Grant({}, kFollows, kPrimary);
    Train(standby_->port());
    ASSERT_TRUE(above_->Await([](const auto& report) { return report.standby().armed(); }));
  }
  void Train(int standby_port) {
    primary_ = Start(a_.port(), kTimeout, "leads", standby_port);
    controller_ = std::make_unique<Controller>(primary_->port());
    ASSERT_TRUE(controller_->Read());
    controller_->NameStandby(kFollows);
    controller_->Grant(kBoth, kPrimary);
    controller_->Want(kBoth);
  }

  FakeMember a_{"127.0.0.2", "127.0.0.2:0"};
  FakeMember b_{"127.0.0.3", absl::StrCat("127.0.0.3:", a_.port())};
  std::unique_ptr<CoordinatorShell> standby_;
  std::unique_ptr<CoordinatorShell> primary_;
  std::unique_ptr<Controller> above_;  // the standby's controller
  std::unique_ptr<Controller> controller_;
};

TEST_F(StandbyShellTest, WhoWaitsSaysForWhom) {
  TrainWithAStandby();
  const v1alpha1::StandbyStatus& standby = above_->report().standby();
  EXPECT_EQ(standby.incarnation(), kFollows);
  EXPECT_EQ(standby.follows(), kPrimary);
  EXPECT_LT(standby.silent_seconds(), 1);
  EXPECT_EQ(above_->report().incarnation(), 0U);
  EXPECT_FALSE(controller_->report().has_standby());
}

TEST_F(StandbyShellTest, MembersAreLedOnThoughNobodyGrantsAnything) {
  TrainWithAStandby();
  const membership::ViewNumber first = a_.WaitForView(2, 0);
  ASSERT_NE(first, 0U);
  controller_.reset();
  above_.reset();
  primary_.reset();
  const absl::Time ended = clock_.Now();
  while (standby_->Look().incarnation != kFollows) {
    ASSERT_LT(clock_.Now() - ended, kTimeout);
  }
  EXPECT_GT(clock_.Now() - ended, absl::Seconds(1));
  // All report: their view stays as it is.
  while (standby_->Look().newest_view != first || !standby_->Look().waiting.empty()) {
    ASSERT_LT(clock_.Now() - ended, kTimeout);
  }
  EXPECT_EQ(a_.WaitForView(2, 0), first);
  b_.Die();
  EXPECT_EQ(a_.WaitForView(1, first), membership::MakeViewNumber(kFollows, 1));
}

TEST_F(StandbyShellTest, WhoeverHasLedIsToldByItsStandbyThatItDoesNotAnyMore) {
  TrainWithAStandby();
  ASSERT_NE(a_.WaitForView(2, 0), 0U);
  above_->Grant(kBoth, 3);  // the controller lets it lead, though the other one is there
  ASSERT_TRUE(above_->Await([](const auto& report) { return report.incarnation() == 3; }));
  EXPECT_FALSE(above_->report().has_standby());
  EXPECT_TRUE(controller_->Await([](const auto& report) { return report.superseded(); }));
}

// B1 and B4: of what no standby has acknowledged nobody is told before the next grant.
TEST_F(StandbyShellTest, WithoutItsStandbyACoordinatorGoesOnWhenItIsGrantedAnew) {
  Train(/*standby_port=*/1);
  EXPECT_TRUE(controller_->Await([](const auto& report) {
    return report.waiting().find("the standby has not acknowledged") != std::string::npos;
  }));
  EXPECT_EQ(a_.WaitForView(2, 0, absl::Milliseconds(200)), 0U);
  controller_->NameStandby(0);
  controller_->Want(kBoth);
  EXPECT_EQ(a_.WaitForView(2, 0, absl::Milliseconds(200)), 0U) << "it has had one";
  controller_->Grant(kBoth, 3);
  controller_->Want(kBoth);
  EXPECT_EQ(membership::IncarnationOf(a_.WaitForView(2, 0)), 3U);
  ASSERT_TRUE(controller_->Await([](const auto& report) { return report.incarnation() == 3; }));
  controller_->Grant(kBoth, kPrimary);  // late
  controller_->Want(kBoth);
  ASSERT_TRUE(controller_->Read());
  EXPECT_EQ(controller_->report().incarnation(), 3U);
}

TEST_F(StandbyShellTest, AWaitingOneEndsWithTheJob) {
  const auto shell = Start(1);
  Controller controller(shell->port());
  ASSERT_TRUE(controller.Read());
  controller.Grant({}, kFollows, kPrimary);
  controller.Want({});
  ASSERT_TRUE(controller.Await([](const auto& report) { return report.has_standby(); }));
  EXPECT_FALSE(AwaitDone(absl::Milliseconds(100)));
  controller.Want({}, /*finished=*/true);
  EXPECT_TRUE(AwaitDone(kTimeout));
}

// Asks as a coordinator would.
grpc::Status Follow(int port, const tls::Identity& identity, v1alpha1::ShadowReply& reply) {
  grpc::ChannelArguments arguments;
  rpc::ExpectPeer(arguments, tls::PeerName("coordinator", kJobUid));
  const auto stub = v1alpha1::CoordinatorControl::NewStub(grpc::CreateCustomChannel(
      absl::StrCat("127.0.0.1:", port), rpc::ChannelCredentials(identity), arguments));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(10));
  v1alpha1::Shadow shadow;
  shadow.set_incarnation(kPrimary);
  shadow.set_standby(kFollows);
  return stub->Follow(&context, shadow, &reply);
}

TEST_F(StandbyShellTest, OnlyACoordinatorIsFollowed) {
  const auto shell = Start(1);
  Controller controller(shell->port());
  ASSERT_TRUE(controller.Read());
  controller.Grant({}, kFollows, kPrimary);
  ASSERT_TRUE(controller.Await([](const auto& report) { return report.has_standby(); }));
  v1alpha1::ShadowReply reply;
  for (const char* role : {"worker", "controller"}) {
    const grpc::Status status = Follow(shell->port(), rpc::TestIdentity(role, kJobUid), reply);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::PERMISSION_DENIED) << status.error_message();
    EXPECT_THAT(status.error_message(), HasSubstr("only coordinator.u1.starling may call"));
  }
  EXPECT_TRUE(Follow(shell->port(), rpc::TestIdentity("coordinator", kJobUid), reply).ok());
  EXPECT_EQ(reply.standby(), kFollows);
  EXPECT_TRUE(controller.Await([](const auto& report) { return report.standby().armed(); }));
}

}  // namespace
}  // namespace starling::coordinator
