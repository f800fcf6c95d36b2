// SPDX-License-Identifier: Apache-2.0
#include "cli/arguments.h"

#include "absl/strings/str_cat.h"
#include "api/spec/field_error.h"
#include "common/status/macros.h"

namespace starling::cli {
namespace {

absl::Status Misused(const Verb& verb, std::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat(std::string(what), "\nusage: starling ", std::string(verb.name), " ",
                   std::string(verb.usage), "\nsee: starling help ", std::string(verb.name)));
}

template <typename Predicate>
const Flag* Find(const Verb& verb, Predicate matches) {
  for (const std::vector<Flag>* flags : {&verb.flags, &CommonFlags()}) {
    for (const Flag& flag : *flags) {
      if (matches(flag)) return &flag;
    }
  }
  return nullptr;
}

absl::Status UnknownFlag(const Verb& verb, std::string_view word) {
  std::vector<std::string> known;
  for (const std::vector<Flag>* flags : {&verb.flags, &CommonFlags()}) {
    for (const Flag& flag : *flags) known.push_back(absl::StrCat("--", std::string(flag.name)));
  }
  return Misused(verb, absl::StrCat("unknown flag ", std::string(word),
                                    spec::DidYouMean(std::string(word), known)));
}

// Walks over the words of one command line.
class Parser {
 public:
  Parser(const Verb& verb, const std::vector<std::string>& words) : verb_(verb), words_(words) {}

  absl::StatusOr<Arguments> Parse() {
    for (; next_ < words_.size(); ++next_) {
      const std::string& word = words_[next_];
      if (only_names_ || word == "-" || word.empty() || word.front() != '-') {
        arguments_.names.push_back(word);
      } else if (word == "--") {
        only_names_ = true;
      } else if (word.starts_with("--")) {
        RETURN_IF_ERROR(Long(word));
      } else {
        RETURN_IF_ERROR(Short(word));
      }
    }
    if (arguments_.Has("help")) return arguments_;
    if (arguments_.names.size() < verb_.min_names) return Misused(verb_, "something is missing");
    if (arguments_.names.size() > verb_.max_names) {
      return Misused(verb_,
                     absl::StrCat("one too many: \"", arguments_.names[verb_.max_names], "\""));
    }
    return arguments_;
  }

 private:
  absl::Status Long(const std::string& word) {
    const std::size_t equals = word.find('=');
    const std::string name = word.substr(2, equals == std::string::npos ? equals : equals - 2);
    const Flag* flag = Find(verb_, [&](const Flag& known) { return known.name == name; });
    if (flag == nullptr) return UnknownFlag(verb_, word.substr(0, equals));
    if (equals == std::string::npos) return Take(*flag, word);
    if (flag->value.empty()) return Misused(verb_, absl::StrCat("--", name, " takes no value"));
    return Store(*flag, word.substr(equals + 1));
  }

  // -o json, -ojson, -o=json; letters without values may stand together.
  absl::Status Short(const std::string& word) {
    for (std::size_t i = 1; i < word.size(); ++i) {
      const Flag* flag = Find(verb_, [&](const Flag& known) { return known.letter == word[i]; });
      if (flag == nullptr) return UnknownFlag(verb_, word);
      if (flag->value.empty()) {
        RETURN_IF_ERROR(Store(*flag, ""));
        continue;
      }
      std::string rest = word.substr(i + 1);
      if (rest.empty()) return Take(*flag, word);
      if (rest.front() == '=') rest.erase(0, 1);
      return Store(*flag, rest);
    }
    return absl::OkStatus();
  }

  absl::Status Take(const Flag& flag, const std::string& word) {
    if (flag.value.empty()) return Store(flag, "");
    if (next_ + 1 == words_.size()) {
      return Misused(verb_, absl::StrCat(word, " needs a value: ", std::string(flag.value)));
    }
    return Store(flag, words_[++next_]);
  }

  absl::Status Store(const Flag& flag, std::string value) {
    std::vector<std::string>& values = arguments_.flags[std::string(flag.name)];
    if (!values.empty() && !flag.repeatable && !flag.value.empty() && values.back() != value) {
      return Misused(verb_, absl::StrCat("--", std::string(flag.name), " is given twice"));
    }
    values.push_back(std::move(value));
    return absl::OkStatus();
  }

  const Verb& verb_;
  const std::vector<std::string>& words_;
  std::size_t next_ = 0;
  bool only_names_ = false;
  Arguments arguments_;
};

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
  return Parser(verb, words).Parse();
}

absl::Status UnknownVerb(std::string_view name) {
  std::vector<std::string> known;
  for (const Verb& verb : Verbs()) known.emplace_back(verb.name);
  return absl::InvalidArgumentError(absl::StrCat("unknown command \"", std::string(name), "\"",
                                                 spec::DidYouMean(name, known),
                                                 "\nsee: starling help"));
}

}  // namespace starling::cli
