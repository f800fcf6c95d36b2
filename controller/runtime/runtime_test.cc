// SPDX-License-Identifier: Apache-2.0
// Informer, reconciler, events and manager over the embedded store.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "controller/kube/embedded_kube_client.h"
#include "controller/kube/objects.h"
#include "controller/runtime/event_recorder.h"
#include "controller/runtime/fan_out.h"
#include "controller/runtime/informer.h"
#include "controller/runtime/manager.h"
#include "controller/runtime/token_bucket.h"
#include "controller/testing/faulty_kube_client.h"

namespace starling::runtime {
namespace {

using kube::Json;
using kube::kConfigMap;
using testing::ElementsAre;
using testing::IsEmpty;

class RuntimeTest : public testing::Test {
 protected:
  RuntimeTest() {
    kube::EmbeddedOptions options;
    options.change_log_limit = 64;
    store_ = *kube::OpenEmbeddedKubeClient(clock_, options);
  }

  Json Create(const std::string& name) {
    auto created = store_->Create(kConfigMap, {{"metadata", {{"name", name}}}});
    EXPECT_TRUE(created.ok()) << created.status();
    return *created;
  }
  void Change(const std::string& name, const std::string& value) {
    const Json patch = {{"data", {{"key", value}}}};
    EXPECT_TRUE(store_->Patch(kConfigMap, {"default", name}, patch).ok());
  }
  void Delete(const std::string& name) {
    EXPECT_TRUE(store_->Delete(kConfigMap, {"default", name}, {}).ok());
  }

  clock::FakeClock clock_;
  std::unique_ptr<kube::KubeClient> store_;
};

class InformerTest : public RuntimeTest {
 protected:
  InformerTest() {
    informer_.AddHandler([this](const Informer::Object& before, const Informer::Object& after) {
      const std::string what = !before ? "new " : !after ? "gone " : "changed ";
      seen_.push_back(what + kube::NameOf(after ? *after : *before));
    });
  }
  std::vector<std::string> Poll() {
    seen_.clear();
    EXPECT_TRUE(informer_.Poll(absl::ZeroDuration()).ok());
    return seen_;
  }

