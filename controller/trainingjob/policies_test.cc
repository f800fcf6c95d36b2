// SPDX-License-Identifier: Apache-2.0
// Small policies by themselves, at the very bounds of what they say. How they work together:
// decide_*_test.cc.
#include "controller/trainingjob/policies.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "controller/testing/test_scene.h"
#include "controller/trainingjob/quantity.h"

namespace starling::trainingjob {
namespace {

const absl::Time kNow = absl::FromUnixSeconds(1'000'000);
const Options kOptions;
constexpr std::int64_t kMebi = 1 << 20;

// What a worker of so many MiB gets after it was killed for want of more; empty: nothing is done.
std::string MemoryAfter(std::int64_t had, double factor, const std::string& known = "",
                        const std::string& maximum = "100Gi") {
  Observed seen;
  auto& remedy = *seen.spec.mutable_replica_specs()->mutable_worker()->mutable_on_out_of_memory();
  remedy.set_factor(factor);
  remedy.set_maximum(maximum);
  if (!known.empty()) (*seen.status.mutable_replica_statuses())["worker"].set_memory(known);
  ObservedPod pod;
  pod.memory = had * kMebi;
  Pass pass(seen, kOptions, kNow);
  if (!RaiseMemory(pass, pod).has_value()) return "";
  EXPECT_EQ(Emits(pass.decision, "MemoryRaised"), RaisedMemory(pass, Role::kWorker) != known);
  return RaisedMemory(pass, Role::kWorker);
}

TEST(RaiseMemory, GrowsByTheFactorInWholeMebibytesWithinBounds) {
  EXPECT_EQ(MemoryAfter(100, 1.5), "150Mi");
  EXPECT_EQ(MemoryAfter(101, 1.5), "152Mi");
  EXPECT_EQ(MemoryAfter(100, 0.1), "101Mi") << "no factor is less than 1.01";
  EXPECT_EQ(MemoryAfter(100, 1'000), "1600Mi") << "or more than 16";
  EXPECT_EQ(MemoryAfter(100, 2, "", "150Mi"), "150Mi");
  EXPECT_EQ(MemoryAfter(150, 2, "", "150Mi"), "") << "no more can be given";
  EXPECT_EQ(MemoryAfter(149, 2, "", "150Mi"), "150Mi");
  EXPECT_EQ(MemoryAfter(0, 2), "") << "what it had is not known";
}

TEST(RaiseMemory, NeverTakesBackWhatWasGivenBefore) {
  EXPECT_EQ(MemoryAfter(100, 1.5, "200Mi"), "200Mi");
  EXPECT_EQ(MemoryAfter(100, 1.5, "150Mi"), "150Mi");
  EXPECT_EQ(MemoryAfter(100, 1.5, "149Mi"), "150Mi");
}

TEST(Bytes, AreWrittenInTheLargestUnitThatHasThemWhole) {
  EXPECT_EQ(FormatBytes(0), "0");
  EXPECT_EQ(FormatBytes(1023), "1023");
  EXPECT_EQ(FormatBytes(1024), "1Ki");
  EXPECT_EQ(FormatBytes(3 * kMebi / 2), "1536Ki");
  EXPECT_EQ(FormatBytes(2048 * kMebi), "2Gi");
  EXPECT_EQ(FormatBytes(2048 * 1024 * kMebi), "2048Gi");
  EXPECT_EQ(ParseBytes("1.5"), 2);
  EXPECT_EQ(ParseBytes("1Ki"), 1024);
  EXPECT_EQ(ParseBytes("9e15"), 0) << "too many to be counted";
  EXPECT_EQ(ParseBytes("-1"), 0);
  EXPECT_EQ(ParseBytes("much"), 0);
}

TEST(TakeProgress, TellsHowFarOfHowMuchInTheWordsOfWhatEndsTheJob) {
  const auto summary = [](std::int64_t epochs, std::int64_t steps) {
    Observed seen;
    if (epochs > 0) seen.spec.mutable_stop()->set_epochs(epochs);
    if (steps > 0) seen.spec.mutable_stop()->set_steps(steps);
    v1alpha1::CoordinatorReport report;
    report.mutable_training()->mutable_progress()->set_step(7);
    report.mutable_training()->mutable_progress()->set_epoch(2);
    Pass pass(seen, kOptions, kNow);
    pass.report = &report;
    TakeProgress(pass);
    EXPECT_EQ(pass.status.progress().total_epochs(), epochs);
    return pass.status.progress().summary();
  };
  EXPECT_EQ(summary(0, 9), "step 7/9");
  EXPECT_EQ(summary(3, 9), "epoch 2/3");
  EXPECT_EQ(summary(3, 0), "epoch 2/3");
  EXPECT_EQ(summary(0, 0), "epoch 2");
}

TEST(TakeProgress, LeavesOutARemainderThatTheApiServerWouldRefuse) {
  const std::pair<int, int> all[] = {{0, 1}, {0, -1}, {1, 0}, {-1, 0}};
  for (const auto& [seconds, nanos] : all) {
    Observed seen;
    v1alpha1::CoordinatorReport report;
    auto& left = *report.mutable_training()->mutable_progress()->mutable_estimated_remaining();
    left.set_seconds(seconds);
    left.set_nanos(nanos);
    Pass pass(seen, kOptions, kNow);
    pass.report = &report;
    TakeProgress(pass);
    EXPECT_EQ(pass.status.progress().has_estimated_remaining(), seconds >= 0 && nanos >= 0)
        << seconds << " " << nanos;
  }
}

TEST(TakeProgress, OnlyStepsThatAreNewEndARowOfFailures) {
  for (const std::int64_t settled : {100, 101}) {
    Observed seen;
    seen.status.set_failures(2);
    seen.status.set_failures_since_step(100);
    seen.status.set_newest_view(5);
    v1alpha1::CoordinatorReport report;
    report.set_settled_step(settled);
    report.set_newest_view(4);
    Pass pass(seen, kOptions, kNow);
    pass.report = &report;
    TakeProgress(pass);
    EXPECT_EQ(pass.status.failures(), settled == 100 ? 2 : 0);
    EXPECT_EQ(pass.status.failures_since_step(), settled);
    EXPECT_EQ(pass.status.newest_view(), 5) << "views never go back";
  }
}

// The job has ended and its coordinator is gone, so that nobody tells the workers.
TEST(CleanPods, WhoIsToldNothingIsDeletedInTheEndWhereNoneAreCleaned) {
  const std::pair<absl::Duration, int> all[] = {{absl::Seconds(10) - absl::Nanoseconds(1), 0},
                                                {absl::Seconds(10), 2}};
  for (const auto& [later, deleted] : all) {
    Scene scene;
    scene.Finished(true);
    scene.policy().set_clean_pod_policy(v1alpha1::CLEAN_POD_POLICY_NONE);
    std::erase_if(scene.seen.pods,
                  [](const ObservedPod& pod) { return pod.role == Role::kCoordinator; });
    scene.seen.link.reset();
    scene.now += later;
    const Decision decision = scene.Do();
    EXPECT_EQ(Count<DeletePod>(decision), deleted) << later;
    EXPECT_TRUE(deleted > 0 || decision.requeue_after <= absl::Milliseconds(5));
  }
}

TEST(ExpireJob, IsDueWhenItsTimeToLiveIsOver) {
  const std::pair<absl::Duration, int> all[] = {{absl::Seconds(5) - absl::Nanoseconds(1), 0},
                                                {absl::Seconds(5), 1}};
  for (const auto& [later, deleted] : all) {
    Scene scene;
    scene.Finished(true);
    scene.policy().set_ttl_seconds_after_finished(5);
    scene.now += later;
    EXPECT_EQ(Count<DeleteJob>(scene.Do()), deleted) << later;
  }
}

TEST(FailByDeadline, CountsTheTimeOfActivityAlone) {
  Observed seen;
  seen.spec.mutable_run_policy()->set_active_deadline_seconds(60);
  seen.status.set_active_seconds(20);
  SetTime(seen.status.mutable_start_time(), kNow - absl::Seconds(100));
  v1alpha1::Condition& resumed = *seen.status.add_conditions();
  resumed.set_type("Suspended");
  resumed.set_status("False");
  const auto left = [&](absl::Duration active) {
    SetTime(resumed.mutable_last_transition_time(), kNow - active);
    Pass pass(seen, kOptions, kNow);
    FailByDeadline(pass);
    return ConditionStatus(pass.status, "Failed") == "True" ? absl::ZeroDuration()
                                                            : pass.decision.requeue_after;
  };
  EXPECT_EQ(left(absl::Seconds(39)), absl::Seconds(1) + absl::Milliseconds(1));
  EXPECT_EQ(left(absl::Seconds(40)), absl::ZeroDuration());
  EXPECT_EQ(left(-absl::Seconds(5)), absl::Seconds(40) + absl::Milliseconds(1))
      << "what has not begun yet takes nothing away";
  resumed.set_status("Unknown");
  Pass suspending(seen, kOptions, kNow);
  EXPECT_EQ(ActiveSeconds(suspending), 20);
}

}  // namespace
}  // namespace starling::trainingjob
