// SPDX-License-Identifier: Apache-2.0
#include "controller/kube/embedded_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ctime>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "common/status/macros.h"
#include "controller/kube/objects.h"

namespace starling::kube {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;
using Transaction = ObjectStore::Transaction;

class EmbeddedWatchTest : public testing::Test {
 protected:
  // A watch of pods.
  std::unique_ptr<EmbeddedWatch> Watch(std::int64_t version, const std::string& labels = "") {
    auto selector = Selector::Parse(kPod, {labels, ""});
    EXPECT_TRUE(selector.ok()) << selector.status();
    return std::make_unique<EmbeddedWatch>(*store_, kPod, "pods", "", *std::move(selector),
                                           version);
  }

  std::unique_ptr<EmbeddedWatch> Started(std::int64_t version, const std::string& labels = "") {
    auto watch = Watch(version, labels);
    const absl::Status started = watch->Start({});
    EXPECT_TRUE(started.ok()) << started;
    return watch;
  }

  // Puts new objects, in one transaction; the first of a store has version 2.
  void Put(int count, const std::string& kind = "pods", const Json& labels = Json::object()) {
    const auto put = [&](Transaction& transaction) -> absl::Status {
      for (int i = 0; i < count; ++i) {
        const Json object = {{"metadata", {{"name", "x" + std::to_string(i)}, {"labels", labels}}}};
        RETURN_IF_ERROR(transaction.Put(kind, nullptr, object).status());
      }
      return absl::OkStatus();
    };
    const absl::Status status = store_->Write(put, ObjectStore::Durability::kSoon);
    EXPECT_TRUE(status.ok()) << status;
  }

  // What is there to be read, at most 1000 events: "ADDED 2" with the version.
  static std::vector<std::string> Events(EmbeddedWatch& watch) {
    std::vector<std::string> events;
    while (events.size() < 1000) {
      const auto event = watch.Next(absl::ZeroDuration());
      EXPECT_TRUE(event.ok()) << event.status();
      if (!event.ok() || !*event) break;
      constexpr const char* kNames[] = {"ADDED ", "MODIFIED ", "DELETED ", "BOOKMARK "};
      events.push_back(kNames[static_cast<int>((*event)->type)] +
                       ResourceVersionOf(*(*event)->object));
    }
    return events;
  }

  static std::unique_ptr<ObjectStore> Open(std::int64_t change_log_limit) {
    return *ObjectStore::Open(":memory:", absl::ZeroDuration(), change_log_limit);
  }

  std::unique_ptr<ObjectStore> store_ = Open(4096);
};

TEST_F(EmbeddedWatchTest, TheOldestVersionThatIsRememberedIsWhereAWatchMayStart) {
  store_ = Open(64);
  Put(127);  // version 128, of which those up to 64 are forgotten

  EXPECT_TRUE(Watch(64)->Start({}).ok());
  EXPECT_TRUE(absl::IsOutOfRange(Watch(63)->Start({})));
}

TEST_F(EmbeddedWatchTest, AWatchThatFellBehindToTheOldestRememberedVersionGoesOn) {
  store_ = Open(64);
  Put(63);  // version 64
  const auto watch = Started(64);
  Put(64);  // version 128, of which those up to 64 are forgotten

  EXPECT_THAT(Events(*watch), SizeIs(64));
}

TEST_F(EmbeddedWatchTest, WhatWasNotThereIsAdded) {
  const auto watch = Started(1);
  Put(1);

  EXPECT_THAT(Events(*watch), ElementsAre("ADDED 2"));
}

TEST_F(EmbeddedWatchTest, WhatTheSelectorLeavesOutIsNotShown) {
  const auto watch = Started(1, "app=shown");
  Put(1, "pods", {{"app", "hidden"}});
  Put(1, "pods", {{"app", "shown"}});

  EXPECT_THAT(Events(*watch), ElementsAre("ADDED 3"));
}

TEST_F(EmbeddedWatchTest, NoneOfManyChangesIsLeftOut) {
  const auto watch = Started(1);
  Put(200);
  std::vector<std::string> expected;
  for (int version = 2; version <= 201; ++version) {
    expected.push_back("ADDED " + std::to_string(version));
  }

  EXPECT_EQ(Events(*watch), expected);
}

TEST_F(EmbeddedWatchTest, ABookmarkComesOnceAfter256ChangesOfOthers) {
  const auto watch = Started(1);

  Put(255, "configmaps");
  EXPECT_THAT(Events(*watch), IsEmpty());
  Put(1, "configmaps");
  EXPECT_THAT(Events(*watch), ElementsAre("BOOKMARK 257"));
}

TEST_F(EmbeddedWatchTest, ABookmarkCountsFromTheLastEvent) {
  const auto watch = Started(1);
  Put(200, "configmaps");
  EXPECT_THAT(Events(*watch), IsEmpty());
  Put(1);
  EXPECT_THAT(Events(*watch), ElementsAre("ADDED 202"));

  Put(255, "configmaps");
  EXPECT_THAT(Events(*watch), IsEmpty());
  Put(1, "configmaps");
  EXPECT_THAT(Events(*watch), ElementsAre("BOOKMARK 458"));
}

TEST_F(EmbeddedWatchTest, WaitingTakesNoProcessorTime) {
  Put(1);
  const auto watch = Started(2);
  EXPECT_THAT(Events(*watch), IsEmpty());
  const auto used = [] {
    timespec time{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return absl::DurationFromTimespec(time);
  };
  const absl::Duration before = used();

  const auto event = watch->Next(absl::Milliseconds(15));

  EXPECT_TRUE(event.ok() && !event->has_value());
  EXPECT_LT(used() - before, absl::Milliseconds(2));
}

}  // namespace
}  // namespace starling::kube