  Informer informer_{*store_, kConfigMap, {}};
  std::vector<std::string> seen_;
};

TEST_F(InformerTest, ItBeginsWithAListAndFollowsTheWatch) {
  Create("a");
  EXPECT_FALSE(informer_.HasSynced());
  EXPECT_THAT(Poll(), ElementsAre("new a"));
  EXPECT_TRUE(informer_.HasSynced());

  Create("b");
  Change("a", "1");
  Delete("b");

  EXPECT_THAT(Poll(), ElementsAre("new b", "changed a", "gone b"));
  EXPECT_EQ(kube::StringAt(*informer_.Get({"default", "a"}), "/data/key"), "1");
  EXPECT_EQ(informer_.Get({"default", "b"}), nullptr);
  EXPECT_EQ(informer_.List().size(), 1U);
}

TEST_F(InformerTest, APackedCopyIsTheSameCopy) {
  InformerOptions options;
  options.packed = true;
  options.index_label = "team";
  Informer packed(*store_, kConfigMap, options);
  std::vector<std::string> told;
  packed.AddHandler([&](const Informer::Object& before, const Informer::Object& after) {
    const char* what = before == nullptr ? "new " : after == nullptr ? "gone " : "changed ";
    told.push_back(what + kube::NameOf(after != nullptr ? *after : *before));
  });
  const auto poll = [&] { EXPECT_TRUE(packed.Poll(absl::ZeroDuration()).ok()); };
  poll();
  const auto made = store_->Create(
      kConfigMap,
      {{"metadata", {{"name", "a"}, {"labels", {{"team", "red"}}}}}, {"data", {{"key", "0"}}}});
  ASSERT_TRUE(made.ok());
  poll();
  EXPECT_EQ(*packed.Get({"default", "a"}), *store_->Get(kConfigMap, {"default", "a"}));
  EXPECT_EQ(packed.ListByLabel("default", "red").size(), 1U);
  EXPECT_EQ(packed.Get({"default", "b"}), nullptr);

  kube::Json moved = *made;
  moved["metadata"]["labels"]["team"] = "blue";
  ASSERT_TRUE(store_->Update(kConfigMap, moved).ok());
  poll();
  EXPECT_TRUE(packed.ListByLabel("default", "red").empty());
  EXPECT_EQ(packed.ListByLabel("default", "blue").size(), 1U);
  Delete("a");
  poll();
  EXPECT_TRUE(packed.List().empty());
  EXPECT_TRUE(packed.ListByLabel("default", "blue").empty());
  EXPECT_THAT(told, ElementsAre("new a", "changed a", "gone a"));
}

TEST_F(InformerTest, APackedCopyTellsWhatWasWhereHandlersCompare) {
  for (const bool tells : {true, false}) {
    SCOPED_TRACE(tells);
    InformerOptions options;
    options.packed = true;
    options.tells_before = tells;
    Informer packed(*store_, kConfigMap, options);
    std::vector<std::string> told;
    const auto value = [](const Informer::Object& object) {
      return object == nullptr ? std::string("none") : kube::StringAt(*object, "/data/key");
    };
    packed.AddHandler([&](const Informer::Object& before, const Informer::Object& after) {
      told.push_back(value(before) + " to " + value(after));
    });
    const auto poll = [&] { EXPECT_TRUE(packed.Poll(absl::ZeroDuration()).ok()); };
    poll();
    Create("a");
    poll();
    Change("a", "1");
    poll();
    // What a write of this process returned, before the watch tells of it.
    kube::Json written = *store_->Get(kConfigMap, {"default", "a"});
    written["data"]["key"] = "2";
    packed.Learn(std::make_shared<const kube::Json>(*store_->Update(kConfigMap, written)),
                 Informer::Source::kOwnWrite);
    Delete("a");
    poll();
    EXPECT_THAT(told, tells ? ElementsAre("none to ", " to 1", "1 to 2", "2 to none")
                            : ElementsAre("none to ", "1 to 1", "2 to 2", "2 to none"));
  }
}

TEST_F(InformerTest, AfterAGapItListsAndReportsTheDifference) {
  Create("stays");
  Create("changes");
  Create("goes");
  Poll();

  Delete("goes");
  Change("changes", "1");
  for (int i = 0; i < 200; ++i) Change("changes", "value " + std::to_string(i));
  EXPECT_THAT(Poll(), IsEmpty()) << "the watch has been cut off";

  EXPECT_THAT(Poll(), ElementsAre("changed changes", "gone goes"));
  Create("later");
  EXPECT_THAT(Poll(), ElementsAre("new later"));
}

TEST_F(InformerTest, AFailingStoreIsAskedAgain) {
  kube::FaultyKubeClient faulty(*store_);
  faulty.FailWrite(1, kube::Fault::kCrashBefore);
  faulty.Create(kConfigMap, {{"metadata", {{"name", "x"}}}}).IgnoreError();
  Informer informer(faulty, kConfigMap, {});

  EXPECT_FALSE(informer.Poll(absl::ZeroDuration()).ok());
  EXPECT_FALSE(informer.HasSynced());
  faulty.Heal();
  EXPECT_TRUE(informer.Poll(absl::ZeroDuration()).ok());
  EXPECT_TRUE(informer.HasSynced());
}

class Scripted final : public Reconciler {
 public:
  absl::StatusOr<Result> Reconcile(const Key&) override {
    ++calls;
    return answer;
  }
  absl::StatusOr<Result> answer = Result{};
  int calls = 0;
};

TEST_F(RuntimeTest, AReconcileIsRepeatedAsItAsks) {
  WorkQueue queue(clock_, {.jitter = 0});
  Scripted reconciler;
  const Key key{"default", "a"};
  queue.Add(key);
  reconciler.answer = Result{absl::Seconds(3)};

  EXPECT_TRUE(ReconcileOnce(queue, reconciler));
  EXPECT_FALSE(ReconcileOnce(queue, reconciler));
  clock_.Advance(absl::Seconds(3));
  reconciler.answer = Result{};
  EXPECT_TRUE(ReconcileOnce(queue, reconciler));
  clock_.Advance(absl::Hours(1));
  EXPECT_FALSE(ReconcileOnce(queue, reconciler));
  EXPECT_EQ(reconciler.calls, 2);
}

TEST_F(RuntimeTest, ReconcilesEndInOneOfThreeWays) {
  WorkQueue queue(clock_, {.jitter = 0});
  Scripted reconciler;
  const auto outcome = [&](absl::StatusOr<Result> answer) {
    queue.Add({"default", "a"});
    reconciler.answer = std::move(answer);
    return ReconcileKey(queue, reconciler, *queue.TryGet());
  };
  EXPECT_EQ(outcome(Result{}), Outcome::kSuccess);
  EXPECT_EQ(outcome(Result{absl::Seconds(1)}), Outcome::kRequeueAfter);
  EXPECT_EQ(outcome(absl::AbortedError("conflict")), Outcome::kError);
  EXPECT_EQ(queue.FailuresOf({"default", "a"}), 1);
}

TEST_F(RuntimeTest, AFailedReconcileIsTriedAgainLaterAndLater) {
  WorkQueue queue(clock_, {.jitter = 0});
  Scripted reconciler;
  const Key key{"default", "a"};
  queue.Add(key);
  reconciler.answer = absl::UnavailableError("no");

  EXPECT_TRUE(ReconcileOnce(queue, reconciler));
  EXPECT_FALSE(ReconcileOnce(queue, reconciler));
  clock_.Advance(absl::Milliseconds(10));
  EXPECT_TRUE(ReconcileOnce(queue, reconciler));
  clock_.Advance(absl::Milliseconds(10));
  EXPECT_FALSE(ReconcileOnce(queue, reconciler)) << "the second wait is longer";
  clock_.Advance(absl::Milliseconds(10));
  reconciler.answer = Result{};
  EXPECT_TRUE(ReconcileOnce(queue, reconciler));
  EXPECT_EQ(queue.FailuresOf(key), 0);
}

class EventRecorderTest : public RuntimeTest {
 protected:
  std::vector<Json> Events() { return store_->List(kube::kEvent, "", {})->items; }

