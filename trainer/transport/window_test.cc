// SPDX-License-Identifier: Apache-2.0
#include "trainer/transport/window.h"

#include <sys/wait.h>
#include <unistd.h>

#include "gtest/gtest.h"

namespace starling::transport {
namespace {

TEST(Window, OfNoBytesIsOneOfOne) {
  const auto window = Window::Make(0);
  ASSERT_EQ(window.status(), absl::OkStatus());
  EXPECT_EQ((*window)->memory().size(), 1U);
  EXPECT_TRUE((*window)->floats().empty());
}

// The kernel says which memory a process has: it copies none that is not there.
TEST(Window, IsNotThereInAChildOfAFork) {
  const auto window = Window::Make(4096);
  ASSERT_EQ(window.status(), absl::OkStatus());
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const auto has_it = [&] { return ::write(ends[1], (*window)->memory().data(), 1) == 1; };
  EXPECT_TRUE(has_it());
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) ::_exit(has_it() ? 1 : 0);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  ::close(ends[0]);
  ::close(ends[1]);
}

}  // namespace
}  // namespace starling::transport
