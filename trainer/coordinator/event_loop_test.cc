// SPDX-License-Identifier: Apache-2.0
#include "trainer/coordinator/event_loop.h"

#include <optional>

#include "gtest/gtest.h"

namespace starling::coordinator {
namespace {

net::Deadline Now() { return net::Deadline::After(absl::ZeroDuration()); }

TEST(EventQueue, AfterItsCloseOnlyHoldersAreHeard) {
  EventQueue queue;
  queue.Close();
  EXPECT_TRUE(queue.Over());
  queue.Post([] {});
  EXPECT_FALSE(queue.Take(Now()));

  queue.Hold();
  EXPECT_FALSE(queue.Over());
  EXPECT_FALSE(queue.Take(Now()));  // nothing yet, but it waited for it
  int heard = 0;
  queue.Post([&] { heard = 1; });
  queue.PostLast([&] { heard = 2; });
  for (const int expected : {1, 2}) {
    EXPECT_FALSE(queue.Over());
    const std::function<void()> event = queue.Take(Now());
    ASSERT_TRUE(event);
    event();
    EXPECT_EQ(heard, expected);
  }
  EXPECT_TRUE(queue.Over());
}

TEST(EventLoop, WhatAHolderLeavesIsDestroyedOnTheLoop) {
  const auto queue = std::make_shared<EventQueue>();
  std::thread::id loop_thread;
  std::thread::id destroyed_on;
  std::optional<EventLoop> loop(std::in_place, queue, absl::Milliseconds(1), [] {});
  loop->Run([&] { loop_thread = std::this_thread::get_id(); });
  queue->Hold();
  std::shared_ptr<int> left(new int(1), [&](const int* number) {
    destroyed_on = std::this_thread::get_id();
    delete number;
  });
  std::thread holder([&] { queue->PostLast([left = std::move(left)] {}); });
  loop.reset();
  EXPECT_NE(loop_thread, std::thread::id());
  EXPECT_EQ(destroyed_on, loop_thread);
  holder.join();
}

}  // namespace
}  // namespace starling::coordinator
