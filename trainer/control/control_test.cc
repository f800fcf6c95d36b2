// SPDX-License-Identifier: Apache-2.0
// The control service over real calls, and the command line.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "common/rpc/credentials.h"
#include "common/rpc/test_identities.h"
#include "common/sync/mutex.h"
#include "starling/v1alpha1/membership.grpc.pb.h"
#include "trainer/control/control_service.h"
#include "trainer/control/options.h"
#include "trainer/control/process.h"

namespace starling::control {
namespace {

using ::testing::HasSubstr;

// ThreadSanitizer cannot see how Debian's gRPC synchronises its threads and would report
// races that are none; the rest of the members runs under it.
#if defined(STARLING_THREAD_SANITIZER)
#define SKIP_UNDER_THREAD_SANITIZER() GTEST_SKIP() << "gRPC is not instrumented"
#else
#define SKIP_UNDER_THREAD_SANITIZER() static_cast<void>(0)
#endif

class Control {
 public:
  explicit Control(uint64_t highest_incarnation = 0, bool records = true) {
    ControlService::Handlers handlers{.on_directive =
                                          [this](const membership::Directive& directive) {
                                            sync::MutexLock lock(mutex_);
                                            turn_ = directive.checkpoint_turn;
                                          },
                                      .make_report =
                                          [this, highest_incarnation] {
                                            sync::MutexLock lock(mutex_);
                                            EXPECT_FALSE(forbidden_);
                                            membership::Report report;
                                            report.highest_incarnation = highest_incarnation;
                                            report.checkpoint_turn = turn_;
                                            return report;
                                          }};
    if (records) {
      handlers.on_trace = [](const v1alpha1::TraceQuery& query) {
        v1alpha1::TraceAnswer answer;
        answer.mutable_id()->set_pod_uid(query.request());
        return answer;
      };
    }
    service_ = *ControlService::Start(
        {.address = "127.0.0.1:0", .identity = rpc::TestIdentity("worker", "u1"), .job_uid = "u1"},
        std::move(handlers));
  }
  ControlService& service() { return *service_; }
  // From here on asking for a report is a failure.
  void Forbid() {
    sync::MutexLock lock(mutex_);
    forbidden_ = true;
  }

  std::unique_ptr<grpc::ClientReaderWriter<v1alpha1::Directive, v1alpha1::Report>> Dial(
      grpc::ClientContext& context,
      const tls::Identity& identity = rpc::TestIdentity("coordinator", "u1")) {
    return Stub(context, identity).Attend(&context);
  }
  v1alpha1::MemberControl::Stub& Stub(grpc::ClientContext& context, const tls::Identity& identity) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    rpc::ExpectPeer(arguments, tls::PeerName("worker", "u1"));
    stub_ = v1alpha1::MemberControl::NewStub(
        grpc::CreateCustomChannel(absl::StrCat("127.0.0.1:", service_->port()),
                                  rpc::ChannelCredentials(identity), arguments));
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(10));
    return *stub_;
  }

 private:
  sync::Mutex mutex_;
  int64_t turn_ = 0;
  bool forbidden_ = false;
  std::unique_ptr<ControlService> service_;
  std::unique_ptr<v1alpha1::MemberControl::Stub> stub_;
};

// How a call ends that shows this leaf and reads a report.
grpc::Status EndOfCall(const tls::Identity& identity) {
  Control control;
  control.service().Ready();
  grpc::ClientContext context;
  const auto call = control.Dial(context, identity);
  v1alpha1::Report report;
  EXPECT_FALSE(call->Read(&report));
  return call->Finish();
}

TEST(ControlService, RefusesOtherRolesOfTheJobByName) {
  SKIP_UNDER_THREAD_SANITIZER();
  for (const char* role : {"worker", "controller"}) {
    const grpc::Status status = EndOfCall(rpc::TestIdentity(role, "u1"));
    EXPECT_EQ(status.error_code(), grpc::StatusCode::PERMISSION_DENIED) << status.error_message();
    EXPECT_EQ(status.error_message(),
              absl::StrCat("only coordinator.u1.starling may call, not ", role, ".u1.starling"));
  }
}

// How a question for a timeline ends that shows this leaf.
grpc::Status AskForTrace(Control& control, const tls::Identity& identity,
                         v1alpha1::TraceAnswer& answer) {
  grpc::ClientContext context;
  v1alpha1::TraceQuery query;
  query.set_request("r");
  return control.Stub(context, identity).Trace(&context, query, &answer);
}

