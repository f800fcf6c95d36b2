// SPDX-License-Identifier: Apache-2.0
// An executor by itself: what it does in which order, when it rests, and how much it lets wait.
// Servers with executors stand in server_loop_test.cc.
#include "trainer/parameter_server/executor.h"

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/testing/transports.h"

namespace starling::parameter_server {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using transport::testing::Soon;

constexpr std::size_t kMostBytes = std::size_t{64} << 20;

// What an executor has done so far.
class Log {
 public:
  void Add(const std::string& what) {
    const sync::MutexLock lock(mutex_);
    done_.push_back(what);
    changed_.NotifyAll();
  }
  std::vector<std::string> WaitFor(std::size_t count) {
    const sync::MutexLock lock(mutex_);
    const net::Deadline soon = Soon();
    while (done_.size() < count && !soon.Expired()) changed_.WaitFor(mutex_, soon.Remaining());
    return done_;
  }

 private:
  sync::Mutex mutex_;
  sync::Condition changed_;
  std::vector<std::string> done_ ABSL_GUARDED_BY(mutex_);
};

// Holds up an executor.
class Gate {
 public:
  void Wait() {
    const sync::MutexLock lock(mutex_);
    while (!open_) changed_.Wait(mutex_);
  }
  void Open() {
    const sync::MutexLock lock(mutex_);
    open_ = true;
    changed_.NotifyAll();
  }

 private:
  sync::Mutex mutex_;
  sync::Condition changed_;
  bool open_ ABSL_GUARDED_BY(mutex_) = false;
};

absl::Duration ForEver() { return absl::InfiniteDuration(); }

TEST(ExecutorTest, MessagesAndCallsAreWorkedOffInTheirOrderWithoutARestBetweenThem) {
  Log log;
  Gate gate;
  Executor executor([&] {
    log.Add("rest");
    return absl::InfiniteDuration();
  });
  log.WaitFor(1);
  executor.PutCall([&] {
    gate.Wait();
    log.Add("first");
  });
  std::function<void()> second = [&] { log.Add("second"); };
  EXPECT_TRUE(executor.PutMessage(second, 1, Soon()));
  EXPECT_FALSE(second) << "it is the executor's";
  executor.PutCall([&] { log.Add("third"); });
  gate.Open();
  EXPECT_THAT(log.WaitFor(5), ElementsAre("rest", "first", "second", "third", "rest"));
}

TEST(ExecutorTest, WhereNothingWaitsItRestsForAsLongAsItIsTold) {
  Log rests;
  Executor executor([&] {
    rests.Add("rest");
    return absl::Milliseconds(1);
  });
  EXPECT_GE(rests.WaitFor(3).size(), 3U) << "nobody has put anything";
}

TEST(ExecutorTest, WhatIsPutEndsARestThatHasNoEnd) {
  Log log;
  std::atomic<int> rests = 0;
  Executor executor([&] {
    ++rests;
    log.Add("rest");
    return absl::InfiniteDuration();
  });
  log.WaitFor(1);
  absl::SleepFor(absl::Milliseconds(20));  // by then it sleeps
  executor.PutCall([&] { log.Add("call"); });
  EXPECT_THAT(log.WaitFor(3), ElementsAre("rest", "call", "rest"));
  absl::SleepFor(absl::Milliseconds(20));
  EXPECT_LT(rests, 10) << "it sleeps";
}

TEST(ExecutorTest, SoManyBytesWaitAndNoMore) {
  Log log;
  Gate gate;
  Executor executor(ForEver);
  executor.PutCall([&] { gate.Wait(); });
  std::function<void()> full = [&] { log.Add("full"); }, one = [&] { log.Add("one"); },
                        more = [&] { log.Add("more"); };
  EXPECT_TRUE(executor.PutMessage(full, kMostBytes, Soon()));
  const auto at_once = [] { return net::Deadline::After(absl::Milliseconds(20)); };
  EXPECT_TRUE(executor.PutMessage(one, 1, at_once()));
  EXPECT_FALSE(executor.PutMessage(more, 1, at_once()));
  gate.Open();
  EXPECT_TRUE(executor.PutMessage(more, 1, Soon()));
  EXPECT_THAT(log.WaitFor(3), ElementsAre("full", "one", "more"));
}

TEST(ExecutorTest, WhatItSendsIsTakenOnceAndInItsOrder) {
  Executor executor(ForEver);
  executor.Send({2, nullptr});
  executor.Send({1, nullptr});
  const std::vector<Outgoing> sent = executor.TakeSent();
  ASSERT_THAT(sent, SizeIs(2));
  EXPECT_EQ(sent[0].rank, 2);
  EXPECT_EQ(sent[1].rank, 1);
  EXPECT_THAT(executor.TakeSent(), IsEmpty());
}

TEST(ExecutorTest, WhatIsPutWhileItRestsIsNotSleptOver) {
  Log log;
  std::atomic<bool> ask = false;
  std::unique_ptr<Executor> executor;
  executor = std::make_unique<Executor>([&] {
    if (ask.exchange(false)) executor->PutCall([&] { log.Add("put by the rest"); });
    return absl::InfiniteDuration();
  });
  executor->PutCall([&] { ask = true; });
  EXPECT_THAT(log.WaitFor(1), ElementsAre("put by the rest"));
}

// Whoever ends it mostly does so within these moments: it must not matter.
TEST(ExecutorTest, WhoEndsItWhileItRestsDoesNotWaitForTheRest) {
  Log log;
  Executor executor([&] {
    log.Add("rest");
    absl::SleepFor(absl::Milliseconds(50));
    return absl::InfiniteDuration();
  });
  EXPECT_THAT(log.WaitFor(1), ElementsAre("rest"));
}

TEST(ExecutorTest, WhoEndsItMakesTheCallsThatWait) {
  Log log;
  {
    Executor executor(ForEver);
    executor.PutCall([] { absl::SleepFor(absl::Milliseconds(50)); });
    for (const char* call : {"first", "second"}) executor.PutCall([&, call] { log.Add(call); });
  }
  EXPECT_THAT(log.WaitFor(0), ElementsAre("first", "second"));
}

TEST(ExecutorTest, AShardOfTheLeastBytesIsWorthAnExecutor) {
  EXPECT_THAT(ExecutorsOf({{100}, {99}}, {.count = 2, .least_bytes = 100}), ElementsAre(1, 0));
  EXPECT_THAT(ExecutorsOf({{100}}, {.count = 1, .least_bytes = 100}), ElementsAre(0));
}

TEST(ExecutorTest, WhatIsOnlyFetchedAheadLiesWhereLessIsServed) {
  const std::vector<ExecutorWork> shards = {{200, true}, {100, true}, {100, false}, {100, false}};
  EXPECT_THAT(ExecutorsOf(shards, {.count = 3, .least_bytes = 1}), ElementsAre(1, 2, 2, 2));
}

}  // namespace
}  // namespace starling::parameter_server
