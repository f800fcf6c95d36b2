// SPDX-License-Identifier: Apache-2.0
#include "common/process/process.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <string>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace starling::process {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;

constexpr absl::Duration kSoon = absl::Seconds(20);

struct Outcome {
  ExitStatus status;
  std::string output;
};

// Runs `script` with its output caught; `change` may alter the plan.
template <typename Change>
Outcome RunShell(const std::string& script, Change change) {
  std::array<int, 2> pipe_ends{};
  EXPECT_EQ(pipe2(pipe_ends.data(), O_CLOEXEC), 0);
  LaunchPlan plan{
      .program = "/bin/sh", .arguments = {"-c", script}, .environment = {"PATH=/bin:/usr/bin"}};
  plan.standard_output = pipe_ends[1];
  change(plan);
  auto process = Start(plan);
  EXPECT_TRUE(process.ok()) << process.status();
  close(pipe_ends[1]);
  Outcome outcome;
  std::array<char, 4096> buffer{};
  for (ssize_t got; (got = read(pipe_ends[0], buffer.data(), buffer.size())) > 0;) {
    outcome.output.append(buffer.data(), static_cast<std::size_t>(got));
  }
  close(pipe_ends[0]);
  EXPECT_TRUE(process->WaitForEnd(kSoon));
  const auto status = process->Reap();
  EXPECT_TRUE(status.ok()) << status.status();
  if (status.ok()) outcome.status = *status;
  return outcome;
}

Process StartShell(const std::string& script) {
  auto process = Start(
      {.program = "/bin/sh", .arguments = {"-c", script}, .environment = {"PATH=/bin:/usr/bin"}});
  EXPECT_TRUE(process.ok()) << process.status();
  return std::move(*process);
}

// Both ways to start a child must keep the same promises.
class Launching : public ::testing::TestWithParam<int> {
 protected:
  Outcome Run(const std::string& script) {
    return RunShell(script, [](LaunchPlan& plan) { plan.parent_death_signal = GetParam(); });
  }
};

TEST_P(Launching, ExitCodeIsDecoded) {
  EXPECT_EQ(Run("exit 7").status, (ExitStatus{.code = 7, .signal = 0}));
}

TEST_P(Launching, SignalIsDecoded) {
  EXPECT_EQ(Run("kill -KILL $$").status, (ExitStatus{.code = 0, .signal = SIGKILL}));
}

TEST_P(Launching, ChildInheritsNoDescriptorBeyondTheFirstThree) {
  const int leak = fcntl(0, F_DUPFD, 77);  // without O_CLOEXEC on purpose
  const Outcome outcome = Run("for f in /proc/$$/fd/*; do echo \"<${f##*/}>\"; done");
  close(leak);

  EXPECT_THAT(outcome.output, HasSubstr("<2>"));
  EXPECT_EQ(outcome.output.find("<" + std::to_string(leak) + ">"), std::string::npos)
      << outcome.output;
}

TEST_P(Launching, ChildStartsWithDefaultSignalsAndAnEmptyMask) {
  std::signal(SIGTERM, SIG_IGN);
  sigset_t blocked;
  sigset_t before;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGUSR1);
  pthread_sigmask(SIG_BLOCK, &blocked, &before);
  const Outcome outcome = Run("grep -E 'SigBlk|SigIgn' /proc/self/status");
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  std::signal(SIGTERM, SIG_DFL);

  EXPECT_THAT(outcome.output, HasSubstr("SigBlk:\t0000000000000000"));
  EXPECT_THAT(outcome.output, ContainsRegex("SigIgn:\t[0-9a-f]+0000000\n"));
}

TEST_P(Launching, EnvironmentAndFolderAreThePlansAlone) {
  setenv("STARLING_LEAK", "1", 1);
  const Outcome outcome = RunShell("pwd; env", [](LaunchPlan& plan) {
    plan.parent_death_signal = GetParam();
    plan.environment = {"PATH=/bin:/usr/bin", "ONLY=this"};
    plan.working_directory = "/tmp";
  });
  unsetenv("STARLING_LEAK");

  EXPECT_THAT(outcome.output, HasSubstr("/tmp\n"));
  EXPECT_THAT(outcome.output, HasSubstr("ONLY=this"));
  EXPECT_EQ(outcome.output.find("STARLING_LEAK"), std::string::npos);
}

