// SPDX-License-Identifier: Apache-2.0
#include "common/process/memory_keeper.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "common/process/process.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace starling::process {
namespace {

using ::testing::HasSubstr;

constexpr std::size_t kMemory = 64 << 20;
constexpr absl::Duration kSoon = absl::Seconds(20);

// A process with memory, a keeper, and a connection to the test.
class MemoryKeeperTest : public ::testing::Test {
 protected:
  MemoryKeeperTest() {
    std::array<int, 2> ends{};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
    child_ = fork();
    if (child_ == 0) {
      close(ends[0]);
      Child(ends[1]);
    }
    close(ends[1]);
    connection_ = ends[0];
    EXPECT_EQ(read(connection_, &keeper_, sizeof(keeper_)), static_cast<ssize_t>(sizeof(keeper_)));
  }
  void SetUp() override {
    if (keeper_ == 0) GTEST_SKIP() << "this system can have no keeper";
    ASSERT_GT(keeper_, 0);
    const auto stat = ReadStat(keeper_);
    ASSERT_TRUE(stat.ok()) << stat.status();
    auto adopted = Process::Adopt(stat->identity);
    ASSERT_TRUE(adopted.ok()) << adopted.status();
    keeper_process_ = *std::move(adopted);
  }
  ~MemoryKeeperTest() override {
    kill(child_, SIGKILL);
    waitpid(child_, nullptr, 0);
    if (keeper_ > 0) kill(keeper_, SIGKILL);
    close(connection_);
  }

  [[noreturn]] static void Child(int connection) {
    auto* const memory = static_cast<std::byte*>(
        mmap(nullptr, kMemory, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    std::memset(memory, 1, kMemory);
    // The keeper lets go of its parent's descriptors in the order of their numbers: of this one
    // last.
    std::array<int, 2> lock{};
    (void)!pipe(lock.data());
    const int last = fcntl(lock[1], F_DUPFD, 200);
    close(lock[1]);
    const std::array<pid_t, 2> keepers = {StartMemoryKeeper(), StartMemoryKeeper()};
    close(last);
    char end = 0;
    (void)!read(lock[0], &end, 1);
    // The second call starts none, and no wait finds the one that there is.
    const bool alone = waitpid(-1, nullptr, WNOHANG) < 0 && errno == ECHILD;
    const pid_t told = keepers[0] == keepers[1] && alone ? keepers[0] : -1;
    (void)!write(connection, &told, sizeof(told));
    (void)!read(connection, &end, 1);
    _exit(7);
  }

  // Until the child's end of the connection is closed.
  bool AwaitHangUp() const {
    pollfd end = {.fd = connection_, .events = 0, .revents = 0};
    return poll(&end, 1, static_cast<int>(absl::ToInt64Milliseconds(kSoon))) == 1 &&
           (end.revents & POLLHUP) != 0;
  }
  // What /proc says of the keeper.
  std::string Status() const {
    std::ifstream file("/proc/" + std::to_string(keeper_) + "/status");
    return {std::istreambuf_iterator<char>(file), {}};
  }

  pid_t child_ = 0;
  pid_t keeper_ = 0;
  Process keeper_process_;
  int connection_ = -1;
};

TEST_F(MemoryKeeperTest, AKilledProcessClosesItsConnectionsBeforeItsMemoryIsFreed) {
  kill(keeper_, SIGSTOP);  // it frees nothing while it stands still

  kill(child_, SIGKILL);

  EXPECT_TRUE(AwaitHangUp());
  EXPECT_EQ(waitpid(child_, nullptr, 0), child_);
  const std::string status = Status();
  const std::size_t resident = status.find("VmRSS:");
  ASSERT_NE(resident, std::string::npos) << status;
  EXPECT_GE(std::stoul(status.substr(resident + 6)) << 10, kMemory) << status;
  kill(keeper_, SIGCONT);
  EXPECT_TRUE(keeper_process_.WaitForEnd(kSoon));
}

TEST_F(MemoryKeeperTest, EndsWithAProcessThatExits) {
  EXPECT_EQ(write(connection_, "x", 1), 1);
  int status = 0;
  EXPECT_EQ(waitpid(child_, &status, 0), child_);
  EXPECT_EQ(WEXITSTATUS(status), 7);
  EXPECT_TRUE(keeper_process_.WaitForEnd(kSoon));
}

TEST_F(MemoryKeeperTest, HoldsNoDescriptorAndTakesNoSignal) {
  // But for the one that tells of its parent's end.
  const std::string folder = "/proc/" + std::to_string(keeper_) + "/fd";
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder), {}), 1);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGUSR1}) kill(keeper_, signal);
  EXPECT_THAT(Status(), HasSubstr("Name:\tmemory-keeper"));
  EXPECT_EQ(kill(child_, 0), 0);
}

// Without its keeper a process ends as all others do.
TEST_F(MemoryKeeperTest, MayBeKilled) {
  kill(keeper_, SIGKILL);
  EXPECT_TRUE(keeper_process_.WaitForEnd(kSoon));
  kill(child_, SIGKILL);
  EXPECT_TRUE(AwaitHangUp());
}

}  // namespace
}  // namespace starling::process
