// SPDX-License-Identifier: Apache-2.0
// A program's command line. CLI11 does it; this is its App as our programs use it: the last value
// of a flag counts, `-o=json` is taken too, nothing prints, exits or throws.
//
//   flags::App app;
//   app.add_option("--spec", options.spec_path)->required();
//   RETURN_IF_ERROR(app.Parse(arguments));
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace starling::flags {

// Confined to one thread. What flags go into must outlive it.
class App final : public CLI::App {
 public:
  App();

  // Such as 2s or 500ms, and not shorter than `least`.
  CLI::Option* AddDuration(const std::string& names, absl::Duration& target, absl::Duration least,
                           const std::string& help = "");

  // `arguments` without the program's name. INVALID_ARGUMENT names the flag and what it must be.
  absl::Status Parse(std::vector<std::string> arguments);
  // After Parse: the first flag or word that the app does not take; empty: there is none.
  std::string Unknown() const;
};

}  // namespace starling::flags
