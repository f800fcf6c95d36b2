// SPDX-License-Identifier: Apache-2.0
#include "controller/runtime/work_queue.h"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <map>
#include <thread>
#include <vector>

namespace starling::runtime {
namespace {

const Key kA{"ns", "a"};
const Key kB{"ns", "b"};

class WorkQueueTest : public testing::Test {
 protected:
  clock::FakeClock clock_;
  WorkQueue queue_{clock_, {.jitter = 0}};
};

TEST_F(WorkQueueTest, AKeyIsQueuedAtMostOnce) {
  queue_.Add(kA);
  queue_.Add(kB);
  queue_.Add(kA);

  EXPECT_EQ(queue_.TryGet(), kA);
  EXPECT_EQ(queue_.TryGet(), kB);
  EXPECT_EQ(queue_.TryGet(), std::nullopt);
}

TEST_F(WorkQueueTest, AKeyThatIsBeingWorkedOnComesBackOnlyWhenThatIsDone) {
  queue_.Add(kA);
  ASSERT_EQ(queue_.TryGet(), kA);

  queue_.Add(kA);
  EXPECT_EQ(queue_.TryGet(), std::nullopt);
  queue_.Done(kA);

  EXPECT_EQ(queue_.TryGet(), kA);
  queue_.Done(kA);
  EXPECT_EQ(queue_.TryGet(), std::nullopt);
}

TEST_F(WorkQueueTest, WhatIsUnderWayGoesBeforeWhatIsNew) {
  queue_.AddNew(kA);
  queue_.Add(kB);
  EXPECT_EQ(queue_.size(), 2U);

  EXPECT_EQ(queue_.TryGet(), kB);
  EXPECT_EQ(queue_.TryGet(), kA);
  EXPECT_EQ(queue_.TryGet(), std::nullopt);
}

TEST_F(WorkQueueTest, NewsOfANewKeyBringItForward) {
  queue_.AddNew(kA);
  queue_.AddNew(kB);
  queue_.Add(kB);
  queue_.AddNew(kB);  // it stays there
  EXPECT_EQ(queue_.size(), 2U);

  EXPECT_EQ(queue_.TryGet(), kB);
  EXPECT_EQ(queue_.TryGet(), kA);
  EXPECT_EQ(queue_.TryGet(), std::nullopt);
}

TEST_F(WorkQueueTest, NewKeysAreNotKeptWaitingForEver) {
  const Key fresh{"ns", "fresh"};
  queue_.AddNew(fresh);
  int before_it = 0;
  for (;; ++before_it) {
    ASSERT_LT(before_it, 20);
    queue_.Add({"ns", std::to_string(before_it)});
    const std::optional<Key> key = queue_.TryGet();
    ASSERT_TRUE(key.has_value());
    queue_.Done(*key);
    if (*key == fresh) break;
  }
  EXPECT_EQ(before_it, 8);
}

TEST_F(WorkQueueTest, EachNewKeyLetsEightOthersPass) {
  const auto before = [&](const Key& fresh) {
    for (int others = 0;; ++others) {
      queue_.Add(kB);
      const std::optional<Key> key = queue_.TryGet();
      queue_.Done(*key);
      if (*key == fresh || others > 20) return others;
    }
  };
  for (int i = 0; i < 3; ++i) {
    queue_.Add(kB);  // while nothing is new
    ASSERT_EQ(queue_.TryGet(), kB);
    queue_.Done(kB);
  }
  queue_.AddNew({"ns", "first"});
  queue_.AddNew({"ns", "second"});
  EXPECT_EQ(before({"ns", "first"}), 8);
  EXPECT_EQ(before({"ns", "second"}), 8);
}

TEST_F(WorkQueueTest, AfterEightInARowANewKeyThatWasBroughtForwardComesInItsTurn) {
  queue_.AddNew(kA);
  for (int i = 0; i < 8; ++i) {
    queue_.Add(kB);
    ASSERT_EQ(queue_.TryGet(), kB);
    queue_.Done(kB);
  }
  queue_.Add(kA);
  EXPECT_EQ(queue_.TryGet(), kA);
  EXPECT_EQ(queue_.TryGet(), std::nullopt);
}

TEST_F(WorkQueueTest, AKeyThatIsAddedAsNewWhileAWorkerHasItComesBackOnce) {
  queue_.AddNew(kA);
  ASSERT_EQ(queue_.TryGet(), kA);
  queue_.AddNew(kA);
  queue_.Add(kA);
  EXPECT_EQ(queue_.size(), 0U);
  queue_.Done(kA);
  EXPECT_EQ(queue_.size(), 1U);
  EXPECT_EQ(queue_.TryGet(), kA);
  queue_.Done(kA);
  EXPECT_EQ(queue_.TryGet(), std::nullopt);
}

TEST_F(WorkQueueTest, ADelayedKeyComesWhenItsTimeHasCome) {
  queue_.AddAfter(kA, absl::Seconds(5));

  clock_.Advance(absl::Seconds(5) - absl::Nanoseconds(1));
  EXPECT_EQ(queue_.TryGet(), std::nullopt);
  clock_.Advance(absl::Nanoseconds(1));
  EXPECT_EQ(queue_.TryGet(), kA);
}

TEST_F(WorkQueueTest, WithoutADelayAKeyIsReadyAtOnce) {
  queue_.AddAfter(kA, absl::ZeroDuration());
  EXPECT_EQ(queue_.size(), 1U);
  EXPECT_EQ(queue_.next_due(), std::nullopt);
}

TEST_F(WorkQueueTest, OfSeveralDelaysTheEarliestCounts) {
  queue_.AddAfter(kA, absl::Seconds(5));
  queue_.AddAfter(kA, absl::Seconds(2));
  queue_.AddAfter(kA, absl::Seconds(3));
  queue_.AddAfter(kA, absl::Seconds(9));

  clock_.Advance(absl::Seconds(2));
  ASSERT_EQ(queue_.TryGet(), kA);
  queue_.Done(kA);
  clock_.Advance(absl::Seconds(20));
  EXPECT_EQ(queue_.TryGet(), std::nullopt) << "the others are forgotten";
}

TEST_F(WorkQueueTest, DelaysAfterFailuresGrowUpToALimitAndStartAnew) {
  const auto delay = [&] {
    queue_.AddBackedOff(kA);
    const absl::Duration due = *queue_.next_due() - clock_.Now();
    clock_.Advance(due);
    EXPECT_EQ(queue_.TryGet(), kA);
    queue_.Done(kA);
    return due;
  };

  EXPECT_EQ(delay(), absl::Milliseconds(10));
  EXPECT_EQ(delay(), absl::Milliseconds(20));
  EXPECT_EQ(delay(), absl::Milliseconds(40));
  for (int i = 0; i < 100; ++i) delay();
  EXPECT_EQ(delay(), absl::Seconds(30));
  queue_.Forget(kA);
  EXPECT_EQ(queue_.FailuresOf(kA), 0);
  EXPECT_EQ(delay(), absl::Milliseconds(10));
}

TEST_F(WorkQueueTest, JitterSpreadsDelaysAndIsTheSameForTheSameSeed) {
  const auto delays = [this](std::uint64_t seed) {
    WorkQueue queue(clock_, {.jitter = 0.5, .seed = seed});
    std::vector<absl::Duration> seen;
    for (int i = 0; i < 8; ++i) {
      queue.AddBackedOff(kA);
      seen.push_back(*queue.next_due() - clock_.Now());
      clock_.Advance(seen.back());
      EXPECT_EQ(queue.TryGet(), kA);
      queue.Done(kA);
      queue.Forget(kA);
    }
    return seen;
  };

  EXPECT_EQ(delays(3), delays(3));
  EXPECT_NE(delays(3), delays(4));
  for (const absl::Duration delay : delays(3)) {
    EXPECT_GE(delay, absl::Milliseconds(10));
    EXPECT_LE(delay, absl::Milliseconds(15));
  }
}

TEST_F(WorkQueueTest, FailuresOfAllKeysTogetherComeBackAtALimitedRate) {
  WorkQueue queue(clock_, {.jitter = 0}, TokenBucket(/*per_second=*/10, /*burst=*/2));
  for (int i = 0; i < 12; ++i) queue.AddBackedOff({"ns", std::to_string(i)});
  const auto ready = [&] {
    int count = 0;
    while (const auto key = queue.TryGet()) {
      queue.Done(*key);
      ++count;
    }
    return count;
  };
  clock_.Advance(absl::Milliseconds(10));
  EXPECT_EQ(ready(), 2) << "the burst";
  clock_.Advance(absl::Milliseconds(500));
  EXPECT_EQ(ready(), 5);
  clock_.Advance(absl::Seconds(1));
  EXPECT_EQ(ready(), 5) << "late, but none is lost";
}

TEST_F(WorkQueueTest, MetricsTellOfKeysThatWaitAndOfWorkersThatAreStuck) {
  metrics::Registry registry;
  queue_.UseMetrics(AddQueueMetrics(registry, "q"));
  queue_.Add(kA);
  queue_.Add(kB);
  EXPECT_NE(registry.Serialize().find("workqueue_depth{controller=\"q\",name=\"q\"} 2"),
            std::string::npos);
  ASSERT_EQ(queue_.TryGet(), kA);
  clock_.Advance(absl::Seconds(7));
  queue_.UpdateAges();
  const auto shows = [&](const std::string& line) {
    return registry.Serialize().find(line) != std::string::npos;
  };
  const std::string labels = "{controller=\"q\",name=\"q\"} ";
  EXPECT_TRUE(shows("workqueue_depth" + labels + "1"));
  EXPECT_TRUE(shows("workqueue_adds_total" + labels + "2"));
  EXPECT_TRUE(shows("workqueue_longest_running_processor_seconds" + labels + "7"));
  queue_.Done(kA);
  queue_.UpdateAges();
  EXPECT_TRUE(shows("workqueue_unfinished_work_seconds" + labels + "0"));
  EXPECT_TRUE(shows("workqueue_work_duration_seconds_sum" + labels + "7"));
  ASSERT_EQ(queue_.TryGet(), kB);
  EXPECT_TRUE(shows("workqueue_queue_duration_seconds_sum" + labels + "7"));
  EXPECT_TRUE(shows("workqueue_queue_duration_seconds_count" + labels + "2"));
  queue_.AddBackedOff(kB);
  EXPECT_TRUE(shows("workqueue_retries_total" + labels + "1"));
}

TEST_F(WorkQueueTest, AWaitingWorkerIsWokenForADelayedKey) {
  const clock::SystemClock clock;
  WorkQueue queue(clock, {});
  std::atomic<int> taken = 0;
  std::thread worker([&] {
    while (const std::optional<Key> key = queue.Get()) {
      queue.Done(*key);
      ++taken;
    }
  });
  const absl::Time deadline = clock.Now() + absl::Seconds(10);
  for (int round = 1; round <= 20 && clock.Now() < deadline; ++round) {
    queue.AddAfter(kA, absl::Milliseconds(2));
    while (taken < round && clock.Now() < deadline) std::this_thread::yield();
  }
  queue.ShutDown();
  worker.join();

  EXPECT_EQ(taken, 20);
}

// Waits until `done` says so, and says whether it did.
bool Await(const clock::Clock& clock, const std::function<bool()>& done) {
  const absl::Time deadline = clock.Now() + absl::Seconds(10);
  while (!done() && clock.Now() < deadline) std::this_thread::yield();
  return done();
}

TEST_F(WorkQueueTest, WhoTakesADelayedKeyLeavesTheNextToAnother) {
  const clock::SystemClock clock;
  WorkQueue queue(clock, {});
  std::atomic<int> taken = 0;
  std::vector<std::thread> workers;
  workers.reserve(3);
  for (int i = 0; i < 3; ++i) {
    workers.emplace_back([&] {
      while (const std::optional<Key> key = queue.Get()) {
        const int all = (taken++ / 3 + 1) * 3;
        // Each keeps its key until the others have theirs.
        EXPECT_TRUE(Await(clock, [&] { return taken >= all; }));
        queue.Done(*key);
      }
    });
  }
  for (int round = 1; round <= 20 && !HasFailure(); ++round) {
    // Each is due before those that are watched for.
    queue.AddAfter({"ns", "c"}, absl::Milliseconds(3));
    queue.AddAfter(kB, absl::Milliseconds(2));
    queue.AddAfter(kA, absl::Milliseconds(1));
    EXPECT_TRUE(Await(clock, [&] { return taken == 3 * round; })) << "round " << round;
  }
  queue.ShutDown();
  for (std::thread& worker : workers) worker.join();
}

TEST_F(WorkQueueTest, WhoWatchesForADelayedKeyTakesOneThatIsReady) {
  const clock::SystemClock clock;
  WorkQueue queue(clock, {});
  std::atomic<int> taken = 0;
  std::thread worker([&] {
    while (const std::optional<Key> key = queue.Get()) {
      ++taken;
      queue.Done(*key);
    }
  });
  queue.AddAfter(kA, absl::Hours(1));
  for (int round = 1; round <= 20 && !HasFailure(); ++round) {
    queue.Add(kB);
    EXPECT_TRUE(Await(clock, [&] { return taken == round; })) << "round " << round;
  }
  queue.ShutDown();
  worker.join();
}

TEST_F(WorkQueueTest, ShuttingDownEndsWhoWaits) {
  std::thread waiting([this] { EXPECT_EQ(queue_.Get(), std::nullopt); });

  queue_.ShutDown();
  waiting.join();

  queue_.Add(kA);
  EXPECT_EQ(queue_.TryGet(), std::nullopt);
}

TEST_F(WorkQueueTest, WhatIsDoneAfterShuttingDownDoesNotComeBack) {
  queue_.Add(kA);
  ASSERT_EQ(queue_.TryGet(), kA);
  queue_.Add(kA);
  queue_.ShutDown();
  queue_.Done(kA);
  queue_.Add(kB);
  EXPECT_EQ(queue_.size(), 0U);
  queue_.AddAfter(kB, absl::Seconds(1));
  EXPECT_EQ(queue_.next_due(), std::nullopt);
}

TEST_F(WorkQueueTest, WhatIsReadyWhenItShutsDownIsDropped) {
  queue_.Add(kA);
  queue_.ShutDown();
  EXPECT_EQ(queue_.TryGet(), std::nullopt);
}

TEST_F(WorkQueueTest, NoTwoWorkersEverHaveOneKey) {
  constexpr int kRounds = 2000;
  std::map<Key, std::atomic<int>> holders;
  for (int i = 0; i < 4; ++i) holders[{"ns", std::to_string(i)}] = 0;
  std::atomic<bool> clash = false;
  std::atomic<int> handled = 0;
  std::vector<std::thread> workers;
  workers.reserve(4);
  for (int i = 0; i < 4; ++i) {
    workers.emplace_back([&] {
      while (const auto key = queue_.Get()) {
        if (holders.at(*key).fetch_add(1) != 0) clash = true;
        std::this_thread::yield();
        holders.at(*key).fetch_sub(1);
        queue_.Done(*key);
        if (++handled == kRounds) queue_.ShutDown();
      }
    });
  }

  while (handled < kRounds) {
    for (const auto& [key, count] : holders) queue_.Add(key);
    std::this_thread::yield();
  }
  for (std::thread& worker : workers) worker.join();

  EXPECT_FALSE(clash);
}

}  // namespace
}  // namespace starling::runtime
