// SPDX-License-Identifier: Apache-2.0
#include "controller/local/pod_process.h"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>

#include "controller/local/folders.h"
#include "gtest/gtest.h"

namespace starling::local {
namespace {

constexpr absl::Duration kSoon = absl::Seconds(30);

class PodProcessTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = ::testing::TempDir() + "pod-XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override {
    KillPodProcesses(folder_);
    std::filesystem::remove_all(folder_);
  }

  // A pod that somebody else started who has ended since: nobody's child.
  PodProcess Orphan(const std::string& script) {
    const pid_t starter = fork();
    if (starter == 0) {
      process::LaunchPlan plan;
      plan.program = "/bin/sh";
      plan.arguments = {"-c", script};
      plan.environment = {"PATH=/bin:/usr/bin", "STARLING_POD_UID=" + folder_,
                          "STARLING_HOME=" + folder_};
      PodState state;
      state.uid = folder_;
      state.boot_id = process::BootId();
      _exit(PodProcess::Start(std::move(plan), state, folder_).ok() ? 0 : 1);
    }
    int status = 0;
    waitpid(starter, &status, 0);
    EXPECT_EQ(status, 0);
    const auto state = ReadPodState(folder_);
    EXPECT_TRUE(state.ok()) << state.status();
    auto pod = PodProcess::Adopt(*state, folder_);
    EXPECT_TRUE(pod.ok()) << pod.status();
    return std::move(*pod);
  }

  static bool AwaitEnd(const PodProcess& pod) {
    const absl::Time deadline = absl::Now() + kSoon;
    while (!pod.HasEnded() && absl::Now() < deadline) absl::SleepFor(absl::Milliseconds(1));
    return pod.HasEnded();
  }

  std::string folder_;
};

TEST_F(PodProcessTest, AdoptedPodWithoutARecordCountsAsKilledAndLeavesNoProcess) {
  PodProcess pod = Orphan("sleep 300 & exec sleep 300");

  ASSERT_EQ(kill(pod.state().process.pid, SIGKILL), 0);
  ASSERT_TRUE(AwaitEnd(pod));
  const Outcome outcome = pod.Collect(absl::Now());

  EXPECT_EQ(outcome.signal, SIGKILL);
  EXPECT_EQ(outcome.exit_code, 137);
  EXPECT_FALSE(FindPodProcess(folder_, folder_).has_value());
}

TEST_F(PodProcessTest, AdoptedPodIsJudgedByItsRecord) {
  PodProcess pod = Orphan("echo '{\"exitCode\": 7, \"reason\": \"Error\", \"restarts\": 2}' > " +
                          folder_ + "/exit.json; exec sleep 300");
  const absl::Time deadline = absl::Now() + kSoon;
  while (!ReadFile(folder_ + "/exit.json").ok() && absl::Now() < deadline) {
    absl::SleepFor(absl::Milliseconds(1));
  }
  pod.Kill();
  ASSERT_TRUE(AwaitEnd(pod));

  const Outcome outcome = pod.Collect(absl::Now());

  EXPECT_EQ(outcome.exit_code, 7);
  EXPECT_EQ(outcome.restarts, 2);
}

TEST_F(PodProcessTest, StateOfAnEarlierBootIsNotAdopted) {
  PodProcess pod = Orphan("exec sleep 300");
  PodState earlier = pod.state();
  earlier.boot_id = "another";

  EXPECT_FALSE(PodProcess::Adopt(earlier, folder_).ok());

  pod.Kill();
  EXPECT_TRUE(AwaitEnd(pod));
}

TEST_F(PodProcessTest, StraysOfOtherHomesAndWantedPodsAreLeftAlone) {
  PodProcess pod = Orphan("exec sleep 300");

  KillStrays(folder_ + "-other", {});
  KillStrays(folder_, {folder_});
  EXPECT_FALSE(pod.HasEnded());

  KillStrays(folder_, {});
  EXPECT_TRUE(AwaitEnd(pod));
}

TEST_F(PodProcessTest, DamagedStateIsAnErrorNotACrash) {
  for (const char* text : {"", "{", "[]", "{\"uid\": 3}", "null"}) {
    std::ofstream(folder_ + "/state.json") << text;
    EXPECT_FALSE(ReadPodState(folder_).ok()) << text;
  }
}

}  // namespace
}  // namespace starling::local
