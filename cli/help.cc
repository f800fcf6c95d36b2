// SPDX-License-Identifier: Apache-2.0
// Help and completion, both from the table of verbs.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "cli/arguments.h"

namespace starling::cli {
namespace {

std::string FlagText(const Flag& flag) {
  std::string text =
      flag.letter != 0 ? absl::StrCat("-", std::string(1, flag.letter), ", ") : "    ";
  absl::StrAppend(&text, "--", std::string(flag.name));
  if (!flag.value.empty()) absl::StrAppend(&text, " ", std::string(flag.value));
  return text;
}

std::string FlagList(const std::vector<Flag>& flags) {
  std::size_t width = 0;
  for (const Flag& flag : flags) width = std::max(width, FlagText(flag).size());
  std::string text;
  for (const Flag& flag : flags) {
    const std::string name = FlagText(flag);
    absl::StrAppend(&text, "  ", name, std::string(width - name.size() + 2, ' '),
                    std::string(flag.help), "\n");
  }
  return text;
}

std::vector<std::string> Names() {
  std::vector<std::string> names = {"help"};
  for (const Verb& verb : Verbs()) names.emplace_back(verb.name);
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<std::string> FlagNames(const Verb& verb) {
  std::vector<std::string> names;
  for (const std::vector<Flag>* flags : {&verb.flags, &CommonFlags()}) {
    for (const Flag& flag : *flags) names.push_back(absl::StrCat("--", std::string(flag.name)));
  }
  return names;
}

// What may follow a verb, as words or as the shell's word for "a file".
bool TakesFile(const Verb& verb) { return verb.usage.starts_with("FILE"); }
bool TakesJob(const Verb& verb) {
  return verb.usage.find("NAME") != std::string_view::npos ||
         verb.usage.find("JOB") != std::string_view::npos;
}

std::string Bash() {
  std::string cases;
  for (const Verb& verb : Verbs()) {
    const std::string words = verb.name == "get"          ? "jobs pods events job"
                              : verb.name == "completion" ? "bash zsh fish"
                              : TakesJob(verb) ? "$(starling get jobs -o name 2>/dev/null)"
                                               : "";
    absl::StrAppend(&cases, "    ", std::string(verb.name), ") flags=\"",
                    absl::StrJoin(FlagNames(verb), " "), "\"; names=\"", words,
                    "\"; files=", TakesFile(verb) ? "1" : "0", " ;;\n");
  }
  return absl::StrCat(R"(# starling completion for bash: source <(starling completion bash)
_starling() {
  local current="${COMP_WORDS[COMP_CWORD]}" verb="${COMP_WORDS[1]}" flags="" names="" files=0
  COMPREPLY=()
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W ")",
                      absl::StrJoin(Names(), " "), R"(" -- "$current"))
    return
  fi
  case "$verb" in
)",
                      cases, R"(  esac
  case "$current" in
    -*) COMPREPLY=($(compgen -W "$flags" -- "$current")) ;;
    *) COMPREPLY=($(compgen -W "$names" -- "$current"))
       [ "$files" = 1 ] && COMPREPLY+=($(compgen -f -- "$current")) ;;
  esac
}
complete -o filenames -F _starling starling
)");
}

std::string Zsh() {
  return absl::StrCat(
      "#compdef starling\n# starling completion for zsh: source <(starling completion zsh)\n"
      "autoload -U +X bashcompinit && bashcompinit\n",
      Bash());
}

std::string Fish() {
  std::string script =
      "# starling completion for fish: starling completion fish | source\n"
      "complete -c starling -f\n";
  for (const Verb& verb : Verbs()) {
    const std::string name(verb.name);
    const std::string quoted = absl::StrReplaceAll(std::string(verb.summary), {{"'", "\\'"}});
    absl::StrAppend(&script, "complete -c starling -n __fish_use_subcommand -a ", name, " -d '",
                    quoted, "'\n");
    const std::string condition =
        absl::StrCat("complete -c starling -n '__fish_seen_subcommand_from ", name, "' ");
    for (const Flag& flag : verb.flags) {
      absl::StrAppend(&script, condition, "-l ", std::string(flag.name),
                      flag.letter != 0 ? absl::StrCat(" -s ", std::string(1, flag.letter)) : "",
                      flag.value.empty() ? "" : " -r", "\n");
    }
    if (TakesFile(verb)) absl::StrAppend(&script, condition, "-F\n");
    if (TakesJob(verb)) {
      absl::StrAppend(&script, condition, "-a '(starling get jobs -o name 2>/dev/null)'\n");
    }
  }
  return script;
}

}  // namespace

std::string VerbHelp(const Verb& verb) {
  std::string text = absl::StrCat(std::string(verb.summary), "\n\nExamples:\n",
                                  std::string(verb.examples), "\nUsage:\n  starling ",
                                  std::string(verb.name), " ", std::string(verb.usage), "\n");
  if (!verb.details.empty()) absl::StrAppend(&text, "\n", std::string(verb.details));
  if (!verb.flags.empty()) absl::StrAppend(&text, "\nFlags:\n", FlagList(verb.flags));
  absl::StrAppend(&text, "\nCommon flags:\n", FlagList(CommonFlags()));
  return text;
}

std::string GeneralHelp() {
  std::size_t width = 0;
  for (const Verb& verb : Verbs()) width = std::max(width, verb.name.size());
  std::string text =
      "Starling trains models on elastic workers and parameter servers.\n\n"
      "Examples:\n"
      "  starling run examples/digits.yaml       train, and watch it\n"
      "  starling scale digits --replicas 4      while it runs\n"
      "  starling describe digits                how it fares, and what happened\n\n"
      "Commands:\n";
  for (const Verb& verb : Verbs()) {
    absl::StrAppend(&text, "  ", std::string(verb.name),
                    std::string(width - verb.name.size() + 2, ' '), std::string(verb.summary),
                    "\n");
  }
  absl::StrAppend(&text, "  help", std::string(width - 2, ' '), "Show this, or `help COMMAND`\n");
  absl::StrAppend(&text, "\nCommon flags:\n", FlagList(CommonFlags()));
  absl::StrAppend(&text,
                  "\nExit codes:\n"
                  "  0  success\n"
                  "  1  the job failed, or the command did\n"
                  "  2  wrong usage, or a file or value that is wrong\n"
                  "  3  not found\n"
                  "  5  not done in time\n"
                  "  130  interrupted, or the job was suspended while it was watched\n"
                  "\nState lies in $STARLING_HOME, by default $XDG_STATE_HOME/starling or "
                  "~/.local/state/starling.\nCommands are for this machine, unless --cluster, "
                  "--context or --kubeconfig is given or\nSTARLING_KUBECONFIG names a file; --home "
                  "overrides that variable. KUBECONFIG alone does not.\n");
  return text;
}

absl::StatusOr<std::string> CompletionScript(std::string_view shell) {
  if (shell == "bash") return Bash();
  if (shell == "zsh") return Zsh();
  if (shell == "fish") return Fish();
  return absl::InvalidArgumentError(
      absl::StrCat("no completion for \"", std::string(shell), "\": one of bash, zsh, fish"));
}

}  // namespace starling::cli
