// SPDX-License-Identifier: Apache-2.0
// The client against our own server, and against servers that are broken, hostile or slow: a clear
// status, in time, and nothing sent twice that must not be.
#include "common/http/http_client.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netdb.h>
#include <pthread.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/http/http_server.h"
#include "common/http/scripted_server.h"
#include "common/sync/mutex.h"

namespace {

// Names below .test are looked up until they are released, and then not found.
class HeldNames {
 public:
  void Hold() {
    const starling::sync::MutexLock lock(mutex_);
    held_ = true;
  }
  // Returns when nobody looks them up any more.
  void Release() {
    const starling::sync::MutexLock lock(mutex_);
    held_ = false;
    changed_.NotifyAll();
    while (waiting_ > 0) changed_.Wait(mutex_);
  }
  void Await() {
    const starling::sync::MutexLock lock(mutex_);
    ++waiting_;
    // Not for ever: a client that waits for the resolver must fail its test, not hang it.
    for (int i = 0; i < 20 && held_; ++i) changed_.WaitFor(mutex_, absl::Seconds(1));
    --waiting_;
    changed_.NotifyAll();
  }

 private:
  starling::sync::Mutex mutex_;
  starling::sync::Condition changed_;
  bool held_ ABSL_GUARDED_BY(mutex_) = false;
  int waiting_ ABSL_GUARDED_BY(mutex_) = 0;
};

HeldNames& SlowNames() {
  static HeldNames& names = *new HeldNames();
  return names;
}

}  // namespace

// In place of the C library's, which it calls for all other names.
extern "C" int getaddrinfo(const char* name, const char* service, const addrinfo* hints,
                           addrinfo** found) {
  if (name != nullptr && std::string(name).ends_with(".test")) {
    SlowNames().Await();
    return EAI_AGAIN;
  }
  static const auto real =
      reinterpret_cast<decltype(&::getaddrinfo)>(::dlsym(RTLD_NEXT, "getaddrinfo"));
  return real(name, service, hints, found);
}

