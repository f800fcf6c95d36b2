// SPDX-License-Identifier: Apache-2.0
// A watch and its requests, one at a time: what it makes of their ends, and when the next one goes.
#include "controller/kube/http_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <future>
#include <initializer_list>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/http/scripted_server.h"
#include "common/sync/mutex.h"
#include "controller/kube/objects.h"

namespace starling::kube {
namespace {

using http::Conversation;
using http::ScriptedServer;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

constexpr absl::Duration kNow = absl::ZeroDuration();
constexpr absl::Duration kSoon = absl::Seconds(10);  // what comes at once
constexpr const char* kHead =
    "HTTP/1.1 200 X\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n";
constexpr const char* kEnd = "0\r\n\r\n";

std::string Event(const std::string& type, int version, const std::string& more = "") {
  return absl::StrCat(R"({"type":")", type, R"(","object":{"metadata":{"name":"x",)",
                      R"("resourceVersion":")", version, "\"", more, "}}}\n");
}

std::string Chunk(const std::string& text) {
  return absl::StrCat(absl::Hex(text.size()), "\r\n", text, "\r\n");
}

HttpWatchOptions Patient() { return {.request = absl::Hours(1), .patience = absl::Hours(1)}; }
// With the first failure alone.
HttpWatchOptions Impatient() {
  return {.request = absl::Hours(1), .patience = absl::Nanoseconds(1)};
}

class HttpWatchTest : public testing::Test {
 protected:
  // The server gives these answers, each whole and at once, and then none.
  void Serve(std::vector<std::string> answers) {
    server_.emplace([answers = std::move(answers)](Conversation& c, int number) {
      const auto i = static_cast<std::size_t>(number);
      if (i < answers.size()) c.Say(answers[i]);
      return true;
    });
  }
  // Whether the next request is sent, or what becomes of it otherwise.
  void Decide(std::function<absl::Status(int number)> decide) { decide_ = std::move(decide); }

  template <typename Object = Json>
  HttpWatch<Object> Watch(const HttpWatchOptions& options = Patient()) {
    transport_.authorize = [this](http::Request& request, bool) {
      requests_.push_back(request);
      return decide_(asked() - 1);
    };
    transport_.observe = [this](const http::Observation&) {
      ++heads_;
      if (at_head_) at_head_();
    };
    client_ = *http::HttpClient::Open(server_ ? server_->url() : "http://127.0.0.1:1", transport_);
    return HttpWatch<Object>(*client_, kConfigMap, "n", {}, "4", options);
  }

  int asked() const { return static_cast<int>(requests_.size()); }

  http::ClientOptions transport_;
  std::function<void()> at_head_;  // of an answer
  int heads_ = 0;
  std::vector<http::Request> requests_;
  std::optional<ScriptedServer> server_;

