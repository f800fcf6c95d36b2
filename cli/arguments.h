// SPDX-License-Identifier: Apache-2.0
// The command line: which verb, its names and flags, and what to say when it is none.
//
// Everything is in one table (verbs.cc): parsing, help and shell completion read it. To add a verb,
// add a row there and its function to commands.h.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace starling::cli {

class Session;

struct Flag {
  std::string_view name;        // without the dashes
  char letter = 0;              // 0: no short form
  std::string_view value = {};  // what it takes, such as FILE; empty: nothing
  std::string_view help = {};
  bool repeatable = false;
};

struct Arguments {
  std::vector<std::string> names;  // what is no flag, in order
  std::map<std::string, std::vector<std::string>, std::less<>> flags;

  bool Has(std::string_view flag) const { return flags.contains(flag); }
  // The last value given, or `otherwise`.
  std::string Get(std::string_view flag, std::string_view otherwise = "") const;
  std::vector<std::string> All(std::string_view flag) const;
};

struct Verb {
  std::string_view name;
  std::string_view usage;    // what follows the name
  std::string_view summary;  // one line
  std::string_view examples;
  std::string_view details;  // may be empty
  std::vector<Flag> flags = {};
  std::size_t min_names = 0;
  std::size_t max_names = 0;
  int (*run)(Session& session, const Arguments& arguments) = nullptr;
};

// Flags that every verb takes.
const std::vector<Flag>& CommonFlags();

const std::vector<Verb>& Verbs();
const Verb* FindVerb(std::string_view name);

// What follows the verb on the command line. InvalidArgument, with a suggestion, for unknown flags,
// missing values and a wrong number of names.
absl::StatusOr<Arguments> ParseArguments(const Verb& verb, const std::vector<std::string>& words);

// "unknown command ..., did you mean ...?"
absl::Status UnknownVerb(std::string_view name);

std::string GeneralHelp();
std::string VerbHelp(const Verb& verb);

// A completion script for bash, zsh or fish; InvalidArgument for other shells.
absl::StatusOr<std::string> CompletionScript(std::string_view shell);

}  // namespace starling::cli
