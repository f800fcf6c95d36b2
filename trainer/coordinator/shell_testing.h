// SPDX-License-Identifier: Apache-2.0
// For tests: real streams on one machine. A member that is the real machine behind a gRPC server, a
// controller that is a plain client, and shells between them.
#pragma once

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/net/deadline.h"
#include "common/rpc/credentials.h"
#include "common/rpc/test_identities.h"
#include "gtest/gtest.h"
#include "starling/v1alpha1/membership.grpc.pb.h"
#include "trainer/coordinator/coordinator_shell.h"
#include "trainer/membership/convert.h"
#include "trainer/membership/member.h"
#include "trainer/membership/peer_coordinator.h"

namespace starling::coordinator {

inline constexpr char kJobUid[] = "u1";
inline constexpr absl::Duration kTimeout = absl::Seconds(10);

// Peers reach each other directly; every member steps when it is told to.
class FakeMember final : public v1alpha1::MemberControl::CallbackService {
 public:
  // It records from now on: nothing happens, but it answers.
  void Record() { records_ = true; }
  grpc::ServerUnaryReactor* Trace(grpc::CallbackServerContext* context, const v1alpha1::TraceQuery*,
                                  v1alpha1::TraceAnswer* answer) override {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    answer->mutable_id()->set_pod_uid(uid_);
    reactor->Finish(records_ ? grpc::Status::OK
                             : grpc::Status(grpc::StatusCode::UNIMPLEMENTED, "no such method"));
    return reactor;
  }

  FakeMember(const std::string& uid, const std::string& address,
             const tls::Identity& identity = rpc::TestIdentity("worker", kJobUid))
      : uid_(uid), member_({{uid, 0}, "", std::nullopt, {}}) {
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
  // What it reports of training.
  void Say(const v1alpha1::TrainingReport& training) {
    sync::MutexLock lock(mutex_);
    member_.SetTraining(
        {.bytes = training.SerializeAsString(), .has_result = false, .failure = ""});
  }
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
  membership::ViewNumber WaitForView(std::size_t members, membership::ViewNumber above,
                                     absl::Duration timeout = kTimeout) {
    sync::MutexLock lock(mutex_);
    const net::Deadline deadline = net::Deadline::After(timeout);
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
        owner_.Answer(owner_.member_.OnDirective(membership::FromProto(in_)));
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

  // It has no checkpoint, so that a job begins anew; steps are not made.
  void Answer(const membership::Actions& actions) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    for (const membership::Action& action : actions) {
      if (const auto* find = std::get_if<membership::FindCheckpoint>(&action)) {
        Answer(member_.OnCheckpointFound(find->view, std::nullopt));
      }
    }
  }

  const std::string uid_;
  std::atomic<bool> records_ = false;
  sync::Mutex mutex_;
  sync::Condition changed_;
  membership::Member member_ ABSL_GUARDED_BY(mutex_);
  grpc::Status allowed_ ABSL_GUARDED_BY(mutex_){grpc::StatusCode::UNKNOWN, "nobody called"};
  std::unique_ptr<grpc::Server> server_;
  int port_ = 0;
};

inline tls::Identity ControllersLeaf() { return rpc::TestIdentity("controller", kJobUid); }

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
  // Reads until a report is as it should be; false: the stream ended before.
  bool Await(const std::function<bool(const v1alpha1::CoordinatorReport&)>& holds) {
    while (Read()) {
      if (holds(report_)) return true;
    }
    return false;
  }

  // `follows`: ahead of time, to a standby of that incarnation.
  void Grant(const std::vector<std::string>& uids, std::uint64_t incarnation = 1,
             std::uint64_t follows = 0) {
    v1alpha1::ControllerMessage message;
    message.mutable_grant()->set_incarnation(incarnation);
    message.mutable_grant()->set_follows(follows);
    message.mutable_grant()->set_boot_id(report_.boot_id());
    for (const std::string& uid : uids) AddPod(uid, *message.mutable_grant()->add_roster());
    stream_->Write(message);
  }
  // From now on the coordinator is told of a standby with this incarnation; 0: of none.
  void NameStandby(std::uint64_t incarnation) { standby_ = incarnation; }
  // From now on a timeline is asked for by this word; empty: none.
  void AskForTrace(std::string request) { trace_request_ = std::move(request); }
  void Want(const std::vector<std::string>& uids, bool finished = false) {
    v1alpha1::ControllerMessage message;
    v1alpha1::Desired& desired = *message.mutable_desired();
    desired.set_sequence(++sequence_);
    desired.set_workers(static_cast<std::int64_t>(uids.size()));
    desired.set_min_workers(1);
    desired.set_finished(finished);
    desired.set_trace_request(trace_request_);
    if (standby_ != 0) {
      desired.mutable_standby()->set_incarnation(standby_);
      desired.mutable_standby()->set_ip("127.0.0.1");
    }
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
  std::uint64_t standby_ = 0;
  std::string trace_request_;
  bool ended_ = false;
};

class CoordinatorShellTest : public testing::Test {
 protected:
  // `grace`: how long the first view waits for members that are wanted. `standby_port`: where a
  // standby on this machine listens.
  std::unique_ptr<CoordinatorShell> Start(int member_port, absl::Duration grace = absl::Seconds(1),
                                          const std::string& boot_id = "boot",
                                          int standby_port = 0) {
    membership::CoordinatorOptions machine;
    machine.boot_id = boot_id;
    machine.heartbeat_timeout = absl::Seconds(60);
    machine.first_view_grace = grace;
    return Lead(
        member_port, [machine] { return std::make_unique<membership::PeerCoordinator>(machine); },
        standby_port);
  }
  std::unique_ptr<CoordinatorShell> Lead(int member_port, MachineFactory make_machine,
                                         int standby_port = 0) {
    ShellOptions options;
    options.on_done = [this] {
      sync::MutexLock lock(mutex_);
      done_ = true;
      changed_.NotifyAll();
    };
    options.listen = "127.0.0.1:0";
    options.member_port = member_port;
    options.standby_port = standby_port;
    options.identity = rpc::TestIdentity("coordinator", kJobUid);
    options.job_uid = kJobUid;
    options.exporters = std::move(exporters_);
    auto shell =
        CoordinatorShell::Start(std::move(options), std::move(make_machine), clock_, registry_);
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
  std::vector<std::unique_ptr<metric_export::Exporter>> exporters_;  // of the next that is started
  sync::Mutex mutex_;
  sync::Condition changed_;
  bool done_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace starling::coordinator
