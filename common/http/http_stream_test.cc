// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/time/clock.h"
#include "common/http/body_stream.h"
#include "common/http/http_server.h"
#include "common/http/raw_client.h"
#include "common/sync/mutex.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace starling::http {
namespace {

using ::testing::AnyOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr char kGet[] = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";

// Lines that a test writes. Thread-safe.
class Lines final : public BodyStream {
 public:
  void Start(std::function<void()> wake) override {
    sync::MutexLock lock(mutex_);
    wake_ = std::move(wake);
  }
  Piece Next() override {
    sync::MutexLock lock(mutex_);
    Piece piece{.bytes = std::exchange(text_, {}), .ended = ended_, .pause = absl::Hours(1)};
    return piece;
  }
  void Drain() override { Say("bye\n", /*end=*/true); }

  void Say(const std::string& text, bool end = false) {
    std::function<void()> wake;
    {
      sync::MutexLock lock(mutex_);
      text_ += text;
      ended_ = end;
      wake = wake_;
    }
    if (wake) wake();
  }

 private:
  sync::Mutex mutex_;
  std::function<void()> wake_ ABSL_GUARDED_BY(mutex_);
  std::string text_ ABSL_GUARDED_BY(mutex_);
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
};

// The same bytes again and again, for as long as somebody takes them.
class Flood final : public BodyStream {
 public:
  Flood(std::atomic<std::int64_t>& given, std::int64_t size) : given_(given), left_(size) {}
  Piece Next() override {
    const std::int64_t size = std::min<std::int64_t>(left_, 64 << 10);
    left_ -= size;
    given_ += size;
    return {.bytes = std::string(static_cast<std::size_t>(size), 'x'), .ended = left_ == 0};
  }
  std::optional<std::uint64_t> Length() const override { return left_; }
  bool ReadsFiles() const override { return true; }

