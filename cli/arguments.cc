// SPDX-License-Identifier: Apache-2.0
#include "cli/arguments.h"

#include <set>

#include "absl/strings/str_cat.h"
#include "api/spec/field_error.h"
#include "common/flags/flags.h"

namespace starling::cli {
namespace {

absl::Status Misused(const Verb& verb, std::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat(std::string(what), "\nusage: starling ", std::string(verb.name), " ",
                   std::string(verb.usage), "\nsee: starling help ", std::string(verb.name)));
}

// Common flags too.
std::vector<Flag> FlagsOf(const Verb& verb) {
  std::vector<Flag> all = verb.flags;
  all.insert(all.end(), CommonFlags().begin(), CommonFlags().end());
  return all;
}

std::string NamesOf(const Flag& flag) {
  const std::string name = absl::StrCat("--", std::string(flag.name));
  return flag.letter == 0 ? name : absl::StrCat("-", std::string(1, flag.letter), ",", name);
}

absl::Status UnknownFlag(const Verb& verb, const std::string& word) {
  std::vector<std::string> known;
  for (const Flag& flag : FlagsOf(verb))
    known.push_back(absl::StrCat("--", std::string(flag.name)));
  return Misused(verb, absl::StrCat("unknown flag ", word, spec::DidYouMean(word, known)));
}

}  // namespace

std::string Arguments::Get(std::string_view flag, std::string_view otherwise) const {
  const auto found = flags.find(flag);
  return found == flags.end() ? std::string(otherwise) : found->second.back();
}

std::vector<std::string> Arguments::All(std::string_view flag) const {
  const auto found = flags.find(flag);
  return found == flags.end() ? std::vector<std::string>() : found->second;
}

const Verb* FindVerb(std::string_view name) {
  for (const Verb& verb : Verbs()) {
    if (verb.name == name) return &verb;
  }
  return nullptr;
}

absl::StatusOr<Arguments> ParseArguments(const Verb& verb, const std::vector<std::string>& words) {
  Arguments arguments;
  flags::App app;
  app.add_option("words", arguments.names)->take_all();
  for (const Flag& flag : FlagsOf(verb)) {
    if (flag.value.empty()) {
      app.add_flag(NamesOf(flag))->disable_flag_override();
    } else {
      app.add_option(NamesOf(flag))->take_all()->allow_extra_args(false);
    }
  }
  const absl::Status parsed = app.Parse(words);
  if (!app.Unknown().empty()) return UnknownFlag(verb, app.Unknown());
  if (!parsed.ok()) return Misused(verb, std::string(parsed.message()));
  for (const Flag& flag : FlagsOf(verb)) {
    const std::string name(flag.name);
    const std::vector<std::string> given = app.get_option("--" + name)->results();
    if (!given.empty()) arguments.flags[name] = given;
    if (!flag.repeatable && std::set(given.begin(), given.end()).size() > 1) {
      return Misused(verb, absl::StrCat("--", name, " is given twice"));
    }
  }
  if (arguments.Has("help")) return arguments;
  if (arguments.names.size() < verb.min_names) return Misused(verb, "something is missing");
  if (arguments.names.size() > verb.max_names) {
    return Misused(verb, absl::StrCat("one too many: \"", arguments.names[verb.max_names], "\""));
  }
  return arguments;
}

absl::Status UnknownVerb(std::string_view name) {
  std::vector<std::string> known;
  for (const Verb& verb : Verbs()) known.emplace_back(verb.name);
  return absl::InvalidArgumentError(absl::StrCat("unknown command \"", std::string(name), "\"",
                                                 spec::DidYouMean(name, known),
                                                 "\nsee: starling help"));
}

}  // namespace starling::cli
