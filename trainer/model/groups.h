// SPDX-License-Identifier: Apache-2.0
// The membership protocol with several replica groups in one view, as a model small enough that all
// of its states can be visited (docs/design/protocol.md tells the rules; rule names are those of
// its tables). Two groups share up to four processes; up to three coordinators publish views, the
// second of them perhaps a standby of the first; processes crash, are suspected while they live,
// join and are moved. A message may arrive at any time after it was sent, also after its sender's
// end, and never.
//
// What is real: the decision of the sync round is membership::DecideSync, the product's own. What
// is abstract: the rest of a member and of the coordinator, in as few words as their rules allow; a
// coordinator may publish any view that its rules permit, at any time. A lockstep group makes steps
// that all members complete together; a chain has entries that its head orders, each server passes
// down and the tail acknowledges.
//
// To add a rule: a switch in GroupRules, the place that obeys it, and a search in searches.cc that
// finds what its absence does.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "trainer/membership/rules.h"
#include "trainer/model/search.h"
#include "trainer/model/sync_decision.h"

namespace starling::model {

// Those of one group are membership::Rules; these are what groups in common views need besides.
struct GroupRules {
  membership::Rules group;
  bool frozen_record = true;       // an epoch's members are the same, in order, in every view
  bool own_incarnation = true;     // a view keeps only epochs of its own incarnation
  bool newest_record = true;       // a view never names an older epoch than a view before it
  bool offer_again = true;         // after a boundary a member looks at its newest view again
  bool prepare_running = true;     // what takes effect at a boundary is prepared where all run
  bool epoch_on_data = true;       // data names the group's epoch, not the view
  bool client_entries = true;      // a change of clients is an entry of the chain's log
  bool whole_roster = true;        // a successor hears all processes, not only the groups' members
  bool return_when_synced = true;  // who was given up is taken back when the rest have synced
  bool prune_per_group = true;     // an epoch is forgotten once a later one of its group is synced
  bool prune_synced = true;        // ... by all its members
  bool waive_ended = true;         // an epoch is waived only if all its members have ended
  // A standby: the second coordinator, granted ahead of time, that asks nobody before it leads.
  bool standby_acknowledges = true;  // no view is told that the standby does not know
  bool standby_ceases = true;        // once it leads, it acknowledges nothing of the one before
  bool standby_armed = true;         // it leads only if the first has begun to ask it
  bool standby_outranked = true;     // one that has ended may have led: only a higher one goes on
};

enum class Kind : std::uint8_t { kNone, kLockstep, kChain };

struct GroupOptions {
  std::array<Kind, 2> kinds = {Kind::kLockstep, Kind::kChain};
  // First members, in order.
  std::array<std::vector<int>, 2> members = {{{0, 1}, {1, 2}}};
  int processes = 3;
  int steps = 1;         // of a lockstep group; pushes of a chain
  int views = 3;         // of the first coordinator, the initial one included
  int second_views = 0;  // of the second, which starts at any time; 0: there is none
  int third_views = 0;   // of the third, likewise
  int standby = 0;       // 1: the second is a standby of the first
  int crashes = 1;
  int evictions = 0;  // of processes that live
  int changes = 0;    // joins, moves, new orders, epochs without a change
  int clients = 0;    // changes of the clients
  int given_up = 0;   // living processes that a coordinator takes for ended (StepsAtRisk)
  GroupRules rules;
};

constexpr int kGroups = 2;
constexpr int kCoordinators = 3;
constexpr int kMostProcesses = 4;
constexpr int kMostViews = 8;  // index 0 is no view

// One of a view's groups. `epoch` is the view that made it; a view that keeps it copies all of it.
struct GroupRecord {
  std::uint8_t epoch;
  std::uint8_t from;      // at the boundary of this epoch; 0: now
  std::uint8_t since;     // bit mask of epochs
  std::uint8_t waived;    // of these
  std::uint16_t members;  // four bits each, process + 1, in order
};

struct ModelView {
  std::array<GroupRecord, kGroups> groups;
  std::uint8_t number;   // its place among all numbers; two views share one where a rule is off
  std::uint8_t parent;   // the newest view that its coordinator knew
  std::uint8_t ended;    // processes that had ended or were given up then, bit mask
  std::uint8_t clients;  // the last view that changed the clients
  std::uint8_t published;
  std::uint8_t told;  // members may hear of it
};

// Whether the first coordinator asks its standby before it tells a view.
enum class Asks : std::uint8_t { kNotYet, kYes, kNoMore };

enum class SeatPhase : std::uint8_t { kOut, kSync, kCopy, kRun, kLost };

// A process's place in one group.
struct Seat {
  std::uint8_t epoch;  // the view whose record it follows; 0: none
  std::uint8_t fence;  // number of the highest epoch that it follows or that left it out
  SeatPhase phase;
  std::uint8_t done;        // the last step is settled
  std::uint8_t candidates;  // prepared epochs, bit mask
  std::uint8_t synced;      // number of the epoch in its state id; 0: no state
  std::uint8_t clients;     // the clients that its state knows: those of this view
  std::uint8_t previous;    // epoch before, where halting first is switched off
  std::uint32_t content;    // one byte for each step or entry: what made it
};

struct Process {
  std::array<Seat, kGroups> seats;
  std::uint8_t alive;
  std::uint8_t incarnation;  // the highest that it has heard of
  std::uint8_t view;         // the newest that it has installed, or that evicted it
  std::uint8_t half_copied;  // groups of whose state it holds half a copy, and no state; bit mask
};

// All that a process has sent in one epoch of one group. It outlives its sender.
struct Sent {
  std::uint8_t sync_id;               // it was sent
  std::uint8_t completed;             // its sender has finished the sync round
  std::uint8_t synced, clients;       // of the state that the sync id names
  std::uint8_t count;                 // contributions to steps, or entries passed down
  std::array<std::uint8_t, 4> words;  // control words: the prepared epoch's number
  std::uint8_t unused;
  std::uint16_t views;    // four bits each: the view that they name, where they do not name epochs
  std::uint32_t base;     // content of the state that the sync id names
  std::uint32_t content;  // of the state that the contributions are made from, or of the entries
};

enum class Harm : std::uint8_t {
  kNone,
  kTwoContents,
  kMixedStep,
  kForkedChain,
  kSettledLost,
  kUnknownSwitch,
  kHalfCopied,
};

struct GroupState {
  std::array<ModelView, kMostViews> views;
  std::array<Process, kMostProcesses> processes;
  std::array<std::array<std::array<Sent, kMostProcesses>, kGroups>, kMostViews> sent;
  std::array<std::array<std::uint32_t, kGroups>, kMostViews> settled;  // by number of the epoch
  // View that a coordinator takes for the newest; 0: none.
  std::array<std::uint8_t, kCoordinators> newest;
  std::array<std::uint8_t, kCoordinators> known;  // views that it knows, bit mask
  std::array<std::uint8_t, kCoordinators> ended;  // living processes that it has given up, bit mask
  std::array<std::uint8_t, kCoordinators> started;
  std::array<std::uint8_t, kCoordinators> heard;  // who has reported to it, bit mask
  Asks asks;
  std::uint8_t standby_ended;
  std::uint8_t crashes, evictions, changes, clients, given_up;
  Harm harm;
  std::uint8_t harmed_group;
};
static_assert(std::has_unique_object_representations_v<GroupState>);

class GroupModel {
 public:
  using State = GroupState;

