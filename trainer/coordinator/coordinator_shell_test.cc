// SPDX-License-Identifier: Apache-2.0
// Real streams on one machine: a member that is the real machine behind a gRPC server, a controller
// that is a plain client.
#include "trainer/coordinator/coordinator_shell.h"

#include <grpcpp/grpcpp.h>

#include <set>

#include "absl/strings/str_cat.h"
#include "common/net/deadline.h"
#include "common/net/socket.h"
#include "common/rpc/credentials.h"
#include "common/rpc/test_identities.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "starling/v1alpha1/membership.grpc.pb.h"
#include "starling/v1alpha1/training_job.pb.h"
#include "trainer/coordinator/controller_service.h"
#include "trainer/coordinator/options.h"
#include "trainer/membership/convert.h"
#include "trainer/membership/member.h"
#include "trainer/membership/peer_coordinator.h"
#include "trainer/parameter_server/shard_coordinator.h"

namespace starling::coordinator {
namespace {

constexpr char kJobUid[] = "u1";
constexpr absl::Duration kTimeout = absl::Seconds(10);

// Peers reach each other directly; every member steps when it is told to.
class FakeMember final : public v1alpha1::MemberControl::CallbackService {
 public:
  FakeMember(const std::string& uid, const std::string& address,
             const tls::Identity& identity = rpc::TestIdentity("worker", kJobUid))
      : member_({{uid, 0}, "", std::nullopt, {}}) {
    grpc::ServerBuilder builder;
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    builder.AddListeningPort(address, rpc::ServerCredentials(identity), &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  ~FakeMember() override { Die(); }

  void Die() {
    if (server_ == nullptr) return;
    server_->Shutdown(std::chrono::system_clock::now());
    server_->Wait();
    server_ = nullptr;
  }
  int port() const { return port_; }
  grpc::Status allowed() {
    sync::MutexLock lock(mutex_);
    return allowed_;
  }
  bool WaitForCall() {
    sync::MutexLock lock(mutex_);
    const net::Deadline deadline = net::Deadline::After(kTimeout);
    while (!allowed_.ok() && !deadline.Expired()) changed_.WaitFor(mutex_, deadline.Remaining());
    return allowed_.ok();
  }
  // Waits until the member has installed a view of so many members that is above `above`.
  membership::ViewNumber WaitForView(std::size_t members, membership::ViewNumber above) {
    sync::MutexLock lock(mutex_);
    const net::Deadline deadline = net::Deadline::After(kTimeout);
    while (!deadline.Expired()) {
      const membership::View* view = member_.view();
      if (view != nullptr && view->members.size() == members && view->number > above) {
        return view->number;
      }
      changed_.WaitFor(mutex_, deadline.Remaining());
    }
    return 0;
  }

  grpc::ServerBidiReactor<v1alpha1::Directive, v1alpha1::Report>* Attend(
      grpc::CallbackServerContext* context) override {
    sync::MutexLock lock(mutex_);
    allowed_ = rpc::RequirePeer(*context->auth_context(), tls::PeerName("coordinator", kJobUid));
    changed_.NotifyAll();
    return new Call(*this);
  }

 private:
  class Call final : public grpc::ServerBidiReactor<v1alpha1::Directive, v1alpha1::Report> {
   public:
    explicit Call(FakeMember& owner) : owner_(owner) { StartRead(&in_); }
    void OnReadDone(bool ok) override {
      if (!ok) return Finish(grpc::Status::OK);
      {
        sync::MutexLock lock(owner_.mutex_);
        owner_.member_.OnDirective(membership::FromProto(in_));
        owner_.changed_.NotifyAll();
        out_ = membership::ToProto(owner_.member_.MakeReport());
      }
      StartWrite(&out_);
    }
    // A report for every directive is enough here.
    void OnWriteDone(bool ok) override {
      if (ok)
        StartRead(&in_);
      else
        Finish(grpc::Status::OK);
    }
    void OnDone() override { delete this; }

   private:
    FakeMember& owner_;
    v1alpha1::Directive in_;
    v1alpha1::Report out_;
  };

  sync::Mutex mutex_;
  sync::Condition changed_;
  membership::Member member_ ABSL_GUARDED_BY(mutex_);
  grpc::Status allowed_ ABSL_GUARDED_BY(mutex_){grpc::StatusCode::UNKNOWN, "nobody called"};
  std::unique_ptr<grpc::Server> server_;
  int port_ = 0;
};

tls::Identity ControllersLeaf() { return rpc::TestIdentity("controller", kJobUid); }

class Controller {
 public:
  explicit Controller(int port, const tls::Identity& identity = ControllersLeaf(),
                      const char* role = "worker")
      : role_(role) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    rpc::ExpectPeer(arguments, tls::PeerName("coordinator", kJobUid));
    stub_ = v1alpha1::CoordinatorControl::NewStub(grpc::CreateCustomChannel(
        absl::StrCat("127.0.0.1:", port), rpc::ChannelCredentials(identity), arguments));
    context_.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
    stream_ = stub_->Supervise(&context_);
  }
  ~Controller() {
    context_.TryCancel();
    if (!ended_) stream_->Finish();
  }
  bool Read() { return stream_->Read(&report_); }
  grpc::Status End() {
    ended_ = true;
    return stream_->Finish();
  }
  const v1alpha1::CoordinatorReport& report() const { return report_; }

  void Grant(const std::vector<std::string>& uids) {
    v1alpha1::ControllerMessage message;
    message.mutable_grant()->set_incarnation(1);
    message.mutable_grant()->set_boot_id(report_.boot_id());
    for (const std::string& uid : uids) AddPod(uid, *message.mutable_grant()->add_roster());
    stream_->Write(message);
  }
  void Want(const std::vector<std::string>& uids, bool finished = false) {
    v1alpha1::ControllerMessage message;
    v1alpha1::Desired& desired = *message.mutable_desired();
    desired.set_sequence(++sequence_);
    desired.set_workers(static_cast<std::int64_t>(uids.size()));
    desired.set_min_workers(1);
    desired.set_finished(finished);
    for (const std::string& uid : uids) AddPod(uid, *desired.add_pods());
    stream_->Write(message);
  }

 private:
  // The pod's address is its UID here.
  void AddPod(const std::string& uid, v1alpha1::Pod& pod) {
    pod.set_uid(uid);
    pod.set_name(uid);
    pod.set_role(role_);
    pod.set_ip(uid);
  }

  const char* role_;

  std::unique_ptr<v1alpha1::CoordinatorControl::Stub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<
      grpc::ClientReaderWriter<v1alpha1::ControllerMessage, v1alpha1::CoordinatorReport>>
      stream_;
  v1alpha1::CoordinatorReport report_;
  std::int64_t sequence_ = 0;
  bool ended_ = false;
};

class CoordinatorShellTest : public testing::Test {
 protected:
  // `grace`: how long the first view waits for members that are wanted.
  std::unique_ptr<CoordinatorShell> Start(int member_port,
                                          absl::Duration grace = absl::Seconds(1)) {
    membership::CoordinatorOptions machine;
    machine.boot_id = "boot";
    machine.heartbeat_timeout = absl::Seconds(60);
    machine.first_view_grace = grace;
    return Lead(member_port, std::make_unique<membership::PeerCoordinator>(machine));
  }
  std::unique_ptr<CoordinatorShell> Lead(int member_port,
                                         std::unique_ptr<membership::Coordinator> machine) {
    ShellOptions options;
    options.on_done = [this] {
      sync::MutexLock lock(mutex_);
      done_ = true;
      changed_.NotifyAll();
    };
    options.listen = "127.0.0.1:0";
    options.member_port = member_port;
    options.identity = rpc::TestIdentity("coordinator", kJobUid);
    options.job_uid = kJobUid;
    auto shell = CoordinatorShell::Start(options, std::move(machine), clock_, registry_);
    EXPECT_TRUE(shell.ok()) << shell.status();
    return *std::move(shell);
  }

  bool AwaitDone(absl::Duration timeout) {
    sync::MutexLock lock(mutex_);
    const net::Deadline deadline = net::Deadline::After(timeout);
    while (!done_ && !deadline.Expired()) changed_.WaitFor(mutex_, deadline.Remaining());
    return done_;
  }

  clock::SystemClock clock_;
  metrics::Registry registry_;
  sync::Mutex mutex_;
  sync::Condition changed_;
  bool done_ ABSL_GUARDED_BY(mutex_) = false;
};

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
  const auto shell = Lead(worker.port(), std::make_unique<parameter_server::ShardCoordinator>(
                                             machine, v1alpha1::TrainingJobSpec()));
  Controller controller(shell->port(), ControllersLeaf(), "parameter-server");
  ASSERT_TRUE(controller.Read());
  controller.Grant({"127.0.0.2", "127.0.0.3"});
  EXPECT_TRUE(server.WaitForCall());
  EXPECT_EQ(worker.allowed().error_message(), "nobody called");
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
