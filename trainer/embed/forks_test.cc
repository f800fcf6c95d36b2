// SPDX-License-Identifier: Apache-2.0
#include "trainer/embed/forks.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/net/ports.h"
#include "common/net/socket.h"
#include "trainer/embed/leave_signal.h"
#include "trainer/transport/unix_socket.h"

namespace starling::embed {
namespace {

// An address of this test's own.
std::string OwnAddress() {
  const int pid = getpid();
  return absl::StrCat("127.", 100 + pid % 100, ".", pid / 100 % 250, ".", 1 + pid / 7 % 250);
}

// How a forked child ends: its exit code, or minus the signal.
int InFork(const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

bool IsOpen(int file) { return fcntl(file, F_GETFD) >= 0; }

class ForksTest : public ::testing::Test {
 protected:
  ForksTest() { CloseInForks(address_); }
  ~ForksTest() override { CloseInForks(""); }

  const std::string address_ = OwnAddress();
};

TEST_F(ForksTest, AChildHasNoneOfTheMembersSocketsAndAllOfTheProgramsOwn) {
  const auto data = net::Listen({.host = address_, .port = net::kDataPort});
  const auto control = net::Listen({.host = address_, .port = net::kMemberPort});
  const auto own = net::Listen({.host = address_, .port = 0});
  ASSERT_TRUE(data.ok() && control.ok() && own.ok()) << data.status() << control.status();
  const auto dialled = net::Connect({.host = address_, .port = net::kDataPort},
                                    net::Deadline::After(absl::Seconds(5)));
  ASSERT_TRUE(dialled.ok()) << dialled.status();

  const int code = InFork([&] {
    return (IsOpen(data->get()) ? 1 : 0) + (IsOpen(control->get()) ? 2 : 0) +
           (IsOpen(dialled->get()) ? 4 : 0) + (IsOpen(own->get()) ? 0 : 8);
  });

  EXPECT_EQ(code, 0);
  EXPECT_TRUE(IsOpen(data->get()) && IsOpen(dialled->get())) << "the parent keeps them";
}

TEST_F(ForksTest, AChildHasNoLinksInSharedMemoryEither) {
  const std::string name = absl::StrCat("starling-forks-test-", getpid());
  const auto listener = transport::ListenAtName(name);
  const auto foreign = transport::ListenAtName(absl::StrCat("another-", name));
  ASSERT_TRUE(listener.ok() && foreign.ok()) << listener.status();
  const auto dialled = transport::ConnectToName(name);
  ASSERT_TRUE(dialled.ok()) << dialled.status();
  const int accepted = accept(listener->get(), nullptr, nullptr);
  ASSERT_GE(accepted, 0);

  const int code = InFork([&] {
    return (IsOpen(listener->get()) ? 1 : 0) + (IsOpen(dialled->get()) ? 2 : 0) +
           (IsOpen(accepted) ? 4 : 0) + (IsOpen(foreign->get()) ? 0 : 8);
  });

  EXPECT_EQ(code, 0);
  close(accepted);
}

TEST_F(ForksTest, WithoutAMemberAChildKeepsEverything) {
  CloseInForks("");
  const auto data = net::Listen({.host = address_, .port = net::kDataPort});
  ASSERT_TRUE(data.ok()) << data.status();

  EXPECT_EQ(InFork([&] { return IsOpen(data->get()) ? 1 : 0; }), 1);
}

TEST_F(ForksTest, SigtermIsToldToTheMemberAndEndsAChild) {
  std::atomic<int> asked = 0;
  std::atomic<int> over = 0;
  const auto signal = LeaveSignal::Watch([&] { ++asked; }, absl::Milliseconds(1), [&] { ++over; });
  ASSERT_TRUE(signal.ok()) << signal.status();

  EXPECT_EQ(InFork([] {
              raise(SIGTERM);
              return 0;
            }),
            -SIGTERM);
  EXPECT_EQ(asked, 0);

  raise(SIGTERM);
  while (over == 0) std::this_thread::yield();
  EXPECT_EQ(asked, 1);
}

TEST_F(ForksTest, WhoNoLongerWatchesHasTheDefaultAgain) {
  EXPECT_EQ(InFork([] {
              {
                const auto signal = LeaveSignal::Watch([] {}, absl::Hours(1), [] {});
              }
              raise(SIGTERM);
              return 0;
            }),
            -SIGTERM);
}

}  // namespace
}  // namespace starling::embed