namespace starling::http {
namespace {

using testing::HasSubstr;

ClientOptions Quick() {
  ClientOptions options;
  options.timeout = absl::Seconds(2);
  return options;
}

std::unique_ptr<HttpClient> Open(const std::string& url, ClientOptions options = Quick()) {
  auto client = HttpClient::Open(url, std::move(options));
  EXPECT_TRUE(client.ok()) << client.status();
  return *std::move(client);
}

Request Get(std::string target = "/x") { return {"GET", std::move(target), "", {}}; }
Request Post() { return {"POST", "/x", "{}", {{"Content-Type", "application/json"}}}; }

// What becomes of a Get from this server.
absl::StatusOr<Response> Answer(const ScriptedServer::Handler& handler,
                                ClientOptions options = Quick()) {
  const ScriptedServer server(handler);
  const absl::Time begin = absl::Now();
  auto answer = Open(server.url(), std::move(options))->Exchange(Get());
  EXPECT_LT(absl::Now() - begin, absl::Seconds(5)) << "it hung";
  return answer;
}

bool Ok(Conversation& c, int /*number*/) {
  c.Answer(200, "well");
  return true;
}

// With our own server.

struct OwnServer {
  OwnServer() {
    auto started = HttpServer::Start({}, [](const Request& request) {
      Response response;
      response.body = absl::StrCat(request.method, " ", request.target, " ", request.body, " ",
                                   std::string(request.Header("X-Say")));
      response.headers = {{"X-Answer", "42"}};
      if (request.Path() == "/none") response.status = 404;
      if (request.Path() == "/empty") response.body = "";
      if (request.Path() == "/large") response.body = std::string(3 << 20, 'x');
      return response;
    });
    EXPECT_TRUE(started.ok()) << started.status();
    server = *std::move(started);
  }
  std::string url() const { return absl::StrCat("http://127.0.0.1:", server->port()); }
  std::unique_ptr<HttpServer> server;
};

TEST(HttpClient, SaysToOurServerWhatItWasToldAndHearsTheAnswer) {
  const OwnServer own;
  auto client = Open(own.url() + "/root/");

  Request request{"PUT", "/a%20b?c=d", "body", {{"X-Say", "more"}}};
  const auto answer = client->Exchange(request);
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->body, "PUT /root/a%20b?c=d body more");
  EXPECT_EQ(answer->status, 200);
  EXPECT_EQ(answer->Header("x-answer"), "42");
  EXPECT_EQ(answer->content_type, "text/plain; charset=utf-8");
}

TEST(HttpClient, TakesAnswersOfEverySizeOnOneConnection) {
  const OwnServer own;
  auto client = Open(own.url());
  for (int round = 0; round < 2; ++round) {
    EXPECT_EQ(client->Exchange(Get("/empty"))->body, "");
    EXPECT_EQ(client->Exchange(Get("/large"))->body.size(), std::size_t{3} << 20);
    EXPECT_EQ(client->Exchange(Get("/none"))->status, 404);
    const auto head = client->Exchange({"HEAD", "/large", "", {}});
    ASSERT_TRUE(head.ok()) << head.status();
    EXPECT_EQ(head->body, "");
    EXPECT_EQ(head->Header("Content-Length"), absl::StrCat(3 << 20));
  }
}

TEST(HttpClient, RefusesToSendWhatWouldBeReadAsAnotherRequest) {
  const OwnServer own;
  auto client = Open(own.url());
  for (const Request& bad :
       {Request{"GET", "/a b", "", {}}, Request{"GET", "/a\r\nX: y", "", {}},
        Request{"G T", "/a", "", {}}, Request{"GET", "a", "", {}},
        Request{"GET", "/a", "", {{"X", "y\r\nZ: 1"}}}, Request{"GET", "/a", "", {{"X:", "y"}}}}) {
    EXPECT_TRUE(absl::IsInvalidArgument(client->Exchange(bad).status())) << bad.target;
  }
}

TEST(HttpClient, AStreamFromOurServerComesInPiecesAndEnds) {
  const OwnServer own;
  auto client = Open(own.url());
  for (int round = 0; round < 2; ++round) {
    auto stream = client->Stream(Get("/large"), absl::Seconds(10));
    ASSERT_TRUE(stream->AwaitHead(absl::Seconds(5)).ok());
    std::size_t size = 0;
    absl::Status end;
    while (end.ok()) {
      const auto piece = stream->Next(absl::Seconds(5));
      end = piece.status();
      if (piece.ok() && *piece) size += (*piece)->size();
    }
    EXPECT_TRUE(absl::IsOutOfRange(end)) << end;
    EXPECT_TRUE(stream->ended());
    EXPECT_EQ(size, std::size_t{3} << 20);
  }
}

// With servers that misbehave.

TEST(HttpClient, ConnectionsAreKept) {
  ScriptedServer server(Ok);
  auto client = Open(server.url());
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(client->Exchange(Get()).ok());
  EXPECT_EQ(server.requests(), 3);
  EXPECT_EQ(server.connections(), 1);
}

TEST(HttpClient, ARedirectIsNotFollowed) {
  const ScriptedServer elsewhere(Ok);
  const std::string url = elsewhere.url();
  const auto answer = Answer([&](Conversation& c, int) {
    c.Answer(302, "", "text/plain", "Location: " + url + "/x\r\n");
    return true;
  });
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->status, 302);
  const absl::Status meant = StatusOf(*answer, "the store");
  EXPECT_TRUE(absl::IsFailedPrecondition(meant)) << meant;
  EXPECT_THAT(meant.message(), HasSubstr("sends us to " + url + "/x; redirects are not followed"));
  EXPECT_EQ(answer->Header("Location"), url + "/x");
  EXPECT_EQ(elsewhere.requests(), 0);
}

