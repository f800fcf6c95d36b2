// SPDX-License-Identifier: Apache-2.0
#include "cli/program.h"

#include "absl/strings/str_cat.h"
#include "cli/arguments.h"
#include "cli/exit_code.h"
#include "cli/session.h"

namespace starling::cli {
namespace {

int Complain(Terminal& terminal, const absl::Status& status) {
  terminal.Say(
      absl::StrCat(terminal.PaintError(Style::kRed, "error:"), " ", std::string(status.message())));
  return ExitCodeOf(status);
}

int ShowHelp(Terminal& terminal, const std::vector<std::string>& words) {
  if (words.empty()) {
    terminal.Print(GeneralHelp());
    return kSuccess;
  }
  const Verb* verb = FindVerb(words[0]);
  if (verb == nullptr) return Complain(terminal, UnknownVerb(words[0]));
  terminal.Print(VerbHelp(*verb));
  return kSuccess;
}

}  // namespace

int RunProgram(const Surroundings& surroundings, const std::vector<std::string>& words) {
  Terminal& terminal = surroundings.terminal;
  if (words.empty()) {
    terminal.Say(GeneralHelp());
    return kUsage;
  }
  const std::vector<std::string> rest(words.begin() + 1, words.end());
  if (words[0] == "help") return ShowHelp(terminal, rest);
  if (words[0] == "-h" || words[0] == "--help") return ShowHelp(terminal, {});
  const Verb* verb = FindVerb(words[0] == "--version" ? "version" : words[0]);
  if (verb == nullptr) return Complain(terminal, UnknownVerb(words[0]));
  absl::StatusOr<Arguments> arguments = ParseArguments(*verb, rest);
  if (!arguments.ok()) return Complain(terminal, arguments.status());
  if (arguments->Has("help")) return ShowHelp(terminal, {std::string(verb->name)});
  absl::StatusOr<Home> home = FindHome(arguments->Get("home"), surroundings.environment);
  if (!home.ok()) return Complain(terminal, home.status());
  Session session(terminal, surroundings.clock, surroundings.interrupts, *std::move(home),
                  surroundings.program_folder);
  auto server = ChooseServer(*arguments, surroundings.environment, session.home());
  if (!server.ok()) return Complain(terminal, server.status());
  if (*server) {
    session.UseServer(**std::move(server));
    return verb->run(session, *arguments);
  }
  auto cluster = ChooseCluster(*arguments, surroundings.environment);
  if (!cluster.ok()) return Complain(terminal, cluster.status());
  if (*cluster) {
    session.UseCluster(**std::move(cluster));
    // Job files may name a namespace themselves.
    const bool takes_file = verb->usage.starts_with("FILE");
    if (!takes_file && !arguments->Has("namespace")) {
      arguments->flags["namespace"] = {session.default_namespace()};
    }
  }
  return verb->run(session, *arguments);
}

}  // namespace starling::cli
