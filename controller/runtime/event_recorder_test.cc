// SPDX-License-Identifier: Apache-2.0
// What an Event says, how long repetitions are counted on it, and when it goes. The rest:
// runtime_test.cc.
#include "controller/runtime/event_recorder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "controller/kube/embedded_kube_client.h"
#include "controller/kube/objects.h"
#include "controller/runtime/forwarding_kube_client.h"
#include "controller/testing/faulty_kube_client.h"

namespace starling::runtime {
namespace {

using kube::Json;
using testing::IsEmpty;
using testing::MatchesRegex;
using testing::SizeIs;

class EventsTest : public testing::Test {
 protected:
  std::vector<Json> Events() { return store_->List(kube::kEvent, "", {})->items; }
  std::int64_t CountOf(const Json& event) { return kube::IntAt(event, "/series/count"); }
  void Record(const std::string& note = "for workers") {
    recorder_.Record(job_, EventType::kNormal, "Waiting", "Wait", note);
  }

  clock::FakeClock clock_;
  std::unique_ptr<kube::KubeClient> store_ = *kube::OpenEmbeddedKubeClient(clock_, {});
  kube::FaultyKubeClient faulty_{*store_};
  const Json job_ = *store_->Create(kube::kTrainingJob,
                                    {{"metadata", {{"name", "digits"}, {"namespace", "team"}}}});
  EventRecorder recorder_{*store_, clock_, "starling.dev/test", std::string(200, 'h')};
};

TEST_F(EventsTest, NamesItsObjectInFullAndWhoTells) {
  Record();
  const std::vector<Json> events = Events();
  ASSERT_THAT(events, SizeIs(1));
  EXPECT_THAT(kube::NameOf(events[0]), MatchesRegex("digits\\.[0-9a-f]{16}"));
  EXPECT_EQ(kube::NamespaceOf(events[0]), "team");
  EXPECT_EQ(events[0]["regarding"], (Json{{"apiVersion", kube::kTrainingJob.ApiVersion()},
                                          {"kind", "TrainingJob"},
                                          {"namespace", "team"},
                                          {"name", "digits"},
                                          {"uid", kube::UidOf(job_)},
                                          {"resourceVersion", kube::ResourceVersionOf(job_)}}));
  EXPECT_EQ(kube::StringAt(events[0], "/type"), "Normal");
  EXPECT_EQ(kube::StringAt(events[0], "/reportingController"), "starling.dev/test");
  EXPECT_EQ(kube::StringAt(events[0], "/reportingInstance"), std::string(128, 'h'));
}

TEST_F(EventsTest, TheNameOfAnEventIsNeverTooLong) {
  const Json job =
      *store_->Create(kube::kTrainingJob, {{"metadata", {{"name", std::string(250, 'j')}}}});
  recorder_.Record(job, EventType::kNormal, "A", "B", "c");
  EXPECT_EQ(kube::NameOf(Events()[0]).size(), 200U + 1 + 16);
}

TEST_F(EventsTest, WordsAreCutToWhatAnApiServerTakes) {
  const std::string word(200, 'w');
  recorder_.Record(job_, EventType::kNormal, word, word, "");
  EXPECT_EQ(kube::StringAt(Events()[0], "/reason"), word.substr(0, 128));
  EXPECT_EQ(kube::StringAt(Events()[0], "/action"), word.substr(0, 128));
}

TEST_F(EventsTest, RepetitionsAreCountedUntilNoneHasComeForSixMinutes) {
  Record();
  for (int i = 2; i <= 4; ++i) {
    clock_.Advance(absl::Minutes(6) - absl::Nanoseconds(1));
    Record();
    ASSERT_THAT(Events(), SizeIs(1));
    EXPECT_EQ(CountOf(Events()[0]), i);
    EXPECT_EQ(kube::StringAt(Events()[0], "/series/lastObservedTime"),
              kube::FormatMicroTimestamp(clock_.WallNow()));
  }
  clock_.Advance(absl::Minutes(6));
  Record();
  EXPECT_THAT(Events(), SizeIs(2));
}

TEST_F(EventsTest, OfMoreThanAThousandTheOldestIsNoLongerKnown) {
  Record("first");
  clock_.Advance(absl::Minutes(6));
  Record("first");  // a new event, and the newest
  for (int i = 1; i < 1024; ++i) Record(absl::StrCat("other ", i));
  ASSERT_THAT(Events(), SizeIs(1025));
  Record("first");
  EXPECT_THAT(Events(), SizeIs(1025)) << "1024 are known";
  Record("one more");
  Record("first");
  EXPECT_THAT(Events(), SizeIs(1027)) << "it was the oldest of them";
  Record("first");
  Record("other 2");
  EXPECT_THAT(Events(), SizeIs(1027));
}

TEST_F(EventsTest, AfterCloseNothingIsWritten) {
  EventRecorder queued(*store_, clock_, "starling.dev/test", "here", EventWrites::kQueued);
  queued.Record(job_, EventType::kNormal, "A", "B", "c");
  queued.Close();
  queued.Flush();
  EXPECT_THAT(Events(), IsEmpty());
}

TEST_F(EventsTest, AgeIsThatOfTheLastRepetition) {
  Record();
  clock_.Advance(absl::Minutes(5));
  Record();
  clock_.Advance(absl::Minutes(56));
  EXPECT_EQ(*DeleteOldEvents(*store_, clock_, absl::Hours(1)), 0);
  clock_.Advance(absl::Minutes(4));
  EXPECT_EQ(*DeleteOldEvents(*store_, clock_, absl::Hours(1)), 1);
  EXPECT_THAT(Events(), IsEmpty());
}

TEST_F(EventsTest, WithoutATimeOfItsOwnAnEventIsAsOldAsItsObject) {
  ASSERT_TRUE(store_->Create(kube::kEvent, {{"metadata", {{"name", "bare"}}}}).ok());
  clock_.Advance(absl::Minutes(59));
  EXPECT_EQ(*DeleteOldEvents(*store_, clock_, absl::Hours(1)), 0);
  clock_.Advance(absl::Minutes(2));
  EXPECT_EQ(*DeleteOldEvents(*store_, clock_, absl::Hours(1)), 1);
}

TEST_F(EventsTest, ItsOwnTimeCountsBeforeThatOfItsObject) {
  ASSERT_TRUE(
      store_
          ->Create(kube::kEvent,
                   {{"metadata", {{"name", "told-late"}}},
                    {"eventTime", kube::FormatMicroTimestamp(clock_.WallNow() - absl::Hours(2))}})
          .ok());
  EXPECT_EQ(*DeleteOldEvents(*store_, clock_, absl::Hours(1)), 1);
}

// Another deletes each event a moment earlier.
class Faster final : public ForwardingKubeClient {
 public:
  using ForwardingKubeClient::ForwardingKubeClient;
  absl::StatusOr<kube::MessagePtr> DeleteMessage(const kube::ResourceKind& kind,
                                                 const kube::ObjectKey& key,
                                                 const kube::DeleteOptions& options) override {
    EXPECT_TRUE(inner().Delete(kind, key, {}).ok());
    return ForwardingKubeClient::DeleteMessage(kind, key, options);
  }
};

TEST_F(EventsTest, WhatAnotherHasDeletedIsPassedOver) {
  Record("one");
  Record("two");
  clock_.Advance(absl::Hours(2));
  Faster faster(*store_);
  const auto deleted = DeleteOldEvents(faster, clock_, absl::Hours(1));
  ASSERT_TRUE(deleted.ok()) << deleted.status();
  EXPECT_EQ(*deleted, 0);
  EXPECT_THAT(Events(), IsEmpty());
}

TEST_F(EventsTest, AnOldEventThatCannotBeDeletedIsAnError) {
  Record();
  clock_.Advance(absl::Hours(2));
  faulty_.FailWrite(1, kube::Fault::kRefuse);
  EXPECT_TRUE(absl::IsUnavailable(DeleteOldEvents(faulty_, clock_, absl::Hours(1)).status()));
}

}  // namespace
}  // namespace starling::runtime
