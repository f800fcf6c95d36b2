// SPDX-License-Identifier: Apache-2.0
// How many failures a job may have, and how long its pods wait before they are tried again.
#include <gtest/gtest.h>

#include <string>

#include "controller/testing/test_scene.h"
#include "controller/trainingjob/policies.h"

namespace starling::trainingjob {
namespace {

const absl::Time kNow = absl::FromUnixSeconds(1'000'000);
const Options kOptions;

v1alpha1::Incident& AddFailure(Observed& seen, absl::Time when, const std::string& message) {
  v1alpha1::Incident& incident = *seen.status.add_incidents();
  SetTime(incident.mutable_time(), when);
  incident.set_message(message);
  incident.set_exit_code(1);
  return incident;
}

// What a pod waits whose predecessor failed so long ago, as the last of so many.
absl::Duration WaitAfter(std::int64_t failures, absl::Duration ago = absl::ZeroDuration()) {
  Observed seen;
  seen.status.set_failures(failures);
  AddFailure(seen, kNow - ago, "it failed");
  return RestartDelay(Pass(seen, kOptions, kNow));
}

TEST(BackoffLimit, AllowsSoManyFailuresAndNotOneMore) {
  for (const std::int64_t before : {1, 2}) {
    Scene scene;
    scene.Training();
    scene.policy().set_backoff_limit(2);
    scene.seen.status.set_failures(before);
    scene.seen.status.set_failures_since_step(100);
    scene.End("digits-worker-1", 1);
    const Decision decision = scene.Do();
    EXPECT_EQ(decision.status.failures(), before + 1);
    EXPECT_EQ(Is(decision, "Failed"), before == 2) << before;
  }
}

TEST(BackoffLimit, OfZeroLetsAJobRunThatHasNotFailed) {
  Scene scene;
  scene.policy().set_backoff_limit(0);
  scene.Training();
  EXPECT_FALSE(Is(scene.Do(), "Failed"));
}

TEST(BackoffLimit, ItsMessageTellsOfTheNewestFailure) {
  Observed seen;
  seen.spec.mutable_run_policy()->set_backoff_limit(1);
  seen.status.set_failures(2);
  AddFailure(seen, kNow - absl::Seconds(10), "of the same moment");
  AddFailure(seen, kNow - absl::Seconds(10), "second").set_log_tail("no such file");
  AddFailure(seen, kNow - absl::Seconds(20), "first");
  AddFailure(seen, kNow, "a member was silent").clear_exit_code();
  Pass pass(seen, kOptions, kNow);
  FailByBackoffLimit(pass);
  const std::string message = FindCondition(pass.status, "Failed")->message();
  EXPECT_EQ(message,
            "2 pods failed without a step of progress between them, more than backoffLimit allows "
            "(1); the last: second: no such file");
}

TEST(RestartDelay, IsNoneForTwoFailuresAndDoublesUpToTenSeconds) {
  EXPECT_EQ(WaitAfter(1), absl::ZeroDuration());
  EXPECT_EQ(WaitAfter(2), absl::ZeroDuration());
  EXPECT_EQ(WaitAfter(3), absl::Milliseconds(200));
  EXPECT_EQ(WaitAfter(4), absl::Milliseconds(400));
  EXPECT_EQ(WaitAfter(8), absl::Milliseconds(6'400));
  EXPECT_EQ(WaitAfter(9), absl::Seconds(10));
  EXPECT_EQ(WaitAfter(1'000), absl::Seconds(10));
  Observed untold;  // what failed is not on record
  untold.status.set_failures(5);
  EXPECT_EQ(RestartDelay(Pass(untold, kOptions, kNow)), absl::ZeroDuration());
}

TEST(RestartDelay, CountsFromTheFailure) {
  EXPECT_EQ(WaitAfter(8, absl::Seconds(6)), absl::Milliseconds(400));
  EXPECT_EQ(WaitAfter(8, absl::Seconds(7)), absl::ZeroDuration());
}

TEST(RestartDelay, ANodeWhoseClockIsAheadKeepsNobodyWaitingForIt) {
  EXPECT_EQ(WaitAfter(8, -absl::Seconds(1)), absl::Milliseconds(6'400)) << "a little ahead";
  EXPECT_EQ(WaitAfter(8, -absl::Milliseconds(6'400)), absl::Milliseconds(6'400));
  EXPECT_EQ(WaitAfter(8, -absl::Milliseconds(6'401)), absl::ZeroDuration());
  EXPECT_EQ(WaitAfter(8, -absl::Hours(1)), absl::ZeroDuration());
}

TEST(RefusalDelay, DoublesUpToHalfAMinute) {
  Observed seen;
  EXPECT_EQ(RefusalDelay(Pass(seen, kOptions, kNow)), absl::ZeroDuration());
  const auto wait = [&seen](int attempts, absl::Duration ago) {
    seen.refusal.emplace();
    seen.refusal->attempts = attempts;
    seen.refusal->at = kNow - ago;
    return RefusalDelay(Pass(seen, kOptions, kNow));
  };
  EXPECT_EQ(wait(1, absl::ZeroDuration()), absl::Milliseconds(200));
  EXPECT_EQ(wait(2, absl::ZeroDuration()), absl::Milliseconds(400));
  EXPECT_EQ(wait(2, absl::Milliseconds(300)), absl::Milliseconds(100));
  EXPECT_EQ(wait(100, absl::ZeroDuration()), absl::Seconds(30));
  EXPECT_EQ(wait(100, absl::Minutes(1)), absl::ZeroDuration());
}

}  // namespace
}  // namespace starling::trainingjob