  const Json job_ = *store_->Create(kube::kTrainingJob, {{"metadata", {{"name", "digits"}}}});
  EventRecorder recorder_{*store_, clock_, "starling.dev/test", "here"};
};

TEST_F(EventRecorderTest, AnEventSaysWhatHappenedToWhom) {
  recorder_.Record(job_, EventType::kWarning, "WorkerLost", "ReplacePod", "worker 1 is gone");

  const auto events = Events();
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(kube::StringAt(events[0], "/regarding/uid"), kube::UidOf(job_));
  EXPECT_EQ(kube::StringAt(events[0], "/type"), "Warning");
  EXPECT_EQ(kube::StringAt(events[0], "/reason"), "WorkerLost");
  EXPECT_EQ(kube::StringAt(events[0], "/action"), "ReplacePod");
  EXPECT_EQ(kube::StringAt(events[0], "/note"), "worker 1 is gone");
  EXPECT_TRUE(kube::ParseTimestamp(kube::StringAt(events[0], "/eventTime")).has_value());
}

TEST_F(EventRecorderTest, RepetitionsAreCountedAndOthersAreNot) {
  for (int i = 0; i < 3; ++i) {
    recorder_.Record(job_, EventType::kNormal, "Waiting", "Wait", "for workers");
    clock_.Advance(absl::Seconds(1));
  }
  EXPECT_EQ(Events().size(), 1U);
  EXPECT_EQ(kube::IntAt(Events()[0], "/series/count"), 3);

  recorder_.Record(job_, EventType::kNormal, "Waiting", "Wait", "for servers");
  EXPECT_EQ(Events().size(), 2U);
}

TEST_F(EventRecorderTest, ARepetitionOfADeletedEventIsANewOne) {
  recorder_.Record(job_, EventType::kNormal, "Waiting", "Wait", "for workers");
  ASSERT_TRUE(store_->Delete(kube::kEvent, kube::KeyOf(Events()[0]), {}).ok());

  recorder_.Record(job_, EventType::kNormal, "Waiting", "Wait", "for workers");

  EXPECT_EQ(Events().size(), 1U);
}

TEST_F(EventRecorderTest, AFailingStoreIsNoReasonToStop) {
  kube::FaultyKubeClient faulty(*store_);
  faulty.FailWrite(1, kube::Fault::kRefuse);
  EventRecorder recorder(faulty, clock_, "starling.dev/test", "here");

  recorder.Record(job_, EventType::kNormal, "A", "B", "c");
  EXPECT_THAT(Events(), IsEmpty());
  recorder.Record(job_, EventType::kNormal, "A", "B", "c");
  EXPECT_EQ(Events().size(), 1U);
}

TEST_F(EventRecorderTest, QueuedEventsAreWrittenWhenThereIsTime) {
  EventRecorder queued(*store_, clock_, "starling.dev/test", "here", EventWrites::kQueued);
  for (int i = 0; i < 3; ++i) queued.Record(job_, EventType::kNormal, "A", "B", "c");
  EXPECT_THAT(Events(), IsEmpty());
  queued.Flush();
  ASSERT_EQ(Events().size(), 1U);
  EXPECT_EQ(kube::IntAt(Events()[0], "/series/count"), 3);
}

TEST_F(EventRecorderTest, AFloodOfQueuedEventsIsBounded) {
  EventRecorder queued(*store_, clock_, "starling.dev/test", "here", EventWrites::kQueued);
  for (int i = 0; i < 5000; ++i) queued.Record(job_, EventType::kNormal, "A", "B", "c");
  queued.Flush();
  EXPECT_EQ(kube::IntAt(Events()[0], "/series/count"), 4096);
}

TEST_F(EventRecorderTest, ALongNoteIsCutBetweenCharacters) {
  std::string note(1023, 'x');
  note += "é and more";

  recorder_.Record(job_, EventType::kNormal, "A", "B", note);

  EXPECT_EQ(kube::StringAt(Events()[0], "/note"), std::string(1023, 'x'));
}

TEST_F(EventRecorderTest, OldEventsAreDeletedAndYoungOnesKept) {
  recorder_.Record(job_, EventType::kNormal, "Old", "A", "");
  clock_.Advance(absl::Minutes(50));
  recorder_.Record(job_, EventType::kNormal, "Young", "A", "");
  clock_.Advance(absl::Minutes(20));

  EXPECT_EQ(*DeleteOldEvents(*store_, clock_, absl::Hours(1)), 1);

  ASSERT_EQ(Events().size(), 1U);
  EXPECT_EQ(kube::StringAt(Events()[0], "/reason"), "Young");
}

TEST(FanOut, RunsEachTaskOnceWhateverTheBatches) {
  for (const std::size_t count : {1U, 2U, 3U, 4U, 5U, 7U, 12U, 40U}) {
    std::vector<std::atomic<int>> runs(count);
    const auto results = FanOut(count, 16, [&](std::size_t i) {
      ++runs[i];
      return i == count - 1 ? absl::UnavailableError("the last") : absl::OkStatus();
    });
    ASSERT_EQ(results.size(), count);
    for (std::size_t i = 0; i < count; ++i) {
      EXPECT_EQ(runs[i], 1) << i << " of " << count;
      EXPECT_EQ(results[i].ok(), i + 1 < count) << i << " of " << count;
    }
  }
}

TEST(FanOut, BatchesGrowAndEndWithTheFirstFailure) {
  std::atomic<int> runs = 0;
  EXPECT_EQ(FanOut(100, 16,
                   [&](std::size_t) {
                     ++runs;
                     return absl::OkStatus();
                   })
                .size(),
            100U);
  EXPECT_EQ(runs, 100);
  runs = 0;
  const auto refused = [&](std::size_t) {
    ++runs;
    return absl::PermissionDeniedError("quota");
  };
  EXPECT_EQ(FanOut(100, 16, refused).size(), 1U);
  EXPECT_EQ(runs, 1);
  runs = 0;
  const auto stops = [](const absl::Status& status) { return absl::IsUnavailable(status); };
  EXPECT_EQ(FanOut(100, 16, refused, stops).size(), 100U) << "not all errors end it";
  EXPECT_TRUE(FanOut(0, 16, refused).empty());
  EXPECT_EQ(
      FanOut(100, 16,
             [](std::size_t i) { return i == 2 ? absl::UnavailableError("no") : absl::OkStatus(); })
          .size(),
      3U)
      << "one, then two";
}

TEST(TokenBucket, LetsABurstPassAndThenKeepsTheRate) {
  TokenBucket bucket(10, 3);
  const absl::Time start = absl::UnixEpoch();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(bucket.Take(start), absl::ZeroDuration());
  EXPECT_EQ(bucket.Take(start), absl::Milliseconds(100));
  EXPECT_EQ(bucket.Take(start), absl::Milliseconds(200));
  EXPECT_EQ(bucket.Take(start + absl::Milliseconds(300)), absl::ZeroDuration());
  EXPECT_EQ(bucket.Take(start + absl::Hours(1)), absl::ZeroDuration());
  TokenBucket slow(1, 1);
  EXPECT_EQ(slow.Take(start), absl::ZeroDuration());
  EXPECT_EQ(slow.Take(start), absl::Seconds(1));
  TokenBucket none(0, 0);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(none.Take(start), absl::ZeroDuration());
}

// Labels every ConfigMap that it is told of.
class Labeller final : public Reconciler {
 public:
  explicit Labeller(kube::KubeClient& client) : client_(client) {}
  absl::StatusOr<Result> Reconcile(const Key& key) override {
    const Json patch = {{"metadata", {{"labels", {{"seen", "yes"}}}}}};
    const auto status = client_.Patch(kConfigMap, key, patch).status();
    if (!status.ok() && !absl::IsNotFound(status)) return status;
    return Result{};
  }

