// SPDX-License-Identifier: Apache-2.0
#include <csignal>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "trainer/supervisor/log_tail.h"
#include "trainer/supervisor/oom.h"
#include "trainer/supervisor/options.h"
#include "trainer/supervisor/records.h"
#include "trainer/supervisor/restart_policy.h"

namespace starling::supervisor {
namespace {

struct PolicyCase {
  RestartPolicy policy;
  process::ExitStatus status;
  bool restart;
};

TEST(RestartPolicy, FollowsTheTable) {
  const PolicyCase cases[] = {
      {RestartPolicy::kOnFailure, {.code = 0}, false},
      {RestartPolicy::kOnFailure, {.code = 1}, true},
      {RestartPolicy::kOnFailure, {.code = 2}, false},
      {RestartPolicy::kOnFailure, {.code = 127}, true},
      {RestartPolicy::kOnFailure, {.code = 0, .signal = SIGKILL}, true},
      {RestartPolicy::kExitCode, {.code = 1}, false},
      {RestartPolicy::kExitCode, {.code = 127}, false},
      {RestartPolicy::kExitCode, {.code = 128}, true},
      {RestartPolicy::kExitCode, {.code = 0, .signal = SIGHUP}, true},
      {RestartPolicy::kNever, {.code = 1}, false},
      {RestartPolicy::kNever, {.code = 0, .signal = SIGKILL}, false},
  };
  for (const PolicyCase& row : cases) {
    EXPECT_EQ(Decide(row.policy, 3, {.status = row.status}).restart, row.restart)
        << static_cast<int>(row.policy) << " " << process::Describe(row.status);
  }
}

TEST(RestartPolicy, EndsAtTheLimitWhenToldToStopAndWithoutMemory) {
  const process::ExitStatus failed{.code = 1};
  EXPECT_TRUE(
      Decide(RestartPolicy::kOnFailure, 3, {.status = failed, .restarts_without_progress = 2})
          .restart);
  EXPECT_FALSE(
      Decide(RestartPolicy::kOnFailure, 3, {.status = failed, .restarts_without_progress = 3})
          .restart);
  EXPECT_FALSE(Decide(RestartPolicy::kOnFailure, 3, {.status = failed, .stopping = true}).restart);
  EXPECT_EQ(Decide(RestartPolicy::kOnFailure, 3, {.status = failed, .out_of_memory = true}).reason,
            "OOMKilled");
}

TEST(Options, ReadsFlagsAndTheRole) {
  Options options;
  EXPECT_EQ(ParseOptions({"--max-restarts", "5", "--restart-policy=Never", "--", "role", "--flag"},
                         {"STARLING_EXIT_RECORD=/pod/exit.json"}, options),
            "");
  EXPECT_EQ(options.max_restarts, 5);
  EXPECT_EQ(options.restart_policy, RestartPolicy::kNever);
  EXPECT_EQ(options.role, (std::vector<std::string>{"role", "--flag"}));
  EXPECT_EQ(options.exit_records, std::vector<std::string>{"/pod/exit.json"});
}

TEST(Options, AddsVariablesThatThePodDoesNotGive) {
  Options options;
  ASSERT_EQ(
      ParseOptions({"--env", "A=1", "--env=B=x=y", "--job-dir", "/job", "--", "role"}, {}, options),
      "");
  std::vector<std::string> environment = {"A=mine", "AB=3"};
  AddVariables(options, environment);
  EXPECT_EQ(environment,
            (std::vector<std::string>{"A=mine", "AB=3", "B=x=y", "STARLING_JOB_DIR=/job"}));
}

TEST(Options, SaysWhatIsWrong) {
  const std::vector<std::string> wrong[] = {{},
                                            {"--"},
                                            {"role"},
                                            {"--nonsense", "1", "--", "role"},
                                            {"--max-restarts", "-1", "--", "r"},
                                            {"--max-restarts", "many", "--", "role"},
                                            {"--env", "A", "--", "role"},
                                            {"--env", "=A", "--", "role"},
                                            {"--exit-record", "", "--", "role"}};
  for (const auto& arguments : wrong) {
    Options options;
    EXPECT_NE(ParseOptions(arguments, {}, options), "");
  }
}

TEST(LogTail, KeepsTheLastBytesOfLongLines) {
  LogTail tail;
  for (int i = 0; i < 100; ++i) tail.Append(std::string(1000, 'x'));
  tail.Append("end");
  EXPECT_EQ(tail.Text().size(), LogTail::kBytes);
  EXPECT_TRUE(tail.Text().ends_with("xend"));
}

TEST(LogTail, ShortTextIsKeptWhole) {
  LogTail tail;
  tail.Append("one\ntwo");
  EXPECT_EQ(tail.Text(), "one\ntwo");
  tail.Clear();
  EXPECT_EQ(tail.Text(), "");
}

TEST(Oom, FindsTheCounterOfBothGenerations) {
  EXPECT_EQ(FindOomCounter("0::/kubepods/pod1\n", "/sys/fs/cgroup"),
            "/sys/fs/cgroup/kubepods/pod1/memory.events");
  EXPECT_EQ(FindOomCounter("9:cpu,memory:/a\n0::/b\n", "/sys/fs/cgroup"),
            "/sys/fs/cgroup/memory/a/memory.oom_control");
  EXPECT_EQ(FindOomCounter("nonsense\n", "/sys/fs/cgroup"), "");
}

TEST(Records, BytesThatAreNoTextDoNotSpoilTheRecord) {
  ExitRecord record;
  record.message = "\xff\xfe bad \x01";
  EXPECT_NE(ToJson(record).find("bad \\u0001"), std::string::npos);
}

TEST(Records, FailedWriteLeavesNothing) {
  EXPECT_FALSE(WriteFileAtomically("/no/such/folder/file", "text", /*sync=*/false));
}

}  // namespace
}  // namespace starling::supervisor