TEST(HttpClient, AHugeAnswerIsGivenUp) {
  ClientOptions options = Quick();
  options.body_limit = 1U << 20U;
  const auto answer = Answer(
      [](Conversation& c, int) {
        c.Say("HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\n");
        for (int i = 0; i < 10'000 && c.Pause(0); ++i) c.Chunk(std::string(64 * 1024, ' '));
        return false;
      },
      options);
  EXPECT_TRUE(absl::IsFailedPrecondition(answer.status())) << answer.status();
  EXPECT_THAT(answer.status().message(), HasSubstr("1048576 bytes"));
}

TEST(HttpClient, HeadersWithoutEndAreGivenUp) {
  const auto answer = Answer([](Conversation& c, int) {
    c.Say("HTTP/1.1 200 X\r\n");
    for (int i = 0; c.Pause(i % 64 == 0 ? 1 : 0); ++i) {
      c.Say("X-" + std::to_string(i) + ": " + std::string(4000, 'x') + "\r\n");
    }
    return false;
  });
  EXPECT_TRUE(absl::IsFailedPrecondition(answer.status())) << answer.status();
  EXPECT_THAT(answer.status().message(), HasSubstr("have no end"));
}

// The connection is not at fault, and the answer would be the same.
TEST(HttpClient, HeadersThatAreTooLongAreNotAskedForTwice) {
  const ScriptedServer server([](Conversation& c, int number) {
    if (number == 0) return Ok(c, number);
    c.Say("HTTP/1.1 200 X\r\nX: " + std::string(1 << 20, 'x') + "\r\n\r\n");
    return false;
  });
  auto client = Open(server.url());
  ASSERT_TRUE(client->Exchange(Get()).ok());
  const absl::Status status = client->Exchange(Get()).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_EQ(server.requests(), 2);
}

// Nothing was sent, so it must not look like a server that does not answer.
TEST(HttpClient, WhatItsOwnLimitHoldsTooLongIsToldAtOnceAndNotSent) {
  ScriptedServer server(Ok);
  ClientOptions options = Quick();
  options.take_token = [] { return absl::Seconds(30); };
  auto client = Open(server.url(), options);
  const absl::Time begin = absl::Now();
  for (const absl::Status& status :
       {client->Exchange(Get()).status(),
        client->Stream(Get(), absl::Seconds(3))->AwaitHead(absl::Seconds(2))}) {
    EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
    EXPECT_THAT(status.message(), HasSubstr("this client's own limit"));
  }
  EXPECT_LT(absl::Now() - begin, absl::Seconds(1));
  EXPECT_EQ(server.connections(), 0);
}

TEST(HttpClient, ANameThatIsLookedUpForEverHoldsNobodyUp) {
  SlowNames().Hold();
  const absl::Time begin = absl::Now();
  ClientOptions options = Quick();
  options.timeout = absl::Milliseconds(200);
  const absl::Status status =
      Open("http://held.test:1", std::move(options))->Exchange(Get()).status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr("in time, while its name was looked up"));
  auto client = Open("http://held.test:1");
  auto stream = client->Stream(Get(), absl::Seconds(60));
  EXPECT_TRUE(absl::IsUnavailable(stream->AwaitHead(absl::Milliseconds(50))));
  std::thread stopper([&] { stream->Stop(); });
  EXPECT_TRUE(absl::IsCancelled(stream->Next(absl::Seconds(30)).status()));
  stopper.join();
  stream.reset();
  EXPECT_LT(absl::Now() - begin, absl::Seconds(5));
  SlowNames().Release();
}

TEST(HttpClient, ANameIsLookedUpAndOneThatIsNoneIsTold) {
  const ScriptedServer server(Ok);
  const std::string url = server.url();
  EXPECT_TRUE(Open("http://localhost" + url.substr(url.rfind(':')))->Exchange(Get()).ok());
  SlowNames().Hold();
  SlowNames().Release();  // at once, with a failure
  const absl::Status status = Open("http://held.test:1")->Exchange(Get()).status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr("http://held.test:1: the addresses of its name cannot"));
}

