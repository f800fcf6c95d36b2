// SPDX-License-Identifier: Apache-2.0
#include "common/http/http_server.h"

#include <poll.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/http/raw_client.h"
#include "common/net/socket.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace starling::http {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

Response Echo(const Request& request) {
  if (request.Path() == "/throw") throw std::runtime_error("secret detail");
  if (request.Path() == "/inject") {
    return {.body = "x", .headers = {{"Good", "1"}, {"Bad", "a\r\nSet-Cookie: b"}, {"B d", "2"}}};
  }
  return {.body = absl::StrCat("<", request.method, " ", request.target, " ", request.body, ">"),
          .headers = {}};
}

std::unique_ptr<HttpServer> StartEcho(HttpServerOptions options = {}) {
  auto server = HttpServer::Start(std::move(options), Echo);
  EXPECT_TRUE(server.ok()) << server.status();
  return *std::move(server);
}

std::string Ask(const HttpServer& server, std::string_view request) {
  RawClient client(server.port());
  client.Send(request);
  return client.Receive();
}

TEST(HttpServer, AnswersAGetAndKeepsTheConnectionForTheNext) {
  const auto server = StartEcho();
  RawClient client(server->port());
  client.Send("GET /a?b=1 HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_THAT(client.Receive(">"), HasSubstr("<GET /a?b=1 >"));
  client.Send("GET /second HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  const std::string answer = client.Receive();
  EXPECT_THAT(answer, HasSubstr("<GET /second >"));
  EXPECT_THAT(answer, Not(HasSubstr("<timeout>")));
}

TEST(HttpServer, WithoutAnAddressItAnswersOnThoseOfBothFamilies) {
  const auto server = HttpServer::Start({.address = ""}, Echo);
  ASSERT_TRUE(server.ok()) << server.status();
  EXPECT_TRUE(RawClient((*server)->port()).connected());
  const net::Address six{"::1", static_cast<std::uint16_t>((*server)->port())};
  if (!net::Listen({"::1", 0}).ok()) GTEST_SKIP() << "this machine has no address ::1";
  const auto socket = net::StartConnect(six);
  ASSERT_TRUE(socket.ok()) << socket.status();
  pollfd writable{socket->get(), POLLOUT, 0};
  ASSERT_EQ(::poll(&writable, 1, 5000), 1);
  EXPECT_EQ(net::ConnectResult(*socket, six), absl::OkStatus());
}

TEST(HttpServer, PipelinedRequestsAreEachAnsweredInOrder) {
  const auto server = StartEcho();
  const std::string answer = Ask(*server,
                                 "GET /1 HTTP/1.1\r\nHost: x\r\n\r\n"
                                 "POST /2 HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc"
                                 "GET /3 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  EXPECT_LT(answer.find("<GET /1 >"), answer.find("<POST /2 abc>"));
  EXPECT_LT(answer.find("<POST /2 abc>"), answer.find("<GET /3 >"));
  EXPECT_THAT(answer, HasSubstr("<GET /3 >"));
}

TEST(HttpServer, HeadHasTheLengthButNotTheBody) {
  const auto server = StartEcho();
  const std::string answer =
      Ask(*server, "HEAD /abc HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  EXPECT_THAT(answer, HasSubstr("Content-Length: 12\r\n"));
  EXPECT_THAT(answer, EndsWith("\r\n\r\n"));
}

TEST(HttpServer, ChunkedBodiesArriveWhole) {
  const auto server = StartEcho();
  EXPECT_THAT(Ask(*server,
                  "POST /p HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nConnection: "
                  "close\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n"),
              HasSubstr("<POST /p abc>"));
}

TEST(HttpServer, HeadersTooLargeGet431AndTheConnectionIsClosed) {
  const auto server = StartEcho();
  const std::string answer =
      Ask(*server, absl::StrCat("GET / HTTP/1.1\r\nHost: x\r\nX: ", std::string(64 * 1024, 'a')));
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 431"));
  EXPECT_THAT(answer, Not(HasSubstr("<timeout>")));
}

TEST(HttpServer, BodiesTooLargeGet413WhetherAnnouncedOrChunked) {
  const auto server = StartEcho({.body_limit = 1000});
  EXPECT_THAT(Ask(*server, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\nabc"),
              StartsWith("HTTP/1.1 413"));
  EXPECT_THAT(Ask(*server, absl::StrCat("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: "
                                        "chunked\r\n\r\n800\r\n",
                                        std::string(2048, 'a'), "\r\n0\r\n\r\n")),
              StartsWith("HTTP/1.1 413"));
}

// Each of these is one request to one parser and two, or another, to a second one.
class Smuggling : public ::testing::TestWithParam<const char*> {};

TEST_P(Smuggling, IsRefusedAndTheConnectionClosed) {
  const auto server = StartEcho();
  const std::string answer = Ask(*server, GetParam());
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 400"));
  EXPECT_THAT(answer, Not(HasSubstr("smuggled")));
  EXPECT_THAT(answer, Not(HasSubstr("<timeout>")));
}

constexpr const char* kSmuggling[] = {
    ("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n"
     "0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"),
    "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nContent-Length: 9\r\n\r\nabcdefghi",
    "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nContent-Length: 4\r\n\r\nabcd",
    "POST / HTTP/1.1\r\nHost: x\r\nContent-Length : 4\r\n\r\nabcd",
    "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: +4\r\n\r\nabcd",
    "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    "POST / HTTP/1.0\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nabc\r\n0\r\n\r\n",
    ("GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 41\r\n\r\n"
     "GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"),
    "GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
    "GET / HTTP/1.1\r\n\r\n",
    "GET http://elsewhere/ HTTP/1.1\r\nHost: x\r\n\r\n",
    "GET /a b HTTP/1.1\r\nHost: x\r\n\r\n",
    "nonsense\r\n\r\n",
};
INSTANTIATE_TEST_SUITE_P(HttpServer, Smuggling, ::testing::ValuesIn(kSmuggling));

TEST(HttpServer, SlowClientsDoNotHoldUpOthersAndAreClosedAtTheDeadline) {
  const auto server = StartEcho({.deadline = absl::Milliseconds(500)});
  std::vector<std::unique_ptr<RawClient>> slow;
  for (int i = 0; i < 100; ++i) {
    slow.push_back(std::make_unique<RawClient>(server->port()));
    slow.back()->Send("GET / HTTP/1.1\r\nHo");
  }
  const auto start = std::chrono::steady_clock::now();
  EXPECT_THAT(Ask(*server, "GET /fast HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"),
              HasSubstr("<GET /fast >"));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(400));
  for (auto& client : slow) EXPECT_EQ(client->Receive(), "");
}

TEST(HttpServer, ByteByByteClientsAreClosedAtTheDeadlineOfTheWholeRequest) {
  const auto server = StartEcho({.deadline = absl::Milliseconds(300)});
  RawClient client(server->port());
  client.Send("GET / HTTP/1.1\r\nX: ");
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  // Each byte comes well within the deadline; all together do not.
  while (client.Send("a") && std::chrono::steady_clock::now() < limit) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  EXPECT_LT(std::chrono::steady_clock::now(), limit);
}

std::unique_ptr<RawClient> IdleClient(const HttpServer& server) {
  auto client = std::make_unique<RawClient>(server.port());
  client->Send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_THAT(client->Receive(">"), HasSubstr("<GET / >"));
  return client;
}

TEST(HttpServer, WhoHoldsConnectionsShutsNobodyOut) {
  const auto server = StartEcho({.max_connections = 20});
  std::vector<std::unique_ptr<RawClient>> holders;
  for (int i = 0; i < 300; ++i) {
    holders.push_back(std::make_unique<RawClient>(server->port()));
    if (i % 2 == 0) holders.back()->Send("GET / HTTP/1.1\r\nHo");
    if (i % 50 == 49) {
      EXPECT_THAT(Ask(*server, "GET /a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"),
                  HasSubstr("<GET /a >"));
    }
  }
  EXPECT_LE(server->connections(), 20);
}

TEST(HttpServer, TheOneThatHasBeenIdleForTheLongestGoesForTheNewcomer) {
  const auto server = StartEcho({.max_connections = 2});
  const auto first = IdleClient(*server);
  const auto second = IdleClient(*server);
  first->Send("GET /again HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_THAT(first->Receive(">"), HasSubstr("<GET /again >"));
  const auto third = IdleClient(*server);
  EXPECT_EQ(second->Receive(), "");
  first->Send("GET /more HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_THAT(first->Receive(">"), HasSubstr("<GET /more >"));
}

TEST(HttpServer, AHandlerThatThrowsGives500WithoutTheDetail) {
  const auto server = StartEcho();
  const std::string answer =
      Ask(*server, "GET /throw HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 500"));
  EXPECT_THAT(answer, Not(HasSubstr("secret")));
}

TEST(HttpServer, HeadersThatWouldSplitTheAnswerAreDropped) {
  const auto server = StartEcho();
  const std::string answer =
      Ask(*server, "GET /inject HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  EXPECT_THAT(answer, HasSubstr("Good: 1\r\n"));
  EXPECT_THAT(answer, Not(HasSubstr("Set-Cookie")));
}

TEST(HttpServer, APortThatIsTakenIsAnErrorThatNamesIt) {
  const auto server = StartEcho();
  const auto second = HttpServer::Start({.port = server->port()}, Echo);
  ASSERT_FALSE(second.ok());
  EXPECT_THAT(std::string(second.status().message()),
              HasSubstr(absl::StrCat("127.0.0.1:", server->port())));
}

TEST(HttpServer, StopsWithClientsStillConnected) {
  auto server = StartEcho();
  RawClient client(server->port());
  ASSERT_TRUE(client.connected());
  client.Send("GET / HTT");
  server.reset();
  EXPECT_EQ(client.Receive(), "");
}

}  // namespace
}  // namespace starling::http
