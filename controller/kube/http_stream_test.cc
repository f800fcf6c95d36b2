// SPDX-License-Identifier: Apache-2.0
// Watches and logs, which last: what becomes of them when the server breaks off, hangs or forgets.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/sync/mutex.h"
#include "controller/kube/http_client_testing.h"
#include "controller/kube/objects.h"

namespace starling::kube {
namespace {

using testing::HasSubstr;

constexpr const char* kStreamHead =
    "HTTP/1.1 200 X\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n";

std::string Event(const std::string& type, int version) {
  return absl::StrCat(R"({"type":")", type, R"(","object":{"metadata":{"name":"x",)",
                      R"("resourceVersion":")", version, "\"}}}\n");
}

TEST(HttpStreamTest, AWatchGoesOnFromTheLastVersionAfterABreakInMidEvent) {
  const ScriptedServer server([](Conversation& c, int number) {
    const bool resumes = c.request.find("resourceVersion=6&") != std::string::npos ||
                         c.request.find("resourceVersion=6 ") != std::string::npos;
    c.Say(kStreamHead);
    if (number == 0) {
      c.Chunk(Event("ADDED", 5) + Event("BOOKMARK", 6));
      c.Chunk(Event("MODIFIED", 7).substr(0, 20));
      return false;
    }
    if (resumes) c.Chunk(Event("MODIFIED", 7));
    c.AwaitTheirEnd();
    return false;
  });
  auto client = Open(server);
  const auto watch = client->Watch(kConfigMap, "default", {{}, "4"});
  ASSERT_TRUE(watch.ok()) << watch.status();

  std::vector<std::string> versions;
  while (versions.size() < 3) {
    const auto event = (*watch)->Next(absl::Seconds(5));
    ASSERT_TRUE(event.ok() && *event) << event.status();
    versions.push_back(ResourceVersionOf(*(*event)->object));
  }
  EXPECT_THAT(versions, testing::ElementsAre("5", "6", "7"));
}

// Whoever looks now and then, as an informer that rests in between, must not fall behind: events of
// several kilobytes come in many pieces.
TEST(HttpStreamTest, WhoDoesNotWaitIsGivenAllThatHasComeInHoweverManyPieces) {
  constexpr int kPieces = 60;
  const ScriptedServer server([](Conversation& c, int) {
    c.Say(kStreamHead);
    c.Chunk(Event("ADDED", 5));
    const std::string event = Event("MODIFIED", 6);
    for (std::size_t i = 0; i < event.size(); ++i) c.Chunk(event.substr(i, 1));
    c.AwaitTheirEnd();
    return false;
  });
  auto client = Open(server);
  const auto watch = client->Watch(kConfigMap, "default", {{}, "4"});
  ASSERT_TRUE(watch.ok()) << watch.status();
  ASSERT_TRUE((*watch)->Next(absl::Seconds(5)).ok());

  sync::Mutex mutex;
  sync::Condition never;
  int looks = 0;
  for (bool came = false; !came; ++looks) {
    ASSERT_LT(looks, kPieces / 2) << "each look took one piece of the event";
    const auto event = (*watch)->Next(absl::ZeroDuration());
    ASSERT_TRUE(event.ok()) << event.status();
    came = event->has_value();
    sync::MutexLock lock(mutex);
    if (!came) never.WaitFor(mutex, absl::Milliseconds(20));
  }
}

TEST(HttpStreamTest, AWatchOfForgottenVersionsIsOutOfRangeEitherWay) {
  constexpr const char* kGone =
      R"({"kind":"Status","code":410,"reason":"Expired","message":"too old resource version"})";
  for (const bool as_event : {true, false}) {
    const ScriptedServer server([&](Conversation& c, int) {
      if (!as_event) {
        c.Answer(410, kGone);
        return true;
      }
      c.Say(kStreamHead);
      c.Chunk(absl::StrCat(R"({"type":"ERROR","object":)", kGone, "}\n"));
      c.Say("0\r\n\r\n");
      return true;
    });
    auto client = Open(server);
    const auto watch = client->Watch(kConfigMap, "default", {{}, "4"});
    const absl::Status status =
        watch.ok() ? (*watch)->Next(absl::Seconds(5)).status() : watch.status();
    EXPECT_TRUE(absl::IsOutOfRange(status)) << status;
  }
}

TEST(HttpStreamTest, AWatchThatHangsHalfOpenIsOpenedAnew) {
  const ScriptedServer server([](Conversation& c, int number) {
    c.Say(kStreamHead);
    if (number > 0) c.Chunk(Event("ADDED", 5));
    c.AwaitTheirEnd();  // alive for TCP, and never another word
    return false;
  });
  auto client = Open(server);
  const auto watch = client->Watch(kConfigMap, "default", {{}, "4"});
  ASSERT_TRUE(watch.ok()) << watch.status();

  const auto event = (*watch)->Next(absl::Seconds(10));
  ASSERT_TRUE(event.ok()) << event.status();
  EXPECT_TRUE(event->has_value());
}

TEST(HttpStreamTest, AWatchSaysSoWhenTheServerStaysAway) {
  const ScriptedServer server([](Conversation& c, int number) {
    if (number > 0) return false;
    c.Say(kStreamHead);
    c.Chunk(Event("ADDED", 5));
    return false;
  });
  auto client = Open(server);
  const auto watch = client->Watch(kConfigMap, "default", {{}, "4"});
  ASSERT_TRUE(watch.ok()) << watch.status();
  ASSERT_TRUE((*watch)->Next(absl::Seconds(5)).ok());

  EXPECT_TRUE(absl::IsUnavailable((*watch)->Next(absl::Seconds(20)).status()));
}

TEST(HttpStreamTest, StopEndsAWatchThatWaits) {
  const ScriptedServer server([](Conversation& c, int) {
    c.Say(kStreamHead);
    c.AwaitTheirEnd();
    return false;
  });
  auto client = Open(server);
  const auto watch = client->Watch(kConfigMap, "default", {{}, "4"});
  ASSERT_TRUE(watch.ok()) << watch.status();

  std::thread stopper([&] { (*watch)->Stop(); });
  const absl::Time begin = absl::Now();
  EXPECT_TRUE(absl::IsCancelled((*watch)->Next(absl::Seconds(30)).status()));
  EXPECT_LT(absl::Now() - begin, absl::Seconds(5));
  stopper.join();
}

TEST(HttpStreamTest, AWatchWithoutAVersionBeginsWithWhatIsPresentAndGoesOnFromThere) {
  ExpectPresentAndThenWhatComesAfter(
      [](Conversation& c) {
        c.Answer(200, R"({"metadata":{"resourceVersion":"9"},"items":[)"
                      R"({"metadata":{"name":"x","resourceVersion":"5"}}]})");
      },
      kStreamHead, [](HttpKubeClient& client) { return client.Watch(kConfigMap, "default", {}); });
}

TEST(HttpStreamTest, AStopEndsALog) {
  const ScriptedServer server([](Conversation& c, int) {
    c.Say("HTTP/1.1 200 X\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n");
    return true;
  });
  auto client = Open(server);
  const auto log = client->ReadLogs({"default", "p"}, LogOptions());
  ASSERT_TRUE(log.ok()) << log.status();
  (*log)->Stop();
  EXPECT_TRUE(absl::IsCancelled((*log)->Next(absl::ZeroDuration()).status()));
}

TEST(HttpStreamTest, LogsComeInPiecesAndEnd) {
  const ScriptedServer server([](Conversation& c, int) {
    EXPECT_THAT(c.request, HasSubstr("/pods/p/log?container=c&follow=true&tailLines=3 "));
    c.Say("HTTP/1.1 200 X\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n");
    c.Chunk("one\n");
    c.Chunk("two\n");
    c.Say("0\r\n\r\n");
    return true;
  });
  auto client = Open(server);
  const auto log = client->ReadLogs(
      {"default", "p"}, {.container = "c", .follow = true, .previous = false, .tail_lines = 3});
  ASSERT_TRUE(log.ok()) << log.status();
  std::string text;
  absl::Status end;
  while (end.ok()) {
    const auto piece = (*log)->Next(absl::Seconds(5));
    end = piece.status();
    if (piece.ok() && *piece) text += **piece;
  }
  EXPECT_EQ(text, "one\ntwo\n");
  EXPECT_TRUE(absl::IsOutOfRange(end)) << end;
}

}  // namespace
}  // namespace starling::kube