  explicit GroupModel(GroupOptions options);

  State Initial() const;
  void Next(const State& state, Successors<State>& next) const;
  std::string Violation(const State& state) const;
  // Undisturbed groups of the newest view must finish without any further view.
  std::string Stuck(const State& state) const;

 private:
  struct Choice {
    GroupRecord record;
    int evictions = 0, changes = 0;
  };

  const GroupRecord& RecordOf(const State& state, int process, int group) const;
  int Incarnation(int view) const;
  int NextView(const State& state, int coordinator) const;
  SyncDecision Decide(const State& state, int process, int group) const;

  // Events of a process. Each returns whether it is possible, and does it.
  bool MayHear(const State& state, int process, int view) const;
  void Hear(State& state, int process, int view) const;
  void TakeUp(State& state, int process, int group) const;
  void Follow(State& state, int process, int group, int epoch) const;
  bool Sync(State& state, int process, int group) const;
  bool Overwrite(State& state, int process, int group) const;
  bool Copy(State& state, int process, int group, int source) const;
  bool Contribute(State& state, int process, int group) const;
  bool Complete(State& state, int process, int group, bool late) const;
  bool Append(State& state, int process, int group, bool clients) const;
  bool TakeDown(State& state, int process, int group) const;
  void Name(Sent& sent, int index, int view) const;
  void Switch(State& state, int process, int group, int number) const;
  void Settle(State& state, int group, int number, std::uint32_t content) const;
  void SettleSynced(State& state, int group, int epoch) const;
  void SettleTail(State& state, int group, int epoch) const;
  void CheckBase(State& state, int process, int group, std::uint32_t base) const;
  const Sent* Contribution(const State& state, int group, int number, int process, int step,
                           int view) const;

  // Events of a coordinator.
  bool MayPublish(const State& state, int coordinator) const;
  std::vector<Choice> Choices(const State& state, int coordinator, int group, int view) const;
  void AddTouches(const State& state, int coordinator, int group, int view,
                  std::vector<Choice>& choices) const;
  GroupRecord Compose(const State& state, int coordinator, int group, int view,
                      const std::vector<int>& members, int from) const;
  std::uint8_t Epochs(const State& state, int coordinator, int group) const;
  int Boundary(const State& state, int coordinator, int group) const;
  State Publish(const State& state, int coordinator, int view, const std::vector<Choice>& choices,
                bool clients) const;

  void Finish(State& state) const;  // after every event: checks, and what nobody needs is dropped
  void ProcessEvents(const State& state, int process, Successors<State>& next) const;
  void CoordinatorEvents(const State& state, int coordinator, Successors<State>& next) const;
  void Starts(const State& state, Successors<State>& next) const;
  void StandbyEvents(const State& state, Successors<State>& next) const;
  bool MayReturn(const State& state, int coordinator) const;
  bool Undisturbed(const State& state, int group, int view) const;
  bool Advance(State& state, int view) const;

  const GroupOptions options_;
  mutable SyncDecider decider_;
};

std::vector<int> MembersOf(const GroupRecord& record);
int LengthOf(std::uint32_t content);
// Whether b begins with all that is in a.
bool IsPrefix(std::uint32_t a, std::uint32_t b);

}  // namespace starling::model