TEST(HttpClient, DrippingDoesNotStretchTheDeadline) {
  for (const bool in_head : {true, false}) {
    const auto answer = Answer([&](Conversation& c, int) {
      c.Say(in_head ? "HTTP/1.1 200 X\r\nX: " : "HTTP/1.1 200 X\r\nContent-Length: 1000\r\n\r\n{");
      while (c.Pause(50)) c.Say(" ");
      return false;
    });
    EXPECT_TRUE(absl::IsUnavailable(answer.status())) << answer.status();
    EXPECT_THAT(answer.status().message(), HasSubstr("in time"));
  }
}

TEST(HttpClient, ASilentServerIsGivenUpInTime) {
  const auto answer = Answer([](Conversation& c, int) {
    c.AwaitTheirEnd();
    return false;
  });
  EXPECT_TRUE(absl::IsUnavailable(answer.status())) << answer.status();
  EXPECT_THAT(answer.status().message(), HasSubstr("in time"));
}

TEST(HttpClient, SignalsDoNotEndAWait) {
  struct sigaction heard {};
  heard.sa_handler = [](int) {};  // and no SA_RESTART
  struct sigaction before {};
  ::sigaction(SIGUSR1, &heard, &before);
  const pthread_t waiting = ::pthread_self();
  const auto answer = Answer([waiting](Conversation& c, int number) {
    for (int i = 0; i < 5; ++i) {
      absl::SleepFor(absl::Milliseconds(20));
      ::pthread_kill(waiting, SIGUSR1);
    }
    return Ok(c, number);
  });
  ::sigaction(SIGUSR1, &before, nullptr);

  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->body, "well");
}

TEST(HttpClient, AnAnswerThatBreaksOffOrIsNoHttpSaysSo) {
  struct Case {
    const char* bytes;
    const char* message;
  };
  for (const Case& c :
       {Case{"", "broke before the answer was whole"},
        Case{"HTTP/1.1 200 X\r\nContent-Le", "broke before"},
        Case{"HTTP/1.1 200 X\r\nContent-Length: 10\r\n\r\nhalf", "broke before"},
        Case{"HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nha", "broke before"},
        Case{"SSH-2.0-OpenSSH\r\n\r\n", "not HTTP"},
        Case{"HTTP/1.1 200 X\r\nContent-Length: -1\r\n\r\n", "not HTTP"}}) {
    const auto answer = Answer([&](Conversation& conversation, int) {
      conversation.Say(c.bytes);
      return false;
    });
    EXPECT_TRUE(absl::IsUnavailable(answer.status())) << c.bytes;
    EXPECT_THAT(answer.status().message(), HasSubstr(c.message)) << c.bytes;
  }
}

TEST(HttpClient, AWriteThatBrokeIsNeverSentTwice) {
  const ScriptedServer server(
      [](Conversation& c, int number) { return number == 0 && Ok(c, number); });
  auto client = Open(server.url());
  ASSERT_TRUE(client->Exchange(Get()).ok());
  EXPECT_TRUE(absl::IsUnavailable(client->Exchange(Post()).status()));
  EXPECT_EQ(server.requests(), 2);
}

TEST(HttpClient, AReadThatBrokeOnAnOldConnectionIsRepeatedOnce) {
  const ScriptedServer server(
      [](Conversation& c, int number) { return number != 1 && Ok(c, number); });
  auto client = Open(server.url());
  ASSERT_TRUE(client->Exchange(Get()).ok());
  EXPECT_TRUE(client->Exchange(Get()).ok());
  EXPECT_EQ(server.requests(), 3);
}

TEST(HttpClient, LaterMeansLater) {
  const ScriptedServer server([](Conversation& c, int number) {
    if (number < 2) {
      c.Answer(number == 0 ? 429 : 503, "busy", "text/plain", "Retry-After: 0\r\n");
    } else {
      c.Answer(201, "made");
    }
    return true;
  });
  EXPECT_EQ(Open(server.url())->Exchange(Post())->status, 201);
  EXPECT_EQ(server.requests(), 3);
}

