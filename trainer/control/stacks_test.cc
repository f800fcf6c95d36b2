// SPDX-License-Identifier: Apache-2.0
// Where threads are that do not come back: in a loop, in a lock, behind a blocked signal.
#include "trainer/control/stacks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/log/log.h"
#include "common/sync/mutex.h"
#include "trainer/control/process.h"

namespace starling::control {

// Not in the anonymous namespace, nor inlined: their names are looked for.
std::atomic<bool> loop_on = true;
__attribute__((noinline)) void LoopWithoutEnd(std::atomic<std::int64_t>& started) {
  started = syscall(SYS_gettid);
  while (loop_on) {
  }
}
__attribute__((noinline)) void WaitForALock(sync::Mutex& mutex,
                                            std::atomic<std::int64_t>& started) {
  started = syscall(SYS_gettid);
  const sync::MutexLock lock(mutex);
}

namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr absl::Duration kPatience = absl::Seconds(5);

std::int64_t Await(const std::atomic<std::int64_t>& started) {
  while (started == 0) std::this_thread::yield();
  return started;
}

TEST(Stacks, NameTheLoopAndTheLockAndTheOneThatIsAskedForComesLast) {
  sync::Mutex mutex;
  mutex.Lock();
  std::atomic<std::int64_t> loops = 0;
  std::atomic<std::int64_t> waits = 0;
  std::thread loop([&] { LoopWithoutEnd(loops); });
  std::thread lock([&] { WaitForALock(mutex, waits); });
  Await(waits);

  const std::vector<ThreadStack> stacks = StacksOfOtherThreads(Await(loops), kPatience);

  loop_on = false;
  mutex.Unlock();
  loop.join();
  lock.join();
  ASSERT_GE(stacks.size(), 2U);
  EXPECT_EQ(stacks.back().thread, loops);
  EXPECT_EQ(stacks.back().state, "R");
  EXPECT_THAT(stacks.back().frames, Contains(HasSubstr("LoopWithoutEnd")));
  const auto waiting = std::find_if(stacks.begin(), stacks.end(),
                                    [&](const ThreadStack& one) { return one.thread == waits; });
  ASSERT_NE(waiting, stacks.end());
  EXPECT_EQ(waiting->state, "S");
  EXPECT_THAT(waiting->frames, Contains(HasSubstr("WaitForALock")));
}

TEST(Stacks, AThreadThatTakesNoSignalIsToldAllTheSame) {
  std::atomic<std::int64_t> started = 0;
  std::atomic<bool> end = false;
  std::thread deaf([&] {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, nullptr);
    started = syscall(SYS_gettid);
    while (!end) usleep(1000);
  });
  const std::vector<ThreadStack> stacks =
      StacksOfOtherThreads(Await(started), absl::Milliseconds(50));
  end = true;
  deaf.join();
  ASSERT_FALSE(stacks.empty());
  EXPECT_EQ(stacks.back().thread, started);
  EXPECT_THAT(stacks.back().frames, IsEmpty());
  EXPECT_EQ(InOneLine(stacks.back(), 100), "does not answer a signal");
}

TEST(Stacks, ALineIsCutWhereItIsTooLong) {
  ThreadStack stack;
  stack.frames = {"Inner()", "Outer()"};
  EXPECT_EQ(InOneLine(stack, 100), "Inner() < Outer()");
  EXPECT_EQ(InOneLine(stack, 9), "Inner() <...");
}

TEST(LeaveHung, EndsWithItsOwnCodeAndTheStackOfTheOneThatHangsLast) {
  const std::string path = absl::StrCat(testing::TempDir(), "/leave_hung_", getpid());
  EXPECT_EXIT(
      {
        std::atomic<std::int64_t> started = 0;
        loop_on = true;
        std::thread([&] { LoopWithoutEnd(started); }).detach();
        if (std::freopen(path.c_str(), "w", stderr) == nullptr) _exit(1);
        log::Start("test");
        LeaveHung(Await(started));
      },
      testing::ExitedWithCode(kHung), "");
  std::ifstream file(path);
  std::string line, last;
  while (std::getline(file, line)) last = line;
  EXPECT_THAT(last, HasSubstr("LoopWithoutEnd"));
  unlink(path.c_str());
}

}  // namespace
}  // namespace starling::control