 private:
  kube::KubeClient& client_;
};

TEST(ManagerTest, WhatTheInformerSeesReachesTheReconciler) {
  const clock::SystemClock clock;
  const auto store = *kube::OpenEmbeddedKubeClient(clock, {});
  Informer informer(*store, kConfigMap, {});
  WorkQueue queue(clock, {});
  informer.AddHandler([&](const Informer::Object& before, const Informer::Object& after) {
    queue.Add(kube::KeyOf(after ? *after : *before));
  });
  Labeller labeller(*store);
  metrics::Registry registry;
  Manager manager(clock, &registry);
  manager.AddInformer("configmaps", informer);
  manager.AddController("labeller", queue, labeller, 2);
  std::atomic<int> runs = 0;
  manager.AddPeriodic("count", absl::Milliseconds(1), [&] {
    return ++runs < 3 ? absl::UnavailableError("not yet") : absl::OkStatus();
  });
  EXPECT_FALSE(manager.Health().ok()) << "nothing has started";

  ASSERT_TRUE(manager.Start(absl::Seconds(10)).ok());
  const auto watch = *store->Watch(kConfigMap, "", {{"seen=yes", ""}, "1"});
  ASSERT_TRUE(store->Create(kConfigMap, {{"metadata", {{"name", "a"}}}}).ok());
  const auto labelled = watch->Next(absl::Seconds(10));

  ASSERT_TRUE(labelled.ok() && labelled->has_value());
  EXPECT_EQ(kube::NameOf(*(*labelled)->object), "a");
  const absl::Time deadline = clock.Now() + absl::Seconds(10);
  while ((!manager.Health().ok() || runs < 3) && clock.Now() < deadline) std::this_thread::yield();
  EXPECT_TRUE(manager.Health().ok());
  EXPECT_GE(runs, 3);
  manager.Stop();
  manager.UpdateMetrics();
  const std::string text = registry.Serialize();
  for (const char* series :
       {"controller_runtime_reconcile_total{controller=\"labeller\",result=\"success\"} ",
        "controller_runtime_max_concurrent_reconciles{controller=\"labeller\"} 2",
        "controller_runtime_active_workers{controller=\"labeller\"} 0",
        "workqueue_depth{controller=\"labeller\",name=\"labeller\"} "}) {
    EXPECT_NE(text.find(series), std::string::npos) << series << "\n" << text;
  }
}

}  // namespace
}  // namespace starling::runtime
