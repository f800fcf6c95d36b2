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

void Simulator::Do(Process& process, const Actions& actions) {
  for (const membership::Action& action : actions) {
    if (!process.alive) return;
    std::visit([&](const auto& kind) { On(process, kind); }, action);
  }
  if (process.alive) {
    TryReduce(process);
    ScheduleStep(process);
  }
}

void Simulator::On(Process& process, const membership::Fence& fence) {
  CloseLinks(process, fence.view, fence.planned);
  if (options_.rules.view_check_on_data) {
    std::erase_if(process.received,
                  [&](const auto& entry) { return entry.first.first < fence.view; });
  }
  std::erase_if(process.opened, [&](const auto& entry) { return entry.first < fence.view; });
}

void Simulator::On(Process& process, const membership::AbortView& abort) {
  CloseLinks(process, abort.view + 1, /*flush=*/false);
  process.opened.erase(abort.view);
}

void Simulator::On(Process& process, const membership::OpenMesh& open) {
  Hit(Point::kSync, process);
  process.opened[open.view.number] = open.view;
  for (auto& [view, events] : std::exchange(process.parked, {})) {
    if (view > open.view.number) {
      process.parked[view] = std::move(events);
    } else {
      for (Event& event : events) At(0, std::move(event));
    }
  }
  Expect(process);
  for (const membership::ViewMember& member : open.view.members) {
    if (member.id != process.id && Find(member.id) == nullptr) {
      Break(process.id, open.view.number, member.id, Random(100, 3000));
    }
  }
}

void Simulator::On(Process& process, const membership::FindCheckpoint& find) {
  ToProcess(process.id, Random(500, 20'000), [this, find](Process& asked) {
    const Disk& disk = DiskOf(asked);
    std::optional<membership::CheckpointOffer> offer;
    if (!disk.empty()) offer = {disk.rbegin()->first, disk.rbegin()->second.second};
    Do(asked, asked.machine->OnCheckpointFound(find.view, offer));
  });
}

void Simulator::On(Process& process, const membership::SendSyncId& send) {
  const membership::View* view = process.machine->view();
  if (view == nullptr || view->number != send.sync_id.view) return;
  const membership::View copy = *view;
  for (const membership::ViewMember& member : copy.members) {
    if (member.id == process.id || !process.alive) continue;
    Send(process, member.id, copy.number,
         [this, said = send.sync_id](Process& to) { Do(to, to.machine->OnSyncId(said)); });
    Hit(Point::kSync, process);
  }
}

void Simulator::On(Process& process, const membership::StartFresh& fresh) {
  process.content = Content{};
  invariants_.OnBase(fresh.view, process.content);
}

void Simulator::On(Process& process, const membership::LoadCheckpoint& load) {
  ToProcess(process.id, Random(1000, 30'000), [this, load](Process& loading) {
    const Disk& disk = DiskOf(loading);
    const auto found = disk.find(load.name);
    if (found == disk.end()) return;
    loading.staged = found->second.first;
    ++outcome_.restores;
    Do(loading, loading.machine->OnLoaded(load.view));
  });
}

void Simulator::On(Process& process, const membership::ServeState& serve) {
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
  process.content = process.staged;
  ++outcome_.copies;
  invariants_.OnBase(adopt.id.view, process.content);
}

void Simulator::On(Process& process, const membership::Run& run) {
  Trace(absl::StrCat(process.id.pod_uid, "/", process.id.start, " runs in ",
                     membership::IncarnationOf(run.id.view), "-", membership::EpochOf(run.id.view),
                     " from step ", run.id.step));
  process.settle_only = run.settle_only;
  invariants_.OnBase(run.id.view, process.content);
}

void Simulator::On(Process& process, const membership::TakeCheckpoint& take) {
  process.snapshot = Snapshot{take.id, process.content, take.agreed};
  ToProcess(process.id, Random(1000, 60'000), [this, take](Process& writer) {
    Do(writer, writer.machine->OnCheckpointWritten(take.turn));
  });
}

void Simulator::On(Process& process, const membership::CommitCheckpoint& commit) {
  if (!process.snapshot || process.snapshot->id != commit.id) return;
  ToProcess(process.id, Random(100, 2000),
            [this, commit, snapshot = *process.snapshot](Process& writer) {
              DiskOf(writer)[snapshot.id] = {snapshot.content, snapshot.agreed};
              ++outcome_.committed;
              invariants_.OnCommitted(snapshot.id, snapshot.content.hash());
              Do(writer, writer.machine->OnCheckpointCommitted(commit.turn));
            });
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
    } else {
      Receive(sender, *receiver, view, event);
    }
  });
}

