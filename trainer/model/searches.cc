// SPDX-License-Identifier: Apache-2.0
#include "trainer/model/searches.h"

#include <map>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "trainer/model/client.h"
#include "trainer/model/dense_sparse.h"
#include "trainer/model/groups.h"

namespace starling::model {
namespace {

using Numbers = std::map<std::string, int*, std::less<>>;
using Switches = std::map<std::string, bool*, std::less<>>;

template <typename Map>
std::string NamesOf(const Map& map) {
  std::string names;
  for (const auto& [name, value] : map) absl::StrAppend(&names, names.empty() ? "" : ", ", name);
  return names;
}

// `key=number`, or `without=rule`.
absl::Status Set(const Numbers& numbers, const Switches& rules, const std::string& word) {
  const std::pair<std::string, std::string> parts = absl::StrSplit(word, absl::MaxSplits('=', 1));
  if (parts.first == "without") {
    const auto rule = rules.find(parts.second);
    if (rule == rules.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("no rule is called \"", parts.second, "\"; there are ", NamesOf(rules)));
    }
    *rule->second = false;
    return absl::OkStatus();
  }
  const auto number = numbers.find(parts.first);
  if (number == numbers.end() || !absl::SimpleAtoi(parts.second, number->second)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "\"", word, "\" is not understood; write without=rule, or a number for one of ",
        NamesOf(numbers)));
  }
  return absl::OkStatus();
}

struct LimitNumbers {
  int states = 20'000'000;
  int liveness = 1;
  Limits limits() const {
    return {static_cast<std::uint64_t>(states), static_cast<std::uint64_t>(liveness)};
  }
};

// first=lockstep:01 and second=chain:12: kind and members of a group; first=none: there is none.
absl::Status SetGroup(GroupOptions& options, std::size_t group, const std::string& text) {
  const std::pair<std::string, std::string> parts = absl::StrSplit(text, absl::MaxSplits(':', 1));
  const std::map<std::string, Kind, std::less<>> kinds = {
      {"none", Kind::kNone}, {"lockstep", Kind::kLockstep}, {"chain", Kind::kChain}};
  const auto kind = kinds.find(parts.first);
  bool good = kind != kinds.end() && parts.second.size() <= kMostProcesses;
  std::vector<int> members;
  for (const char digit : parts.second) {
    members.push_back(digit - '0');
    good = good && members.back() >= 0 && members.back() < kMostProcesses;
  }
  if (!good) {
    return absl::InvalidArgumentError(absl::StrCat(
        "\"", text, "\" is no group; write lockstep:01 or chain:12, processes in order, or none"));
  }
  options.kinds[group] = kind->second;
  options.members[group] = std::move(members);
  return absl::OkStatus();
}

