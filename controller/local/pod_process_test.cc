// SPDX-License-Identifier: Apache-2.0
#include "controller/local/pod_process.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>

#include "common/clock/patience.h"
#include "common/storage/test_folder.h"
#include "controller/local/folders.h"
#include "gtest/gtest.h"

namespace starling::local {
namespace {

absl::Duration Soon() { return clock::Patience(absl::Seconds(30)); }

// Waits for what other processes do.
bool Eventually(const std::function<bool()>& holds) {
  const absl::Time deadline = absl::Now() + Soon();
  while (!holds()) {
    if (absl::Now() > deadline) return false;
    absl::SleepFor(absl::Milliseconds(1));
  }
  return true;
}

bool Runs(pid_t pid) {
  const auto stat = process::ReadStat(pid);
  return stat.ok() && !stat->Ended();
}

class PodProcessTest : public ::testing::Test {
 protected:
  void TearDown() override { KillPodProcesses(folder_); }

  // The pod whose UID and home are this test's folder.
  absl::StatusOr<PodProcess> Start(const std::string& script) const {
    process::LaunchPlan plan;
    plan.program = "/bin/sh";
    plan.arguments = {"-c", script};
    plan.environment = {"PATH=/bin:/usr/bin", "STARLING_POD_UID=" + folder_,
                        "STARLING_HOME=" + folder_};
    PodState state;
    state.uid = folder_;
    state.boot_id = process::BootId();
    state.started = kStarted;
    return PodProcess::Start(std::move(plan), state, folder_);
  }

  // How a pod of ours ends that runs this.
  Outcome OutcomeOf(const std::string& script) const {
    auto pod = Start(script);
    EXPECT_TRUE(pod.ok()) << pod.status();
    EXPECT_TRUE(AwaitEnd(*pod));
    return pod->Collect(kCollected);
  }

  // A pod that somebody else started who has ended since: nobody's child.
  PodProcess Orphan(const std::string& script) {
    const pid_t starter = fork();
    if (starter == 0) _exit(Start(script).ok() ? 0 : 1);
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
    return Eventually([&] { return pod.HasEnded(); });
  }

