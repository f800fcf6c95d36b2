// SPDX-License-Identifier: Apache-2.0
// A server and callers of several groups and roles, over the loopback device.
#include "common/rpc/credentials.h"

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <future>

#include "gtest/gtest.h"

namespace starling::rpc {
namespace {

constexpr grpc::StatusCode kServed = grpc::StatusCode::ALREADY_EXISTS;

tls::Authority AuthorityOf(const std::string& group) {
  return *tls::Authority::Create(tls::Key::Derive(std::string(32, 's'), group), "group " + group,
                                 tls::ValidFrom(absl::Now(), absl::Hours(1)));
}

tls::Identity IdentityOf(const std::string& role, const std::string& group,
                         tls::Usage usage = tls::Usage::kBoth) {
  return *AuthorityOf(group).Issue({.dns_names = {PeerName(role, group)},
                                    .usage = usage,
                                    .validity = tls::ValidFrom(absl::Now(), absl::Hours(1))});
}

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
    const grpc::Status allowed = RequirePeer(*context->auth_context(), PeerName("boss", "a"));
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
  Server server{IdentityOf("clerk", "a")};
  const std::string clerk = PeerName("clerk", "a");
};

TEST_F(Credentials, RightRoleOfTheGroupIsServed) {
  const grpc::Status status = Call(server, ChannelCredentials(IdentityOf("boss", "a")), clerk);
  EXPECT_EQ(status.error_code(), kServed) << status.error_message();
}

TEST_F(Credentials, OtherRoleOfTheGroupIsDenied) {
  const grpc::Status status = Call(server, ChannelCredentials(IdentityOf("clerk", "a")), clerk);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_EQ(status.error_message(), "only boss.a.starling may call, not clerk.a.starling");
}

TEST_F(Credentials, OtherGroupDoesNotConnect) {
  const grpc::Status status = Call(server, ChannelCredentials(IdentityOf("boss", "b")), clerk);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE) << status.error_message();
}

// The server's authority is believed; it does not believe the caller's.
TEST_F(Credentials, LeafOfAnotherGroupIsRefusedByTheServerToo) {
  tls::Identity mixed = IdentityOf("boss", "b");
  mixed.authority = AuthorityOf("a").certificate();
  const grpc::Status status = Call(server, ChannelCredentials(mixed), clerk);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE) << status.error_message();
}

TEST_F(Credentials, NobodyComesInWithoutACertificate) {
  grpc::SslCredentialsOptions options;
  options.pem_root_certs = AuthorityOf("a").certificate();
  EXPECT_EQ(Call(server, grpc::SslCredentials(options), clerk).error_code(),
            grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(Call(server, grpc::InsecureChannelCredentials(), clerk).error_code(),
            grpc::StatusCode::UNAVAILABLE);
}

TEST_F(Credentials, ServerOfAnotherNameIsNotBelieved) {
  const grpc::Status status =
      Call(server, ChannelCredentials(IdentityOf("boss", "a")), PeerName("clerk", "b"));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE) << status.error_message();
}

TEST_F(Credentials, LeafThatMayOnlyServeCannotCall) {
  const tls::Identity leaf = IdentityOf("boss", "a", tls::Usage::kServer);
  EXPECT_EQ(Call(server, ChannelCredentials(leaf), clerk).error_code(),
            grpc::StatusCode::UNAVAILABLE);
}

TEST_F(Credentials, ExpiredLeafIsRefused) {
  const tls::Identity old = *AuthorityOf("a").Issue(
      {.dns_names = {PeerName("boss", "a")},
       .validity = {absl::Now() - absl::Hours(2), absl::Now() - absl::Hours(1)}});
  EXPECT_EQ(Call(server, ChannelCredentials(old), clerk).error_code(),
            grpc::StatusCode::UNAVAILABLE);
}

}  // namespace
}  // namespace starling::rpc