absl::StatusOr<Result> RunGroups(const std::vector<std::string>& words) {
  GroupOptions options;
  options.crashes = 0;
  LimitNumbers limits;
  GroupRules& rules = options.rules;
  membership::Rules& group = rules.group;
  const Numbers numbers = {
      {"processes", &options.processes}, {"steps", &options.steps},
      {"views", &options.views},         {"second_views", &options.second_views},
      {"crashes", &options.crashes},     {"evictions", &options.evictions},
      {"changes", &options.changes},     {"clients", &options.clients},
      {"given_up", &options.given_up},   {"third_views", &options.third_views},
      {"standby", &options.standby},     {"states", &limits.states},
      {"liveness", &limits.liveness}};
  const Switches switches = {{"frozen_record", &rules.frozen_record},
                             {"own_incarnation", &rules.own_incarnation},
                             {"newest_record", &rules.newest_record},
                             {"offer_again", &rules.offer_again},
                             {"prepare_running", &rules.prepare_running},
                             {"epoch_on_data", &rules.epoch_on_data},
                             {"client_entries", &rules.client_entries},
                             {"whole_roster", &rules.whole_roster},
                             {"return_when_synced", &rules.return_when_synced},
                             {"prune_per_group", &rules.prune_per_group},
                             {"prune_synced", &rules.prune_synced},
                             {"waive_ended", &rules.waive_ended},
                             {"standby_acknowledges", &rules.standby_acknowledges},
                             {"standby_ceases", &rules.standby_ceases},
                             {"standby_armed", &rules.standby_armed},
                             {"standby_outranked", &rules.standby_outranked},
                             {"view_in_state_id", &group.view_in_state_id},
                             {"halt_first", &group.halt_first},
                             {"leave_half_copied", &group.leave_half_copied},
                             {"min_equals_max", &group.min_equals_max},
                             {"refuse_lower_incarnation", &group.refuse_lower_incarnation},
                             {"witness", &group.witness},
                             {"view_check_on_data", &group.view_check_on_data},
                             {"incarnation_in_view_number", &group.incarnation_in_view_number},
                             {"roster_wait", &group.roster_wait}};
  for (const std::string& word : words) {
    absl::Status good;
    if (word.starts_with("first=")) {
      good = SetGroup(options, 0, word.substr(6));
    } else if (word.starts_with("second=")) {
      good = SetGroup(options, 1, word.substr(7));
    } else {
      good = Set(numbers, switches, word);
    }
    if (!good.ok()) return good;
  }
  if (options.views + options.second_views + options.third_views >= kMostViews ||
      options.processes > kMostProcesses || options.steps >= 4) {
    return absl::InvalidArgumentError(absl::StrCat("the model has at most ", kMostViews - 1,
                                                   " views, ", kMostProcesses,
                                                   " processes and 3 steps"));
  }
  return Search(GroupModel(options), limits.limits());
}

absl::StatusOr<Result> RunDenseSparse(const std::vector<std::string>& words) {
  DenseSparseOptions options;
  LimitNumbers limits;
  const Numbers numbers = {{"workers", &options.workers},   {"steps", &options.steps},
                           {"portions", &options.portions}, {"shards", &options.shards},
                           {"crashes", &options.crashes},   {"evictions", &options.evictions},
                           {"restores", &options.restores}, {"states", &limits.states},
                           {"liveness", &limits.liveness}};
  DenseSparseRules& rules = options.rules;
  const Switches switches = {{"lease_is_portion", &rules.lease_is_portion},
                             {"ledger_skips", &rules.ledger_skips},
                             {"ledger_in_state", &rules.ledger_in_state},
                             {"acknowledged_before_word", &rules.acknowledged_before_word},
                             {"catch_up", &rules.catch_up},
                             {"ends_when_whole", &rules.ends_when_whole}};
  for (const std::string& word : words) {
    if (absl::Status good = Set(numbers, switches, word); !good.ok()) return good;
  }
  if (options.workers > kMostWorkers || options.shards > kMostShards ||
      options.steps * options.portions > kMostLeases) {
    return absl::InvalidArgumentError(absl::StrCat("the model has at most ", kMostWorkers,
                                                   " workers, ", kMostShards, " shards and ",
                                                   kMostLeases, " portions in all steps"));
  }
  return Search(DenseSparseModel(options), limits.limits());
}

absl::StatusOr<Result> RunClient(const std::vector<std::string>& words) {
  ClientOptions options;
  LimitNumbers limits;
  ClientRules& rules = options.rules;
  const Numbers numbers = {{"lives", &options.lives},
                           {"pushes", &options.pushes},
                           {"states", &limits.states},
                           {"liveness", &limits.liveness}};
  const Switches switches = {{"acknowledged_to_whom", &rules.acknowledged_to_whom},
                             {"admitted_first", &rules.admitted_first}};
  for (const std::string& word : words) {
    if (absl::Status good = Set(numbers, switches, word); !good.ok()) return good;
  }
  if (options.lives > kMostLives || options.pushes > kMostPushes) {
    return absl::InvalidArgumentError(absl::StrCat("the model has at most ", kMostLives,
                                                   " lives and ", kMostPushes, " pushes in each"));
  }
  return Search(ClientModel(options), limits.limits());
}

}  // namespace

