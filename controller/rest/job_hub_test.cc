// SPDX-License-Identifier: Apache-2.0
#include "controller/rest/job_hub.h"

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "controller/rest/job_stream.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace starling::service {
namespace {

using kube::Json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::StartsWith;

JobHub::Object Job(const std::string& name, int version, const std::string& uid = "",
                   Json labels = Json::object()) {
  return std::make_shared<const Json>(Json{{"metadata",
                                            {{"name", name},
                                             {"namespace", "default"},
                                             {"uid", uid.empty() ? "uid-" + name : uid},
                                             {"labels", std::move(labels)},
                                             {"resourceVersion", absl::StrCat(version)}}}});
}

class JobHubTest : public ::testing::Test {
 protected:
  // Each as "added a 3".
  static std::vector<std::string> Hear(JobListener& listener) {
    constexpr const char* kWords[] = {"added", "modified", "deleted", "bookmark"};
    std::vector<std::string> heard;
    while (const auto news = listener.Next()) {
      const std::string name =
          news->state == nullptr ? "-" : news->state->job()["metadata"]["name"].get<std::string>();
      heard.push_back(
          absl::StrCat(kWords[static_cast<int>(news->kind)], " ", name, " ", news->version));
    }
    return heard;
  }
  std::unique_ptr<JobListener> Listen(std::optional<std::int64_t> since = std::nullopt,
                                      const std::string& labels = "") {
    JobFilter filter;
    filter.selector = kube::Selector::Parse(kube::kTrainingJob, {labels, ""}).value();
    return hub_.Listen(std::move(filter), since, [this] { ++wakes_; });
  }
  void Put(const std::string& name, int version) { hub_.Take(nullptr, Job(name, version)); }