void Simulator::Receive(const MemberId& from, Process& to, ViewNumber view,
                        const std::function<void(Process&)>& event) {
  const bool opened = to.opened.contains(view);
  if (!opened && view > to.machine->fence()) {
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
  ToProcess(at, delay, [this, view, peer](Process& process) {
    Do(process, process.machine->OnBroken(view, {peer}));
  });
}

// The data plane's deadline: nothing may take for ever.
void Simulator::Expect(Process& process) {
  const ViewNumber view = process.machine->view()->number;
  const auto state = process.machine->state();
  ToProcess(process.id, 5'000'000, [this, view, state](Process& waiting) {
    const membership::View* current = waiting.machine->view();
    if (current == nullptr || current->number != view || waiting.machine->state() != state) return;
    Do(waiting, waiting.machine->OnBroken(view, {}));
  });
}

void Simulator::ScheduleStep(Process& process) {
  if (process.machine->phase() != Phase::kRun) return;
  const StateId from = *process.machine->state();
  if (!process.contributed.emplace(from.view, from.step + 1).second) return;
  Expect(process);
  ToProcess(process.id, Random(2000, 60'000),
            [this, from](Process& stepping) { Contribute(stepping, from); });
}

void Simulator::Contribute(Process& process, const StateId& from) {
  const bool current = process.machine->phase() == Phase::kRun && *process.machine->state() == from;
  if (!current) return;
  const membership::View view = *process.machine->view();
  const bool empty = process.settle_only || from.step >= options_.steps;
  const Contribution mine{process.content.hash(), process.machine->NextControlWord(), empty};
  const std::int64_t step = from.step + 1;
  invariants_.OnContribution(view.number, step, mine.from);
  process.received[{view.number, step}][process.id] = mine;
  for (const membership::ViewMember& member : view.members) {
    if (member.id == process.id || !process.alive) continue;
    Send(process, member.id, view.number,
         [this, sender = process.id, number = view.number, step, mine](Process& to) {
           to.received[{number, step}].emplace(sender, mine);
           Hit(Point::kReduce, to);
           if (to.alive) TryReduce(to);
         });
    if (Chance(0.3)) Hit(Point::kReduce, process);
  }
  if (process.alive) TryReduce(process);
}

void Simulator::TryReduce(Process& process) {
  while (process.alive && !process.paused) {
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

// All contributions to the next step are here: ask the machine, and apply if it says so.
bool Simulator::TryReduceIn(Process& process, const membership::View& view) {
  if (!process.machine->state()) return false;
  const std::int64_t step = process.machine->state()->step + 1;
  std::map<MemberId, Contribution> parts;
  for (const membership::ViewMember& member : view.members) {
    for (const auto& [key, received] : process.received) {
      const bool counts = options_.rules.view_check_on_data ? key.first == view.number : true;
      if (key.second != step || !counts) continue;
      if (const auto part = received.find(member.id); part != received.end()) {
        parts.emplace(*part);
      }
    }
  }
  if (parts.empty() || parts.size() != view.members.size()) return false;
  membership::Reduction reduction{view.number, step, parts.begin()->second.word,
                                  parts.begin()->second.word, parts.begin()->second.empty};
  std::uint64_t update = Mix(view.number, static_cast<std::uint64_t>(step));
  for (const auto& [id, part] : parts) {
    const auto fold = [&reduction, &word = part.word](auto field) {
      reduction.min.*field = std::min(reduction.min.*field, word.*field);
      reduction.max.*field = std::max(reduction.max.*field, word.*field);
    };
    fold(&membership::ControlWord::candidate);
    fold(&membership::ControlWord::checkpoint_turn);
    fold(&membership::ControlWord::settings_generation);
    fold(&membership::ControlWord::stop);
    update = Mix(update, part.from);
  }
  const StateId before = *process.machine->state();
  const std::uint64_t hash = process.content.hash();
  const Actions actions = process.machine->OnReduced(reduction);
  if (actions.empty()) return false;
  for (const membership::Action& action : actions) {
    if (std::holds_alternative<membership::Apply>(action)) process.content.Apply(update);
  }
  invariants_.OnSettled(view.number, before.step, hash);
  process.received.erase({view.number, step});
  Do(process, actions);
  if (process.alive && process.machine->phase() == Phase::kDone && reduction.empty) {
    process.machine->SetTraining({"done", before.step >= options_.steps, ""});
    ReportToCoordinators(process);
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
  if (process.alive && whole == holders) Do(process, process.machine->OnCopied(view));
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
  });
}

void Simulator::TerminatePod(Pod& pod, bool confirm_soon) {
  pod.terminated = true;
  At(confirm_soon ? Random(10'000, 500'000) : Random(1'000'000, 6'000'000),
     [this, uid = pod.uid] { PodOf(uid).confirmed = true; });
}

}  // namespace starling::simulation