TEST_P(Launching, ChildLeadsItsOwnProcessGroup) {
  const Outcome outcome = Run("read -r line < /proc/$$/stat; echo \"$$ $line\"");
  const auto stat = ParseStat(outcome.output.substr(outcome.output.find(' ') + 1));

  ASSERT_TRUE(stat.ok()) << outcome.output;
  EXPECT_EQ(stat->group, stat->identity.pid);
}

TEST_P(Launching, MissingProgramIsAnErrorThatNamesIt) {
  const auto process = Start({.program = "/no/such/program", .parent_death_signal = GetParam()});

  EXPECT_EQ(process.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(process.status().message()), HasSubstr("/no/such/program"));
}

INSTANTIATE_TEST_SUITE_P(Ways, Launching, ::testing::Values(0, SIGKILL));

// The grandchild's pid, from a child that starts it and is then killed.
pid_t GrandchildOfKilledChild(int parent_death_signal) {
  std::array<int, 2> pipe_ends{};
  EXPECT_EQ(pipe2(pipe_ends.data(), O_CLOEXEC), 0);
  const pid_t child = fork();
  if (child == 0) {
    pid_t grandchild = 0;
    Launch(
        {.program = "/bin/sleep", .arguments = {"300"}, .parent_death_signal = parent_death_signal},
        grandchild);
    [[maybe_unused]] const ssize_t n = write(pipe_ends[1], &grandchild, sizeof(grandchild));
    pause();
    _exit(0);
  }
  pid_t grandchild = 0;
  EXPECT_EQ(read(pipe_ends[0], &grandchild, sizeof(grandchild)),
            static_cast<ssize_t>(sizeof(grandchild)));
  close(pipe_ends[0]);
  close(pipe_ends[1]);
  const auto stat = ReadStat(grandchild);
  EXPECT_TRUE(stat.ok());
  auto process = Process::Adopt(stat->identity);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  const bool ended = process.ok() &&
                     process->WaitForEnd(parent_death_signal == 0 ? absl::Milliseconds(50) : kSoon);
  if (!ended && process.ok()) {
    EXPECT_TRUE(process->Signal(SIGKILL).ok());
  }
  return ended ? 0 : grandchild;
}

TEST(ParentDeathSignal, ChildDiesWithItsParent) { EXPECT_EQ(GrandchildOfKilledChild(SIGKILL), 0); }

TEST(ParentDeathSignal, WithoutItTheChildLivesOnSoTheCheckCanFail) {
  EXPECT_NE(GrandchildOfKilledChild(0), 0);
}

TEST(Process, AdoptsARunningProcessByItsIdentity) {
  Process child = StartShell("sleep 300");

  auto adopted = Process::Adopt(child.identity());

  ASSERT_TRUE(adopted.ok()) << adopted.status();
  EXPECT_FALSE(adopted->WaitForEnd(absl::ZeroDuration()));
  EXPECT_TRUE(child.SignalGroup(SIGKILL).ok());
  EXPECT_TRUE(adopted->WaitForEnd(kSoon));
}

TEST(Process, RefusesAnotherProcessThatHasThePid) {
  Process child = StartShell("sleep 300");
  ProcessIdentity earlier = child.identity();
  earlier.start_time -= 1;

  EXPECT_EQ(Process::Adopt(earlier).status().code(), absl::StatusCode::kNotFound);

  EXPECT_TRUE(child.SignalGroup(SIGKILL).ok());
  EXPECT_TRUE(child.WaitForEnd(kSoon));
}

TEST(Process, RefusesAZombie) {
  Process child = StartShell("exit 0");
  ASSERT_TRUE(child.WaitForEnd(kSoon));

  EXPECT_EQ(Process::Adopt(child.identity()).status().code(), absl::StatusCode::kNotFound);
}