 private:
  std::function<absl::Status(int number)> decide_ = [](int) { return absl::OkStatus(); };
  std::unique_ptr<http::HttpClient> client_;
};

// The version of the next event, or "none", or why there will be none.
std::string Look(HttpWatch<Json>& watch, absl::Duration timeout = kNow) {
  const auto event = watch.Next(timeout);
  if (!event.ok()) return event.status().ToString();
  return *event ? ResourceVersionOf(*(*event)->object) : "none";
}

const char* const kStopped = "CANCELLED: watch: stopped";

TEST_F(HttpWatchTest, ARequestLastsASecondAtLeastAndSaysInWhatFormItIsToBeAnswered) {
  Decide([](int) { return absl::UnavailableError("away"); });
  HttpWatchOptions options = Patient();
  options.request = absl::Milliseconds(500);
  {
    auto messages = Watch<Message>();
    EXPECT_TRUE(messages.Next(kNow).ok());
  }
  auto watch = Watch(options);
  EXPECT_EQ(Look(watch), "none");
  ASSERT_EQ(asked(), 2);
  EXPECT_THAT(requests_[0].headers, Contains(Pair("Accept", kProtobuf)));
  EXPECT_THAT(requests_[0].target, HasSubstr("timeoutSeconds=3600&"));
  EXPECT_THAT(requests_[1].headers, Contains(Pair("Accept", "application/json")));
  EXPECT_THAT(requests_[1].target, HasSubstr("timeoutSeconds=1&"));
}

TEST_F(HttpWatchTest, OnlyWhatDoesNotPassIsToldAtOnce) {
  for (const absl::Status& passing :
       {absl::UnavailableError("away"), absl::ResourceExhaustedError("busy"),
        absl::DeadlineExceededError("late")}) {
    Decide([&](int) { return passing; });
    auto watch = Watch();
    EXPECT_EQ(Look(watch), "none") << passing;
  }
  for (const absl::Status& lasting :
       {absl::PermissionDeniedError("no"), absl::OutOfRangeError("forgotten")}) {
    Decide([&](int) { return lasting; });
    auto watch = Watch();
    EXPECT_EQ(Look(watch), lasting.ToString());
  }
}

TEST_F(HttpWatchTest, WhereThereIsNoPatienceTheFirstFailureIsTold) {
  Decide([](int) { return absl::UnavailableError("away"); });
  HttpWatchOptions options = Patient();
  options.patience = absl::ZeroDuration();
  auto watch = Watch(options);
  EXPECT_EQ(Look(watch), "UNAVAILABLE: away");
}

TEST_F(HttpWatchTest, ARequestThatFailedIsNotRepeatedAtOnce) {
  Decide([](int) { return absl::UnavailableError("away"); });
  auto watch = Watch();
  const absl::Time before = absl::Now();
  EXPECT_EQ(Look(watch), "none");
  EXPECT_EQ(Look(watch), "none");
  EXPECT_TRUE(asked() == 1 || absl::Now() - before >= absl::Milliseconds(37));
}

TEST_F(HttpWatchTest, ARefusalEndsTheStart) {
  transport_.timeout = absl::Seconds(2);
  Decide([](int) { return absl::PermissionDeniedError("no"); });
  auto watch = Watch();
  EXPECT_EQ(watch.Start({}), absl::PermissionDeniedError("no"));
  EXPECT_EQ(asked(), 1);
}

TEST_F(HttpWatchTest, AStartIsNotTriedAgainWhenItsTimeWillHavePassed) {
  transport_.timeout = absl::Milliseconds(1);
  Decide([](int number) {
    return number == 0 ? absl::UnavailableError("away") : absl::PermissionDeniedError("again");
  });
  auto watch = Watch();
  EXPECT_EQ(watch.Start({}), absl::UnavailableError("away"));
}

TEST_F(HttpWatchTest, AStopEndsTheStartThatWouldTryAgain) {
  transport_.timeout = absl::Seconds(2);
  auto watch = Watch();
  Decide([&](int) {
    watch.Stop();
    return absl::UnavailableError("away");
  });
  EXPECT_EQ(watch.Start({}).ToString(), kStopped);
  EXPECT_EQ(asked(), 1);
}

TEST_F(HttpWatchTest, AfterAStopNothingIsAskedFor) {
  auto watch = Watch();
  watch.Stop();
  EXPECT_EQ(Look(watch), kStopped);
  EXPECT_EQ(asked(), 0);
}

TEST_F(HttpWatchTest, AfterAStopNoEventIsTold) {
  Serve({kHead + Chunk(Event("ADDED", 5) + Event("ADDED", 6))});
  auto watch = Watch();
  EXPECT_EQ(Look(watch, kSoon), "5");
  watch.Stop();
  EXPECT_EQ(Look(watch), kStopped);
}

TEST_F(HttpWatchTest, AStopWhileARequestIsMadeIsSeen) {
  Serve({});
  auto watch = Watch();
  Decide([&](int) {
    watch.Stop();
    return absl::OkStatus();
  });
  EXPECT_EQ(Look(watch), kStopped);
}

TEST_F(HttpWatchTest, AStopEndsTheWaitForMoreOfAnAnswer) {
  Serve({kHead});
  auto watch = Watch();
  at_head_ = [&] { watch.Stop(); };
  EXPECT_EQ(Look(watch, kSoon), kStopped);
}

TEST_F(HttpWatchTest, WhatIsPresentComesFirst) {
  Serve({kHead + Chunk(Event("MODIFIED", 5))});
  auto watch = Watch();
  const Json present = {{"metadata", {{"name", "y"}, {"resourceVersion", "3"}}}};
  ASSERT_TRUE(watch.Start({std::make_shared<const Json>(present)}).ok());
  const auto first = watch.Next(kNow);
  ASSERT_TRUE(first.ok() && *first) << first.status();
  EXPECT_EQ((*first)->type, WatchEventType::kAdded);
  EXPECT_EQ(*(*first)->object, present);
  EXPECT_EQ(Look(watch, kSoon), "5");
}

TEST_F(HttpWatchTest, WhereNothingHasComeThereIsNoEvent) {
  Serve({kHead});
  auto watch = Watch();
  ASSERT_TRUE(watch.Start({}).ok());
  EXPECT_EQ(Look(watch), "none");
  EXPECT_EQ(Look(watch), "none");
  EXPECT_EQ(asked(), 1);
}

// An answer's head comes with all that was said with it: behind Start a look sees that.

TEST_F(HttpWatchTest, AnAnswerThatEndsInGoodOrderIsFollowedByTheNextRequestAtOnce) {
  Serve({absl::StrCat(kHead, kEnd)});
  auto watch = Watch();
  ASSERT_TRUE(watch.Start({}).ok());
  EXPECT_EQ(Look(watch), "none");
  EXPECT_EQ(Look(watch), "none");
  EXPECT_EQ(asked(), 2);
}

TEST_F(HttpWatchTest, AServerThatEndsAllAnswersAtOnceIsAskedLessOften) {
  const std::string nothing = absl::StrCat(kHead, kEnd);
  Serve({nothing, nothing, nothing});
  auto watch = Watch();
  ASSERT_TRUE(watch.Start({}).ok());
  absl::Time before;
  while (heads_ < 2) {
    before = absl::Now();
    ASSERT_EQ(Look(watch, absl::Milliseconds(1)), "none");
  }
  EXPECT_EQ(Look(watch), "none");
  EXPECT_TRUE(asked() == 2 || absl::Now() - before >= absl::Milliseconds(75));
}

TEST_F(HttpWatchTest, AfterAnEventTheNextRequestGoesAtOnceAgain) {
  Serve({absl::StrCat(kHead, kEnd), kHead + Chunk(Event("ADDED", 5)) + kEnd});
  auto watch = Watch();
  ASSERT_TRUE(watch.Start({}).ok());
  EXPECT_EQ(Look(watch), "none");
  EXPECT_EQ(Look(watch, kSoon), "5");
  EXPECT_EQ(Look(watch), "none");
  EXPECT_EQ(Look(watch), "none");
  EXPECT_EQ(asked(), 3);
}

TEST_F(HttpWatchTest, AnEndInGoodOrderIsNoFailureThatPatienceCountsFrom) {
  Serve({absl::StrCat(kHead, kEnd)});
  Decide(
      [](int number) { return number == 1 ? absl::UnavailableError("away") : absl::OkStatus(); });
  auto watch = Watch(Impatient());
  ASSERT_TRUE(watch.Start({}).ok());
  EXPECT_EQ(Look(watch), "none");
  EXPECT_EQ(Look(watch), "none");
  EXPECT_EQ(asked(), 2);
}

TEST_F(HttpWatchTest, AfterAnEventPatienceBeginsAnew) {
  Serve({kHead + Chunk(Event("ADDED", 5) + "nonsense\n")});
  Decide(
      [](int number) { return number == 0 ? absl::UnavailableError("away") : absl::OkStatus(); });
  auto watch = Watch(Impatient());
  EXPECT_EQ(Look(watch), "none");
  EXPECT_EQ(Look(watch, kSoon), "5");
}

TEST_F(HttpWatchTest, WhatCameBeforeNonsenseIsTold) {
  Serve({kHead + Chunk(Event("ADDED", 5) + "nonsense\n")});
  auto watch = Watch();
  ASSERT_TRUE(watch.Start({}).ok());
  EXPECT_EQ(Look(watch), "5");
}

TEST_F(HttpWatchTest, ALookTakesALongEventThatHasComeWhole) {
  const auto sent = std::make_shared<std::promise<void>>();
  server_.emplace([sent](Conversation& c, int) {
    c.Say(kHead + Chunk(Event("ADDED", 5, R"(,"y":")" + std::string(60'000, 'y') + '"')));
    sent->set_value();
    return true;
  });
  auto watch = Watch();
  ASSERT_TRUE(watch.Start({}).ok());
  sent->get_future().wait();
  std::string found = Look(watch);
  if (found == "none") {  // it may still be on its way
    sync::Mutex mutex;
    sync::Condition never;
    const sync::MutexLock lock(mutex);
    never.WaitFor(mutex, absl::Milliseconds(20));
    found = Look(watch);
  }
  EXPECT_EQ(found, "5") << "each look took one piece of the event";
}

struct Taken {
  absl::Status status;
  std::vector<std::string> versions;
};

// What becomes of pieces of text, the last one's status.
Taken Take(std::initializer_list<std::string> pieces) {
  EventReader<Json> reader(kConfigMap);
  std::vector<WatchEvent> events;
  Taken taken;
  for (const std::string& piece : pieces) taken.status = reader.Take(piece, events);
  for (const WatchEvent& event : events) taken.versions.push_back(ResourceVersionOf(*event.object));
  return taken;
}

TEST(EventReader, AnEventThatCannotBeUnderstoodIsAnErrorAfterThoseBeforeIt) {
  for (const char* line : {"{nonsense", "[1]", "7", R"({"type":"ADDED"})",
                           R"({"type":"ADDED","object":[]})", R"({"type":"NEWER","object":7})"}) {
    const Taken taken = Take({Event("ADDED", 5) + line + "\n" + Event("ADDED", 6)});
    EXPECT_EQ(taken.status, absl::UnavailableError("watch: an event that cannot be understood"))
        << line;
    EXPECT_THAT(taken.versions, ElementsAre("5")) << line;
  }
}

TEST(EventReader, AnObjectWithoutAVersionIsAnError) {
  for (const char* object : {"{}", R"({"metadata":{"name":"x"}})"}) {
    EXPECT_EQ(Take({absl::StrCat(R"({"type":"ADDED","object":)", object, "}\n")}).status,
              absl::UnavailableError("watch: an object without a version"));
  }
}

TEST(EventReader, WhatIsNewerThanWeAreIsPassedOverAndSoAreEmptyLines) {
  const Taken taken = Take({"\n" + Event("NEWER", 5) + "\n\n" + Event("ADDED", 6)});
  EXPECT_TRUE(taken.status.ok()) << taken.status;
  EXPECT_THAT(taken.versions, ElementsAre("6"));
}

TEST(EventReader, WhoOwnsWhichFieldIsLeftOut) {
  EventReader<Json> reader(kConfigMap);
  std::vector<WatchEvent> events;
  ASSERT_TRUE(reader.Take(Event("ADDED", 5, R"(,"managedFields":[{"manager":"m"}])"), events).ok());
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(*events[0].object, (Json{{"metadata", {{"name", "x"}, {"resourceVersion", "5"}}}}));
}

TEST(EventReader, AnEventMayBeCutAnywhere) {
  const std::string event = Event("ADDED", 5);
  const Taken taken = Take({event.substr(0, 1), event.substr(1, 30), event.substr(31)});
  EXPECT_TRUE(taken.status.ok()) << taken.status;
  EXPECT_THAT(taken.versions, ElementsAre("5"));
}

TEST(EventReader, AnEventHas16MiBAndNoMore) {
  EventReader<Json> reader(kConfigMap);
  std::vector<WatchEvent> events;
  EXPECT_TRUE(reader.Take(std::string(std::size_t{16} << 20, ' '), events).ok());
  EXPECT_EQ(reader.Take(" ", events),
            absl::UnavailableError("watch: an event of more than 16 MiB"));
}

}  // namespace
}  // namespace starling::kube
