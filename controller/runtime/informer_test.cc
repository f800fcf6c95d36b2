// SPDX-License-Identifier: Apache-2.0
// A copy against a server that says word by word what a test gives it: versions that come late,
// twice and out of order. How copies follow a real store: cached_kube_client_test.cc.
#include "controller/runtime/informer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "controller/kube/embedded_kube_client.h"
#include "controller/kube/objects.h"
#include "controller/runtime/forwarding_kube_client.h"

namespace starling::runtime {
namespace {

using kube::Json;
using kube::kConfigMap;
using kube::WatchEventType;
using testing::ElementsAre;
using testing::IsEmpty;

Json Config(const std::string& name, int version, const std::string& ns = "default") {
  return {{"metadata",
           {{"name", name}, {"namespace", ns}, {"resourceVersion", absl::StrCat(version)}}}};
}

kube::ObjectList ListAt(int version, std::vector<Json> items, std::string continue_token = "") {
  return {std::move(items), absl::StrCat(version), std::move(continue_token)};
}

// Answers each list, each watch that is begun and each look at one with what stands next; then with
// the last list again, with a watch and with silence.
class Script final : public ForwardingKubeClient {
 public:
  using ForwardingKubeClient::ForwardingKubeClient;

  absl::StatusOr<kube::ObjectList> List(const kube::ResourceKind& /*kind*/, std::string_view /*ns*/,
                                        const kube::ListOptions& /*options*/) override {
    ++listed;
    if (while_listing) while_listing();
    const absl::StatusOr<kube::ObjectList> list = lists.front();
    if (lists.size() > 1) lists.pop_front();
    return list;
  }
  absl::StatusOr<std::unique_ptr<kube::WatchStream>> Watch(
      const kube::ResourceKind& /*kind*/, std::string_view /*ns*/,
      const kube::WatchOptions& options) override {
    watched_from.push_back(options.resource_version);
    if (!watches.empty()) {
      const absl::Status refused = watches.front();
      watches.pop_front();
      if (!refused.ok()) return refused;
    }
    return std::make_unique<Stream>(*this);
  }

  void Say(WatchEventType type, Json object) {
    events.push_back({absl::OkStatus(), {type, std::make_shared<const Json>(std::move(object))}});
  }
  void Break(absl::Status status) { events.push_back({std::move(status), {}}); }

  std::deque<absl::StatusOr<kube::ObjectList>> lists;
  std::deque<absl::Status> watches;
  struct Said {
    absl::Status broken;
    kube::WatchEvent event;
  };
  std::deque<Said> events;
  std::function<void()> while_listing;
  std::atomic<int> listed = 0;
  std::vector<std::string> watched_from;
  std::vector<absl::Duration> patience;  // of each look
  int stopped = 0;

 private:
  class Stream final : public kube::WatchStream {
   public:
    explicit Stream(Script& script) : script_(script) {}
    absl::StatusOr<std::optional<kube::WatchEvent>> Next(absl::Duration timeout) override {
      script_.patience.push_back(timeout);
      if (script_.events.empty()) {
        std::this_thread::yield();
        return std::optional<kube::WatchEvent>();
      }
      const Said next = script_.events.front();
      script_.events.pop_front();
      if (!next.broken.ok()) return next.broken;
      return std::optional<kube::WatchEvent>(next.event);
    }
    void Stop() override { ++script_.stopped; }

   private:
    Script& script_;
  };
};

class InformerScriptTest : public testing::Test {
 protected:
  explicit InformerScriptTest(InformerOptions options = {})
      : informer_(script_, kConfigMap, std::move(options)) {
    script_.lists.emplace_back(ListAt(5, {Config("a", 5)}));
    informer_.AddHandler([this](const auto& before, const auto& after) {
      const auto version = [](const Informer::Object& object) {
        return object == nullptr ? "none" : kube::ResourceVersionOf(*object);
      };
      told_.push_back(absl::StrCat(kube::NameOf(after != nullptr ? *after : *before), " ",
                                   version(before), " -> ", version(after)));
    });
  }

  absl::Status Poll() { return informer_.Poll(absl::ZeroDuration()); }
  // The first list, of a at version 5, and a watch from there; told_ is of what comes after it.
  void Begin() {
    ASSERT_TRUE(Poll().ok());
    ASSERT_THAT(told_, ElementsAre("a none -> 5"));
    told_.clear();
  }
  // The watch ends, so that the next turn lists.
  void LoseTheWatch() {
    script_.Break(absl::OutOfRangeError("too old resource version"));
    ASSERT_TRUE(Poll().ok());
  }
  void Learn(Json object) { informer_.Learn(std::make_shared<const Json>(std::move(object))); }
  std::string VersionOf(const std::string& name) {
    const Informer::Object object = informer_.Get({"default", name});
    return object == nullptr ? "none" : kube::ResourceVersionOf(*object);
  }

