// SPDX-License-Identifier: Apache-2.0
#include "trainer/supervisor/supervisor.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "common/process/process.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace starling::supervisor {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using Json = nlohmann::json;

constexpr absl::Duration kSoon = absl::Seconds(30);

std::string ReadFile(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return std::move(text).str();
}

// Waits for something that another process does; there is nothing to be notified by.
bool Eventually(const std::function<bool()>& holds) {
  const auto deadline = std::chrono::steady_clock::now() + absl::ToChronoSeconds(kSoon);
  while (!holds()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

// One run of the real program in a folder of its own.
class SupervisorTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = ::testing::TempDir() + "supervisor-XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override {
    if (process_.valid()) {
      process_.SignalGroup(SIGKILL).IgnoreError();
      EXPECT_TRUE(process_.WaitForEnd(kSoon));
    }
    std::filesystem::remove_all(folder_);
  }

  std::string Path(const std::string& name) const { return folder_ + "/" + name; }

  void Start(std::vector<std::string> flags, const std::string& script) {
    process::LaunchPlan plan{.program = STARLING_SUPERVISOR, .arguments = std::move(flags)};
    plan.environment = {"PATH=/bin:/usr/bin", "STARLING_EXIT_RECORD=" + Path("exit.json"),
                        "STARLING_POD_START=77"};
    for (const char* argument : {"--", "/bin/sh", "-c"}) plan.arguments.push_back(argument);
    plan.arguments.push_back(script);
    plan.working_directory = folder_;
    const int log = open(Path("log").c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    plan.standard_output = plan.standard_error = log;
    auto process = process::Start(plan);
    close(log);
    ASSERT_TRUE(process.ok()) << process.status();
    process_ = std::move(*process);
  }

  // The code that it exited with, or minus the signal that ended it.
  int Wait() {
    EXPECT_TRUE(process_.WaitForEnd(kSoon)) << Log();
    const auto status = process_.Reap();
    EXPECT_TRUE(status.ok()) << status.status();
    return status->signal != 0 ? -status->signal : status->code;
  }

  int Run(std::vector<std::string> flags, const std::string& script) {
    Start(std::move(flags), script);
    return Wait();
  }

  std::string Log() const { return ReadFile(Path("log")); }
  Json Record() const { return Json::parse(ReadFile(Path("exit.json"))); }
  pid_t RolePid() const { return std::atoi(ReadFile(Path("role.pid")).c_str()); }

  std::string folder_;
  process::Process process_;
};

TEST_F(SupervisorTest, SuccessIsRecordedAndEndsThePod) {
  EXPECT_EQ(Run({}, "echo done"), 0);

  EXPECT_EQ(Record()["exitCode"], 0);
  EXPECT_EQ(Record()["signal"], 0);
  EXPECT_EQ(Record()["reason"], "Completed");
  EXPECT_EQ(Record()["restarts"], 0);
  EXPECT_EQ(Log(), "done\n");
}

TEST_F(SupervisorTest, FailureIsRestartedThreeTimesThenItsCodeIsOurs) {
  EXPECT_EQ(Run({}, "echo start $STARLING_POD_START; exit 5"), 5);

  EXPECT_EQ(Record()["exitCode"], 5);
  EXPECT_EQ(Record()["restarts"], 3);
  for (const char* start : {"start 1\n", "start 2\n", "start 3\n", "start 4\n"}) {
    EXPECT_THAT(Log(), HasSubstr(start));
  }
  EXPECT_EQ(Log().find("start 5"), std::string::npos);
}

TEST_F(SupervisorTest, KilledRoleIsRestartedAndToldWhy) {
  EXPECT_EQ(Run({},
                "if [ $STARLING_POD_START = 1 ]; then echo last words; kill -KILL $$; fi\n"
                "cp $STARLING_LAST_EXIT seen.json"),
            0);

  const Json seen = Json::parse(ReadFile(Path("seen.json")));
  EXPECT_EQ(seen["signal"], SIGKILL);
  EXPECT_EQ(seen["exitCode"], 137);
  EXPECT_EQ(seen["logTail"], "last words\n");
  EXPECT_GT(seen["unixNanos"].get<std::int64_t>(), 1'700'000'000'000'000'000);
  EXPECT_EQ(Record()["restarts"], 1);
}

TEST_F(SupervisorTest, FirstStartHasNoLastExit) {
  EXPECT_EQ(Run({}, "test -z \"$STARLING_LAST_EXIT\""), 0);
}

TEST_F(SupervisorTest, BadInputIsNeverRestarted) {
  EXPECT_EQ(Run({}, "echo 'no such column' >&2; exit 2"), 2);

  EXPECT_EQ(Record()["restarts"], 0);
  EXPECT_EQ(Record()["message"], "no such column\n");
}

TEST_F(SupervisorTest, SettledStepsMakeTheCountStartOver) {
  // Six failures in all, more than three, but each after a newly settled step.
  EXPECT_EQ(Run({},
                "echo $STARLING_POD_START > $STARLING_PROGRESS_FILE\n"
                "[ $STARLING_POD_START -gt 6 ]"),
            0);

  EXPECT_EQ(Record()["restarts"], 6);
}

TEST_F(SupervisorTest, TerminationIsForwardedAndNotRestarted) {
  Start({}, "trap 'echo saved; exit 0' TERM; echo $$ > role.pid; while :; do sleep 0.01; done");
  ASSERT_TRUE(Eventually([this] { return RolePid() > 0; }));

  ASSERT_TRUE(process_.Signal(SIGTERM).ok());

  EXPECT_EQ(Wait(), 0);
  EXPECT_THAT(Log(), HasSubstr("saved\n"));
  EXPECT_EQ(Record()["restarts"], 0);
}

TEST_F(SupervisorTest, RoleThatDiesOfTheTerminationIsNotRestarted) {
  Start({}, "echo $$ > role.pid; exec sleep 300");
  ASSERT_TRUE(Eventually([this] { return RolePid() > 0; }));

  ASSERT_TRUE(process_.Signal(SIGTERM).ok());

  EXPECT_EQ(Wait(), 143);
  EXPECT_EQ(Record()["signal"], SIGTERM);
  EXPECT_EQ(Record()["restarts"], 0);
}

TEST_F(SupervisorTest, RoleDiesWithItsSupervisor) {
  Start({}, "echo $$ > role.pid; exec sleep 300");
  ASSERT_TRUE(Eventually([this] { return RolePid() > 0; }));
  const auto stat = process::ReadStat(RolePid());
  ASSERT_TRUE(stat.ok());
  const auto role = process::Process::Adopt(stat->identity);
  ASSERT_TRUE(role.ok());

  ASSERT_TRUE(process_.Signal(SIGKILL).ok());

  EXPECT_TRUE(role->WaitForEnd(kSoon));
  EXPECT_EQ(Wait(), -SIGKILL);
  EXPECT_FALSE(std::filesystem::exists(Path("exit.json")));
}

TEST_F(SupervisorTest, WhatTheRoleLeftRunningIsKilledBeforeTheRestart) {
  EXPECT_EQ(Run({},
                "if [ $STARLING_POD_START = 1 ]; then sleep 300 & echo $! > left.pid; exit 1; fi\n"
                "! kill -0 $(cat left.pid) 2>/dev/null"),
            0);
}

TEST_F(SupervisorTest, PodThatNobodyHoldsOpenSavesAndEnds) {
  ASSERT_EQ(mkfifo(Path("alive").c_str(), 0600), 0);
  const int holder = open(Path("alive").c_str(), O_RDWR | O_CLOEXEC);
  Start({"--alive-fifo", Path("alive"), "--alive-timeout-ms", "50"},
        "trap 'echo saved; exit 0' TERM; echo $$ > role.pid; while :; do sleep 0.01; done");
  ASSERT_TRUE(Eventually([this] { return RolePid() > 0; }));
  EXPECT_FALSE(process_.WaitForEnd(absl::Milliseconds(300)));  // held: it lives

  close(holder);

  EXPECT_EQ(Wait(), 0);
  EXPECT_EQ(Record()["reason"], "Orphaned");
  EXPECT_THAT(Log(), HasSubstr("saved\n"));
}

TEST_F(SupervisorTest, HolderThatReturnsInTimeKeepsThePod) {
  ASSERT_EQ(mkfifo(Path("alive").c_str(), 0600), 0);
  int holder = open(Path("alive").c_str(), O_RDWR | O_CLOEXEC);
  Start({"--alive-fifo", Path("alive"), "--alive-timeout-ms", "700"},
        "echo $$ > role.pid; exec sleep 300");
  ASSERT_TRUE(Eventually([this] { return RolePid() > 0; }));

  close(holder);
  holder = open(Path("alive").c_str(), O_RDWR | O_CLOEXEC);

  EXPECT_FALSE(process_.WaitForEnd(absl::Milliseconds(1500)));
  close(holder);
}

TEST_F(SupervisorTest, PodThatNobodyEverHeldOpenEndsToo) {
  EXPECT_EQ(Run({"--alive-fifo", Path("missing"), "--alive-timeout-ms", "50"}, "exec sleep 300"),
            143);
  EXPECT_EQ(Record()["reason"], "Orphaned");
}

TEST_F(SupervisorTest, RoleThatIgnoresTheEndIsKilledAfterItsGrace) {
  EXPECT_EQ(Run({"--alive-fifo", Path("missing"), "--alive-timeout-ms", "50", "--grace-ms", "50"},
                "trap '' TERM; while :; do sleep 0.01; done"),
            137);
}

TEST_F(SupervisorTest, KillForWantOfMemoryIsNotRestarted) {
  std::ofstream(Path("counter")) << "low 0\noom_kill 0\n";
  EXPECT_EQ(Run({"--oom-counter", Path("counter")},
                "printf 'low 0\\noom_kill 1\\n' > counter; kill -KILL $$"),
            137);
  EXPECT_EQ(Record()["reason"], "OOMKilled");
}

TEST_F(SupervisorTest, OtherKillsAreNotTakenForWantOfMemory) {
  std::ofstream(Path("counter")) << "oom_kill 1\n";
  EXPECT_EQ(Run({"--oom-counter", Path("counter"), "--max-restarts", "0"}, "kill -KILL $$"), 137);
  EXPECT_EQ(Record()["reason"], "Error");
}

TEST_F(SupervisorTest, MissingRoleIsAStartErrorThatNamesIt) {
  process::LaunchPlan plan{.program = STARLING_SUPERVISOR,
                           .arguments = {"--exit-record", Path("exit.json"), "--", "no-such-role"}};
  auto process = process::Start(plan);
  ASSERT_TRUE(process.ok());
  process_ = std::move(*process);

  EXPECT_EQ(Wait(), 127);
  EXPECT_EQ(Record()["reason"], "StartError");
  EXPECT_THAT(Record()["message"].get<std::string>(), HasSubstr("no-such-role"));
}

TEST_F(SupervisorTest, MessageHoldsTheLastLinesOnly) {
  EXPECT_EQ(Run({"--max-restarts", "0"}, "for i in $(seq 1 100); do echo line $i; done; exit 1"),
            1);

  const std::string message = Record()["message"];
  EXPECT_EQ(message.find("line 80\n"), std::string::npos);
  EXPECT_TRUE(message.starts_with("line 81\n")) << message;
  EXPECT_TRUE(message.ends_with("line 100\n")) << message;
}

TEST_F(SupervisorTest, LogThatGrowsTooLongIsRotated) {
  EXPECT_EQ(Run({"--log-limit", "100000"}, "seq 1 100000"), 0);

  EXPECT_TRUE(std::filesystem::exists(Path("log.1")));
  EXPECT_LT(std::filesystem::file_size(Path("log")), 400'000U);
  EXPECT_THAT(Log(), HasSubstr("\n100000\n"));
}

TEST_F(SupervisorTest, LastLinesOfALogThatIsJustTooLongAreInItsNewestFile) {
  EXPECT_EQ(Run({"--log-limit", "5"},
                "echo long enough; until grep -q enough log; do sleep 0.01; done; echo the last"),
            0);

  EXPECT_EQ(ReadFile(Path("log.1")), "long enough\n");
  EXPECT_EQ(Log(), "the last\n");
}

TEST_F(SupervisorTest, TerminationLogGetsTheRecordOfTheEnd) {
  EXPECT_EQ(
      Run({"--max-restarts", "0", "--termination-log", Path("termination")}, "echo why; exit 3"),
      3);
  EXPECT_THAT(ReadFile(Path("termination")),
              AllOf(HasSubstr("\"exitCode\":3"), HasSubstr("\"message\":\"why\\n\"")));
}

// Kubernetes cuts what is longer, and half a record is none.
TEST_F(SupervisorTest, TerminationLogIsWholeHoweverLongTheLastLinesAre) {
  Run({"--max-restarts", "0", "--termination-log", Path("termination")},
      "for i in $(seq 3000); do printf '\"\\t%d' $i; done; echo; exit 3");
  const std::string record = ReadFile(Path("termination"));
  EXPECT_LE(record.size(), 4096U);
  EXPECT_THAT(record, AllOf(StartsWith("{"), EndsWith("}\n"), HasSubstr("3000")));
}

TEST_F(SupervisorTest, WrongFlagIsAUsageError) {
  EXPECT_EQ(Run({"--restart-policy", "Sometimes"}, "true"), 2);
  EXPECT_THAT(Log(), HasSubstr("--restart-policy: \"Sometimes\""));
}

}  // namespace
}  // namespace starling::supervisor
