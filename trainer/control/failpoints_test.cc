// SPDX-License-Identifier: Apache-2.0
#include "trainer/control/failpoints.h"

#include <gtest/gtest.h>

namespace starling::control {
namespace {

TEST(FailpointsTest, TheVariableIsANameAndHowOftenItIsPassed) {
  EXPECT_EQ(*ParseFailpoint(""), std::nullopt);
  EXPECT_EQ((*ParseFailpoint("apply"))->passes, 1);
  EXPECT_EQ((*ParseFailpoint("apply:3"))->name, "apply");
  EXPECT_EQ((*ParseFailpoint("apply:3"))->passes, 3);
  EXPECT_EQ((*ParseFailpoint("job-server-1/apply:3"))->pod, "job-server-1");
  EXPECT_EQ((*ParseFailpoint("job-server-1/apply"))->name, "apply");
  EXPECT_EQ((*ParseFailpoint("apply"))->deed, "");
  EXPECT_EQ((*ParseFailpoint("stop@job-worker-1/input:3"))->deed, "stop");
  EXPECT_EQ((*ParseFailpoint("stop@job-worker-1/input:3"))->pod, "job-worker-1");
  EXPECT_EQ((*ParseFailpoint("loop@input"))->name, "input");
  for (const char* bad : {"@apply", "fly@apply", "stop@", "/apply", "pod/", ":3",
                          "apply:", "apply:0", "apply:x", "apply:3x"}) {
    EXPECT_EQ(ParseFailpoint(bad).status().code(), absl::StatusCode::kInvalidArgument) << bad;
  }
  int ended = 0;
  Failpoints points(Failpoint{"apply", 2}, [&] { ++ended; });
  EXPECT_FALSE(points.Hit("apply"));
  EXPECT_FALSE(points.Hit("push"));
  EXPECT_TRUE(points.Hit("apply"));
  EXPECT_FALSE(points.Hit("apply"));
  EXPECT_EQ(ended, 1);
  points.Arm({"push", 2});
  EXPECT_FALSE(points.Hit("push"));
  EXPECT_FALSE(points.Hit("apply"));
  EXPECT_TRUE(points.Hit("push"));
  EXPECT_EQ(ended, 2);
}

}  // namespace
}  // namespace starling::control
