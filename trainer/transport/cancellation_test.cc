// SPDX-License-Identifier: Apache-2.0
#include "trainer/transport/cancellation.h"

#include <poll.h>

#include "gtest/gtest.h"

namespace starling::transport {
namespace {

bool Readable(const Cancellation& cancellation) {
  pollfd poll{cancellation.event(), POLLIN, 0};
  return ::poll(&poll, 1, 0) == 1;
}

TEST(Cancellation, IsOkAndSilentUntilItIsCancelled) {
  const Cancellation cancellation;
  EXPECT_EQ(cancellation.status(), absl::OkStatus());
  EXPECT_FALSE(Readable(cancellation));
}

TEST(Cancellation, TellsItsReasonAndWakesWhoPolls) {
  Cancellation cancellation;
  cancellation.Cancel(absl::AbortedError("the view has ended"));
  EXPECT_EQ(cancellation.status(), absl::AbortedError("the view has ended"));
  EXPECT_TRUE(Readable(cancellation));
}

TEST(Cancellation, TheFirstReasonWins) {
  Cancellation cancellation;
  cancellation.Cancel(absl::AbortedError("first"));
  cancellation.Cancel(absl::InternalError("second"));
  EXPECT_EQ(cancellation.status(), absl::AbortedError("first"));
}

}  // namespace
}  // namespace starling::transport
