// SPDX-License-Identifier: Apache-2.0
// What processes do: they hear views, run sync rounds, make steps and pass entries down.
#include "trainer/model/groups.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "trainer/model/bits.h"

namespace starling::model {
namespace {

std::uint8_t MaskOf(const GroupRecord& record) {
  std::uint8_t mask = 0;
  for (const int member : MembersOf(record)) mask |= Bit(member);
  return mask;
}

bool Contains(const GroupRecord& record, int process) { return Has(MaskOf(record), process); }

std::uint32_t With(std::uint32_t content, int label) {
  return content | static_cast<std::uint32_t>(label) << (8 * LengthOf(content));
}

std::uint32_t FirstOf(std::uint32_t content, int length) {
  return length >= 4 ? content : content & ((std::uint32_t{1} << (8 * length)) - 1);
}

int LabelAt(std::uint32_t content, int index) {
  return static_cast<int>(content >> (8 * index) & 0xff);
}

// A change of the clients, by the view that made it; otherwise a step or a push.
constexpr int kClientsLabel = 0x80;

int StepsIn(std::uint32_t content) {
  int steps = 0;
  for (int i = 0; i < LengthOf(content); ++i) {
    steps += (LabelAt(content, i) & kClientsLabel) == 0 ? 1 : 0;
  }
  return steps;
}

constexpr int kLongest = 4;

std::string ProcessName(int process) { return absl::StrCat("process ", process); }
std::string GroupName(int group) { return group == 0 ? "A" : "B"; }

}  // namespace

std::vector<int> MembersOf(const GroupRecord& record) {
  std::vector<int> members;
  for (int rest = record.members; rest != 0; rest >>= 4) members.push_back((rest & 15) - 1);
  return members;
}

int LengthOf(std::uint32_t content) {
  int length = 0;
  for (; content != 0; content >>= 8) ++length;
  return length;
}

bool IsPrefix(std::uint32_t a, std::uint32_t b) { return FirstOf(b, LengthOf(a)) == a; }

GroupModel::GroupModel(GroupOptions options)
    : options_(std::move(options)), decider_(options_.rules.group) {}

GroupState GroupModel::Initial() const {
  State state{};
  ModelView& first = state.views[1];
  first.published = first.told = first.number = 1;
  for (int group = 0; group < kGroups; ++group) {
    GroupRecord& record = first.groups[group];
    if (options_.kinds[group] == Kind::kNone) continue;
    record.epoch = 1;
    int shift = 0;
    for (const int member : options_.members[group]) {
      record.members = static_cast<std::uint16_t>(record.members | (member + 1) << shift);
      shift += 4;
      Seat& seat = state.processes[member].seats[group];
      seat.epoch = seat.fence = seat.synced = 1;
      seat.phase = SeatPhase::kRun;
      Sent& sent = state.sent[1][group][member];
      sent.sync_id = sent.completed = 1;
    }
  }
  for (int process = 0; process < options_.processes; ++process) {
    Process& one = state.processes[process];
    one.alive = one.incarnation = one.view = 1;
    for (Seat& seat : one.seats) seat.fence = 1;
  }
  state.newest[0] = state.started[0] = 1;
  state.known[0] = Bit(1);
  state.crashes = static_cast<std::uint8_t>(options_.crashes);
  state.evictions = static_cast<std::uint8_t>(options_.evictions);
  state.changes = static_cast<std::uint8_t>(options_.changes);
  state.clients = static_cast<std::uint8_t>(options_.clients);
  state.given_up = static_cast<std::uint8_t>(options_.given_up);
  return state;
}

// The record that a process goes by. Frozen, it is the same in every view that names its epoch.
const GroupRecord& GroupModel::RecordOf(const State& state, int process, int group) const {
  const Process& one = state.processes[process];
  const int epoch = one.seats[group].epoch;
  const GroupRecord& newest = state.views[one.view].groups[group];
  const bool changed = !options_.rules.frozen_record && newest.epoch == epoch;
  return changed ? newest : state.views[epoch].groups[group];
}

bool GroupModel::MayHear(const State& state, int process, int view) const {
  const Process& one = state.processes[process];
  if (one.alive == 0 || state.views[view].told == 0) return false;
  if (state.views[view].number <= state.views[one.view].number) return false;
  const membership::Rules& rules = options_.rules.group;
  const bool refuses = rules.refuse_lower_incarnation && rules.incarnation_in_view_number;
  return !refuses || Incarnation(view) >= one.incarnation;
}

void GroupModel::Hear(State& state, int process, int view) const {
  Process& one = state.processes[process];
  one.view = static_cast<std::uint8_t>(view);
  one.incarnation = std::max(one.incarnation, static_cast<std::uint8_t>(Incarnation(view)));
  for (int group = 0; group < kGroups; ++group) TakeUp(state, process, group);
}

// A group of the newest view that the process has heard: kept, prepared, or to be followed now.
void GroupModel::TakeUp(State& state, int process, int group) const {
  const Process& one = state.processes[process];
  Seat& seat = state.processes[process].seats[group];
  const GroupRecord& record = state.views[one.view].groups[group];
  if (record.epoch == 0) return;
  const bool kept = state.views[record.epoch].number <= seat.fence;
  if (kept && (Contains(record, process) || options_.rules.frozen_record)) {
    if (!options_.rules.client_entries && seat.phase == SeatPhase::kRun) {
      seat.clients = state.views[one.view].clients;
    }
    return;
  }
  if (record.from != 0 && seat.epoch == record.from) {
    if (seat.phase != SeatPhase::kLost) seat.candidates |= Bit(record.epoch);
    return;
  }
  Follow(state, process, group, record.epoch);
}

// Stop what the old epoch does, then begin the new one, or stay out of it.
void GroupModel::Follow(State& state, int process, int group, int epoch) const {
  Process& one = state.processes[process];
  Seat& seat = one.seats[group];
  const int number = state.views[epoch].number;
  const bool late = !options_.rules.group.halt_first && seat.phase == SeatPhase::kRun;
  seat.previous = late ? seat.epoch : std::uint8_t{0};
  seat.fence = static_cast<std::uint8_t>(number);
  seat.candidates = seat.done = 0;
  seat.epoch = static_cast<std::uint8_t>(epoch);
  if (!Contains(RecordOf(state, process, group), process)) {
    seat.epoch = 0;
    seat.phase = SeatPhase::kOut;
    return;
  }
  seat.phase = SeatPhase::kSync;
  Sent& sent = state.sent[number][group][process];
  sent = {};
  sent.sync_id = 1;
  sent.synced = seat.synced;
  sent.clients = seat.clients;
  sent.base = seat.content;
}

SyncDecision GroupModel::Decide(const State& state, int process, int group) const {
  const GroupRecord& record = RecordOf(state, process, group);
  SyncQuestion question;
  question.epoch = state.views[record.epoch].number;
  for (const int member : MembersOf(record)) {
    const Sent& sent = state.sent[question.epoch][group][member];
    question.members.push_back({member, sent.synced, LengthOf(sent.base)});
  }
  for (int past = 1; past < kMostViews; ++past) {
    if (!Has(record.since, past)) continue;
    question.since.push_back({state.views[past].number, MembersOf(state.views[past].groups[group]),
                              Has(record.waived, past)});
  }
  return decider_.Decide(question);
}

bool GroupModel::Sync(State& state, int process, int group) const {
  Seat& seat = state.processes[process].seats[group];
  if (seat.phase != SeatPhase::kSync) return false;
  const int number = state.views[seat.epoch].number;
  const GroupRecord record = RecordOf(state, process, group);
  for (const int member : MembersOf(record)) {
    if (state.sent[number][group][member].sync_id == 0) return false;
  }
  const SyncDecision decision = Decide(state, process, group);
  if (decision.missing_witness != 0) {
    seat.phase = SeatPhase::kLost;
    return true;
  }
  const int holder = __builtin_ctz(decision.holders);
  CheckBase(state, process, group, state.sent[number][group][holder].base);
  if (!Has(decision.holders, process)) {
    seat.phase = SeatPhase::kCopy;
    return true;
  }
  if (Has(state.processes[process].half_copied, group)) {
    if (options_.rules.group.leave_half_copied) {
      state.processes[process].alive = 0;
      return true;
    }
    state.harm = Harm::kHalfCopied;
    state.harmed_group = static_cast<std::uint8_t>(group);
  }
  seat.phase = SeatPhase::kRun;
  seat.synced = static_cast<std::uint8_t>(number);
  state.sent[number][group][process].completed = 1;
  if (!options_.rules.client_entries) {
    seat.clients = state.views[state.processes[process].view].clients;
  }
  SettleSynced(state, group, seat.epoch);
  return true;
}

// A worker that has no state receives where its state belongs: the first bytes of a copy, which may
// be the last, overwrite what it would start afresh from.
bool GroupModel::Overwrite(State& state, int process, int group) const {
  Process& one = state.processes[process];
  const Seat& seat = one.seats[group];
  if (options_.kinds[group] != Kind::kLockstep || seat.phase != SeatPhase::kCopy) return false;
  if (seat.synced != 0 || Has(one.half_copied, group)) return false;
  one.half_copied |= Bit(group);
  return true;
}

bool GroupModel::Copy(State& state, int process, int group, int source) const {
  Seat& seat = state.processes[process].seats[group];
  if (seat.phase != SeatPhase::kCopy) return false;
  if (!Has(Decide(state, process, group).holders, source)) return false;
  const int number = state.views[seat.epoch].number;
  const Sent& sent = state.sent[number][group][source];
  seat.content = sent.base;
  state.processes[process].half_copied &= static_cast<std::uint8_t>(~Bit(group));
  seat.clients = options_.rules.client_entries ? sent.clients
                                               : state.views[state.processes[process].view].clients;
  seat.synced = static_cast<std::uint8_t>(number);
  seat.phase = SeatPhase::kRun;
  state.sent[number][group][process].completed = 1;
  SettleSynced(state, group, seat.epoch);
  return true;
}

// A lockstep member gives its gradient and its control word, once for each step of an epoch.
bool GroupModel::Contribute(State& state, int process, int group) const {
  const Process& one = state.processes[process];
  const Seat& seat = one.seats[group];
  const int step = LengthOf(seat.content) + 1;
  if (options_.kinds[group] != Kind::kLockstep || seat.phase != SeatPhase::kRun || seat.done != 0) {
    return false;
  }
  Sent& sent = state.sent[state.views[seat.epoch].number][group][process];
  if (sent.count >= step) return false;
  sent.count = static_cast<std::uint8_t>(step);
  sent.content = seat.content;
  Name(sent, step, one.view);
  int newest = 0;
  for (int view = 1; view < kMostViews; ++view) {
    if (Has(seat.candidates, view)) newest = std::max<int>(newest, state.views[view].number);
  }
  sent.words[step - 1] = static_cast<std::uint8_t>(newest);
  return true;
}

// Without the rule, data names the view that its sender has installed.
void GroupModel::Name(Sent& sent, int index, int view) const {
  if (options_.rules.epoch_on_data) return;
  sent.views = static_cast<std::uint16_t>(sent.views | view << (4 * (index - 1)));
}

// What a member uses of another's messages for a step; nullptr: nothing yet.
const Sent* GroupModel::Contribution(const State& state, int group, int number, int process,
                                     int step, int view) const {
  const Sent& sent = state.sent[number][group][process];
  const bool named = options_.rules.epoch_on_data || (sent.views >> (4 * (step - 1)) & 15) == view;
  if (sent.count >= step && named) return &sent;
  if (options_.rules.group.view_check_on_data) return nullptr;
  for (int other = 1; other < kMostViews; ++other) {
    const Sent& strange = state.sent[other][group][process];
    if (strange.count >= step) return &strange;
  }
  return nullptr;
}

// A step is complete at a member that has everyone's contribution; what it stood on is settled.
bool GroupModel::Complete(State& state, int process, int group, bool late) const {
  Seat& seat = state.processes[process].seats[group];
  if (options_.kinds[group] != Kind::kLockstep || seat.done != 0) return false;
  if (late ? seat.previous == 0 || seat.phase != SeatPhase::kSync : seat.phase != SeatPhase::kRun) {
    return false;
  }
  const int epoch = late ? seat.previous : seat.epoch;
  const int number = state.views[epoch].number;
  const GroupRecord record =
      late ? state.views[epoch].groups[group] : RecordOf(state, process, group);
  const int step = LengthOf(seat.content) + 1;
  if (state.sent[number][group][process].count < step) return false;
  int least = 255, most = 0;
  for (const int member : MembersOf(record)) {
    const Sent* sent =
        Contribution(state, group, number, member, step, state.processes[process].view);
    if (sent == nullptr) return false;
    least = std::min<int>(least, sent->words[step - 1]);
    most = std::max<int>(most, sent->words[step - 1]);
    if (IsPrefix(seat.content, sent->content)) continue;
    state.harm = Harm::kMixedStep;
    state.harmed_group = static_cast<std::uint8_t>(group);
  }
  Settle(state, group, number, seat.content);
  if (step > options_.steps) {
    seat.done = 1;
  } else {
    seat.content = With(seat.content, number << 4 | MaskOf(record));
  }
  if (late) return true;
  const int agreed = least == most || !options_.rules.group.min_equals_max ? least : 0;
  if (agreed != 0) Switch(state, process, group, agreed);
  return true;
}

// A prepared epoch that the control word named.
void GroupModel::Switch(State& state, int process, int group, int number) const {
  const Seat& seat = state.processes[process].seats[group];
  for (int view = 1; view < kMostViews; ++view) {
    if (!Has(seat.candidates, view) || state.views[view].number != number) continue;
    Follow(state, process, group, view);
    // The newest view may hold a later epoch, which replaced the one just taken.
    if (options_.rules.offer_again) TakeUp(state, process, group);
    return;
  }
  state.harm = Harm::kUnknownSwitch;
  state.harmed_group = static_cast<std::uint8_t>(group);
}

// The head of a chain orders a push, or the newest change of the clients that it has heard of.
bool GroupModel::Append(State& state, int process, int group, bool clients) const {
  const Process& one = state.processes[process];
  Seat& seat = state.processes[process].seats[group];
  if (options_.kinds[group] != Kind::kChain || seat.phase != SeatPhase::kRun) return false;
  const GroupRecord record = RecordOf(state, process, group);
  if (MembersOf(record).front() != process || LengthOf(seat.content) == kLongest) return false;
  const int number = state.views[seat.epoch].number;
  if (clients) {
    const int newest = state.views[one.view].clients;
    if (!options_.rules.client_entries || newest <= seat.clients) return false;
    seat.clients = static_cast<std::uint8_t>(newest);
    seat.content = With(seat.content, kClientsLabel | newest);
  } else {
    if (StepsIn(seat.content) >= options_.steps) return false;
    seat.content = With(seat.content, number << 4 | (process + 1));
  }
  Sent& sent = state.sent[number][group][process];
  sent.count = static_cast<std::uint8_t>(LengthOf(seat.content));
  sent.content = seat.content;
  Name(sent, sent.count, one.view);
  SettleTail(state, group, seat.epoch);
  return true;
}

// A server applies what the one before it has sent in the same epoch, and passes it down.
bool GroupModel::TakeDown(State& state, int process, int group) const {
  const Process& one = state.processes[process];
  Seat& seat = state.processes[process].seats[group];
  if (options_.kinds[group] != Kind::kChain || seat.phase != SeatPhase::kRun) return false;
  const GroupRecord record = RecordOf(state, process, group);
  const std::vector<int> chain = MembersOf(record);
  const auto place = std::find(chain.begin(), chain.end(), process) - chain.begin();
  if (place == 0) return false;
  const int number = state.views[seat.epoch].number;
  const int index = LengthOf(seat.content) + 1;
  const Sent* before = Contribution(state, group, number,
                                    chain[static_cast<std::size_t>(place) - 1], index, one.view);
  if (before == nullptr) return false;
  if (!IsPrefix(seat.content, before->content)) {
    state.harm = Harm::kForkedChain;
    state.harmed_group = static_cast<std::uint8_t>(group);
  }
  seat.content = FirstOf(before->content, index);
  const int label = LabelAt(seat.content, index - 1);
  if ((label & kClientsLabel) != 0) seat.clients = static_cast<std::uint8_t>(label & 0x7f);
  Sent& sent = state.sent[number][group][process];
  sent.count = static_cast<std::uint8_t>(index);
  sent.content = seat.content;
  Name(sent, sent.count, one.view);
  SettleTail(state, group, seat.epoch);
  return true;
}

void GroupModel::Settle(State& state, int group, int number, std::uint32_t content) const {
  std::uint32_t& settled = state.settled[number][group];
  if (LengthOf(content) > LengthOf(settled)) settled = content;
}

// Once all members of an epoch have synced, all of them have its base.
void GroupModel::SettleSynced(State& state, int group, int epoch) const {
  const int number = state.views[epoch].number;
  const std::vector<int> members = MembersOf(state.views[epoch].groups[group]);
  const auto& sent = state.sent[number][group];
  if (!std::all_of(members.begin(), members.end(),
                   [&](int member) { return sent[member].completed != 0; })) {
    return;
  }
  int best = members.front();
  for (const int member : members) {
    const auto later = [&](int one) {
      return std::pair(sent[one].synced, LengthOf(sent[one].base));
    };
    if (later(member) > later(best)) best = member;
  }
  Settle(state, group, number, sent[best].base);
  SettleTail(state, group, epoch);
}

// The tail answers: once all have synced, whatever it holds is acknowledged.
void GroupModel::SettleTail(State& state, int group, int epoch) const {
  if (options_.kinds[group] != Kind::kChain) return;
  const int number = state.views[epoch].number;
  for (int process = 0; process < options_.processes; ++process) {
    const Seat& seat = state.processes[process].seats[group];
    if (seat.epoch != epoch || seat.phase != SeatPhase::kRun) continue;
    const std::vector<int> chain = MembersOf(RecordOf(state, process, group));
    const bool open = std::all_of(chain.begin(), chain.end(), [&](int member) {
      return state.sent[number][group][member].completed != 0;
    });
    if (chain.back() == process && open) Settle(state, group, number, seat.content);
  }
}

// Whatever was settled in an earlier epoch must be in this one's base, unless all who could have
// held it had ended, or were given up, when some view since then was published. Where somebody who
// lives may be given up, two sides may go on for a while; then only what this one descends from
// counts.
void GroupModel::CheckBase(State& state, int process, int group, std::uint32_t base) const {
  const int epoch = state.processes[process].seats[group].epoch;
  std::uint8_t ancestors = 0;
  for (int view = state.views[epoch].parent; view != 0; view = state.views[view].parent) {
    ancestors |= Bit(view);
  }
  for (int older = epoch - 1; older > 0; --older) {
    if (options_.given_up > 0 && !Has(ancestors, older)) continue;
    if (state.views[older].published == 0) continue;
    const GroupRecord& record = state.views[older].groups[group];
    bool excused = false;
    for (int view = epoch; view > record.epoch; view = state.views[view].parent) {
      excused = excused || Covers(state.views[view].ended, MaskOf(record));
    }
    if (excused || IsPrefix(state.settled[state.views[record.epoch].number][group], base)) continue;
    state.harm = Harm::kSettledLost;
    state.harmed_group = static_cast<std::uint8_t>(group);
  }
}

// What nobody can use any more is dropped, so that states that differ only in it count as one.
void GroupModel::Finish(State& state) const {
  for (int process = 0; process < options_.processes; ++process) {
    Process& one = state.processes[process];
    if (one.alive != 0) continue;
    const auto synced = [&](int group) { return one.seats[group].synced; };
    Process ended{};
    for (int group = 0; group < kGroups; ++group) ended.seats[group].synced = synced(group);
    one = ended;
  }
  const membership::Rules& rules = options_.rules.group;
  const bool keeps_all = !rules.view_check_on_data || !rules.halt_first ||
                         !rules.incarnation_in_view_number || !options_.rules.frozen_record;
  for (int view = 1; view < kMostViews && !keeps_all; ++view) {
    for (int group = 0; group < kGroups; ++group) {
      if (state.views[view].groups[group].epoch != view) continue;
      bool wanted = false;
      for (const int member : MembersOf(state.views[view].groups[group])) {
        const Process& one = state.processes[member];
        wanted = wanted || (one.alive != 0 && one.seats[group].fence <= view);
      }
      if (!wanted) state.sent[view][group] = {};
    }
  }
  for (int group = 0; group < kGroups; ++group) {
    for (int a = 0; a < options_.processes; ++a) {
      for (int b = 0; b < a; ++b) {
        const Seat& one = state.processes[a].seats[group];
        const Seat& other = state.processes[b].seats[group];
        if (state.processes[a].alive == 0 || state.processes[b].alive == 0) continue;
        if (one.synced == 0 || one.synced != other.synced) continue;
        if (LengthOf(one.content) != LengthOf(other.content)) continue;
        if (one.content == other.content && one.clients == other.clients) continue;
        state.harm = Harm::kTwoContents;
        state.harmed_group = static_cast<std::uint8_t>(group);
      }
    }
  }
}

// Whoever was given up may be taken back once somebody has synced the epochs that go on without it:
// their state ids are higher than all that it can have made meanwhile.
bool GroupModel::MayReturn(const State& state, int coordinator) const {
  if (!options_.rules.return_when_synced) return true;
  for (int group = 0; group < kGroups; ++group) {
    const int epoch = state.views[state.newest[coordinator]].groups[group].epoch;
    bool synced = epoch == 0;
    for (const Process& one : state.processes) {
      synced = synced || (one.alive != 0 && one.seats[group].synced >= state.views[epoch].number);
    }
    if (!synced) return false;
  }
  return true;
}

void GroupModel::ProcessEvents(const State& state, int process, Successors<State>& next) const {
  const Process& one = state.processes[process];
  const auto add = [&](State& after, auto&& words) {
    Finish(after);
    next.Add(after, words);
  };
  State after = state;
  for (int view = 1; view < kMostViews; ++view) {
    if (!MayHear(state, process, view)) continue;
    Hear(after, process, view);
    add(after, [&] { return absl::StrCat(ProcessName(process), " hears view ", view); });
    after = state;
  }
  for (int group = 0; group < kGroups; ++group) {
    const auto said = [&, group](const char* deed) {
      return absl::StrCat(ProcessName(process), " ", deed, " (group ", GroupName(group), ", epoch ",
                          one.seats[group].epoch, ")");
    };
    const auto attempt = [&](bool done, const char* deed) {
      if (!done) return;
      add(after, [&] { return said(deed); });
      after = state;
    };
    attempt(Sync(after, process, group), "has all sync ids and decides");
    attempt(Overwrite(after, process, group), "receives half of the base");
    for (int source = 0; source < options_.processes; ++source) {
      attempt(source != process && Copy(after, process, group, source), "has copied the base");
    }
    attempt(Contribute(after, process, group), "contributes to its next step");
    attempt(Complete(after, process, group, false), "completes the step");
    attempt(Complete(after, process, group, true), "completes a step of the epoch before");
    attempt(Append(after, process, group, false), "orders a push");
    attempt(Append(after, process, group, true), "orders the new list of clients");
    attempt(TakeDown(after, process, group), "takes the next entry from its predecessor");
  }
  if (state.crashes != 0) {
    --after.crashes;
    after.processes[process].alive = 0;
    add(after, [&] { return absl::StrCat(ProcessName(process), " crashes"); });
    after = state;
  }
  for (int coordinator = 1; coordinator < kCoordinators; ++coordinator) {
    const int incarnation = coordinator + 1;
    const bool ended = coordinator == 1 && state.standby_ended != 0;
    if (ended || state.started[coordinator] == 0 || Has(state.heard[coordinator], process))
      continue;
    if (one.incarnation > incarnation) continue;
    after.heard[coordinator] |= Bit(process);
    after.processes[process].incarnation = static_cast<std::uint8_t>(incarnation);
    if (MayReturn(state, coordinator)) {
      after.ended[coordinator] &= static_cast<std::uint8_t>(~Bit(process));
    }
    const std::uint8_t knows = static_cast<std::uint8_t>(Bit(one.view) | one.seats[0].candidates |
                                                         one.seats[1].candidates);
    after.known[coordinator] |= knows;
    for (int view = 1; view < kMostViews; ++view) {
      if (!Has(knows, view)) continue;
      after.newest[coordinator] =
          std::max(after.newest[coordinator], static_cast<std::uint8_t>(view));
    }
    add(after, [&] {
      return absl::StrCat(ProcessName(process), " reports to coordinator ", incarnation);
    });
    after = state;
  }
}

void GroupModel::Next(const State& state, Successors<State>& next) const {
  if (state.harm != Harm::kNone) return;
  for (int process = 0; process < options_.processes; ++process) {
    if (state.processes[process].alive != 0) ProcessEvents(state, process, next);
  }
  Starts(state, next);
  if (options_.standby != 0) StandbyEvents(state, next);
  for (int coordinator = 0; coordinator < kCoordinators; ++coordinator) {
    const bool ended = coordinator == 1 && state.standby_ended != 0;
    if (state.started[coordinator] != 0 && !ended) CoordinatorEvents(state, coordinator, next);
  }
}

std::string GroupModel::Violation(const State& state) const {
  const std::string group = absl::StrCat("group ", GroupName(state.harmed_group), ": ");
  switch (state.harm) {
    case Harm::kNone:
      return "";
    case Harm::kTwoContents:
      return group + "two members have one state id and different states";
    case Harm::kMixedStep:
      return group + "a step adds contributions that were made from different states";
    case Harm::kForkedChain:
      return group + "a server takes an entry that does not follow what it holds";
    case Harm::kSettledLost:
      return group + "an epoch begins without what was settled before it";
    case Harm::kUnknownSwitch:
      return group + "a member must switch to an epoch that it was never told of";
    case Harm::kHalfCopied:
      return group + "a member starts from half a copy";
  }
  return "";
}

// All members live and can hear the view, so that no further view should be needed.
bool GroupModel::Undisturbed(const State& state, int group, int view) const {
  const GroupRecord& record = state.views[view].groups[group];
  if (record.epoch == 0) return false;
  std::vector<int> members = MembersOf(record);
  if (record.from != 0) {
    for (const int one : MembersOf(state.views[record.from].groups[group])) members.push_back(one);
  }
  // One that holds half a copy ends where all start afresh.
  const bool afresh = std::all_of(members.begin(), members.end(), [&](int member) {
    return state.processes[member].seats[group].synced == 0;
  });
  return std::all_of(members.begin(), members.end(), [&](int member) {
    const Process& one = state.processes[member];
    const bool hears = one.view == view || MayHear(state, member, view);
    const bool stays = !afresh || !Has(one.half_copied, group);
    return one.alive != 0 && stays && hears && one.seats[group].phase != SeatPhase::kLost;
  });
}

bool GroupModel::Advance(State& state, int view) const {
  bool moved = false;
  for (int process = 0; process < options_.processes; ++process) {
    if (MayHear(state, process, view)) {
      Hear(state, process, view);
      moved = true;
    }
    for (int group = 0; group < kGroups && state.processes[process].alive != 0; ++group) {
      moved = Sync(state, process, group) || moved;
      for (int source = 0; source < options_.processes; ++source) {
        moved = Copy(state, process, group, source) || moved;
      }
      moved = Contribute(state, process, group) || moved;
      moved = Complete(state, process, group, false) || moved;
      moved = Append(state, process, group, false) || moved;
      moved = Append(state, process, group, true) || moved;
      moved = TakeDown(state, process, group) || moved;
    }
  }
  return moved;
}

std::string GroupModel::Stuck(const State& state) const {
  int newest = 0;
  for (int view = 1; view < kMostViews; ++view) {
    if (state.views[view].published != 0) newest = view;
  }
  std::array<bool, kGroups> undisturbed{};
  for (int group = 0; group < kGroups; ++group) {
    undisturbed[group] = Undisturbed(state, group, newest);
  }
  State end = state;
  for (int round = 0; round < 100 && Advance(end, newest); ++round) {
  }
  if (end.harm != Harm::kNone) return Violation(end);
  for (int group = 0; group < kGroups; ++group) {
    if (!undisturbed[group]) continue;
    const GroupRecord& record = end.views[newest].groups[group];
    const auto through = [&](int member) {
      const Seat& seat = end.processes[member].seats[group];
      if (seat.phase == SeatPhase::kLost) return true;
      if (seat.phase != SeatPhase::kRun) return false;
      return options_.kinds[group] == Kind::kLockstep
                 ? seat.done != 0
                 : StepsIn(seat.content) >= options_.steps || LengthOf(seat.content) == kLongest;
    };
    const auto all_through = [&](int epoch) {
      const std::vector<int> members = MembersOf(end.views[epoch].groups[group]);
      return std::all_of(members.begin(), members.end(), through);
    };
    if (all_through(record.epoch) || (record.from != 0 && all_through(record.from))) continue;
    return absl::StrCat("group ", GroupName(group), " does not finish in view ", newest,
                        ", although all of its members live and hear it");
  }
  return "";
}

}  // namespace starling::model