TEST(ControlService, ATimelineIsForTheCoordinatorAlone) {
  SKIP_UNDER_THREAD_SANITIZER();
  Control control;
  v1alpha1::TraceAnswer answer;
  EXPECT_TRUE(AskForTrace(control, rpc::TestIdentity("coordinator", "u1"), answer).ok());
  EXPECT_EQ(answer.id().pod_uid(), "r") << "what is answered arrives";
  EXPECT_EQ(AskForTrace(control, rpc::TestIdentity("worker", "u1"), answer).error_code(),
            grpc::StatusCode::PERMISSION_DENIED);
}

TEST(ControlService, WhoRecordsNothingSaysSo) {
  SKIP_UNDER_THREAD_SANITIZER();
  Control control(0, /*records=*/false);
  v1alpha1::TraceAnswer answer;
  EXPECT_EQ(AskForTrace(control, rpc::TestIdentity("coordinator", "u1"), answer).error_code(),
            grpc::StatusCode::UNIMPLEMENTED);
}

TEST(ControlService, RefusesTheCoordinatorOfAnotherJobInTheHandshake) {
  SKIP_UNDER_THREAD_SANITIZER();
  tls::Identity other = rpc::TestIdentity("coordinator", "u2");
  other.authority = rpc::TestAuthority("u1").certificate();
  EXPECT_EQ(EndOfCall(other).error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST(ControlService, ReportsOnceReadyAndAtOnceOnChange) {
  SKIP_UNDER_THREAD_SANITIZER();
  Control control;
  grpc::ClientContext context;
  const auto call = control.Dial(context);
  v1alpha1::Directive directive;
  directive.set_incarnation(1);
  directive.set_checkpoint_turn(5);
  ASSERT_TRUE(call->Write(directive));
  control.service().Ready();

  v1alpha1::Report report;
  do {
    ASSERT_TRUE(call->Read(&report));
  } while (report.checkpoint_turn() != 5);
  EXPECT_TRUE(control.service().Flush(absl::Seconds(10)));
  call->WritesDone();
}

TEST(ControlService, HangsUpOnACoordinatorThatWasSuperseded) {
  SKIP_UNDER_THREAD_SANITIZER();
  Control control(/*highest_incarnation=*/3);
  control.service().Ready();
  grpc::ClientContext context;
  const auto call = control.Dial(context);
  v1alpha1::Directive directive;
  directive.set_incarnation(2);
  ASSERT_TRUE(call->Write(directive));

  v1alpha1::Report report;
  uint64_t seen = 0;
  while (call->Read(&report)) seen = report.highest_incarnation();
  EXPECT_EQ(seen, 3u);
  EXPECT_TRUE(call->Finish().ok());
}

TEST(ControlService, OnceStoppedCallsNoHandlerAndTakesNotificationsOfWhoeverEndsLater) {
  SKIP_UNDER_THREAD_SANITIZER();
  Control control;
  control.service().Ready();
  grpc::ClientContext context;
  const auto call = control.Dial(context);
  v1alpha1::Report report;
  ASSERT_TRUE(call->Read(&report));

  control.service().Stop();
  control.Forbid();

  control.service().Notify();
  while (call->Read(&report)) {
  }
  control.service().Stop();
}

// Command line.

TEST(Options, TakesBothFormsAndNamesWhatIsMissing) {
  const auto options = ParseOptions({"--spec", "s", "--secret=k", "--address", "127.0.0.1",
                                     "--pod-name", "p", "--pod-uid", "u", "--job-uid", "j",
                                     "--job-name", "n", "--job-dir", "d", "--tls", "t"});
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->secret_path, "k");
  EXPECT_EQ(options->job_dir, "d");

  EXPECT_THAT(ParseOptions({"--spec", "s"}).status().message(), HasSubstr("--secret is required"));
  EXPECT_THAT(ParseOptions({"--specs", "s"}).status().message(), HasSubstr("unknown flag --specs"));
  EXPECT_THAT(ParseOptions({"--spec"}).status().message(), HasSubstr("--spec needs a value"));
}

TEST(Options, ReadsHowTheProcessBeforeEnded) {
  const std::string path = absl::StrCat(::testing::TempDir(), "last_exit_", getpid(), ".json");
  std::ofstream(path) << R"({"exitCode": 1, "signal": 9, "logTail": "oops", "unixNanos": 7})";

  const auto exit = ReadLastExit(path);

  ASSERT_TRUE(exit.has_value());
  EXPECT_EQ(exit->signal, 9);
  EXPECT_EQ(exit->log_tail, "oops");
  EXPECT_FALSE(ReadLastExit(path + ".absent").has_value());
  std::remove(path.c_str());
}

}  // namespace
}  // namespace starling::control