  clock::FakeClock clock_;
  std::unique_ptr<kube::KubeClient> store_ = *kube::OpenEmbeddedKubeClient(clock_, {});
  Script script_{*store_};
  Informer informer_;
  std::vector<std::string> told_;
};

TEST(IsOlder, ComparesNumbersAndOrdersNothingElse) {
  EXPECT_TRUE(IsOlder("9", "10"));
  EXPECT_FALSE(IsOlder("10", "9"));
  EXPECT_FALSE(IsOlder("9", "9"));
  EXPECT_FALSE(IsOlder("", "9"));
  EXPECT_FALSE(IsOlder("a", "b"));
}

TEST_F(InformerScriptTest, AnEventThatIsOlderThanTheCopyIsNoNews) {
  Begin();
  Learn(Config("a", 9));
  EXPECT_THAT(told_, ElementsAre("a 5 -> 9"));
  script_.Say(WatchEventType::kModified, Config("a", 7));
  ASSERT_TRUE(Poll().ok());
  EXPECT_EQ(VersionOf("a"), "9");
  EXPECT_EQ(informer_.seen(), "7");
  script_.Say(WatchEventType::kModified, Config("a", 9));  // the write itself
  ASSERT_TRUE(Poll().ok());
  EXPECT_EQ(informer_.seen(), "9");
  EXPECT_THAT(told_, ElementsAre("a 5 -> 9")) << "neither is told of";
  script_.Say(WatchEventType::kModified, Config("a", 10));
  ASSERT_TRUE(Poll().ok());
  EXPECT_THAT(told_, ElementsAre("a 5 -> 9", "a 9 -> 10"));
}

TEST_F(InformerScriptTest, ADeletionThatIsOlderThanTheCopyIsNotOfThisObject) {
  Begin();
  Learn(Config("a", 9));  // made anew under its name
  script_.Say(WatchEventType::kDeleted, Config("a", 7));
  ASSERT_TRUE(Poll().ok());
  EXPECT_EQ(VersionOf("a"), "9");
  EXPECT_EQ(informer_.seen(), "7");
  EXPECT_THAT(told_, ElementsAre("a 5 -> 9"));
  script_.Say(WatchEventType::kDeleted, Config("a", 12));
  script_.Say(WatchEventType::kDeleted, Config("stranger", 13));
  ASSERT_TRUE(Poll().ok());
  EXPECT_EQ(VersionOf("a"), "none");
  EXPECT_THAT(told_, ElementsAre("a 5 -> 9", "a 9 -> none"));
}

TEST_F(InformerScriptTest, WhatIsReadIsLearnedOnlyIfItIsNewerThanTheCopyAndTheWatch) {
  Begin();
  Learn(Config("a", 9));
  Learn(Config("a", 8));
  Learn(Config("a", 9));
  EXPECT_EQ(VersionOf("a"), "9");
  EXPECT_THAT(told_, ElementsAre("a 5 -> 9"));
  script_.Say(WatchEventType::kModified, Config("b", 20));
  ASSERT_TRUE(Poll().ok());
  Learn(Config("c", 15));
  EXPECT_EQ(VersionOf("c"), "none") << "the watch would have told of it, were it not deleted since";
  Learn(Config("c", 21));
  EXPECT_EQ(VersionOf("c"), "21");
}

TEST_F(InformerScriptTest, ABookmarkMovesTheVersionOnAndNeverBack) {
  Begin();
  for (const int version : {20, 15}) {
    script_.Say(WatchEventType::kBookmark, Config("", version));
    ASSERT_TRUE(Poll().ok());
    EXPECT_EQ(informer_.seen(), "20");
  }
  EXPECT_THAT(told_, IsEmpty());
  EXPECT_EQ(informer_.List().size(), 1U);
  script_.Break(absl::UnavailableError("reset by peer"));
  EXPECT_FALSE(Poll().ok());
  ASSERT_TRUE(Poll().ok());
  EXPECT_THAT(script_.watched_from, ElementsAre("5", "20"));
}

TEST_F(InformerScriptTest, OneLookWaitsForTheFirstEventAndTakesAllThatAreThere) {
  Begin();
  for (const int version : {6, 7}) script_.Say(WatchEventType::kModified, Config("a", version));
  ASSERT_TRUE(informer_.Poll(absl::Hours(1)).ok());
  EXPECT_THAT(script_.patience,
              ElementsAre(absl::Hours(1), absl::ZeroDuration(), absl::ZeroDuration()));
  EXPECT_THAT(told_, ElementsAre("a 5 -> 6", "a 6 -> 7"));
}

TEST_F(InformerScriptTest, AListThatBreaksOffForgetsNothingThatWasSeen) {
  script_.lists = {ListAt(9, {Config("a", 5)}), ListAt(9, {Config("a", 5)}, "more"),
                   absl::UnavailableError("reset by peer"), ListAt(8, {})};
  Begin();
  LoseTheWatch();
  EXPECT_FALSE(Poll().ok());
  EXPECT_EQ(informer_.seen(), "9");
  EXPECT_FALSE(Poll().ok()) << "a list of the past";
  EXPECT_EQ(VersionOf("a"), "5");
}

TEST_F(InformerScriptTest, WhatIsLearnedWhileAListComesStays) {
  Begin();
  script_.Say(WatchEventType::kAdded, Config("b", 6));
  ASSERT_TRUE(Poll().ok());
  LoseTheWatch();
  script_.lists = {ListAt(10, {Config("a", 5)})};
  script_.while_listing = [this] { Learn(Config("c", 12)); };
  ASSERT_TRUE(Poll().ok());
  EXPECT_EQ(VersionOf("b"), "none") << "deleted while nobody watched";
  EXPECT_EQ(VersionOf("c"), "12");
  EXPECT_EQ(informer_.seen(), "10");
  EXPECT_THAT(told_, ElementsAre("b none -> 6", "c none -> 12", "b 6 -> none"));
}

TEST_F(InformerScriptTest, OnlyListsOfThePastThatFollowOneAnotherAreBelieved) {
  script_.lists = {ListAt(50, {Config("a", 5)})};
  Begin();
  const auto refuse = [this](int times, int version) {
    script_.lists = {ListAt(version, {Config("a", 3)})};
    for (int i = 0; i < times; ++i) EXPECT_TRUE(absl::IsUnavailable(Poll())) << i;
  };
  LoseTheWatch();
  refuse(4, 10);
  script_.lists = {ListAt(51, {Config("a", 5)})};
  ASSERT_TRUE(Poll().ok());
  LoseTheWatch();
  refuse(4, 10);
  EXPECT_EQ(VersionOf("a"), "5");
  ASSERT_TRUE(Poll().ok()) << "the fifth";
  EXPECT_EQ(VersionOf("a"), "3");
  EXPECT_EQ(informer_.seen(), "10") << "what the store forgot is waited for anew";

  // From here on it is a store like any other.
  Learn(Config("a", 12));
  script_.Say(WatchEventType::kModified, Config("a", 11));
  ASSERT_TRUE(Poll().ok());
  EXPECT_EQ(VersionOf("a"), "12");
  LoseTheWatch();
  refuse(4, 9);
}

TEST_F(InformerScriptTest, ConnectionsThatBreakBetweenEventsLeadToNoList) {
  Begin();
  for (int i = 0; i < 10; ++i) {
    script_.Break(absl::DeadlineExceededError("silence"));
    EXPECT_FALSE(Poll().ok());
    ASSERT_TRUE(Poll().ok());
    script_.Say(WatchEventType::kModified, Config("a", 6 + i));
    ASSERT_TRUE(Poll().ok());
  }
  EXPECT_EQ(script_.listed, 1);
  EXPECT_THAT(script_.watched_from, testing::SizeIs(11));
}

TEST_F(InformerScriptTest, TheFourthBreakInARowLeadsToAList) {
  Begin();
  ASSERT_TRUE(Poll().ok());
  for (int round = 1; round <= 2; ++round) {
    script_.Break(absl::UnavailableError("reset by peer"));
    script_.watches.assign(3, absl::UnavailableError("refused"));
    for (int i = 0; i < 4; ++i) {
      EXPECT_FALSE(Poll().ok());
      EXPECT_EQ(script_.listed, round) << i;
    }
    ASSERT_TRUE(Poll().ok());
    EXPECT_EQ(script_.listed, round + 1);
  }
}

TEST_F(InformerScriptTest, AnErrorThatIsNoLostConnectionLeadsToAListAtOnce) {
  Begin();
  script_.Break(absl::InternalError("what is this?"));
  EXPECT_FALSE(Poll().ok());
  ASSERT_TRUE(Poll().ok());
  EXPECT_EQ(script_.listed, 2);
}

TEST_F(InformerScriptTest, StoppingEndsTheWatch) {
  Begin();
  informer_.Stop();
  EXPECT_EQ(script_.stopped, 1);
}

TEST_F(InformerScriptTest, WhoIsStoppedWhileItListsEndsItsWatch) {
  script_.while_listing = [this] { informer_.Stop(); };
  ASSERT_TRUE(Poll().ok());
  EXPECT_EQ(script_.stopped, 1);
}

TEST_F(InformerScriptTest, AWrongSelectorIsSaidAndNothingIsLearned) {
  InformerOptions options;
  options.selection.labels = "a=b=c";
  Informer wrong(script_, kConfigMap, options);
  EXPECT_TRUE(absl::IsInvalidArgument(wrong.Poll(absl::ZeroDuration())));
  wrong.Learn(std::make_shared<const Json>(Config("a", 1)));
  EXPECT_THAT(wrong.List(), IsEmpty());
}

// On a thread of its own, with pauses that no test outlives.
class RunningInformerTest : public InformerScriptTest {
 protected:
  RunningInformerTest() : InformerScriptTest(Options()) {}
  static InformerOptions Options() {
    InformerOptions options;
    options.back_off = {.first = absl::Hours(1), .longest = absl::Hours(1), .jitter = 0};
    return options;
  }
  // Runs until so many lists were made and no more come.
  void ExpectLists(int count) {
    std::thread run([this] { informer_.Run(); });
    const auto wait = [&](int lists, absl::Duration longest) {
      const absl::Time deadline = absl::Now() + longest;
      while (script_.listed < lists && absl::Now() < deadline) std::this_thread::yield();
      return script_.listed.load();
    };
    EXPECT_EQ(wait(count, absl::Seconds(20)), count);
    EXPECT_EQ(wait(count + 1, absl::Milliseconds(50)), count);
    informer_.Stop();
    run.join();
  }
};

TEST_F(RunningInformerTest, PausesAfterAnErrorUntilItIsStopped) {
  script_.lists = {absl::UnavailableError("no answer")};
  ExpectLists(1);
}

TEST_F(RunningInformerTest, ListsAtOnceAfterTheFirstGapAndPausesAfterTheNext) {
  for (int i = 0; i < 3; ++i) script_.Break(absl::OutOfRangeError("too old"));
  ExpectLists(2);
}

TEST_F(RunningInformerTest, GapsWithEventsBetweenThemDoNotFollowOneAnother) {
  script_.lists = {ListAt(20, {Config("a", 5)})};  // newer than all events, or it would lag
  for (int i = 0; i < 3; ++i) {
    script_.Break(absl::OutOfRangeError("too old"));
    script_.Say(WatchEventType::kModified, Config("a", 6 + i));
  }
  ExpectLists(4);
}

class NamespaceInformerTest : public InformerScriptTest {
 protected:
  NamespaceInformerTest() : InformerScriptTest(Options()) {}
  static InformerOptions Options() {
    InformerOptions options;
    options.ns = "default";
    return options;
  }
};

TEST_F(NamespaceInformerTest, LearnsNothingOfOtherNamespaces) {
  Begin();
  Learn(Config("b", 9, "other"));
  Learn(Config("c", 10));
  EXPECT_THAT(told_, ElementsAre("c none -> 10"));
}

class PackedInformerTest : public InformerScriptTest {
 protected:
  PackedInformerTest() : InformerScriptTest(Options()) {}
  static InformerOptions Options() {
    InformerOptions options;
    options.packed = true;
    return options;
  }
};

TEST_F(PackedInformerTest, OfAChangeItTellsWhatIsTwice) {
  Begin();
  Learn(Config("a", 6));
  script_.Say(WatchEventType::kModified, Config("a", 7));
  script_.Say(WatchEventType::kDeleted, Config("a", 8));
  ASSERT_TRUE(Poll().ok());
  EXPECT_THAT(told_, ElementsAre("a 6 -> 6", "a 7 -> 7", "a 7 -> none"));
}

class NewsInformerTest : public InformerScriptTest {
 protected:
  NewsInformerTest() : InformerScriptTest(Options()) {}
  static InformerOptions Options() {
    InformerOptions options;
    options.news = [](const Json& /*object*/) { return std::string("none"); };
    options.index_label = "team";
    return options;
  }
  static Json Of(const std::string& team, int version) {
    Json object = Config("a", version);
    object["metadata"]["labels"]["team"] = team;
    return object;
  }
};

TEST_F(NewsInformerTest, AMoveToAnotherLabelIsAlwaysToldOf) {
  Begin();
  for (const int version : {6, 7}) script_.Say(WatchEventType::kModified, Of("red", version));
  script_.Say(WatchEventType::kModified, Of("blue", 8));
  ASSERT_TRUE(Poll().ok());
  EXPECT_THAT(told_, ElementsAre("a 5 -> 6", "a 7 -> 8"));
  EXPECT_THAT(informer_.ListByLabel("default", "red"), IsEmpty());
  EXPECT_EQ(informer_.ListByLabel("default", "blue").size(), 1U);
}

}  // namespace
}  // namespace starling::runtime