 private:
  std::atomic<std::int64_t>& given_;
  std::int64_t left_;
};

Response Streaming(std::shared_ptr<BodyStream> stream, bool known = false) {
  return {.body = "", .headers = {}, .stream = std::move(stream), .known_caller = known};
}

std::unique_ptr<HttpServer> Serve(HttpServerOptions options, Handler handler) {
  return HttpServer::Start(std::move(options), std::move(handler)).value();
}

void AwaitStreams(const HttpServer& server, int count) {
  const absl::Time limit = absl::Now() + absl::Seconds(5);
  while (server.streams() != count && absl::Now() < limit) absl::SleepFor(absl::Milliseconds(1));
  EXPECT_EQ(server.streams(), count);
}

TEST(HttpStream, PiecesComeAsTheyAreSaidLongAfterTheDeadlineOfOtherAnswers) {
  const auto lines = std::make_shared<Lines>();
  const auto server = Serve({.deadline = absl::Milliseconds(100)},
                            [&](const Request&) { return Streaming(lines); });
  RawClient client(server->port());
  client.Send(kGet);
  EXPECT_THAT(client.Receive("\r\n\r\n"), HasSubstr("Transfer-Encoding: chunked"));
  absl::SleepFor(absl::Milliseconds(300));
  lines->Say("one\n");
  EXPECT_EQ(client.Receive("one\n\r\n"), "4\r\none\n\r\n");
  lines->Say("two\n", /*end=*/true);
  EXPECT_EQ(client.Receive(), "4\r\ntwo\n\r\n0\r\n\r\n");
  AwaitStreams(*server, 0);
}

TEST(HttpStream, AClientThatGoesEndsItsStream) {
  const auto server =
      Serve({}, [&](const Request&) { return Streaming(std::make_shared<Lines>()); });
  {
    RawClient client(server->port());
    client.Send(kGet);
    client.Receive("\r\n\r\n");
    AwaitStreams(*server, 1);
  }
  AwaitStreams(*server, 0);
}

TEST(HttpStream, NothingPilesUpBehindAReaderThatDoesNotReadAndItsTimeIsLimited) {
  std::atomic<std::int64_t> given = 0;
  const auto server =
      Serve({.stream_patience = absl::Milliseconds(300), .handler_threads = 2},
            [&](const Request&) { return Streaming(std::make_shared<Flood>(given, 1LL << 30)); });
  RawClient client(server->port());
  client.Send(kGet);
  AwaitStreams(*server, 1);
  AwaitStreams(*server, 0);
  // What the kernel holds for both ends, and one piece.
  EXPECT_LT(given, 16 << 20);
}

TEST(HttpStream, ABodyOfKnownLengthArrivesWholeAndHeadHasItsLengthAlone) {
  std::atomic<std::int64_t> given = 0;
  const auto server = Serve({.handler_threads = 2}, [&](const Request&) {
    return Streaming(std::make_shared<Flood>(given, 300'000));
  });
  RawClient client(server->port());
  client.Send(kGet);
  const std::string answer = client.Receive();
  EXPECT_THAT(answer, HasSubstr("Content-Length: 300000\r\n"));
  EXPECT_THAT(answer, EndsWith(std::string("\r\n\r\n") + std::string(300'000, 'x')));
  RawClient head(server->port());
  head.Send("HEAD / HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_THAT(head.Receive(), EndsWith("\r\n\r\n"));
}

TEST(HttpStream, MoreStreamsThanThereMayBeAreAnswered503) {
  const auto server = Serve({.max_streams = 1}, [&](const Request&) {
    return Streaming(std::make_shared<Lines>(), /*known=*/true);
  });
  RawClient first(server->port());
  first.Send(kGet);
  first.Receive("\r\n\r\n");
  RawClient second(server->port());
  second.Send("GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  const std::string answer = second.Receive();
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 503"));
  EXPECT_THAT(answer, HasSubstr("Retry-After: 1\r\n"));
}

TEST(HttpStream, OfKnownCallersKeepsItsPlaceAndTheNewcomerIsTurnedAway) {
  const auto server = Serve({.max_connections = 2}, [&](const Request&) {
    return Streaming(std::make_shared<Lines>(), /*known=*/true);
  });
  std::vector<std::unique_ptr<RawClient>> clients;
  for (int i = 0; i < 2; ++i) {
    clients.push_back(std::make_unique<RawClient>(server->port()));
    clients.back()->Send(kGet);
    clients.back()->Receive("\r\n\r\n");
  }
  RawClient third(server->port());
  EXPECT_THAT(third.Receive(), StartsWith("HTTP/1.1 503"));
  EXPECT_EQ(server->streams(), 2);
}

TEST(HttpStream, DrainSaysGoodbyeAndTakesNoNewcomers) {
  const auto server =
      Serve({}, [&](const Request&) { return Streaming(std::make_shared<Lines>()); });
  RawClient client(server->port()), idle(server->port());
  client.Send(kGet);
  client.Receive("\r\n\r\n");
  server->Drain(absl::Seconds(5));
  EXPECT_EQ(client.Receive(), "4\r\nbye\n\r\n0\r\n\r\n");
  EXPECT_EQ(idle.Receive(), "");
  EXPECT_EQ(server->connections(), 0);
  EXPECT_FALSE(RawClient(server->port()).connected());
}

TEST(HttpStream, OneThatThrowsIsCutAndHasNoEnd) {
  class Broken final : public BodyStream {
    Piece Next() override { throw std::runtime_error("broken"); }
  };
  const auto server =
      Serve({}, [&](const Request&) { return Streaming(std::make_shared<Broken>()); });
  RawClient client(server->port());
  client.Send(kGet);
  EXPECT_THAT(client.Receive(), Not(HasSubstr("0\r\n\r\n")));
}

// Handlers that wait until the test lets them go. Thread-safe.
class Gate {
 public:
  void Pass() {
    sync::MutexLock lock(mutex_);
    ++waiting_;
    while (!open_) changed_.Wait(mutex_);
  }
  void Open() {
    sync::MutexLock lock(mutex_);
    open_ = true;
    changed_.NotifyAll();
  }
  int waiting() {
    sync::MutexLock lock(mutex_);
    return waiting_;
  }

 private:
  sync::Mutex mutex_;
  sync::Condition changed_;
  bool open_ ABSL_GUARDED_BY(mutex_) = false;
  int waiting_ ABSL_GUARDED_BY(mutex_) = 0;
};

TEST(LateAnswers, OthersAreAnsweredMeanwhileAndWhatDoesNotFitIsToldToComeAgain) {
  Gate gate;
  const auto server =
      Serve({.handler_threads = 2, .handler_queue = 1}, [&](const Request& request) {
        if (request.Path() == "/slow") gate.Pass();
        return Response{.body = "done", .headers = {}};
      });
  std::vector<std::unique_ptr<RawClient>> slow;
  const auto ask = [&] {
    slow.push_back(std::make_unique<RawClient>(server->port()));
    slow.back()->Send("GET /slow HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  };
  ask();
  while (gate.waiting() < 1) std::this_thread::yield();
  RawClient fast(server->port());
  fast.Send(kGet);
  EXPECT_THAT(fast.Receive("done"), EndsWith("done"));  // by the second thread
  ask();
  while (gate.waiting() < 2) std::this_thread::yield();
  // Of two more one waits in the queue, whichever is read first, and the other has no place: it is
  // told so while all others wait.
  ask();
  ask();
  std::vector<std::future<std::string>> answers;
  for (const auto& client : slow) {
    answers.push_back(std::async(std::launch::async, [&client] { return client->Receive(); }));
  }
  const auto told = [](const std::future<std::string>& answer) {
    return answer.wait_for(std::chrono::milliseconds(1)) == std::future_status::ready;
  };
  while (std::ranges::none_of(answers, told)) std::this_thread::yield();
  gate.Open();
  int refused = 0;
  for (auto& coming : answers) {
    const std::string answer = coming.get();
    if (answer.find("Retry-After: 1\r\n") != std::string::npos) ++refused;
    EXPECT_TRUE(absl::EndsWith(answer, "done") || absl::StartsWith(answer, "HTTP/1.1 503"));
  }
  EXPECT_EQ(refused, 1);
}

TEST(LateAnswers, StopsWhileHandlersWait) {
  Gate gate;
  auto server = Serve({.handler_threads = 1}, [&](const Request&) {
    gate.Pass();
    return Response{.body = "", .headers = {}};
  });
  RawClient client(server->port());
  client.Send(kGet);
  while (gate.waiting() < 1) std::this_thread::yield();
  std::thread ending([&] { server.reset(); });
  gate.Open();
  ending.join();
  // The answer whole, if it came first, or none.
  EXPECT_THAT(client.Receive(), AnyOf("", StartsWith("HTTP/1.1 200 OK")));
}

}  // namespace
}  // namespace starling::http
