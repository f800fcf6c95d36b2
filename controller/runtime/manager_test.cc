// SPDX-License-Identifier: Apache-2.0
// What a manager does when lists do not come, when tasks fail, and when it is told to stop. That
// news reach the reconciler: runtime_test.cc.
#include "controller/runtime/manager.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "controller/kube/embedded_kube_client.h"
#include "controller/runtime/informer.h"
#include "controller/testing/faulty_kube_client.h"

namespace starling::runtime {
namespace {

using kube::kConfigMap;
using testing::HasSubstr;

class ManagerLifeTest : public testing::Test {
 protected:
  bool Until(const std::function<bool()>& holds) {
    const absl::Time deadline = clock_.Now() + absl::Seconds(20);
    while (!holds() && clock_.Now() < deadline) std::this_thread::yield();
    return holds();
  }
  // Nothing can be listed from here on.
  void Cut() {
    server_.FailWrite(1, kube::Fault::kCrashBefore);
    server_.Create(kConfigMap, {{"metadata", {{"name", "x"}}}}).IgnoreError();
  }

  const clock::SystemClock clock_;
  std::unique_ptr<kube::KubeClient> store_ = *kube::OpenEmbeddedKubeClient(clock_, {});
  kube::FaultyKubeClient server_{*store_};
  Informer informer_{server_, kConfigMap, {}};
  metrics::Registry registry_;
  WorkQueue queue_{clock_, {}};
};

TEST_F(ManagerLifeTest, StartingEndsWhenAListDoesNotCome) {
  Cut();
  Manager manager(clock_);
  manager.AddInformer("configmaps", informer_);
  std::atomic<bool> ran = false;
  manager.AddPeriodic("task", absl::Hours(1), [&] {
    ran = true;
    return absl::OkStatus();
  });
  const absl::Status status = manager.Start(absl::Milliseconds(20));
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("configmaps did not come within 20ms"));
  EXPECT_THAT(std::string(manager.Health().message()), HasSubstr("configmaps: no list yet"));
  manager.Stop();
  EXPECT_FALSE(ran) << "the rest has not begun";
}

TEST_F(ManagerLifeTest, WhatHasStoppedDoesNotStartAgain) {
  Cut();
  Manager manager(clock_);
  manager.AddInformer("configmaps", informer_);
  manager.Stop();
  EXPECT_TRUE(absl::IsCancelled(manager.Start(absl::InfiniteDuration())));
}

TEST_F(ManagerLifeTest, ATaskThatFailsMakesItUnhealthyUntilItsNextSuccess) {
  Manager manager(clock_);
  manager.AddInformer("configmaps", informer_);
  std::atomic<bool> fails = true;
  manager.AddPeriodic("sweep", absl::Milliseconds(1),
                      [&] { return fails ? absl::UnavailableError("no disk") : absl::OkStatus(); });
  manager.Launch();
  ASSERT_TRUE(Until([&] { return informer_.HasSynced() && !manager.Health().ok(); }));
  EXPECT_THAT(std::string(manager.Health().message()),
              testing::AllOf(HasSubstr("sweep"), HasSubstr("no disk")));
  fails = false;
  EXPECT_TRUE(Until([&] { return manager.Health().ok(); }));
}

TEST_F(ManagerLifeTest, StoppingWaitsForNoTaskThatIsDueInAnHour) {
  Manager manager(clock_);
  std::atomic<int> runs = 0;
  manager.AddPeriodic("task", absl::Hours(1), [&] {
    ++runs;
    return absl::OkStatus();
  });
  manager.Launch();
  ASSERT_TRUE(Until([&] { return runs == 1; }));
  manager.Stop();
  EXPECT_EQ(runs, 1);
}

// Two keys of which none is done before both are begun.
class Meeting final : public Reconciler {
 public:
  absl::StatusOr<Result> Reconcile(const Key& /*key*/) override {
    ++inside;
    while (!over) std::this_thread::yield();
    --inside;
    return Result{};
  }
  std::atomic<int> inside = 0;
  std::atomic<bool> over = false;
};

TEST_F(ManagerLifeTest, HasAsManyWorkersAsItWasGivenAndTellsHowLongTheyAreAtIt) {
  Meeting meeting;
  Manager manager(clock_, &registry_);
  manager.AddController("meeting", queue_, meeting, 2);
  manager.Launch();
  for (const char* name : {"a", "b", "c"}) queue_.Add({"default", name});
  EXPECT_TRUE(Until([&] { return meeting.inside == 2; }));
  const auto shows = [&](const std::string& line) {
    return registry_.Serialize().find(line) != std::string::npos;
  };
  const std::string labels = "{controller=\"meeting\",name=\"meeting\"} ";
  EXPECT_TRUE(shows("controller_runtime_active_workers{controller=\"meeting\"} 2"));
  EXPECT_TRUE(shows(absl::StrCat("workqueue_unfinished_work_seconds", labels, "0")));
  manager.UpdateMetrics();
  EXPECT_FALSE(shows(absl::StrCat("workqueue_unfinished_work_seconds", labels, "0\n")));
  EXPECT_EQ(meeting.inside, 2);
  meeting.over = true;
  EXPECT_TRUE(Until([&] {
    return shows("controller_runtime_reconcile_time_seconds_count{controller=\"meeting\"} 3");
  }));
  manager.Stop();
}

// Ends as its key says.
class Obedient final : public Reconciler {
 public:
  absl::StatusOr<Result> Reconcile(const Key& key) override {
    if (key.name == "fails") return absl::InvalidArgumentError("no");
    return Result{key.name == "again" ? absl::Hours(1) : absl::ZeroDuration()};
  }
};

TEST_F(ManagerLifeTest, CountsHowReconcilesEnd) {
  Obedient obedient;
  WorkQueue queue(clock_, {.first = absl::Hours(1), .longest = absl::Hours(1)});
  Manager manager(clock_, &registry_);
  manager.AddController("c", queue, obedient, 1);
  manager.Launch();
  for (const char* name : {"fails", "again", "a", "b"}) queue.Add({"default", name});
  const auto shows = [&](const std::string& result, int count) {
    return registry_.Serialize().find(
               absl::StrCat("controller_runtime_reconcile_total{controller=\"c\",result=\"", result,
                            "\"} ", count)) != std::string::npos;
  };
  EXPECT_TRUE(Until([&] { return shows("success", 2); }));
  EXPECT_TRUE(shows("error", 1));
  EXPECT_TRUE(shows("requeue_after", 1));
  EXPECT_NE(
      registry_.Serialize().find("controller_runtime_reconcile_errors_total{controller=\"c\"} 1"),
      std::string::npos);
  manager.Stop();
}

TEST(Jitter, IsSplitMix64) {
  Jitter jitter(0);
  for (const std::uint64_t number :
       {0xe220a8397b1dcdafU, 0x6e789e6aa1b965f4U, 0x06c45d188009454fU}) {
    EXPECT_EQ(jitter.Next(), static_cast<double>(number >> 11U) * 0x1p-53);
  }
}

TEST(BackOff, GrowsFromTheFirstToTheLongestDelay) {
  const BackOff back_off{.first = absl::Seconds(1), .longest = absl::Hours(1), .jitter = 0.5};
  EXPECT_EQ(DelayAfter(back_off, -1, 0), absl::Seconds(1));
  EXPECT_EQ(DelayAfter(back_off, 0, 0.5), absl::Seconds(1.25));
  EXPECT_EQ(DelayAfter(back_off, 3, 0), absl::Seconds(8));
  EXPECT_EQ(DelayAfter(back_off, 1'000'000, 0), absl::Hours(1));
}

}  // namespace
}  // namespace starling::runtime
