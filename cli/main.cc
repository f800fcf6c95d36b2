// SPDX-License-Identifier: Apache-2.0
// starling: the command line.
#include <csignal>
#include <cstdlib>
#include <iostream>

#include "cli/program.h"
#include "common/process/process.h"

int main(int argc, char** argv) {
  using namespace starling;
  std::signal(SIGPIPE, SIG_DFL);
  const clock::SystemClock clock;
  const cli::SignalInterrupts interrupts;
  cli::Terminal terminal(std::cout, std::cerr, cli::TraitsOfThisProcess());
  const cli::Surroundings surroundings{terminal, clock, interrupts,
                                       [](const char* name) {
                                         const char* value = std::getenv(name);
                                         return value == nullptr ? std::string()
                                                                 : std::string(value);
                                       },
                                       process::OwnProgramFolder()};
  return cli::RunProgram(surroundings, std::vector<std::string>(argv + 1, argv + argc));
}
