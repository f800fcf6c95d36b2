// SPDX-License-Identifier: Apache-2.0
// The members' processes, their data plane at the level of messages, and their supervisors.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "trainer/simulation/simulator.h"

namespace starling::simulation {

using membership::Actions;
using membership::Phase;

void Simulator::StartProcess(Pod& pod) {
  if (pod.terminated) return;
  const MemberId id{pod.uid, pod.next_start++};
  Process& process = processes_[id];
  process.id = id;
  process.machine = std::make_unique<membership::Member>(
      membership::Member::Options{id, "", std::nullopt, options_.rules});
  pod.process = id;
  Trace(absl::StrCat("start ", id.pod_uid, "/", id.start));
  At(Random(0, 100'000), [this, id] { KeepReporting(id); });
}

// Reports every 100 ms while the process lives.
void Simulator::KeepReporting(const MemberId& id) {
  Process* living = Find(id);
  if (living == nullptr) return;
  if (!living->paused) ReportToCoordinators(*living);
  At(100'000, [this, id] { KeepReporting(id); });
}

void Simulator::ToProcess(const MemberId& id, Micros delay, std::function<void(Process&)> event) {
  At(delay, [this, id, event = std::move(event)] {
    Process* process = Find(id);
    if (process == nullptr) return;
    if (process->paused) {
      process->inbox.push_back([this, id, event] {
        if (Process* woken = Find(id)) event(*woken);
      });
    } else {
      event(*process);
    }
  });
}

// What the loop itself receives, once it is not busy any more.
void Simulator::ToLoop(const MemberId& id, Micros delay, std::function<void(Process&)> event) {
  ToProcess(id, delay, [this, id, event = std::move(event)](Process& process) {
    if (!process.busy) return event(process);
    process.behind.push_back([this, id, event] { ToLoop(id, 0, event); });
  });
}

void Simulator::Obey(Process& process, const membership::Directive& directive) {
  if (directive.released && directive.incarnation >= process.machine->highest_incarnation()) {
    invariants_.OnReleased(process.id);
  }
  Do(process, process.machine->OnDirective(directive));
}

// As worker::MemberShell does it: what cannot wait is carried out at once, by whoever brought the
// event; all else by the loop, in order, when it comes to it.
void Simulator::Do(Process& process, const Actions& actions) {
  for (const membership::Action& action : actions) {
    if (!process.alive) return;
    const auto* fence = std::get_if<membership::Fence>(&action);
    const bool at_once = (fence != nullptr && !fence->planned) ||
                         std::holds_alternative<membership::AbortView>(action) ||
                         std::holds_alternative<membership::SendReport>(action) ||
                         std::holds_alternative<membership::Exit>(action);
    at_once ? DoAtOnce(process, action) : process.todo.push_back(action);
  }
  GoOn(process);
}

void Simulator::DoAtOnce(Process& process, const membership::Action& action) {
  std::visit([&](const auto& kind) { On(process, kind); }, action);
}

// The loop: first what it was told, then steps.
void Simulator::GoOn(Process& process) {
  while (process.alive && !process.paused && !process.busy && !process.todo.empty()) {
    if (!Late() && options_.faults > 0 && Chance(0.01)) return FallBehind(process, [] {});
    const membership::Action action = process.todo.front();
    process.todo.pop_front();
    DoAtOnce(process, action);
  }
  if (!process.alive || process.paused || process.busy) return;
  TryReduce(process);
  ScheduleStep(process);
}

// The loop is busy for a while, and then does `then` before all else.
void Simulator::FallBehind(Process& process, Event then) {
  process.busy = true;
  ++outcome_.lags;
  const Micros length = Chance(0.3) ? Random(20'000, 600'000) : Random(200, 20'000);
  ToProcess(process.id, length, [this, then = std::move(then)](Process& free) {
    free.busy = false;
    then();
    for (Event& event : std::exchange(free.behind, {})) At(0, std::move(event));
    if (free.alive) GoOn(free);
  });
}

void Simulator::On(Process& process, const membership::Fence& fence) {
  CloseLinks(process, fence.view, fence.planned);
  process.barred = std::max(process.barred, fence.view);
  if (options_.rules.view_check_on_data) {
    std::erase_if(process.received,
                  [&](const auto& entry) { return entry.first.view < fence.view; });
  }
  std::erase_if(process.opened, [&](const auto& entry) { return entry.first < fence.view; });
}

void Simulator::On(Process& process, const membership::AbortView& abort) {
  CloseLinks(process, abort.view + 1, /*flush=*/false);
  process.barred = std::max(process.barred, abort.view + 1);
  process.opened.erase(abort.view);
}

void Simulator::On(Process& process, const membership::OpenMesh& open) {
  if (open.view.number < process.barred) return;  // the machine has left it meanwhile
  Hit(Point::kSync, process);
  process.opened[open.view.number] = open.view;
  for (auto& [view, events] : std::exchange(process.parked, {})) {
    if (view > open.view.number) {
      process.parked[view] = std::move(events);
    } else {
      for (Event& event : events) At(0, std::move(event));
    }
  }
  Expect(process, open.view.number);
  for (const membership::ViewMember& member : open.view.members) {
    if (member.id != process.id && Find(member.id) == nullptr) {
      Break(process.id, open.view.number, member.id, Random(100, 3000));
    }
  }
}

void Simulator::On(Process& process, const membership::FindCheckpoint& find) {
  ToLoop(process.id, Random(500, 20'000), [this, find](Process& asked) {
    const Disk& disk = DiskOf(asked);
    std::optional<membership::CheckpointOffer> offer;
    if (!disk.empty()) offer = {disk.rbegin()->first, disk.rbegin()->second.second};
    Do(asked, asked.machine->OnCheckpointFound(find.view, offer));
  });
}

void Simulator::On(Process& process, const membership::SendSyncId& send) {
  const membership::View* view = process.machine->view();
  if (view == nullptr || view->number != send.sync_id.view) return;
  if (!process.opened.contains(view->number)) return;
  const membership::View copy = *view;
  for (const membership::ViewMember& member : copy.members) {
    if (member.id == process.id || !process.alive) continue;
    Send(process, member.id, copy.number,
         [this, said = send.sync_id](Process& to) { Do(to, to.machine->OnSyncId(said)); });
    // Once more, when the round may be over, or the view.
    if (!Late() && Chance(0.05)) {
      ToLoop(member.id, Random(1000, 600'000),
             [this, said = send.sync_id](Process& to) { Do(to, to.machine->OnSyncId(said)); });
    }
    Hit(Point::kSync, process);
  }
}

void Simulator::On(Process& process, const membership::StartFresh& fresh) {
  process.content = Content{};
  invariants_.OnBase(fresh.view, process.content);
}

void Simulator::On(Process& process, const membership::LoadCheckpoint& load) {
  ToLoop(process.id, Random(1000, 30'000), [this, load](Process& loading) {
    const Disk& disk = DiskOf(loading);
    const auto found = disk.find(load.name);
    if (found == disk.end()) return;
    loading.staged = found->second.first;
    loading.whole = load.view;
    ++outcome_.restores;
    Do(loading, loading.machine->OnLoaded(load.view));
    if (Late() || !Chance(0.1)) return;
    ToLoop(loading.id, Random(100, 400'000),
           [this, load](Process& again) { Do(again, again.machine->OnLoaded(load.view)); });
  });
}

void Simulator::On(Process& process, const membership::ServeState& serve) {
  if (!process.opened.contains(serve.view)) return;
  for (const MemberId& copier : serve.copiers) {
    for (int half = 0; half < 2 && process.alive; ++half) {
      Send(process, copier, serve.view,
           [this, serve, id = process.id, content = process.content](Process& to) {
             OnShare(to, serve.view, id, content, serve.holders.size());
           });
      Hit(Point::kCopy, process);
    }
  }
}

void Simulator::On(Process& process, const membership::CopyState&) { Hit(Point::kCopy, process); }

void Simulator::On(Process& process, const membership::AdoptCopy& adopt) {
  invariants_.OnAdopted(process.id, adopt.id.view, process.whole);
  process.content = process.staged;
  ++outcome_.copies;
  invariants_.OnBase(adopt.id.view, process.content);
}

void Simulator::On(Process& process, const membership::Run& run) {
  Trace(absl::StrCat(process.id.pod_uid, "/", process.id.start, " runs in ",
                     membership::IncarnationOf(run.id.view), "-", membership::EpochOf(run.id.view),
                     " from step ", run.id.step));
  process.settle_only = run.settle_only;
  // Within a view another Run only says whether training is halted.
  if (std::exchange(process.ran, run.id.view) != run.id.view) {
    invariants_.OnBase(run.id.view, process.content);
  }
}

void Simulator::On(Process& process, const membership::TakeCheckpoint& take) {
  const int number = ++process.snapshots;
  process.snapshot = Snapshot{take.id, process.content, take.agreed, number};
  // The answer may come after the snapshot was dropped, but not for another of the same state.
  ToLoop(process.id, Random(1000, 60'000), [this, take, number](Process& writer) {
    if (writer.snapshot && writer.snapshot->id == take.id) {
      if (writer.snapshot->number != number) return;
      writer.snapshot->written = true;
    }
    Do(writer, writer.machine->OnCheckpointWritten(take.id));
  });
}

void Simulator::On(Process& process, const membership::CommitCheckpoint& commit) {
  if (!process.snapshot || process.snapshot->id != commit.id) return;
  invariants_.OnCommitting(commit.id, process.snapshot->written);
  const Micros slow = Chance(0.1) ? Random(2000, 200'000) : Random(100, 2000);
  ToProcess(process.id, slow, [this, commit, snapshot = *process.snapshot](Process& writer) {
    DiskOf(writer)[snapshot.id] = {snapshot.content, snapshot.agreed};
    ++outcome_.committed;
    invariants_.OnCommitted(snapshot.id, snapshot.content.hash());
    Do(writer, writer.machine->OnCheckpointCommitted(commit.id));
    if (Late() || !Chance(0.1)) return;
    ToProcess(writer.id, Random(100, 400'000), [this, commit](Process& again) {
      Do(again, again.machine->OnCheckpointCommitted(commit.id));
    });
  });
}

void Simulator::On(Process& process, const membership::DropCheckpoint& drop) {
  if (process.snapshot && process.snapshot->id == drop.id) process.snapshot.reset();
}

void Simulator::On(Process& process, const membership::SendReport&) {
  ReportToCoordinators(process);
}

void Simulator::On(Process& process, const membership::Exit& exit) {
  Trace(absl::StrCat(process.id.pod_uid, "/", process.id.start, " exits: ", exit.reason));
  CloseLinks(process, ~0ULL, /*flush=*/true);
  process.alive = false;
  TerminatePod(PodOf(process.id.pod_uid), /*confirm_soon=*/true);
}

Simulator::Disk& Simulator::DiskOf(const Process& process) {
  return shared_disk_ ? disk_ : PodOf(process.id.pod_uid).disk;
}

// Ordered, like a connection: later messages never overtake earlier ones of the same link.
void Simulator::Send(Process& from, const MemberId& to, ViewNumber view,
                     std::function<void(Process&)> event) {
  Link& link = links_[{from.id, to, view}];
  const Micros slow = Chance(0.05) ? Random(20'000, 200'000) : Random(100, 3000);
  link.last = std::max(link.last + 1, now_ + slow);
  const Micros due = link.last;
  const MemberId sender = from.id;
  const bool lost = DataCut(from.id, to) || (!Late() && options_.faults > 0 && Chance(0.002));
  if (lost) {
    link.cut = std::min(link.cut, now_);
    Break(sender, view, to, Random(1000, 50'000));
    Break(to, view, sender, Random(1000, 50'000));
    return;
  }
  At(due - now_, [this, sender, to, view, due, event = std::move(event)] {
    if (due > links_[{sender, to, view}].cut) return;
    Process* receiver = Find(to);
    if (receiver == nullptr) {
      Break(sender, view, to, Random(100, 2000));
    } else if (receiver->paused) {
      receiver->inbox.push_back([this, sender, to, view, event] {
        if (Process* woken = Find(to)) Receive(sender, *woken, view, event);
      });
    } else if (receiver->busy) {
      receiver->behind.push_back([this, sender, to, view, event] {
        if (Process* free = Find(to)) Receive(sender, *free, view, event);
      });
    } else {
      Receive(sender, *receiver, view, event);
    }
  });
}

void Simulator::Receive(const MemberId& from, Process& to, ViewNumber view,
                        const std::function<void(Process&)>& event) {
  const bool opened = to.opened.contains(view);
  if (!opened && view >= to.barred) {
    to.parked[view].push_back([this, from, id = to.id, view, event] {
      if (Process* woken = Find(id)) Receive(from, *woken, view, event);
    });
  } else if (!opened && options_.rules.view_check_on_data) {
    Break(from, view, to.id, Random(100, 2000));  // refused
  } else {
    event(to);
  }
}

// `flush`: what is on its way arrives; else it may be lost.
void Simulator::CloseLinks(Process& process, ViewNumber below, bool flush) {
  for (auto& [ends, link] : links_) {
    const auto& [from, to, view] = ends;
    if (view >= below || from != process.id || link.cut != INT64_MAX) continue;
    Micros end = std::max(link.last, now_);
    if (!flush && Chance(0.5)) end = now_ + Random(0, 3000);
    link.cut = end;
  }
  for (const auto& [peer, other] : processes_) {
    if (!other.alive || peer == process.id) continue;
    for (const auto& [number, view] : other.opened) {
      if (number >= below || !view.Has(process.id)) continue;
      const auto link = links_.find({process.id, peer, number});
      const Micros end = link == links_.end() ? now_ : std::max(now_, link->second.cut);
      Break(peer, number, process.id, end - now_ + Random(100, 5000));
    }
  }
}

void Simulator::Break(const MemberId& at, ViewNumber view, const MemberId& peer, Micros delay) {
  ToLoop(at, delay, [this, view, peer](Process& process) {
    Do(process, process.machine->OnBroken(view, {peer}));
  });
}

// The data plane's deadline: nothing may take for ever.
void Simulator::Expect(Process& process, ViewNumber view) {
  const auto state = process.machine->state();
  ToLoop(process.id, 5'000'000, [this, view, state](Process& waiting) {
    const membership::View* current = waiting.machine->view();
    if (current == nullptr || current->number != view || waiting.machine->state() != state) return;
    Do(waiting, waiting.machine->OnBroken(view, {}));
  });
}

void Simulator::ScheduleStep(Process& process) {
  if (process.machine->phase() != Phase::kRun) return;
  const StateId from = *process.machine->state();
  if (!process.contributed.insert(RoundOf(process, from.view)).second) return;
  Expect(process, from.view);
  ToLoop(process.id, Random(2000, 60'000),
         [this, from](Process& stepping) { Contribute(stepping, from); });
}

// The reduction that comes next in this view.
Simulator::Round Simulator::RoundOf(const Process& process, ViewNumber view) const {
  const auto rounds = process.rounds.find(view);
  return {view, process.machine->state()->step + 1,
          rounds == process.rounds.end() ? 0 : rounds->second};
}

void Simulator::Contribute(Process& process, const StateId& from) {
  const bool current = process.machine->phase() == Phase::kRun && *process.machine->state() == from;
  if (!current) return;
  const membership::View view = *process.machine->view();
  const bool empty = process.settle_only || from.step >= options_.steps;
  const Contribution mine{process.content.hash(), process.machine->NextControlWord(), empty};
  const Round round = RoundOf(process, view.number);
  invariants_.OnContribution(view.number, round.step, mine.from);
  process.received[round][process.id] = mine;
  for (const membership::ViewMember& member : view.members) {
    if (member.id == process.id || !process.alive) continue;
    Send(process, member.id, view.number, [this, sender = process.id, round, mine](Process& to) {
      to.received[round].emplace(sender, mine);
      Hit(Point::kReduce, to);
      if (to.alive) TryReduce(to);
    });
    if (Chance(0.3)) Hit(Point::kReduce, process);
  }
  if (process.alive) TryReduce(process);
}

void Simulator::TryReduce(Process& process) {
  while (process.alive && !process.paused && !process.busy && process.todo.empty()) {
    bool progress = false;
    std::vector<membership::View> views;
    if (options_.rules.halt_first) {
      if (process.machine->view() != nullptr) views.push_back(*process.machine->view());
    } else {
      for (const auto& [number, view] : process.opened) views.push_back(view);
    }
    for (const membership::View& view : views) {
      progress = progress || TryReduceIn(process, view);
    }
    if (!progress) return;
  }
}

// All contributions to the next step are here: ask the machine, now or a little later.
bool Simulator::TryReduceIn(Process& process, const membership::View& view) {
  if (!process.machine->state()) return false;
  const std::optional<Reduced> reduced = ReducedIn(process, view);
  if (!reduced) return false;
  if (Late() || options_.faults == 0 || !Chance(0.03)) return Ask(process, *reduced);
  FallBehind(process, [this, id = process.id, reduced = *reduced] {
    if (Process* free = Find(id)) Ask(*free, reduced);
  });
  return false;
}

std::optional<Simulator::Reduced> Simulator::ReducedIn(const Process& process,
                                                       const membership::View& view) const {
  const Round round = RoundOf(process, view.number);
  std::map<MemberId, Contribution> parts;
  for (const membership::ViewMember& member : view.members) {
    for (const auto& [key, received] : process.received) {
      const bool counts = options_.rules.view_check_on_data ? key == round : key.step == round.step;
      if (!counts) continue;
      if (const auto part = received.find(member.id); part != received.end()) {
        parts.emplace(*part);
      }
    }
  }
  if (parts.empty() || parts.size() != view.members.size()) return std::nullopt;
  Reduced all{{view.number, round.step, parts.begin()->second.word, parts.begin()->second.word,
               parts.begin()->second.empty},
              Mix(view.number, static_cast<std::uint64_t>(round.step))};
  for (const auto& [id, part] : parts) {
    const auto fold = [&all, &word = part.word](auto field) {
      all.reduction.min.*field = std::min(all.reduction.min.*field, word.*field);
      all.reduction.max.*field = std::max(all.reduction.max.*field, word.*field);
    };
    fold(&membership::ControlWord::candidate);
    fold(&membership::ControlWord::checkpoint_turn);
    fold(&membership::ControlWord::settings_generation);
    fold(&membership::ControlWord::stop);
    all.update = Mix(all.update, part.from);
  }
  return all;
}

// True if the machine took it.
bool Simulator::Ask(Process& process, const Reduced& reduced) {
  const membership::Reduction& reduction = reduced.reduction;
  const StateId before = *process.machine->state();
  const std::uint64_t hash = process.content.hash();
  const Actions actions = process.machine->OnReduced(reduction);
  if (actions.empty()) return false;
  for (const membership::Action& action : actions) {
    if (const auto* apply = std::get_if<membership::Apply>(&action)) {
      invariants_.OnApplied(process.id, apply->id, reduction.view, reduction.step);
      process.content.Apply(reduced.update);
    }
  }
  invariants_.OnSettled(reduction.view, before.step, hash);
  const Round done{reduction.view, reduction.step, process.rounds[reduction.view]++};
  std::erase_if(process.received, [&](const auto& entry) {
    const Round& of = entry.first;
    return options_.rules.view_check_on_data ? of == done : of.step == done.step;
  });
  Do(process, actions);
  if (process.alive && process.machine->phase() == Phase::kDone && reduction.empty) {
    process.machine->SetTraining({"done", before.step >= options_.steps, ""});
    ReportToCoordinators(process);
  }
  // Once more, when the next step is on its way, or the view has ended.
  if (!reduction.empty && !Late() && options_.faults > 0 && Chance(0.05)) {
    ToLoop(process.id, Random(100, 600'000), [this, reduced](Process& again) {
      if (again.todo.empty()) Ask(again, reduced);
    });
  }
  return true;
}

void Simulator::OnShare(Process& process, ViewNumber view, const MemberId& from,
                        const Content& content, std::size_t holders) {
  const membership::View* current = process.machine->view();
  if (current == nullptr || current->number != view) return;
  if (process.machine->phase() != Phase::kCopy) return;
  ++process.shares[{view, from}];
  process.staged = content;
  // Without staging the state itself is overwritten piece by piece.
  if (!options_.rules.staging) {
    process.content = content;
    process.content.prefix.back() ^= 0xdead;
  }
  Hit(Point::kCopy, process);
  std::size_t whole = 0;
  for (const auto& [key, halves] : process.shares) {
    whole += key.first == view && halves >= 2 ? 1 : 0;
  }
  if (!process.alive || whole != holders) return;
  process.whole = view;
  Do(process, process.machine->OnCopied(view));
  if (Late() || !Chance(0.1)) return;
  ToLoop(process.id, Random(100, 400'000),
         [this, view](Process& again) { Do(again, again.machine->OnCopied(view)); });
}

void Simulator::Kill(Process& process) {
  if (!process.alive) return;
  Trace(absl::StrCat("kill ", process.id.pod_uid, "/", process.id.start));
  ++outcome_.kills;
  CloseLinks(process, ~0ULL, /*flush=*/false);
  process.alive = false;
  Pod& pod = PodOf(process.id.pod_uid);
  if (Chance(0.75)) {
    At(Random(5000, 500'000), [this, uid = pod.uid] { StartProcess(PodOf(uid)); });
  } else {
    TerminatePod(pod, Chance(0.8));
  }
}

void Simulator::Pause(Process& process, Micros length) {
  if (process.paused) return;
  Trace(absl::StrCat("pause ", process.id.pod_uid, "/", process.id.start, " for ", length / 1000,
                     "ms"));
  ++outcome_.pauses;
  process.paused = true;
  At(length, [this, id = process.id] {
    Process* woken = Find(id);
    if (woken == nullptr) return;
    Trace(absl::StrCat("resume ", id.pod_uid, "/", id.start));
    woken->paused = false;
    std::vector<Event> inbox = std::exchange(woken->inbox, {});
    for (Event& event : inbox) At(Random(0, 2000), std::move(event));
    GoOn(*woken);
  });
}

void Simulator::TerminatePod(Pod& pod, bool confirm_soon) {
  pod.terminated = true;
  At(confirm_soon ? Random(10'000, 500'000) : Random(1'000'000, 6'000'000),
     [this, uid = pod.uid] { PodOf(uid).confirmed = true; });
}

}  // namespace starling::simulation