TEST(Process, SignalAfterTheEndReachesNobody) {
  Process child = StartShell("exit 0");
  ASSERT_TRUE(child.WaitForEnd(kSoon));
  ASSERT_TRUE(child.Reap().ok());

  EXPECT_FALSE(child.Signal(SIGKILL).ok());
  EXPECT_FALSE(child.SignalGroup(SIGKILL).ok());
}

TEST(Process, GroupSignalReachesGrandchildrenOfADeadLeaderThatIsNotReaped) {
  std::array<int, 2> pipe_ends{};
  ASSERT_EQ(pipe2(pipe_ends.data(), O_CLOEXEC), 0);
  LaunchPlan plan{.program = "/bin/sh",
                  .arguments = {"-c", "sleep 300 & echo started; kill -KILL $$"},
                  .environment = {"PATH=/bin:/usr/bin"}};
  plan.standard_output = pipe_ends[1];
  auto child = Start(plan);
  ASSERT_TRUE(child.ok());
  close(pipe_ends[1]);
  ASSERT_TRUE(child->WaitForEnd(kSoon));

  EXPECT_TRUE(child->SignalGroup(SIGKILL).ok());

  // The pipe ends only when the grandchild, its last writer, is gone.
  std::string output;
  std::array<char, 64> buffer{};
  for (ssize_t got; (got = read(pipe_ends[0], buffer.data(), buffer.size())) > 0;) {
    output.append(buffer.data(), static_cast<std::size_t>(got));
  }
  close(pipe_ends[0]);
  EXPECT_EQ(output, "started\n");
  EXPECT_EQ(*child->Reap(), (ExitStatus{.code = 0, .signal = SIGKILL}));
}

TEST(Process, ReapingARunningChildSaysThatItRuns) {
  Process child = StartShell("sleep 300");

  EXPECT_EQ(child.Reap().status().code(), absl::StatusCode::kUnavailable);

  EXPECT_TRUE(child.SignalGroup(SIGKILL).ok());
  EXPECT_TRUE(child.WaitForEnd(kSoon));
  EXPECT_EQ(child.Reap()->signal, SIGKILL);
}

TEST(Stat, NameMayHoldBracketsAndSpaces) {
  const auto stat =
      ParseStat("42 (a) Z (b) S 7 42 42 0 -1 4194304 1 0 0 0 0 0 0 0 20 0 1 0 987654 0 0 0\n");

  ASSERT_TRUE(stat.ok()) << stat.status();
  EXPECT_EQ(stat->identity, (ProcessIdentity{.pid = 42, .start_time = 987654}));
  EXPECT_EQ(stat->state, 'S');
  EXPECT_EQ(stat->parent, 7);
}

TEST(Stat, TruncatedLineIsAnErrorNotACrash) {
  for (const std::string text : {"", "42", "42 (a", "42 (a)", "42 (a) ", "42 (a) S 7 42"}) {
    EXPECT_FALSE(ParseStat(text).ok()) << text;
  }
}

TEST(ExitStatus, DescriptionNamesTheSignal) {
  EXPECT_EQ(Describe({.code = 0, .signal = SIGKILL}), "signal 9 (SIGKILL)");
  EXPECT_EQ(Describe({.code = 2, .signal = 0}), "exit code 2");
  EXPECT_EQ((ExitStatus{.code = 0, .signal = SIGTERM}).ShellCode(), 143);
}

TEST(ReadEnvironment, HasItWhileAProcessExecutesOneProgramAfterAnother) {
  LaunchPlan plan{.program = "/bin/sh",
                  .arguments = {"-c", "eval \"$AGAIN\""},
                  .environment = {"AGAIN=exec /bin/sh -c 'eval \"$AGAIN\"'", "MARK=here"}};
  auto process = Start(plan);
  ASSERT_TRUE(process.ok()) << process.status();
  for (int i = 0; i < 3000; ++i) {
    ASSERT_THAT(ReadEnvironment(process->identity().pid), ::testing::Contains("MARK=here")) << i;
  }
  EXPECT_TRUE(process->Signal(SIGKILL).ok());
  EXPECT_TRUE(process->WaitForEnd(kSoon));
  EXPECT_TRUE(process->Reap().ok());
}

}  // namespace
}  // namespace starling::process