TEST(HttpClient, LaterThanTheDeadlineIsAnAnswer) {
  const auto answer = Answer([](Conversation& c, int) {
    c.Answer(429, "busy", "text/plain", "Retry-After: 60\r\n");
    return true;
  });
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_TRUE(absl::IsResourceExhausted(StatusOf(*answer, "it")));
}

TEST(HttpClient, EveryRequestIsCountedLimitedAndSigned) {
  const ScriptedServer server([](Conversation& c, int number) {
    const bool known = c.request.find("X-Who: second\r\n") != std::string::npos;
    EXPECT_THAT(c.request, HasSubstr("User-Agent: test\r\n"));
    c.Answer(number == 0 || known ? (number == 0 ? 401 : 200) : 403, "");
    return true;
  });
  std::atomic<int> tokens = 0;
  std::vector<int> seen;
  ClientOptions options = Quick();
  options.headers = {{"User-Agent", "test"}};
  options.take_token = [&] {
    ++tokens;
    return absl::ZeroDuration();
  };
  options.observe = [&](const Observation& o) { seen.push_back(o.status); };
  options.authorize = [](Request& request, bool again) {
    request.headers.emplace_back("X-Who", again ? "second" : "first");
    return absl::OkStatus();
  };
  EXPECT_EQ(Open(server.url(), options)->Exchange(Get())->status, 200);
  EXPECT_EQ(tokens, 2);
  EXPECT_THAT(seen, testing::ElementsAre(401, 200));
}

TEST(HttpClient, NobodyAtThePortIsUnavailable) {
  std::string url;
  {
    const ScriptedServer gone(Ok);
    url = gone.url();
  }
  const absl::Status status = Open(url)->Exchange(Get()).status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr("cannot be reached"));
  EXPECT_THAT(status.message(), HasSubstr(url));
}

TEST(HttpClient, AUrlThatIsNoneIsRefused) {
  for (const char* url : {"", "example.org", "ftp://x", "http://", "http://a:0", "http://a:b",
                          "https://user@host", "http://[::1", "http://a/b?c"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(HttpClient::Open(url, {}).status())) << url;
  }
  const auto endpoint = Endpoint::Parse("https://[::1]:8443/a/b//");
  ASSERT_TRUE(endpoint.ok()) << endpoint.status();
  EXPECT_EQ(endpoint->host, "::1");
  EXPECT_EQ(endpoint->path, "/a/b");
  EXPECT_EQ(endpoint->Authority(), "[::1]:8443");
}

// Streams.

TEST(HttpStream, GivesPiecesAsTheyComeAndNothingWhileNoneDoes) {
  sync::Mutex mutex;
  sync::Condition changed;
  bool go_on = false;
  const ScriptedServer server([&](Conversation& c, int) {
    c.Say("HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\n");
    c.Chunk("one\n");
    {
      const sync::MutexLock lock(mutex);
      while (!go_on) changed.Wait(mutex);
    }
    c.Chunk("two\n");
    c.Say("0\r\n\r\n");
    return true;
  });
  auto client = Open(server.url());
  auto stream = client->Stream(Get(), absl::Seconds(30));
  const auto first = stream->Next(absl::Seconds(5));
  ASSERT_TRUE(first.ok() && *first) << first.status();
  EXPECT_EQ(**first, "one\n");
  const auto none = stream->Next(absl::Milliseconds(20));
  ASSERT_TRUE(none.ok()) << none.status();
  EXPECT_FALSE(none->has_value());
  {
    const sync::MutexLock lock(mutex);
    go_on = true;
    changed.NotifyAll();
  }
  const auto second = stream->Next(absl::Seconds(5));
  ASSERT_TRUE(second.ok() && *second) << second.status();
  EXPECT_EQ(**second, "two\n");
  EXPECT_TRUE(absl::IsOutOfRange(stream->Next(absl::Seconds(5)).status()));
}

