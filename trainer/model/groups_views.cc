// SPDX-License-Identifier: Apache-2.0
// What coordinators do: they publish views, each group of which is kept or given a new epoch.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "trainer/model/bits.h"
#include "trainer/model/groups.h"

namespace starling::model {
namespace {

std::uint8_t MaskOf(const std::vector<int>& members) {
  std::uint8_t mask = 0;
  for (const int member : members) mask |= Bit(member);
  return mask;
}

std::uint16_t Packed(const std::vector<int>& members) {
  int packed = 0, shift = 0;
  for (const int member : members) {
    packed |= (member + 1) << shift;
    shift += 4;
  }
  return static_cast<std::uint16_t>(packed);
}

std::uint8_t Living(const GroupState& state) {
  std::uint8_t living = 0;
  for (int process = 0; process < kMostProcesses; ++process) {
    if (state.processes[process].alive != 0) living |= Bit(process);
  }
  return living;
}

// All whom a coordinator takes for ended, rightly or not.
std::uint8_t Ended(const GroupState& state, int coordinator, int processes) {
  const int dead = ((1 << processes) - 1) & ~Living(state);
  return static_cast<std::uint8_t>(dead | state.ended[coordinator]);
}

}  // namespace

int GroupModel::Incarnation(int view) const {
  if (view <= options_.views) return 1;
  return view <= options_.views + options_.second_views ? 2 : 3;
}

int GroupModel::NextView(const State& state, int coordinator) const {
  const std::array<int, kCoordinators> counts = {options_.views, options_.second_views,
                                                 options_.third_views};
  int first = 1;
  for (int before = 0; before < coordinator; ++before) first += counts[before];
  for (int view = first; view < first + counts[coordinator]; ++view) {
    if (state.views[view].published == 0) return view;
  }
  return 0;
}

// C4: a successor has heard everyone who may have been in a view, or knows that they have ended. A
// standby knows every view that anybody can have heard of.
bool GroupModel::MayPublish(const State& state, int coordinator) const {
  if (state.newest[coordinator] == 0) return false;
  if (coordinator == 0 || !options_.rules.group.roster_wait) return true;
  if (coordinator == 1 && options_.standby != 0) return true;
  int waits_for = Living(state) & ~state.ended[coordinator];
  if (!options_.rules.whole_roster) {
    std::uint8_t members = 0;
    for (const GroupRecord& record : state.views[state.newest[coordinator]].groups) {
      members |= MaskOf(MembersOf(record));
    }
    waits_for &= members;
  }
  return (waits_for & ~state.heard[coordinator]) == 0;
}

// The epochs of a group that its next one must know of: those known, without what is overtaken.
std::uint8_t GroupModel::Epochs(const State& state, int coordinator, int group) const {
  std::uint8_t epochs = 0;
  for (int view = 1; view < kMostViews; ++view) {
    if (!Has(state.known[coordinator], view)) continue;
    const GroupRecord& record = state.views[view].groups[group];
    epochs = static_cast<std::uint8_t>(epochs | Bit(record.epoch) | record.since);
  }
  const auto members_of = [&](int epoch) { return MembersOf(state.views[epoch].groups[group]); };
  const auto synced_by_all = [&](int of_group, int epoch) {
    const std::vector<int> members = MembersOf(state.views[epoch].groups[of_group]);
    return std::all_of(members.begin(), members.end(), [&](int member) {
      return state.processes[member].seats[of_group].synced >= state.views[epoch].number;
    });
  };
  int overtakes = 0;
  for (int epoch = 1; epoch < kMostViews; ++epoch) {
    if (!Has(epochs, epoch)) continue;
    if (synced_by_all(group, epoch) || !options_.rules.prune_synced) overtakes = epoch;
  }
  if (!options_.rules.prune_per_group) {
    const int newest = state.newest[coordinator];
    bool synced = true;
    for (int other = 0; other < kGroups; ++other) {
      const GroupRecord& record = state.views[newest].groups[other];
      synced = synced && (record.epoch != newest || synced_by_all(other, newest));
    }
    if (synced) overtakes = std::max<int>(overtakes, state.views[newest].groups[group].epoch);
  }
  if (overtakes == 0) return epochs;
  const int covered = MaskOf(members_of(overtakes)) | Ended(state, coordinator, options_.processes);
  for (int epoch = 1; epoch < overtakes; ++epoch) {
    const bool covers = (MaskOf(members_of(epoch)) & ~covered) == 0;
    if (Has(epochs, epoch) && (covers || !options_.rules.prune_synced))
      epochs &= static_cast<std::uint8_t>(~Bit(epoch));
  }
  return epochs;
}

GroupRecord GroupModel::Compose(const State& state, int coordinator, int group, int view,
                                const std::vector<int>& members, int from) const {
  GroupRecord record{};
  record.epoch = static_cast<std::uint8_t>(view);
  record.from = static_cast<std::uint8_t>(from);
  record.members = Packed(members);
  record.since = Epochs(state, coordinator, group);
  const std::uint8_t ended = Ended(state, coordinator, options_.processes);
  for (int epoch = 1; epoch < kMostViews; ++epoch) {
    if (!Has(record.since, epoch)) continue;
    const bool all = (MaskOf(MembersOf(state.views[epoch].groups[group])) & ~ended) == 0;
    if (all || !options_.rules.waive_ended) record.waived |= Bit(epoch);
  }
  return record;
}

// C2's guard: the epoch that runs at all of its members, at whose boundary another may begin.
int GroupModel::Boundary(const State& state, int coordinator, int group) const {
  if (options_.kinds[group] != Kind::kLockstep) return 0;
  const std::uint8_t ended = Ended(state, coordinator, options_.processes);
  const GroupRecord& newest = state.views[state.newest[coordinator]].groups[group];
  for (const int epoch : {newest.epoch, newest.from}) {
    if (epoch == 0) continue;
    if (!options_.rules.prepare_running && epoch == newest.epoch && newest.from == 0) return epoch;
    const std::vector<int> members = MembersOf(state.views[epoch].groups[group]);
    const bool runs = std::all_of(members.begin(), members.end(), [&](int member) {
      const Seat& seat = state.processes[member].seats[group];
      return !Has(ended, member) && seat.epoch == epoch && seat.phase == SeatPhase::kRun &&
             seat.done == 0;
    });
    if (runs) return epoch;
  }
  return 0;
}

// New epochs: without the dead, without one who lives, with one more, in another order, or as it
// was.
void GroupModel::AddTouches(const State& state, int coordinator, int group, int view,
                            std::vector<Choice>& choices) const {
  const GroupRecord& newest = state.views[state.newest[coordinator]].groups[group];
  const std::uint8_t ended = Ended(state, coordinator, options_.processes);
  const bool forced =
      options_.rules.own_incarnation && Incarnation(newest.epoch) != coordinator + 1;
  const int boundary = Boundary(state, coordinator, group);
  std::vector<std::vector<int>> done;
  const auto touch = [&](const std::vector<int>& members, int evictions, int changes) {
    const bool known = std::find(done.begin(), done.end(), members) != done.end();
    if (members.empty() || known) return;
    if (evictions > state.evictions || changes > state.changes) return;
    done.push_back(members);
    choices.push_back({Compose(state, coordinator, group, view, members, 0), evictions, changes});
    if (!options_.rules.frozen_record && !forced) {
      GroupRecord changed = newest;
      changed.members = Packed(members);
      choices.push_back({changed, evictions, changes});
    }
    if (boundary == 0) return;
    choices.push_back(
        {Compose(state, coordinator, group, view, members, boundary), evictions, changes});
  };
  std::vector<std::vector<int>> bases = {MembersOf(newest)};
  if (newest.from != 0) bases.push_back(MembersOf(state.views[newest.from].groups[group]));
  for (const std::vector<int>& base : bases) {
    std::vector<int> living;
    bool lost = false;
    for (const int member : base) {
      if (!Has(ended, member)) living.push_back(member);
      lost = lost || state.processes[member].seats[group].phase == SeatPhase::kLost;
    }
    touch(living, 0, living == base && !forced && !lost ? 1 : 0);
    for (const int evicted : living) {
      std::vector<int> rest = living;
      std::erase(rest, evicted);
      touch(rest, 1, 0);
    }
    for (int joiner = 0; joiner < options_.processes; ++joiner) {
      if (Has(ended, joiner) || Has(MaskOf(living), joiner) || living.size() > 2) continue;
      std::vector<int> more = living;
      more.push_back(joiner);
      touch(more, 0, living.empty() ? 0 : 1);
    }
    if (options_.kinds[group] == Kind::kChain && living.size() > 1) {
      touch({living.rbegin(), living.rend()}, 0, 1);
    }
  }
}

std::vector<GroupModel::Choice> GroupModel::Choices(const State& state, int coordinator, int group,
                                                    int view) const {
  const GroupRecord& newest = state.views[state.newest[coordinator]].groups[group];
  std::vector<Choice> choices;
  const bool own = Incarnation(newest.epoch) == coordinator + 1;
  if (newest.epoch == 0 || own || !options_.rules.own_incarnation) choices.push_back({newest});
  if (newest.epoch == 0) return choices;
  if (!options_.rules.newest_record && newest.from != 0) {
    choices.push_back({state.views[newest.from].groups[group]});
  }
  AddTouches(state, coordinator, group, view, choices);
  return choices;
}

GroupState GroupModel::Publish(const State& state, int coordinator, int view,
                               const std::vector<Choice>& choices, bool clients) const {
  State after = state;
  ModelView& one = after.views[view];
  const int parent = state.newest[coordinator];
  const bool asks = coordinator == 0 && state.asks == Asks::kYes;
  one.published = 1;
  one.told = asks && options_.rules.standby_acknowledges ? 0 : 1;
  one.number = static_cast<std::uint8_t>(view);
  if (!options_.rules.group.incarnation_in_view_number) {
    one.number = static_cast<std::uint8_t>(state.views[parent].number + 1);
  }
  one.parent = static_cast<std::uint8_t>(parent);
  one.ended = Ended(state, coordinator, options_.processes);
  one.clients = clients ? static_cast<std::uint8_t>(view) : state.views[parent].clients;
  after.clients = static_cast<std::uint8_t>(after.clients - (clients ? 1 : 0));
  for (int group = 0; group < kGroups; ++group) {
    one.groups[group] = choices[group].record;
    after.evictions = static_cast<std::uint8_t>(after.evictions - choices[group].evictions);
    after.changes = static_cast<std::uint8_t>(after.changes - choices[group].changes);
  }
  after.newest[coordinator] = static_cast<std::uint8_t>(view);
  after.known[coordinator] |= Bit(view);
  return after;
}

void GroupModel::CoordinatorEvents(const State& state, int coordinator,
                                   Successors<State>& next) const {
  const std::string who = absl::StrCat("coordinator ", coordinator + 1);
  const int view = NextView(state, coordinator);
  if (view == 0) return;
  for (int process = 0; process < options_.processes; ++process) {
    if (state.given_up == 0 || Has(Ended(state, coordinator, options_.processes), process))
      continue;
    State after = state;
    --after.given_up;
    after.ended[coordinator] |= Bit(process);
    next.Add(after, [&] {
      return absl::StrCat(who, " gives up process ", process, ", which lives, as ended");
    });
  }
  if (!MayPublish(state, coordinator)) return;
  const int parent = state.newest[coordinator];
  const auto words = [&](const std::vector<Choice>& choices, bool clients) {
    std::string text = absl::StrCat(who, " publishes view ", view, ":");
    for (int group = 0; group < kGroups; ++group) {
      const GroupRecord& record = choices[group].record;
      if (record.epoch == 0) continue;
      absl::StrAppend(&text, " group ", group == 0 ? "A" : "B", " {",
                      absl::StrJoin(MembersOf(record), ","), "}",
                      record.epoch == view ? "" : absl::StrCat(" as in epoch ", record.epoch),
                      record.epoch == view && record.from != 0
                          ? absl::StrCat(" at the boundary of epoch ", record.from)
                          : "");
    }
    if (clients) absl::StrAppend(&text, ", other clients");
    return text;
  };
  for (const Choice& first : Choices(state, coordinator, 0, view)) {
    for (const Choice& second : Choices(state, coordinator, 1, view)) {
      if (first.evictions + second.evictions > state.evictions) continue;
      if (first.changes + second.changes > state.changes) continue;
      const auto as_before = [&](int group, const Choice& choice) {
        const GroupRecord& before = state.views[parent].groups[group];
        return choice.record.epoch == before.epoch && choice.record.members == before.members;
      };
      const bool same = as_before(0, first) && as_before(1, second);
      for (const bool clients : {false, true}) {
        if ((same && !clients) || (clients && state.clients == 0)) continue;
        State after = Publish(state, coordinator, view, {first, second}, clients);
        Finish(after);
        next.Add(after, [&] { return words({first, second}, clients); });
      }
    }
  }
}

void GroupModel::Starts(const State& state, Successors<State>& next) const {
  const std::array<int, kCoordinators> counts = {options_.views, options_.second_views,
                                                 options_.third_views};
  for (int coordinator = 1; coordinator < kCoordinators; ++coordinator) {
    if (counts[coordinator] == 0 || state.started[coordinator] != 0) continue;
    const bool standby = coordinator == 1 && options_.standby != 0;
    const bool asked = state.newest[coordinator] != 0 || !options_.rules.standby_armed;
    if (standby && (state.standby_ended != 0 || !asked)) continue;
    State after = state;
    after.started[coordinator] = 1;
    next.Add(after, [&] {
      return standby ? "the standby takes over: it is coordinator 2"
                     : absl::StrCat("coordinator ", coordinator + 1, " starts");
    });
  }
}

// Between the first coordinator and its standby: it is asked from some time on, acknowledges the
// newest view, and ends, perhaps when it has led. By the rule the first does not go on then: a
// coordinator with a higher incarnation does.
void GroupModel::StandbyEvents(const State& state, Successors<State>& next) const {
  const bool leads = state.started[1] != 0;
  State after = state;
  if (state.asks == Asks::kNotYet) {
    after.asks = Asks::kYes;
    next.Add(after, [] { return std::string("coordinator 1 asks its standby from now on"); });
    after = state;
  }
  const bool answers = state.standby_ended == 0 && (!leads || !options_.rules.standby_ceases);
  const int view = state.newest[0];
  if (state.asks == Asks::kYes && answers && !Has(state.known[1], view)) {
    after.known[1] |= Bit(view);
    after.newest[1] = std::max(state.newest[1], state.newest[0]);
    after.views[view].told = 1;
    next.Add(after, [&] { return absl::StrCat("the standby acknowledges view ", view); });
    after = state;
  }
  if (state.standby_ended == 0) {
    after.standby_ended = 1;
    next.Add(after, [] { return std::string("the standby ends"); });
    after = state;
  }
  const bool alone = state.standby_ended != 0 && !options_.rules.standby_outranked;
  if (state.asks == Asks::kYes && alone) {
    after.asks = Asks::kNoMore;
    after.views[view].told = 1;
    next.Add(after, [] { return std::string("coordinator 1 goes on without its standby"); });
  }
}

}  // namespace starling::model
