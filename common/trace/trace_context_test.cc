// SPDX-License-Identifier: Apache-2.0
#include "common/trace/trace_context.h"

#include "gtest/gtest.h"

namespace starling::trace {
namespace {

constexpr char kGiven[] = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

TEST(TraceContext, IsWhatTheHeaderSays) {
  const auto context = ParseTraceparent(kGiven);
  ASSERT_TRUE(context.has_value());
  EXPECT_EQ(context->trace_id, "4bf92f3577b34da6a3ce929d0e0e4736");
  EXPECT_EQ(context->parent_id, "00f067aa0ba902b7");
  EXPECT_TRUE(context->sampled);
  EXPECT_EQ(ToTraceparent(*context), kGiven);
  EXPECT_FALSE(
      ParseTraceparent("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-02")->sampled);
}

TEST(TraceContext, OfALaterVersionWhatIsKnownIsRead) {
  EXPECT_TRUE(ParseTraceparent("cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-what"));
  EXPECT_FALSE(ParseTraceparent("cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01what"));
  EXPECT_FALSE(ParseTraceparent("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-what"));
}

TEST(TraceContext, WhatIsNoneIsNotRead) {
  for (const char* text : {"", "00", "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
                           "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
                           "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
                           "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
                           "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0",
                           "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-zz",
                           "00_4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
                           "00-4bf92f3577b34da6a3ce929d0e0e4736\n00f067aa0ba902b7-01"}) {
    EXPECT_FALSE(ParseTraceparent(text).has_value()) << text;
  }
}

}  // namespace
}  // namespace starling::trace