  static constexpr absl::Time kStarted = absl::FromUnixSeconds(1'700'000'000);
  static constexpr absl::Time kCollected = absl::FromUnixSeconds(1'700'000'100);
  const storage::TestFolder kept_;
  const std::string& folder_ = kept_.path();
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
  ASSERT_TRUE(
      Eventually([&] { return ReadFile(folder_ + "/exit.json").value_or("").ends_with("\n"); }));
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

TEST_F(PodProcessTest, ProcessThatIsNoPodsIsLeftAloneThoughItKnowsTheHome) {
  auto shell = process::Start({.program = "/bin/sh",
                               .arguments = {"-c", "exec sleep 300"},
                               .environment = {"PATH=/bin:/usr/bin", "STARLING_HOME=" + folder_}});
  ASSERT_TRUE(shell.ok()) << shell.status();
  KillStrays(folder_, {});
  EXPECT_FALSE(shell->WaitForEnd(absl::ZeroDuration())) << "a user's own program";
  EXPECT_TRUE(shell->Signal(SIGKILL).ok());
  EXPECT_TRUE(shell->WaitForEnd(Soon()));
  EXPECT_TRUE(shell->Reap().ok());
}

TEST_F(PodProcessTest, OutputOfEachStartIsAppendedToTheLogAndIsTheMessageOfAFailure) {
  const Outcome good = OutcomeOf("echo one; echo two >&2");
  EXPECT_EQ(good.exit_code, 0);
  EXPECT_EQ(good.reason, "Completed");
  EXPECT_EQ(good.message, "");
  EXPECT_EQ(good.started, kStarted);
  EXPECT_EQ(good.finished, kCollected);
  const Outcome bad = OutcomeOf("echo three; exit 3");
  EXPECT_EQ(bad.exit_code, 3);
  EXPECT_EQ(bad.signal, 0);
  EXPECT_EQ(bad.reason, "Error");
  EXPECT_EQ(bad.message, "one\ntwo\nthree\n");
}

TEST_F(PodProcessTest, RecordTellsMoreThanTheStatusUnlessItsWriterDidNotEndBySaying) {
  const auto record = [](int code) {
    return "echo '{\"exitCode\": " + std::to_string(code) +
           ", \"restarts\": 4}' > \"$STARLING_HOME/exit.json\"; ";
  };
  EXPECT_EQ(OutcomeOf(record(3) + "exit 3").restarts, 4);
  EXPECT_EQ(OutcomeOf(record(3) + "exit 5").exit_code, 5);
  const Outcome killed = OutcomeOf(record(137) + "kill -9 $$");
  EXPECT_EQ(killed.signal, SIGKILL);
  EXPECT_EQ(killed.restarts, 0);
  EXPECT_EQ(OutcomeOf("exit 3").restarts, 0) << "the record of an earlier start is gone";
}

TEST_F(PodProcessTest, EndOfAPodEndsItsChildren) {
  auto pod = Start("sleep 300 & echo $! > \"$STARLING_HOME/child\"");
  ASSERT_TRUE(pod.ok()) << pod.status();
  ASSERT_TRUE(AwaitEnd(*pod));
  const pid_t child = std::atoi(ReadFile(folder_ + "/child").value_or("").c_str());
  ASSERT_TRUE(Runs(child));
  EXPECT_EQ(pod->Collect(kCollected).exit_code, 0);
  EXPECT_TRUE(Eventually([&] { return !Runs(child); }));
}

TEST_F(PodProcessTest, PodThatCannotBeWrittenDownDoesNotRun) {
  ASSERT_TRUE(MakeFolder(folder_ + "/state.json").ok());
  const auto pod = Start("exec sleep 300");
  EXPECT_FALSE(pod.ok());
  EXPECT_FALSE(FindPodProcess(folder_, folder_).has_value());
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1) << "it was reaped as well";
  EXPECT_EQ(errno, ECHILD);
}

TEST_F(PodProcessTest, StartThatFailsSaysSoAndKeepsNoDescriptor) {
  const auto descriptors = [] {
    const std::filesystem::directory_iterator all("/proc/self/fd");
    return std::distance(begin(all), end(all));
  };
  const auto before = descriptors();
  process::LaunchPlan plan;
  plan.program = "/no/such/program";
  EXPECT_TRUE(absl::IsNotFound(PodProcess::Start(plan, PodState{}, folder_).status()));
  plan.program = "/bin/true";
  EXPECT_TRUE(absl::IsNotFound(PodProcess::Start(plan, PodState{}, folder_ + "/none").status()));
  EXPECT_EQ(OutcomeOf("exit 0").exit_code, 0);
  EXPECT_EQ(descriptors(), before);
}

TEST_F(PodProcessTest, FirstProcessIsFoundAmongThoseOfThePod) {
  PodProcess pod = Orphan("sleep 300 & exec sleep 300");
  EXPECT_EQ(FindPodProcess(folder_, folder_), pod.state().process);
  EXPECT_FALSE(FindPodProcess(folder_ + "-other", folder_).has_value());
  EXPECT_FALSE(FindPodProcess(folder_, folder_ + "-other").has_value());
  pod.Kill();
  EXPECT_TRUE(AwaitEnd(pod));
  pod.Collect(kCollected);
}

TEST_F(PodProcessTest, ProcessWithoutAGroupOfItsOwnIsKilledAlone) {
  const pid_t child = fork();
  if (child == 0) {
    pause();
    _exit(0);
  }
  PodState state;
  state.uid = folder_;
  state.boot_id = process::BootId();
  state.process = process::ReadStat(child)->identity;
  const auto pod = PodProcess::Adopt(state, folder_);
  ASSERT_TRUE(pod.ok()) << pod.status();
  pod->Kill();
  EXPECT_TRUE(AwaitEnd(*pod));
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, WNOHANG), child);
  EXPECT_EQ(WTERMSIG(status), SIGKILL);
}

TEST_F(PodProcessTest, RecordOfAnEarlierStartSaysNothingOfThisOne) {
  std::ofstream(folder_ + "/exit.json") << R"({"exitCode": 3, "restarts": 4})";
  EXPECT_EQ(OutcomeOf("exit 3").restarts, 0);
}

TEST_F(PodProcessTest, LogIsForUsAlone) {
  EXPECT_EQ(OutcomeOf("echo up").exit_code, 0);
  EXPECT_EQ(std::filesystem::status(folder_ + "/log").permissions(),
            std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
}

TEST_F(PodProcessTest, PodWhoseLogCannotBeWrittenDoesNotStart) {
  ASSERT_TRUE(MakeFolder(folder_ + "/log").ok());
  const auto pod = Start("exec sleep 300");
  EXPECT_FALSE(pod.ok());
  EXPECT_EQ(pod.status().message().find("cannot write"), 0U) << pod.status();
  EXPECT_FALSE(ReadPodState(folder_).ok());
}

TEST_F(PodProcessTest, EndOfAPodInSomebodyElsesGroupEndsItsChildrenToo) {
  process::LaunchPlan plan;
  plan.program = "/bin/sh";
  plan.arguments = {"-c", "sleep 300 & echo $! > \"$STARLING_HOME/child\""};
  plan.environment = {"PATH=/bin:/usr/bin", "STARLING_POD_UID=" + folder_,
                      "STARLING_HOME=" + folder_};
  plan.own_process_group = false;
  PodState state;
  state.uid = folder_;
  auto pod = PodProcess::Start(std::move(plan), state, folder_);
  ASSERT_TRUE(pod.ok()) << pod.status();
  ASSERT_TRUE(AwaitEnd(*pod));
  const pid_t child = std::atoi(ReadFile(folder_ + "/child").value_or("").c_str());
  ASSERT_TRUE(Runs(child));
  EXPECT_EQ(pod->Collect(kCollected).exit_code, 0);
  EXPECT_FALSE(Runs(child));
}

TEST_F(PodProcessTest, EndOfAnAdoptedPodEndsWhatHasLeftItsGroup) {
  const pid_t starter = fork();
  if (starter == 0) {
    // A parent that does not ask how it ended: the process stays, as a zombie.
    if (!Start("setsid sleep 300 & echo $! > \"$STARLING_HOME/child\"; exec sleep 300").ok()) {
      _exit(1);
    }
    pause();
    _exit(0);
  }
  ASSERT_TRUE(Eventually([&] {
    const auto stat =
        process::ReadStat(std::atoi(ReadFile(folder_ + "/child").value_or("").c_str()));
    return stat.ok() && stat->group == stat->identity.pid && ReadPodState(folder_).ok();
  }));
  const pid_t child = std::atoi(ReadFile(folder_ + "/child").value_or("").c_str());
  auto pod = PodProcess::Adopt(*ReadPodState(folder_), folder_);
  EXPECT_TRUE(pod.ok()) << pod.status();
  if (pod.ok()) {
    pod->Kill();
    EXPECT_TRUE(AwaitEnd(*pod));
    EXPECT_EQ(pod->Collect(kCollected).signal, SIGKILL);
  }
  EXPECT_FALSE(Runs(child));
  kill(starter, SIGKILL);
  waitpid(starter, nullptr, 0);
}

TEST_F(PodProcessTest, ChildrenOfAPodAreNotTakenForItsFirstProcess) {
  auto pod = Start("sleep 300 & echo $! > \"$STARLING_HOME/child\"");
  ASSERT_TRUE(pod.ok()) << pod.status();
  ASSERT_TRUE(AwaitEnd(*pod));
  ASSERT_TRUE(Runs(std::atoi(ReadFile(folder_ + "/child").value_or("").c_str())));
  EXPECT_FALSE(FindPodProcess(folder_, folder_).has_value());
  EXPECT_EQ(pod->Collect(kCollected).exit_code, 0);
}

TEST_F(PodProcessTest, WhatIsKilledHasEndedWhenThatIsSaid) {
  // The end of a process that has much memory takes a while.
  auto pod = Start("exec dd if=/dev/zero bs=32M count=2 2>/dev/null | sleep 300");
  ASSERT_TRUE(pod.ok()) << pod.status();
  pid_t large = 0;
  ASSERT_TRUE(Eventually([&] {
    for (const pid_t pid : process::ListProcesses()) {
      const auto stat = process::ReadStat(pid);
      if (!stat.ok() || stat->group != pod->state().process.pid) continue;
      const std::string text = ReadFile("/proc/" + std::to_string(pid) + "/statm").value_or("");
      const auto space = text.find(' ');
      if (space != text.npos && std::atoi(text.c_str() + space) > (32 << 20) / 4096) large = pid;
    }
    return large != 0;
  }));
  KillPodProcesses(folder_);
  EXPECT_FALSE(Runs(large));
  ASSERT_TRUE(AwaitEnd(*pod));
  pod->Collect(kCollected);
}

TEST_F(PodProcessTest, RecordsTimesAreItsOwnOrThoseThatAreKnown) {
  PodState state;
  state.started = kStarted;
  std::ofstream(folder_ + "/exit.json")
      << R"({"exitCode": 9, "signal": 15, "restarts": 1, "reason": "OOMKilled", "message": "so",)"
      << R"( "startedAt": "2024-01-02T03:04:05Z", "finishedAt": "2024-01-02T03:04:06.5Z"})";
  const Outcome whole = OutcomeFromFolder(folder_, state, kCollected);
  EXPECT_EQ(whole.exit_code, 9);
  EXPECT_EQ(whole.signal, 15);
  EXPECT_EQ(whole.restarts, 1);
  EXPECT_EQ(whole.reason, "OOMKilled");
  EXPECT_EQ(whole.message, "so");
  EXPECT_EQ(absl::ToUnixSeconds(whole.started), 1'704'164'645);
  EXPECT_EQ(absl::ToUnixMillis(whole.finished), 1'704'164'646'500);
  std::ofstream(folder_ + "/exit.json") << R"({"startedAt": "then"})";
  const Outcome little = OutcomeFromFolder(folder_, state, kCollected);
  EXPECT_EQ(little.exit_code, 0);
  EXPECT_EQ(little.started, kStarted);
  EXPECT_EQ(little.finished, kCollected);
  for (const char* damaged : {"", "[]", "{\"exitCode\": "}) {
    std::ofstream(folder_ + "/exit.json") << damaged;
    std::ofstream(folder_ + "/log") << "its last words";
    const Outcome none = OutcomeFromFolder(folder_, state, kCollected);
    EXPECT_EQ(none.signal, SIGKILL) << damaged;
    EXPECT_EQ(none.exit_code, 137);
    EXPECT_EQ(none.reason, "Error");
    EXPECT_EQ(none.message, "its last words");
  }
}

TEST_F(PodProcessTest, StateReadsAsItWasWrittenForUsAlone) {
  PodState state;
  state.key = {.ns = "team", .name = "worker-0"};
  state.uid = "u-1";
  state.ip = "127.1.2.3";
  state.boot_id = "boot";
  state.process = {.pid = 12, .start_time = 34};
  state.started = kStarted + absl::Nanoseconds(5);
  ASSERT_TRUE(WritePodState(folder_, state).ok());
  const auto read = ReadPodState(folder_);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->key, state.key);
  EXPECT_EQ(read->uid, state.uid);
  EXPECT_EQ(read->ip, state.ip);
  EXPECT_EQ(read->boot_id, state.boot_id);
  EXPECT_EQ(read->process, state.process);
  EXPECT_EQ(read->started, state.started);
  EXPECT_EQ(std::filesystem::status(folder_ + "/state.json").permissions(),
            std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  EXPECT_TRUE(absl::IsNotFound(ReadPodState(folder_ + "/none").status()));
}

TEST_F(PodProcessTest, DamagedStateIsAnErrorNotACrash) {
  for (const char* text : {"", "{", "[]", "{\"uid\": 3}", "null"}) {
    std::ofstream(folder_ + "/state.json") << text;
    EXPECT_FALSE(ReadPodState(folder_).ok()) << text;
  }
}

}  // namespace
}  // namespace starling::local
