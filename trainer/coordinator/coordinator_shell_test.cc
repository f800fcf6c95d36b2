// SPDX-License-Identifier: Apache-2.0
#include "trainer/coordinator/coordinator_shell.h"

#include "absl/strings/str_cat.h"
#include "common/gzip/gzip.h"
#include "common/json/json.h"
#include "common/net/socket.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "starling/v1alpha1/training_job.pb.h"
#include "trainer/coordinator/options.h"
#include "trainer/coordinator/shell_testing.h"
#include "trainer/metric_export/exporter.h"
#include "trainer/parameter_server/shard_coordinator.h"

namespace starling::coordinator {
namespace {

TEST_F(CoordinatorShellTest, ItIsDoneWhenTheJobHasEndedAndTheLastMemberIsGone) {
  FakeMember a("127.0.0.2", "127.0.0.2:0");
  FakeMember b("127.0.0.3", absl::StrCat("127.0.0.3:", a.port()));
  const auto shell = Start(a.port(), kTimeout);
  Controller controller(shell->port());
  ASSERT_TRUE(controller.Read());
  controller.Grant({"127.0.0.2", "127.0.0.3"});
  controller.Want({"127.0.0.2", "127.0.0.3"});
  ASSERT_NE(a.WaitForView(2, 0), 0U);
  a.Die();
  EXPECT_FALSE(AwaitDone(absl::Milliseconds(100)));  // a loss, no end
  controller.Want({"127.0.0.2", "127.0.0.3"}, /*finished=*/true);
  EXPECT_FALSE(AwaitDone(absl::Milliseconds(200)));  // one is yet to be told
  b.Die();
  EXPECT_TRUE(AwaitDone(kTimeout));
}

TEST_F(CoordinatorShellTest, ATimelineIsToldWhileItIsWantedAndNamesWhoDoesNotAnswer) {
  FakeMember a("127.0.0.2", "127.0.0.2:0");
  FakeMember b("127.0.0.3", absl::StrCat("127.0.0.3:", a.port()));
  a.Record();
  const auto shell = Start(a.port(), kTimeout);
  Controller controller(shell->port());
  ASSERT_TRUE(controller.Read());
  controller.Grant({"127.0.0.2", "127.0.0.3"});
  controller.Want({"127.0.0.2", "127.0.0.3"});
  ASSERT_NE(a.WaitForView(2, 0), 0U);
  controller.AskForTrace("steps=3,seconds=1,at=now");
  controller.Want({"127.0.0.2", "127.0.0.3"});
  ASSERT_TRUE(controller.Await([](const auto& report) { return !report.trace().empty(); }));
  EXPECT_EQ(controller.report().trace_request(), "steps=3,seconds=1,at=now");
  const auto text = gzip::Unpack(controller.report().trace(), 1 << 24);
  ASSERT_TRUE(text.ok()) << text.status();
  const auto trace = json::Parse(*text);
  ASSERT_TRUE(trace.ok()) << trace.status();
  const auto& about = trace->at("otherData");
  EXPECT_EQ(about["members"].size(), 1U) << about;
  EXPECT_EQ(about["silent"].size(), 1U) << about;
  EXPECT_THAT(about["silent"]["127.0.0.3"].get<std::string>(), testing::HasSubstr("version"));
  EXPECT_THAT(about["ended"].get<std::string>(), testing::HasSubstr("time"));

  controller.AskForTrace("");
  controller.Want({"127.0.0.2", "127.0.0.3"});
  EXPECT_TRUE(controller.Await([](const auto& report) { return report.trace().empty(); }));
}

TEST_F(CoordinatorShellTest, WhoIsNotTheControllerIsRefusedByName) {
  const auto shell = Start(1);
  for (const char* role : {"worker", "coordinator"}) {
    Controller member(shell->port(), rpc::TestIdentity(role, kJobUid));
    EXPECT_FALSE(member.Read());
    const grpc::Status status = member.End();
    EXPECT_EQ(status.error_code(), grpc::StatusCode::PERMISSION_DENIED) << status.error_message();
    EXPECT_THAT(status.error_message(), testing::HasSubstr("only controller.u1.starling may call"));
  }
}

TEST_F(CoordinatorShellTest, ControllerOfAnotherJobDoesNotComeIn) {
  const auto shell = Start(1);
  tls::Identity other = rpc::TestIdentity("controller", "u2");
  other.authority = rpc::TestAuthority(kJobUid).certificate();  // it would believe this one
  Controller stranger(shell->port(), other);
  EXPECT_FALSE(stranger.Read());
  EXPECT_EQ(stranger.End().error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST_F(CoordinatorShellTest, ItSpeaksFirstAndTheNewestControllerCounts) {
  const auto shell = Start(1);
  Controller first(shell->port());
  ASSERT_TRUE(first.Read());
  EXPECT_EQ(first.report().boot_id(), "boot");
  Controller second(shell->port());
  ASSERT_TRUE(second.Read());
  while (first.Read()) {
  }
  EXPECT_EQ(first.End().error_code(), grpc::StatusCode::ABORTED);
}

TEST_F(CoordinatorShellTest, MembersGetTheirViewAndSurvivorsANewOneAtOnceWhenOneDies) {
  FakeMember a("127.0.0.2", "127.0.0.2:0");
  FakeMember b("127.0.0.3", absl::StrCat("127.0.0.3:", a.port()));
  const auto shell = Start(a.port(), kTimeout);
  Controller controller(shell->port());
  ASSERT_TRUE(controller.Read());
  controller.Grant({"127.0.0.2", "127.0.0.3"});
  controller.Want({"127.0.0.2", "127.0.0.3"});
  const membership::ViewNumber first = a.WaitForView(2, 0);
  ASSERT_NE(first, 0U);
  EXPECT_EQ(b.WaitForView(2, 0), first);
  EXPECT_TRUE(a.allowed().ok()) << a.allowed().error_message();

  const absl::Time killed = clock_.Now();
  b.Die();
  EXPECT_NE(a.WaitForView(1, first), 0U);
  // The heartbeat would take a minute: it was the broken stream that told.
  EXPECT_LT(clock_.Now() - killed, absl::Seconds(5));
  while (controller.report().incidents_size() == 0) ASSERT_TRUE(controller.Read());
  EXPECT_EQ(controller.report().incidents(0).reason(), "WorkerLost");
  EXPECT_EQ(controller.report().incidents(0).pod(), "127.0.0.3");
}

TEST_F(CoordinatorShellTest, APodThatHasAnAddressOfIPv6IsDialled) {
  if (!net::Listen({"::1", 0}).ok()) GTEST_SKIP() << "this machine has no address ::1";
  FakeMember member("::1", "[::1]:0");
  const auto shell = Start(member.port(), kTimeout);
  Controller controller(shell->port());
  ASSERT_TRUE(controller.Read());
  controller.Grant({"::1"});
  controller.Want({"::1"});
  EXPECT_NE(member.WaitForView(1, 0), 0U);
}

TEST_F(CoordinatorShellTest, APodThatIsNoWorkerOfThisJobIsNotTaken) {
  FakeMember stranger("127.0.0.2", "127.0.0.2:0", rpc::TestIdentity("worker", "u2"));
  FakeMember impostor("127.0.0.3", absl::StrCat("127.0.0.3:", stranger.port()),
                      rpc::TestIdentity("coordinator", kJobUid));
  FakeMember worker("127.0.0.4", absl::StrCat("127.0.0.4:", stranger.port()));
  const auto shell = Start(stranger.port());
  Controller controller(shell->port());
  ASSERT_TRUE(controller.Read());
  controller.Grant({"127.0.0.2", "127.0.0.3", "127.0.0.4"});
  controller.Want({"127.0.0.2", "127.0.0.3", "127.0.0.4"});
  EXPECT_NE(worker.WaitForView(1, 0), 0U);
  EXPECT_EQ(stranger.allowed().error_message(), "nobody called");
  EXPECT_EQ(impostor.allowed().error_message(), "nobody called");
}

TEST_F(CoordinatorShellTest, AParameterServerIsDialledByItsOwnName) {
  FakeMember worker("127.0.0.2", "127.0.0.2:0");
  FakeMember server("127.0.0.3", absl::StrCat("127.0.0.3:", worker.port()),
                    rpc::TestIdentity("parameter-server", kJobUid));
  parameter_server::ShardCoordinator::Options machine;
  machine.common.boot_id = "boot";
  const auto shell = Lead(worker.port(), [machine] {
    return std::make_unique<parameter_server::ShardCoordinator>(machine,
                                                                v1alpha1::TrainingJobSpec());
  });
  Controller controller(shell->port(), ControllersLeaf(), "parameter-server");
  ASSERT_TRUE(controller.Read());
  controller.Grant({"127.0.0.2", "127.0.0.3"});
  EXPECT_TRUE(server.WaitForCall());
  EXPECT_EQ(worker.allowed().error_message(), "nobody called");
}

// It fails at metrics, and keeps what it was told.
class FailingSink final : public metric_export::Sink {
 public:
  explicit FailingSink(metric_export::Points& told) : told_(told) {}
  absl::Status Tell(const metric_export::Points& points) override {
    told_ = points;
    if (points.values.empty()) return absl::OkStatus();
    return absl::ResourceExhaustedError("cannot write /logs; make room");
  }

 private:
  metric_export::Points& told_;
};

TEST_F(CoordinatorShellTest, MetricsAreExportedAndWhatIsWrongWithThatIsReported) {
  metric_export::Points told;
  exporters_.push_back(std::make_unique<metric_export::Exporter>(
      std::make_unique<FailingSink>(told), clock_, metric_export::Exporter::Options{}));
  v1alpha1::TrainingReport training;
  training.mutable_progress()->set_step(7);
  training.mutable_progress()->set_loss(0.5);
  FakeMember member("127.0.0.2", "127.0.0.2:0");
  member.Say(training);
  auto shell = Start(member.port(), absl::ZeroDuration());
  Controller controller(shell->port());
  ASSERT_TRUE(controller.Read());
  EXPECT_EQ(controller.report().export_problem(), "");
  controller.Grant({"127.0.0.2"});
  controller.Want({"127.0.0.2"});
  while (controller.report().export_problem().empty()) ASSERT_TRUE(controller.Read());
  EXPECT_EQ(controller.report().export_problem(), "cannot write /logs; make room");
  EXPECT_EQ(controller.report().training().progress().step(), 7);
  shell.reset();
  EXPECT_EQ(told.step, 7);
  EXPECT_THAT(told.values, testing::ElementsAre(testing::Pair("loss", 0.5)));
}

TEST_F(CoordinatorShellTest, APodThatStartsLaterIsFound) {
  auto a = std::make_unique<FakeMember>("127.0.0.2", "127.0.0.2:0");
  const int port = a->port();
  a = nullptr;
  const auto shell = Start(port);
  Controller controller(shell->port());
  ASSERT_TRUE(controller.Read());
  controller.Grant({"127.0.0.2"});
  controller.Want({"127.0.0.2"});
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(controller.Read());
  EXPECT_EQ(controller.report().newest_view(), 0U);
  FakeMember late("127.0.0.2", absl::StrCat("127.0.0.2:", port));
  EXPECT_NE(late.WaitForView(1, 0), 0U);
}

TEST(CoordinatorOptions, MistakesNameTheFlag) {
  EXPECT_TRUE(
      ParseOptions({"--spec=f", "--tls=s", "--job-uid", "u", "--address", "127.0.0.1"}).ok());
  EXPECT_EQ(ParseOptions({"--tls", "s"}).status().message(), "--spec is required");
  EXPECT_EQ(ParseOptions({"--tsl", "s"}).status().message(), "unknown flag --tsl");
  EXPECT_EQ(ParseOptions({"--tls"}).status().message(), "--tls needs a value");
  EXPECT_THAT(std::string(ParseOptions({"--heartbeat-timeout=soon"}).status().message()),
              testing::HasSubstr("--heartbeat-timeout: \"soon\""));
}

}  // namespace
}  // namespace starling::coordinator
