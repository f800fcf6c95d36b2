// SPDX-License-Identifier: Apache-2.0
// The whole program; what it needs to know of its own process is handed in (Surroundings).
#pragma once

#include <string>
#include <vector>

#include "cli/home.h"
#include "cli/interrupts.h"
#include "cli/terminal.h"
#include "common/clock/clock.h"

namespace starling::cli {

struct Surroundings {
  Terminal& terminal;
  const clock::Clock& clock;
  const Interrupts& interrupts;
  EnvironmentReader environment;
  std::string program_folder;
};

// `words` is the command line without the program's name. Returns the exit code.
int RunProgram(const Surroundings& surroundings, const std::vector<std::string>& words);

}  // namespace starling::cli
