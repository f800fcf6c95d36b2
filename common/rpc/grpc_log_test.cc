// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/grpc_log.h"

#include <grpc/support/log.h>

#include <algorithm>

#include "absl/strings/match.h"
#include "common/log/log.h"
#include "gtest/gtest.h"

namespace starling::rpc {
namespace {

const absl::Time kStart = absl::FromUnixSeconds(1'800'000'000);

TEST(GrpcLog, APlaceIsHeardOnceInAWhileWithTheNumberLeftOut) {
  LogLimit limit;
  EXPECT_EQ(limit.Admit("handshake.cc", 7, kStart), 0);
  for (int i = 1; i < 100; ++i) {
    EXPECT_EQ(limit.Admit("handshake.cc", 7, kStart + i * absl::Milliseconds(100)), std::nullopt);
  }
  EXPECT_EQ(limit.Admit("handshake.cc", 7, kStart + kLogEvery), 99);
  EXPECT_EQ(limit.Admit("handshake.cc", 7, kStart + 3 * kLogEvery), 0);
}

TEST(GrpcLog, OnePlaceDoesNotSilenceAnother) {
  LogLimit limit;
  EXPECT_EQ(limit.Admit("handshake.cc", 7, kStart), 0);
  EXPECT_EQ(limit.Admit("handshake.cc", 8, kStart), 0);
  EXPECT_EQ(limit.Admit("resolver.cc", 7, kStart), 0);
}

TEST(GrpcLog, ItsWordsBecomeALineOfOurLog) {
  log::Start("test");
  RouteGrpcLog();
  gpr_set_log_verbosity(GPR_LOG_SEVERITY_ERROR);  // before gRPC is started it says nothing at all
  testing::internal::CaptureStderr();
  for (int i = 0; i < 50; ++i) gpr_log("lib/handshake.cc", 7, GPR_LOG_SEVERITY_ERROR, "no %d", 5);
  const std::string written = testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(written.begin(), written.end(), '\n'), 1) << written;
  EXPECT_TRUE(absl::StrContains(written, "\"says\":\"no 5\"")) << written;
  EXPECT_TRUE(absl::StrContains(written, "handshake.cc")) << written;
  EXPECT_FALSE(absl::StrContains(written, "lib/")) << written;
}

}  // namespace
}  // namespace starling::rpc