TEST(HttpStream, AnAnswerThatIsAnErrorIsAStatusWithItsText) {
  const ScriptedServer server([](Conversation& c, int) {
    c.Answer(404, "no such thing", "text/plain");
    return true;
  });
  auto client = Open(server.url());
  const absl::Status status = client->Stream(Get(), absl::Seconds(30))->AwaitHead(absl::Seconds(5));
  EXPECT_TRUE(absl::IsNotFound(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr("no such thing"));
  auto stream = client->Stream(Get(), absl::Seconds(30));
  absl::StatusOr<std::optional<std::string>> piece = std::optional<std::string>();
  while (piece.ok()) piece = stream->Next(absl::ZeroDuration());
  EXPECT_TRUE(absl::IsNotFound(piece.status())) << piece.status();
  EXPECT_FALSE(stream->ended());
}

TEST(HttpStream, StopEndsAReaderThatWaits) {
  const ScriptedServer server([](Conversation& c, int) {
    c.Say("HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\n");
    c.AwaitTheirEnd();
    return false;
  });
  auto client = Open(server.url());
  auto stream = client->Stream(Get(), absl::Seconds(60));
  ASSERT_TRUE(stream->AwaitHead(absl::Seconds(5)).ok());
  std::thread stopper([&] { stream->Stop(); });
  const absl::Time begin = absl::Now();
  EXPECT_TRUE(absl::IsCancelled(stream->Next(absl::Seconds(30)).status()));
  EXPECT_LT(absl::Now() - begin, absl::Seconds(5));
  stopper.join();
}

TEST(HttpStream, IsCutAtTheEndOfItsLifetimeAndWhenTheServerBreaksOff) {
  const ScriptedServer server([](Conversation& c, int number) {
    c.Say("HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\n");
    c.Chunk("one\n");
    if (number == 0) c.AwaitTheirEnd();
    return false;
  });
  auto client = Open(server.url());
  for (int round = 0; round < 2; ++round) {
    auto stream = client->Stream(Get(), absl::Milliseconds(300));
    ASSERT_TRUE(stream->Next(absl::Seconds(5)).ok());
    absl::StatusOr<std::optional<std::string>> piece = std::optional<std::string>();
    while (piece.ok()) piece = stream->Next(absl::Seconds(5));
    EXPECT_TRUE(absl::IsUnavailable(piece.status())) << piece.status();
    EXPECT_FALSE(stream->ended());
  }
}

TEST(HttpStream, ASlowReaderSlowsTheServerAndLosesNothing) {
  constexpr int kChunks = 400;
  const ScriptedServer server([](Conversation& c, int) {
    c.Say("HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\n");
    for (int i = 0; i < kChunks; ++i) c.Chunk(std::string(64 * 1024, 'x'));
    c.Say("0\r\n\r\n");
    return true;
  });
  auto client = Open(server.url());
  auto stream = client->Stream(Get(), absl::Seconds(60));
  ASSERT_TRUE(stream->AwaitHead(absl::Seconds(5)).ok());
  std::size_t size = 0;
  while (true) {
    const auto piece = stream->Next(absl::Seconds(10));
    if (!piece.ok()) break;
    if (*piece) size += (*piece)->size();
  }
  EXPECT_TRUE(stream->ended());
  EXPECT_EQ(size, std::size_t{kChunks} * 64 * 1024);
}

// TLS.

// Over TLS with this certificate, believing what `tls` says.
absl::Status OverTls(const TestCertificate& shown, const ClientTls& tls) {
  const ScriptedServer server(Ok, &shown);
  ClientOptions options = Quick();
  options.tls = [tls] { return tls; };
  return Open(server.url(), options)->Exchange(Get()).status();
}

ClientTls Believing(std::string authority) {
  ClientTls tls;
  tls.authority = std::move(authority);
  return tls;
}

TEST(HttpsClient, BelievesTheGivenAuthorityAloneOrTheSystems) {
  const TestCertificate good("127.0.0.1", 3600);
  const TestCertificate other("127.0.0.1", 3600);
  const std::string path = std::filesystem::temp_directory_path() /
                           ("starling-system-authority-" + std::to_string(::getpid()));
  std::ofstream(path) << other.Pem();
  ::setenv("SSL_CERT_FILE", path.c_str(), 1);  // the system's believes `other`

  EXPECT_TRUE(OverTls(good, Believing(good.Pem())).ok());
  EXPECT_TRUE(OverTls(other, {}).ok()) << "no authority is given: the system's counts";
  const absl::Status refused = OverTls(other, Believing(good.Pem()));
  EXPECT_TRUE(absl::IsUnavailable(refused)) << refused;
  EXPECT_THAT(refused.message(), HasSubstr("not to be trusted"));
  ::unsetenv("SSL_CERT_FILE");
  std::filesystem::remove(path);
}

TEST(HttpsClient, RefusesACertificateForAnotherHostOrOfYesterday) {
  const TestCertificate elsewhere("127.0.0.9", 3600);
  const absl::Status wrong = OverTls(elsewhere, Believing(elsewhere.Pem()));
  EXPECT_TRUE(absl::IsUnavailable(wrong)) << wrong;
  EXPECT_THAT(wrong.message(), HasSubstr("host name"));
  ClientTls named = Believing(elsewhere.Pem());
  named.server_name = "127.0.0.9";
  EXPECT_TRUE(OverTls(elsewhere, named).ok()) << "the name to expect can be given";

  const TestCertificate expired("127.0.0.1", -3600);
  const absl::Status late = OverTls(expired, Believing(expired.Pem()));
  EXPECT_TRUE(absl::IsUnavailable(late)) << late;
  EXPECT_THAT(late.message(), HasSubstr("expired"));
  ClientTls insecure;
  insecure.insecure = true;
  EXPECT_TRUE(OverTls(expired, insecure).ok());
}

TEST(HttpsClient, CertificatesThatWereReplacedCountFromTheNextConnectionOn) {
  const TestCertificate good("127.0.0.1", 3600);
  const TestCertificate other("127.0.0.1", 3600);
  const ScriptedServer server(Ok, &good);
  ClientTls tls = Believing(good.Pem());
  ClientOptions options = Quick();
  options.most_idle_connections = 0;  // each exchange has one of its own
  options.tls = [&tls] { return tls; };
  const auto client = Open(server.url(), options);
  EXPECT_TRUE(client->Exchange(Get()).ok());
  EXPECT_TRUE(client->Exchange(Get()).ok()) << "with what the first one made";
  tls = Believing(other.Pem());
  EXPECT_THAT(client->Exchange(Get()).status().message(), HasSubstr("not to be trusted"));
  tls = Believing(good.Pem());
  EXPECT_TRUE(client->Exchange(Get()).ok());
}

TEST(HttpsClient, WhatIsNoCertificateShowsWhenTheClientIsOpened) {
  const TestCertificate good("127.0.0.1", 3600);
  const auto open = [](const ClientTls& tls) {
    ClientOptions options;
    options.tls = [tls] { return tls; };
    return HttpClient::Open("https://127.0.0.1", options).status();
  };
  EXPECT_THAT(open(Believing("nonsense")).message(), HasSubstr("authority"));
  ClientTls tls = Believing(good.Pem());
  tls.certificate = "nonsense";
  EXPECT_THAT(open(tls).message(), HasSubstr("client certificate"));
  tls.certificate = good.Pem();
  tls.key = "nonsense";
  EXPECT_THAT(open(tls).message(), HasSubstr("client key"));
}

TEST(HttpsClient, AServerWithoutTlsIsTold) {
  const ScriptedServer plain(Ok);
  const std::string url = "https" + plain.url().substr(4);
  ClientOptions options = Quick();
  const absl::Status status = Open(url, options)->Exchange(Get()).status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
}

}  // namespace
}  // namespace starling::http
