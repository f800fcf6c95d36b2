// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/http/http_server.h"
#include "common/http/server_certificate.h"
#include "common/http/test_tls_client.h"
#include "common/tls/tls.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace starling::http {
namespace {

using ::testing::EndsWith;
using ::testing::StartsWith;

constexpr char kName[] = "server.test";
constexpr char kGet[] = "GET /a HTTP/1.1\r\nHost: server.test\r\n\r\n";

tls::Identity NewIdentity() {
  const absl::Time now = absl::Now();
  const auto authority = tls::Authority::Create(tls::Key::Generate(), "test authority",
                                                tls::ValidFrom(now, absl::Hours(24)));
  return authority
      ->Issue({.dns_names = {kName},
               .usage = tls::Usage::kServer,
               .validity = tls::ValidFrom(now, absl::Hours(24))})
      .value();
}

class Https : public ::testing::Test {
 protected:
  void Start(HttpServerOptions options = {}) {
    certificate_ = ServerCertificate::Create(identity_.certificate, identity_.key).value();
    options.certificate = certificate_;
    server_ = HttpServer::Start(options, [](const Request& request) {
                return Response{.body = absl::StrCat("<", request.target, request.body, ">"),
                                .headers = {}};
              }).value();
  }
  std::string Ask(std::string_view request, const std::string& authority) {
    TestTlsClient client(server_->port(), authority, kName);
    if (!client.trusted()) return "not trusted";
    client.Send(request);
    return client.Receive(">");
  }

  tls::Identity identity_ = NewIdentity();
  std::shared_ptr<ServerCertificate> certificate_;
  std::unique_ptr<HttpServer> server_;
};

TEST_F(Https, AnswersWhoTrustsItsAuthorityAndKeepsTheConnection) {
  Start();
  TestTlsClient client(server_->port(), identity_.authority, kName);
  ASSERT_TRUE(client.trusted());
  for (int i = 0; i < 3; ++i) {
    client.Send(kGet);
    EXPECT_THAT(client.Receive("</a>"), EndsWith("</a>"));
  }
}

TEST_F(Https, ProvesItselfToNobodyElse) {
  Start();
  EXPECT_FALSE(TestTlsClient(server_->port(), NewIdentity().authority, kName).trusted());
  EXPECT_FALSE(TestTlsClient(server_->port(), identity_.authority, "other.test").trusted());
  EXPECT_TRUE(TestTlsClient(server_->port(), identity_.authority, kName).trusted());
}

TEST_F(Https, VersionsBefore12AreRefused) {
  Start();
  EXPECT_FALSE(
      TestTlsClient(server_->port(), identity_.authority, kName, true, TLS1_1_VERSION).trusted());
  EXPECT_TRUE(
      TestTlsClient(server_->port(), identity_.authority, kName, true, TLS1_2_VERSION).trusted());
}

TEST_F(Https, ANewCertificateIsServedAtOnceAndOpenConnectionsGoOn) {
  Start();
  TestTlsClient open(server_->port(), identity_.authority, kName);
  ASSERT_TRUE(open.trusted());
  const tls::Identity next = NewIdentity();
  ASSERT_TRUE(certificate_->Replace(next.certificate, next.key).ok());
  EXPECT_THAT(Ask(kGet, next.authority), EndsWith("</a>"));
  EXPECT_EQ(Ask(kGet, identity_.authority), "not trusted");
  open.Send(kGet);
  EXPECT_THAT(open.Receive("</a>"), EndsWith("</a>"));
}

TEST_F(Https, ABadReplacementIsRefusedAndTheFormerKept) {
  Start();
  EXPECT_FALSE(certificate_->Replace("nonsense", identity_.key).ok());
  EXPECT_FALSE(certificate_->Replace(NewIdentity().certificate, identity_.key).ok());
  EXPECT_FALSE(certificate_->Replace(identity_.certificate, "").ok());
  EXPECT_FALSE(ServerCertificate::Create("", "").ok());
  EXPECT_THAT(Ask(kGet, identity_.authority), EndsWith("</a>"));
}

TEST_F(Https, BoundsAndRefusalsAreThoseOfPlainHttp) {
  Start({.body_limit = 1000});
  TestTlsClient large(server_->port(), identity_.authority, kName);
  large.Send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5000\r\n\r\n" + std::string(2000, 'x'));
  EXPECT_THAT(large.Receive(), StartsWith("HTTP/1.1 413"));
  TestTlsClient twice(server_->port(), identity_.authority, kName);
  twice.Send("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n");
  EXPECT_THAT(twice.Receive(), StartsWith("HTTP/1.1 400"));
}

TEST_F(Https, PlainTextAndSilenceHoldNobodyUpAndAreClosedAtTheDeadline) {
  Start({.deadline = absl::Milliseconds(500), .max_connections = 8});
  std::vector<std::unique_ptr<TestTlsClient>> silent;
  silent.reserve(6);
  for (int i = 0; i < 6; ++i) {
    silent.push_back(std::make_unique<TestTlsClient>(server_->port(), "", "", false));
  }
  TestTlsClient plain(server_->port(), "", "", false);
  plain.Send(kGet);
  EXPECT_THAT(Ask(kGet, identity_.authority), EndsWith("</a>"));
  const auto before = std::chrono::steady_clock::now();
  for (const auto& client : silent) EXPECT_EQ(client->Receive(), "");
  EXPECT_LT(std::chrono::steady_clock::now() - before, std::chrono::seconds(4));
}

TEST_F(Https, TheOldestIdleConnectionGoesForTheNewcomer) {
  Start({.max_connections = 1});
  TestTlsClient first(server_->port(), identity_.authority, kName);
  ASSERT_TRUE(first.trusted());
  EXPECT_THAT(Ask(kGet, identity_.authority), EndsWith("</a>"));
  EXPECT_EQ(first.Receive("</a>"), "");
}

TEST_F(Https, StopsInTheMiddleOfHandshakes) {
  Start();
  TestTlsClient half(server_->port(), "", "", false);
  half.Send("\x16\x03\x01");
  TestTlsClient whole(server_->port(), identity_.authority, kName);
  server_.reset();
  EXPECT_EQ(whole.Receive(), "");
}

}  // namespace
}  // namespace starling::http
