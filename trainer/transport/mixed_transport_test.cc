// SPDX-License-Identifier: Apache-2.0
#include "trainer/transport/mixed_transport.h"

#include <cstdlib>
#include <string>

#include "common/net/socket.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/testing/transports.h"

namespace starling::transport {
namespace {

using ::testing::HasSubstr;

const net::Address kHere{"127.0.81.4", 0};

TEST(MixedTransport, IsNotOpenedWithoutASecret) {
  Options options;
  options.member = "a";
  EXPECT_EQ(OpenMixedTransport(kHere, options).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(MixedTransport, SaysThatItCannotConnectToWhoDoesNotListen) {
  Options options;
  options.member = "b";
  options.secret = "secret of the tests";
  options.dial_timeout = absl::ZeroDuration();
  const auto transport = OpenMixedTransport(kHere, options);
  ASSERT_EQ(transport.status(), absl::OkStatus());
  const auto gone = net::ToString(*net::LocalAddress(*net::Listen(kHere)));
  const auto mesh =
      (*transport)
          ->Open(1, {{"a", gone}, {"b", (*transport)->address()}}, 1, testing::Soon(), nullptr);
  EXPECT_EQ(mesh.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(mesh.status().message(), HasSubstr("cannot connect"));
}

TEST(MixedTransport, SharesMemoryUnlessTheJobsEnvironmentSaysOtherwise) {
  ::setenv("STARLING_SHARED_MEMORY", "0", 1);
  EXPECT_FALSE(*ShareMemoryOfJob());
  ::unsetenv("STARLING_SHARED_MEMORY");
  EXPECT_TRUE(*ShareMemoryOfJob());
}

}  // namespace
}  // namespace starling::transport