std::vector<NamedSearch> CleanSearches() {
  const auto quick = [](const char* name, const char* line) { return NamedSearch{name, line}; };
  const auto lengthy = [](const char* name, const char* line) {
    return NamedSearch{name, line, {}, /*quick=*/false};
  };
  return {
      quick("lockstep", "groups second=none processes=2 views=3 crashes=1 evictions=1 changes=1"),
      quick("lockstep and a joiner", "groups second=none views=3 crashes=2 changes=1"),
      quick("chain",
            "groups first=none second=chain:01 processes=2 views=3 crashes=1 evictions=1 changes=1 "
            "clients=1 steps=2"),
      quick("both with deaths", "groups views=3 crashes=1 evictions=1"),
      quick("both with changes", "groups views=3 changes=1 clients=1"),
      quick("two coordinators given up",
            "groups first=none second=chain:0 processes=2 views=2 second_views=2 given_up=2 "
            "changes=1 clients=1 liveness=16"),
      quick("standby",
            "groups second=none processes=2 views=2 second_views=2 standby=1 crashes=1 "
            "evictions=1"),
      quick("client", "client lives=3 pushes=2"),
      quick("dense and sparse", "dense-sparse crashes=1 restores=1 steps=1 shards=2"),
      lengthy("both with everything", "groups views=3 crashes=1 evictions=1 changes=1 liveness=16"),
      lengthy("both under two coordinators",
              "groups views=2 second_views=1 crashes=1 evictions=1 liveness=16"),
      lengthy("both under two coordinators longer",
              "groups views=2 second_views=2 crashes=1 liveness=16"),
      lengthy("lockstep under two coordinators",
              "groups second=none processes=2 views=2 second_views=2 crashes=1 evictions=1 "
              "changes=1 liveness=16"),
      lengthy("chain under two coordinators",
              "groups first=none second=chain:01 views=2 second_views=2 crashes=1 evictions=1 "
              "changes=1 clients=1 liveness=16"),
      lengthy("standby and a successor of both",
              "groups second=none processes=2 views=2 second_views=1 third_views=1 standby=1 "
              "crashes=1 evictions=1 liveness=16"),
      lengthy("chain and standby",
              "groups first=none second=chain:01 processes=2 views=2 second_views=2 standby=1 "
              "crashes=1 evictions=1 changes=1 clients=1 liveness=16"),
      lengthy("dense and sparse two steps",
              "dense-sparse crashes=1 evictions=1 restores=1 steps=2 shards=1 liveness=16"),
      lengthy("dense and sparse two shards",
              "dense-sparse crashes=2 evictions=1 restores=1 steps=1 shards=2 liveness=16"),
  };
}