  clock::FakeClock clock_;
  int wakes_ = 0;
  JobHub hub_{clock_};
};

TEST_F(JobHubTest, WhatIsComesFirstInTheOrderOfVersionsThenABookmark) {
  Put("b", 5);
  Put("a", 9);
  const auto listener = Listen();
  EXPECT_THAT(Hear(*listener), ElementsAre("added b 5", "added a 9", "bookmark - 9"));
  Put("b", 12);
  EXPECT_EQ(wakes_, 1);
  EXPECT_THAT(Hear(*listener), ElementsAre("modified b 12"));
}

TEST_F(JobHubTest, ASlowListenerHearsTheNewestStateOfEachJobOnce) {
  const auto listener = Listen();
  Put("b", 1);
  for (int version = 2; version < 1000; ++version) Put("a", version);
  Put("b", 1000);
  EXPECT_THAT(Hear(*listener), ElementsAre("added a 999", "added b 1000", "bookmark - 1000"));
}

TEST_F(JobHubTest, AChangeWakesThoseAloneWhomItConcerns) {
  std::map<std::string, int> woken;
  std::vector<std::unique_ptr<JobListener>> listeners;
  const auto listen = [&](const std::string& ns, const std::string& name) {
    listeners.push_back(hub_.Listen({.ns = ns, .name = name, .selector = {}}, std::nullopt,
                                    [&woken, who = ns + "/" + name] { ++woken[who]; }));
  };
  listen("default", "a");
  listen("default", "b");
  listen("default", "");
  listen("other", "");
  listen("", "a");
  listen("", "");
  Put("a", 3);
  EXPECT_THAT(woken,
              ElementsAre(Pair("/", 1), Pair("/a", 1), Pair("default/", 1), Pair("default/a", 1)));
  for (const auto& listener : listeners) Hear(*listener);
  listeners.erase(listeners.begin());
  Put("b", 4);
  hub_.Take(Job("a", 3), nullptr);
  EXPECT_THAT(woken, ElementsAre(Pair("/", 3), Pair("/a", 2), Pair("default/", 3),
                                 Pair("default/a", 1), Pair("default/b", 1)));
  EXPECT_THAT(Hear(*listeners[0]), ElementsAre("added b 4"));
}

TEST_F(JobHubTest, WhatCameAndWentUnheardIsNotTold) {
  const auto listener = Listen();
  Hear(*listener);
  Put("a", 3);
  hub_.Take(Job("a", 3), nullptr);
  EXPECT_THAT(Hear(*listener), IsEmpty());
  Put("b", 7);
  EXPECT_THAT(Hear(*listener), ElementsAre("added b 7"));
  hub_.Take(Job("b", 7), nullptr);
  EXPECT_THAT(Hear(*listener), ElementsAre("deleted b 8"));
}

TEST_F(JobHubTest, ASuccessorOfTheSameNameSaysThatItsPredecessorIsGone) {
  const auto listener = Listen();
  Put("a", 3);
  Hear(*listener);
  hub_.Take(Job("a", 3), Job("a", 9, "other"));
  EXPECT_THAT(Hear(*listener), ElementsAre("deleted a 4", "added a 9"));
}

TEST_F(JobHubTest, OlderNewsThanWhatIsKnownIsIgnored) {
  Put("a", 9);
  const auto listener = Listen();
  Hear(*listener);
  Put("a", 4);
  EXPECT_THAT(Hear(*listener), IsEmpty());
}

TEST_F(JobHubTest, WhoComesBackHearsOnlyWhatItMissed) {
  Put("a", 3);
  hub_.Begin();
  Put("b", 5);
  Put("c", 6);
  hub_.Take(Job("a", 3), nullptr);
  Put("b", 10);
  Put("d", 11);
  EXPECT_THAT(Hear(*Listen(5)),
              ElementsAre("added c 6", "deleted a 7", "modified b 10", "added d 11"));
  EXPECT_THAT(Hear(*Listen(11)), IsEmpty());
}

TEST_F(JobHubTest, WhoNamesAStateThatIsNotKnownHearsEverything) {
  Put("a", 30);
  EXPECT_THAT(Hear(*Listen(30)), ElementsAre("added a 30", "bookmark - 30"));  // before Begin
  hub_.Begin();
  EXPECT_THAT(Hear(*Listen(30)), IsEmpty());
  EXPECT_THAT(Hear(*Listen(29)), ElementsAre("added a 30", "bookmark - 30"));
  EXPECT_THAT(Hear(*Listen(31)), ElementsAre("added a 30", "bookmark - 30"));
}

// Another process, or this one before it was started again, may have told of later versions than
// any job has that is left.
TEST_F(JobHubTest, WhatWasDeletedBeforeItBeganNobodyMisses) {
  Put("a", 30);
  hub_.Begin(/*seen=*/40);
  EXPECT_THAT(Hear(*Listen(30)), ElementsAre("added a 30", "bookmark - 40"));
  hub_.Take(Job("a", 30), nullptr);
  EXPECT_THAT(Hear(*Listen(40)), ElementsAre("deleted a 41"));
}

TEST_F(JobHubTest, DeletionsAreForgottenAfterAWhileAndThenNobodyCanComeBackToBeforeThem) {
  Put("a", 3);
  hub_.Begin();
  hub_.Take(Job("a", 3), nullptr);
  EXPECT_THAT(Hear(*Listen(3)), ElementsAre("deleted a 4"));
  clock_.Advance(absl::Hours(2));
  Put("b", 9);
  hub_.Take(Job("b", 9), nullptr);
  EXPECT_THAT(Hear(*Listen(3)), ElementsAre("bookmark - 10"));
}

TEST_F(JobHubTest, AJobThatLeavesOrEntersTheSelectionIsDeletedOrAdded) {
  hub_.Take(nullptr, Job("a", 1, "", {{"team", "x"}}));
  const auto listener = Listen(std::nullopt, "team=x");
  EXPECT_THAT(Hear(*listener), ElementsAre("added a 1", "bookmark - 1"));
  hub_.Take(Job("a", 1, "", {{"team", "x"}}), Job("a", 2));
  EXPECT_THAT(Hear(*listener), ElementsAre("deleted a 2"));
  hub_.Take(Job("a", 2), Job("a", 3, "", {{"team", "x"}}));
  EXPECT_THAT(Hear(*listener), ElementsAre("added a 3"));
  // Left and back unheard: it has only changed.
  hub_.Take(Job("a", 3, "", {{"team", "x"}}), Job("a", 4));
  hub_.Take(Job("a", 4), Job("a", 5, "", {{"team", "x"}}));
  EXPECT_THAT(Hear(*listener), ElementsAre("modified a 5"));
  hub_.Take(Job("a", 5, "", {{"team", "x"}}), Job("a", 6));
  hub_.Take(Job("a", 6), Job("a", 7));
  EXPECT_THAT(Hear(*listener), ElementsAre("deleted a 6"));
}

class JobStreamTest : public JobHubTest {
 protected:
  std::unique_ptr<JobStream> Open(JobStreamOptions options) {
    auto stream = std::make_unique<JobStream>(hub_, clock_, nullptr, std::move(options));
    stream->Start([this] { ++wakes_; });
    return stream;
  }
};

TEST_F(JobStreamTest, SaysStatesThenHeartbeatsThenTheEnd) {
  Put("a", 3);
  const auto stream = Open({.timeout = absl::Seconds(20)});
  const std::string first = stream->Next().bytes;
  EXPECT_THAT(first, StartsWith("retry: "));
  EXPECT_THAT(first, HasSubstr("id: 3\nevent: added\ndata: {\"summary\":{"));
  EXPECT_THAT(first, HasSubstr("id: 3\nevent: bookmark\ndata: {}\n\n"));
  const auto quiet = stream->Next();
  EXPECT_EQ(quiet.bytes, "");
  EXPECT_GT(quiet.pause, absl::Seconds(14));
  clock_.Advance(absl::Seconds(15));
  EXPECT_EQ(stream->Next().bytes, ": hb\n\n");
  clock_.Advance(absl::Seconds(5));
  const auto end = stream->Next();
  EXPECT_TRUE(end.ended);
  EXPECT_EQ(end.bytes, "event: end\ndata: {\"reason\":\"Deadline\"}\n\n");
}

TEST_F(JobStreamTest, OfOneJobEndsWithIt) {
  Put("a", 3);
  const auto stream = Open({.filter = {"default", "a", {}}, .whole = true});
  EXPECT_FALSE(stream->Next().ended);
  hub_.Take(Job("a", 3), nullptr);
  const auto end = stream->Next();
  EXPECT_TRUE(end.ended);
  EXPECT_THAT(end.bytes, HasSubstr("event: deleted\ndata: {\"object\":{"));
  EXPECT_THAT(end.bytes, HasSubstr("JobFinished"));
}

TEST_F(JobStreamTest, TellsNothingMoreToWhoMayNotHearIt) {
  auto permit = std::make_shared<Permit>();
  const auto stream = Open({.permit = permit});
  stream->Next();
  EXPECT_LE(stream->Next().pause, JobStream::kPermitEvery);
  Put("a", 3);
  permit->End("TokenExpired");
  const auto end = stream->Next();
  EXPECT_TRUE(end.ended);
  EXPECT_EQ(end.bytes, "event: end\ndata: {\"reason\":\"TokenExpired\"}\n\n");
}

TEST_F(JobStreamTest, SaysGoodbyeWhenTheServerIsDrained) {
  const auto stream = Open({});
  stream->Next();
  stream->Drain();
  EXPECT_THAT(stream->Next().bytes, HasSubstr("Shutdown"));
}

}  // namespace
}  // namespace starling::service
