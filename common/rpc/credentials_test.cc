// SPDX-License-Identifier: Apache-2.0
// A server and callers of several groups and roles, over the loopback device.
#include "common/rpc/credentials.h"

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <future>

#include "common/rpc/test_identities.h"
#include "gtest/gtest.h"

namespace starling::rpc {
namespace {

constexpr grpc::StatusCode kServed = grpc::StatusCode::ALREADY_EXISTS;

// Takes calls of role "boss" of group "a" and ends them with kServed.
class Server final : public grpc::CallbackGenericService {
 public:
  explicit Server(const tls::Identity& identity) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", ServerCredentials(identity), &port_);
    builder.RegisterCallbackGenericService(this);
    server_ = builder.BuildAndStart();
  }
  ~Server() override { server_->Shutdown(std::chrono::system_clock::now()); }
  int port() const { return port_; }

  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override {
    class Answer final : public grpc::ServerGenericBidiReactor {
     public:
      explicit Answer(const grpc::Status& status) { Finish(status); }
      void OnDone() override { delete this; }
    };
    const grpc::Status allowed = RequirePeer(*context->auth_context(), tls::PeerName("boss", "a"));
    return new Answer(allowed.ok() ? grpc::Status(kServed, "served") : allowed);
  }

 private:
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

grpc::Status Call(const Server& server, const std::shared_ptr<grpc::ChannelCredentials>& as,
                  const std::string& expected) {
  grpc::ChannelArguments arguments;
  ExpectPeer(arguments, expected);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  grpc::GenericStub stub(
      grpc::CreateCustomChannel("127.0.0.1:" + std::to_string(server.port()), as, arguments));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(10));
  const grpc::Slice nothing("");
  const grpc::ByteBuffer request(&nothing, 1);
  grpc::ByteBuffer response;
  std::promise<grpc::Status> done;
  stub.UnaryCall(&context, "/test/Call", grpc::StubOptions(), &request, &response,
                 [&done](grpc::Status status) { done.set_value(std::move(status)); });
  return done.get_future().get();
}

struct Credentials : ::testing::Test {
  Server server{TestIdentity("clerk", "a")};
  const std::string clerk = tls::PeerName("clerk", "a");
};

TEST_F(Credentials, RightRoleOfTheGroupIsServed) {
  const grpc::Status status = Call(server, ChannelCredentials(TestIdentity("boss", "a")), clerk);
  EXPECT_EQ(status.error_code(), kServed) << status.error_message();
}

TEST_F(Credentials, OtherRoleOfTheGroupIsDenied) {
  const grpc::Status status = Call(server, ChannelCredentials(TestIdentity("clerk", "a")), clerk);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_EQ(status.error_message(), "only boss.a.starling may call, not clerk.a.starling");
}

TEST_F(Credentials, OtherGroupDoesNotConnect) {
  const grpc::Status status = Call(server, ChannelCredentials(TestIdentity("boss", "b")), clerk);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE) << status.error_message();
}

// The server's authority is believed; it does not believe the caller's.
TEST_F(Credentials, LeafOfAnotherGroupIsRefusedByTheServerToo) {
  tls::Identity mixed = TestIdentity("boss", "b");
  mixed.authority = TestAuthority("a").certificate();
  const grpc::Status status = Call(server, ChannelCredentials(mixed), clerk);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE) << status.error_message();
}

TEST_F(Credentials, NobodyComesInWithoutACertificate) {
  grpc::SslCredentialsOptions options;
  options.pem_root_certs = TestAuthority("a").certificate();
  EXPECT_EQ(Call(server, grpc::SslCredentials(options), clerk).error_code(),
            grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(Call(server, grpc::InsecureChannelCredentials(), clerk).error_code(),
            grpc::StatusCode::UNAVAILABLE);
}

TEST_F(Credentials, ServerOfAnotherNameIsNotBelieved) {
  const grpc::Status status =
      Call(server, ChannelCredentials(TestIdentity("boss", "a")), tls::PeerName("clerk", "b"));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE) << status.error_message();
}

TEST_F(Credentials, LeafThatMayOnlyServeCannotCall) {
  const tls::Identity leaf = TestIdentity("boss", "a", tls::Usage::kServer);
  EXPECT_EQ(Call(server, ChannelCredentials(leaf), clerk).error_code(),
            grpc::StatusCode::UNAVAILABLE);
}

TEST_F(Credentials, ExpiredLeafIsRefused) {
  const tls::Identity old = *TestAuthority("a").Issue(
      {.dns_names = {tls::PeerName("boss", "a")},
       .validity = {absl::Now() - absl::Hours(2), absl::Now() - absl::Hours(1)}});
  EXPECT_EQ(Call(server, ChannelCredentials(old), clerk).error_code(),
            grpc::StatusCode::UNAVAILABLE);
}

}  // namespace
}  // namespace starling::rpc