std::vector<NamedSearch> NegativeControls() {
  const std::string lost = "an epoch begins without what was settled before it";
  const std::string two = "two members have one state id and different states";
  const std::string stuck = "does not finish";
  const auto without = [](const std::string& rule, const std::string& finds,
                          const std::string& bounds) {
    return NamedSearch{rule, absl::StrCat(bounds, " without=", rule), finds};
  };
  return {
      // Groups in common views.
      without("frozen_record", two, "groups first=none views=2 evictions=1 liveness=0"),
      without("own_incarnation", lost,
              "groups first=none second=chain:0 processes=2 views=2 second_views=2 given_up=2 "
              "changes=1 clients=1 liveness=0"),
      without("return_when_synced", lost,
              "groups first=none second=chain:0 processes=2 views=2 second_views=2 given_up=2 "
              "changes=1 liveness=0"),
      without("newest_record", stuck,
              "groups first=lockstep:0 second=none processes=2 views=3 changes=1 clients=1"),
      without("offer_again", stuck, "groups second=none processes=2 views=3 evictions=1 changes=1"),
      without("prepare_running", stuck, "groups second=none processes=2 views=3 changes=2"),
      without("epoch_on_data", stuck, "groups second=none processes=2 views=2 clients=1"),
      without("client_entries", two, "groups first=none views=2 clients=1"),
      without("whole_roster", lost,
              "groups first=none second=chain:01 views=3 second_views=1 crashes=1 evictions=1 "
              "changes=1 liveness=0"),
      without("prune_per_group", lost,
              "groups first=lockstep:0 second=chain:1 processes=2 views=4 evictions=1 changes=2 "
              "liveness=0"),
      // A standby that takes over without the controller.
      without("standby_acknowledges", lost,
              "groups second=none processes=2 views=2 second_views=1 standby=1 evictions=2 "
              "liveness=0"),
      without("standby_ceases", lost,
              "groups second=none processes=2 views=2 second_views=1 standby=1 evictions=2 "
              "liveness=0"),
      without("standby_armed", lost,
              "groups second=none processes=2 views=2 second_views=1 standby=1 evictions=2 "
              "liveness=0"),
      without("standby_outranked", lost,
              "groups second=none processes=2 views=2 second_views=1 standby=1 evictions=2 "
              "liveness=0"),
      // One group's rules, in its epochs.
      without("prune_synced", lost, "groups first=none views=3 crashes=1 evictions=1 liveness=0"),
      without(
          "waive_ended", lost,
          "groups first=none second=chain:1 processes=2 views=3 evictions=1 changes=1 liveness=0"),
      without(
          "witness", lost,
          "groups first=none second=chain:1 processes=2 views=3 evictions=1 changes=1 liveness=0"),
      without("view_in_state_id", two,
              "groups second=none processes=2 views=3 evictions=1 changes=1 liveness=0"),
      without("halt_first", two,
              "groups second=none processes=2 views=2 changes=1 steps=2 liveness=0"),
      without("leave_half_copied", "starts from half a copy",
              "groups first=lockstep:0 second=none processes=2 views=3 crashes=1 changes=1 "
              "liveness=0"),
      without("min_equals_max", "an epoch that it was never told of",
              "groups second=none processes=2 views=3 changes=2 liveness=0"),
      without("refuse_lower_incarnation", lost,
              "groups second=none processes=2 views=2 second_views=1 evictions=2 liveness=0"),
      without("view_check_on_data", "made from different states",
              "groups first=lockstep:012 second=none views=2 evictions=1 steps=2 liveness=0"),
      without("incarnation_in_view_number", lost,
              "groups second=none processes=2 views=2 second_views=1 evictions=2 liveness=0"),
      without("roster_wait", lost,
              "groups first=none second=chain:01 processes=2 views=3 second_views=1 evictions=2 "
              "liveness=0"),
      // A client that starts over.
      without("acknowledged_to_whom", "which the shard does not have", "client liveness=0"),
      without("admitted_first", "which the shard does not have", "client liveness=0"),
      // Dense layers by ring, the embedding on shards.
      without("lease_is_portion", "twice",
              "dense-sparse workers=2 restores=0 steps=1 shards=1 liveness=0"),
      without("ledger_skips", "twice", "dense-sparse restores=0 steps=1 shards=1 liveness=0"),
      without("ledger_in_state", "not at all",
              "dense-sparse crashes=0 steps=1 shards=1 liveness=0"),
      without("acknowledged_before_word", "not at all",
              "dense-sparse restores=0 steps=1 shards=1 liveness=0"),
      without("catch_up", "does not end", "dense-sparse crashes=0 steps=1 shards=1"),
      without("ends_when_whole", "not at all",
              "dense-sparse crashes=0 steps=1 shards=1 liveness=0"),
  };
}

absl::StatusOr<Result> Run(const std::string& line) {
  std::vector<std::string> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
  const std::string model = words.empty() ? "" : words.front();
  if (!words.empty()) words.erase(words.begin());
  if (model == "groups") return RunGroups(words);
  if (model == "dense-sparse") return RunDenseSparse(words);
  if (model == "client") return RunClient(words);
  return absl::InvalidArgumentError(absl::StrCat("there is no model \"", model,
                                                 "\"; write groups, dense-sparse or client first"));
}

}  // namespace starling::model
