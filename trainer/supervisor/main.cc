// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "trainer/supervisor/install.h"
#include "trainer/supervisor/options.h"
#include "trainer/supervisor/supervisor.h"

extern char** environ;  // NOLINT: POSIX declares it so

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (!arguments.empty() && arguments.front() == "--install") {
    starling::supervisor::InstallOptions install;
    const std::string wrong = starling::supervisor::ParseInstallOptions(arguments, install);
    if (wrong.empty()) return starling::supervisor::Install(install);
    std::fprintf(
        stderr,
        "starling-supervisor: %s\n"
        "usage: starling-supervisor --install PATH [--package FOLDER] [--await-name HOST]...\n",
        wrong.c_str());
    return starling::supervisor::kBadInput;
  }
  std::vector<std::string> environment;
  for (char** entry = environ; *entry != nullptr; ++entry) environment.emplace_back(*entry);
  starling::supervisor::Options options;
  const std::string problem = starling::supervisor::ParseOptions(arguments, environment, options);
  if (!problem.empty()) {
    std::fprintf(stderr,
                 "starling-supervisor: %s\n"
                 "usage: starling-supervisor [--alive-fifo PATH] [--exit-record PATH]\n"
                 "         [--termination-log PATH] [--progress-file PATH] [--max-restarts 3]\n"
                 "         [--restart-policy OnFailure|ExitCode|Never] [--grace-ms 30000]\n"
                 "         [--alive-timeout-ms 10000] [--oom-counter auto|none|FILE]\n"
                 "         [--log-limit BYTES] [--job-dir PATH] [--env NAME=VALUE]...\n"
                 "         -- role [arguments]\n"
                 "       starling-supervisor --install PATH [--package FOLDER] [--await-name "
                 "HOST]...\n",
                 problem.c_str());
    return starling::supervisor::kBadInput;
  }
  starling::supervisor::AddVariables(options, environment);
  std::error_code ignored;  // the role reports it in clearer words
  std::filesystem::create_directories(options.job_folder, ignored);
  return starling::supervisor::Supervisor(std::move(options), std::move(environment)).Run();
}
