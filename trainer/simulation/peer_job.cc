// SPDX-License-Identifier: Apache-2.0
#include "trainer/simulation/peer_job.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "trainer/membership/peer_coordinator.h"

namespace starling::simulation {

using membership::Actions;
using membership::Phase;

namespace {

constexpr Micros kDeadline = 5'000'000;

// Those with whom this worker exchanges anything; nobody, if it is not in the view.
std::vector<MemberId> GroupOf(const membership::View& view, const MemberId& id) {
  const membership::ReplicaGroup* group = view.GroupOf(id);
  return group == nullptr ? std::vector<MemberId>() : group->members;
}

}  // namespace

Outcome Simulate(const PeerOptions& options) { return PeerJob(options).Run(); }

PeerJob::PeerJob(const PeerOptions& options, const World::Ways& ways)
    : options_(options),
      invariants_(
          [this](std::int64_t step, std::uint64_t hash) {
            return std::ranges::any_of(world_.Living(Role::kWorker), [&](Process* process) {
              return As(*process).content.Holds(step, hash);
            });
          },
          // With a standby two lead at once, but only one of them can settle anything.
          /*all_older=*/options.standby),
      world_(options, ways, invariants_),
      shared_disk_(world_.Chance(0.5)) {}

std::unique_ptr<membership::Coordinator> PeerJob::NewCoordinator(
    membership::CoordinatorOptions options) {
  return std::make_unique<membership::PeerCoordinator>(std::move(options));
}

void PeerJob::OnStarted(Process& process) {
  As(process).machine = std::make_unique<membership::Member>(
      membership::Member::Options{process.id, "", std::nullopt, options_.rules});
}

void PeerJob::OnDirective(Process& process, const membership::Directive& directive) {
  Peer& peer = As(process);
  if (directive.released && directive.incarnation >= peer.machine->highest_incarnation()) {
    invariants_.OnReleased(peer.id);
  }
  Do(peer, peer.machine->OnDirective(directive));
}

membership::Report PeerJob::ReportOf(Process& process) {
  const membership::Report report = As(process).machine->MakeReport();
  if (report.state) invariants_.OnSynced(process.id, report.state->view);
  if (report.stopped) invariants_.OnStopped(process.id, *report.state);
  return report;
}

void PeerJob::OnBroken(Process& process, ViewNumber view, const MemberId& peer) {
  Do(As(process), As(process).machine->OnBroken(view, {peer}));
}

bool PeerJob::Finished(const membership::Coordinator& coordinator) {
  return coordinator.MakeSummary(world_.Now()).training.has_result;
}

std::string PeerJob::Standing(const Process& process) {
  return membership::PhaseName(static_cast<const Peer&>(process).machine->phase());
}

void PeerJob::Check() {
  std::map<ViewNumber, std::pair<std::int64_t, std::int64_t>> spread;
  for (Process* process : world_.Living(Role::kWorker)) {
    const Peer& peer = As(*process);
    if (!peer.machine->state()) continue;
    const StateId& state = *peer.machine->state();
    // What the loop has not come to yet may be what makes the content the state's.
    if (peer.todo.empty()) invariants_.OnState(peer.id, state, peer.content);
    if (peer.machine->phase() != Phase::kRun) continue;
    auto [known, added] = spread.emplace(state.view, std::pair(state.step, state.step));
    known->second.first = std::min(known->second.first, state.step);
    known->second.second = std::max(known->second.second, state.step);
  }
  for (const auto& [view, steps] : spread) {
    invariants_.OnSpread(view, steps.first, steps.second);
  }
}

void PeerJob::Repeat(const MemberId& id, double probability, PeerHandler event) {
  if (world_.Disturbs(probability)) ToLoop(id, world_.Random(100, 600'000), std::move(event));
}

// As worker::MemberShell does it: what cannot wait is carried out at once, by whoever brought the
// event; all else by the loop, in order, when it comes to it.
void PeerJob::Do(Peer& peer, const Actions& actions) {
  for (const membership::Action& action : actions) {
    if (!peer.alive) return;
    const auto* fence = std::get_if<membership::Fence>(&action);
    const bool at_once = (fence != nullptr && !fence->planned) ||
                         std::holds_alternative<membership::AbortView>(action) ||
                         std::holds_alternative<membership::SendReport>(action) ||
                         std::holds_alternative<membership::Exit>(action);
    at_once ? DoAtOnce(peer, action) : peer.todo.push_back(action);
  }
  GoOn(peer);
}

void PeerJob::DoAtOnce(Peer& peer, const membership::Action& action) {
  std::visit([&](const auto& kind) { On(peer, kind); }, action);
}

// The loop: first what it was told, then steps.
void PeerJob::GoOn(Process& process) {
  Peer& peer = As(process);
  while (peer.alive && !peer.paused && !peer.busy && !peer.todo.empty() && MayGoOn(peer)) {
    if (world_.Disturbs(0.01)) return FallBehind(peer, [] {});
    const membership::Action action = peer.todo.front();
    peer.todo.pop_front();
    DoAtOnce(peer, action);
  }
  if (!peer.alive || peer.paused || peer.busy || !MayGoOn(peer)) return;
  TryReduce(peer);
  Work(peer);
}

// The loop is busy for a while, and then does `then` before all else.
void PeerJob::FallBehind(Peer& peer, Event then) {
  peer.busy = true;
  world_.Count("lags");
  const Micros length =
      world_.Chance(0.3) ? world_.Random(20'000, 600'000) : world_.Random(200, 20'000);
  world_.ToProcess(peer.id, length, [this, then = std::move(then)](Process& free) {
    free.busy = false;
    then();
    for (Event& event : std::exchange(free.behind, {})) world_.At(0, std::move(event));
    if (free.alive) GoOn(free);
  });
}

void PeerJob::On(Peer& peer, const membership::Fence& fence) {
  world_.CloseLinks(peer, fence.view, fence.planned);
  peer.barred = std::max(peer.barred, fence.view);
  if (options_.rules.view_check_on_data) {
    std::erase_if(peer.received, [&](const auto& entry) { return entry.first.view < fence.view; });
  }
  std::erase_if(peer.opened, [&](const auto& entry) { return entry.first < fence.view; });
}

void PeerJob::On(Peer& peer, const membership::AbortView& abort) {
  world_.CloseLinks(peer, abort.view + 1, /*flush=*/false);
  peer.barred = std::max(peer.barred, abort.view + 1);
  peer.opened.erase(abort.view);
}

void PeerJob::On(Peer& peer, const membership::OpenMesh& open) {
  if (open.view.number < peer.barred) return;  // the machine has left it meanwhile
  world_.Hit(Point::kSync, peer);
  world_.Open(peer, open.view);
  Expect(peer, open.view.number);
  Entered(peer, open.view);
  for (const membership::ViewMember& member : open.view.members) {
    if (Find(member.id) != nullptr) continue;
    world_.Break(peer.id, open.view.number, member.id, world_.Random(100, 3000));
  }
}

void PeerJob::On(Peer& peer, const membership::FindCheckpoint& find) {
  ToLoop(peer.id, world_.Random(500, 20'000), [this, find](Peer& asked) {
    const Disk& disk = DiskOf(asked);
    std::optional<membership::CheckpointOffer> offer;
    if (!disk.empty()) offer = {disk.rbegin()->first, disk.rbegin()->second.second};
    Do(asked, asked.machine->OnCheckpointFound(find.view, offer));
  });
}

void PeerJob::On(Peer& peer, const membership::SendSyncId& send) {
  const membership::View* view = peer.machine->view();
  if (view == nullptr || view->number != send.sync_id.view) return;
  if (!peer.opened.contains(view->number)) return;
  const auto hear = [this, said = send.sync_id](Peer& to) { Do(to, to.machine->OnSyncId(said)); };
  for (const MemberId& member : GroupOf(*view, peer.id)) {
    if (member == peer.id || !peer.alive) continue;
    world_.Send(peer.id, member, send.sync_id.view, As(hear));
    // Once more, when the round may be over, or the view.
    Repeat(member, 0.05, hear);
    world_.Hit(Point::kSync, peer);
  }
}

void PeerJob::On(Peer& peer, const membership::StartFresh& fresh) {
  if (peer.half_copied && options_.rules.leave_half_copied) {
    world_.Count("half copies");
    return world_.Kill(peer);
  }
  if (!peer.half_copied) peer.content = Content{};
  invariants_.OnBase(fresh.view, peer.content);
}

void PeerJob::On(Peer& peer, const membership::LoadCheckpoint& load) {
  ToLoop(peer.id, world_.Random(1000, 30'000), [this, load](Peer& loading) {
    const Disk& disk = DiskOf(loading);
    const auto found = disk.find(load.name);
    if (found == disk.end()) return;
    loading.staged = found->second.first;
    loading.whole = load.view;
    world_.Count("restores");
    Do(loading, loading.machine->OnLoaded(load.view));
    Repeat(loading.id, 0.1,
           [this, load](Peer& again) { Do(again, again.machine->OnLoaded(load.view)); });
  });
}

void PeerJob::On(Peer& peer, const membership::ServeState& serve) {
  if (!peer.opened.contains(serve.view)) return;
  invariants_.OnServed(serve.view, BytesOf(peer));
  for (const MemberId& copier : serve.copiers) {
    for (int half = 0; half < 2 && peer.alive; ++half) {
      world_.Send(peer.id, copier, serve.view,
                  As([this, serve, id = peer.id, content = peer.content](Peer& to) {
                    OnShare(to, serve.view, id, content, serve.holders.size());
                  }));
      world_.Hit(Point::kCopy, peer);
    }
  }
}

void PeerJob::On(Peer& peer, const membership::CopyState&) { world_.Hit(Point::kCopy, peer); }

void PeerJob::On(Peer& peer, const membership::AdoptCopy& adopt) {
  invariants_.OnAdopted(peer.id, adopt.id.view, peer.whole);
  peer.content = peer.staged;
  peer.half_copied = false;
  world_.Count("copies");
  invariants_.OnBase(adopt.id.view, peer.content);
}

void PeerJob::On(Peer& peer, const membership::Run& run) {
  world_.Trace(absl::StrCat(peer.id.pod_uid, "/", peer.id.start, " runs in ",
                            membership::IncarnationOf(run.id.view), "-",
                            membership::EpochOf(run.id.view), " from step ", run.id.step));
  peer.settle_only = run.settle_only;
  // Within a view another Run only says whether training is halted.
  if (std::exchange(peer.ran, run.id.view) != run.id.view) {
    invariants_.OnBase(run.id.view, peer.content);
  }
}

void PeerJob::On(Peer& peer, const membership::TakeCheckpoint& take) {
  const int number = ++peer.snapshots;
  peer.snapshot = Snapshot{take.id, peer.content, take.agreed, number};
  // The answer may come after the snapshot was dropped, but not for another of the same state.
  ToLoop(peer.id, world_.Random(1000, 60'000), [this, take, number](Peer& writer) {
    if (writer.snapshot && writer.snapshot->id == take.id) {
      if (writer.snapshot->number != number) return;
      writer.snapshot->written = true;
    }
    Do(writer, writer.machine->OnCheckpointWritten(take.id));
  });
}

void PeerJob::On(Peer& peer, const membership::CommitCheckpoint& commit) {
  if (!peer.snapshot || peer.snapshot->id != commit.id) return;
  invariants_.OnCommitting(commit.id, peer.snapshot->written);
  const Micros slow = world_.Chance(0.1) ? world_.Random(2000, 200'000) : world_.Random(100, 2000);
  world_.ToProcess(peer.id, slow, As([this, commit, snapshot = *peer.snapshot](Peer& writer) {
                     DiskOf(writer)[snapshot.id] = {snapshot.content, snapshot.agreed};
                     world_.Count("committed");
                     invariants_.OnCommitted(snapshot.id, snapshot.content.hash());
                     Do(writer, writer.machine->OnCheckpointCommitted(commit.id));
                     Repeat(writer.id, 0.1, [this, commit](Peer& again) {
                       Do(again, again.machine->OnCheckpointCommitted(commit.id));
                     });
                   }));
}

void PeerJob::On(Peer& peer, const membership::DropCheckpoint& drop) {
  if (peer.snapshot && peer.snapshot->id == drop.id) peer.snapshot.reset();
}

// The data plane's deadline: nothing may take for ever.
void PeerJob::Expect(const Peer& peer, ViewNumber view) {
  const auto state = peer.machine->state();
  ToLoop(peer.id, kDeadline, [this, view, state](Peer& waiting) {
    const membership::View* current = waiting.machine->view();
    if (current == nullptr || current->number != view || waiting.machine->state() != state) return;
    Do(waiting, waiting.machine->OnBroken(view, {}));
  });
}

void PeerJob::Work(Peer& peer) {
  if (peer.machine->phase() != Phase::kRun) return;
  const StateId from = *peer.machine->state();
  if (!peer.contributed.insert(RoundOf(peer, from.view)).second) return;
  Expect(peer, from.view);
  ToLoop(peer.id, world_.Random(2000, 60'000),
         [this, from](Peer& stepping) { Contribute(stepping, from); });
}

PeerJob::Round PeerJob::RoundOf(const Peer& peer, ViewNumber view) const {
  const auto rounds = peer.rounds.find(view);
  return {view, peer.machine->state()->step + 1, rounds == peer.rounds.end() ? 0 : rounds->second};
}

PeerJob::Contribution PeerJob::ContributionOf(const Peer& peer) const {
  return {peer.content.hash(), peer.machine->NextControlWord(), MakesNothing(peer)};
}

void PeerJob::Contribute(Peer& peer, const StateId& from) {
  const bool current = peer.machine->phase() == Phase::kRun && *peer.machine->state() == from;
  if (!current) return;
  const membership::View view = *peer.machine->view();
  const Contribution mine = ContributionOf(peer);
  const Round round = RoundOf(peer, view.number);
  invariants_.OnContribution(view.number, round.step, mine.from);
  peer.received[round][peer.id] = mine;
  for (const MemberId& member : GroupOf(view, peer.id)) {
    if (member == peer.id || !peer.alive) continue;
    world_.Send(peer.id, member, view.number, As([this, sender = peer.id, round, mine](Peer& to) {
                  to.received[round].emplace(sender, mine);
                  world_.Hit(Point::kExchange, to);
                  if (to.alive) TryReduce(to);
                }));
    if (world_.Chance(0.3)) world_.Hit(Point::kExchange, peer);
  }
  if (peer.alive) TryReduce(peer);
}

void PeerJob::TryReduce(Peer& peer) {
  while (peer.alive && !peer.paused && !peer.busy && peer.todo.empty()) {
    bool progress = false;
    std::vector<membership::View> views;
    if (options_.rules.halt_first) {
      if (peer.machine->view() != nullptr) views.push_back(*peer.machine->view());
    } else {
      for (const auto& [number, view] : peer.opened) views.push_back(view);
    }
    for (const membership::View& view : views) {
      progress = progress || TryReduceIn(peer, view);
    }
    if (!progress) return;
  }
}

// All contributions to the next step are here: ask the machine, now or a little later.
bool PeerJob::TryReduceIn(Peer& peer, const membership::View& view) {
  if (!peer.machine->state()) return false;
  const std::optional<Reduced> reduced = ReducedIn(peer, view);
  if (!reduced) return false;
  if (!world_.Disturbs(0.03)) return Ask(peer, *reduced);
  FallBehind(peer, [this, id = peer.id, reduced = *reduced] {
    if (Peer* free = Find(id)) Ask(*free, reduced);
  });
  return false;
}

std::optional<PeerJob::Reduced> PeerJob::ReducedIn(const Peer& peer,
                                                   const membership::View& view) const {
  const Round round = RoundOf(peer, view.number);
  std::map<MemberId, Contribution> parts;
  const std::vector<MemberId> members = GroupOf(view, peer.id);
  for (const MemberId& member : members) {
    for (const auto& [key, received] : peer.received) {
      const bool counts = options_.rules.view_check_on_data ? key == round : key.step == round.step;
      if (!counts) continue;
      if (const auto part = received.find(member); part != received.end()) {
        parts.emplace(*part);
      }
    }
  }
  if (parts.empty() || parts.size() != members.size()) return std::nullopt;
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
  all.validated = Validated(parts);
  if (all.validated) all.update = Mix(all.update, 1);
  return all;
}

// A validation counts only where all have read the state before the step.
std::optional<bool> PeerJob::Validated(const std::map<MemberId, Contribution>& parts) {
  bool well = true;
  for (const auto& [id, part] : parts) {
    if (!part.validated || !part.of_state_before) return std::nullopt;
    well = well && *part.validated;
  }
  return well;
}

// True if the machine took it.
bool PeerJob::Ask(Peer& peer, const Reduced& reduced) {
  const membership::Reduction& reduction = reduced.reduction;
  const StateId before = *peer.machine->state();
  const Content content = peer.content;
  const Actions actions = peer.machine->OnReduced(reduction);
  if (actions.empty()) return false;
  for (const membership::Action& action : actions) {
    if (const auto* apply = std::get_if<membership::Apply>(&action)) {
      invariants_.OnApplied(peer.id, apply->id, reduction.view, reduction.step);
      peer.content.Apply(reduced.update);
    }
  }
  invariants_.OnSettled(reduction.view, before.step, content.hash());
  Made(peer, reduced, content);
  const Round done{reduction.view, reduction.step, peer.rounds[reduction.view]++};
  std::erase_if(peer.received, [&](const auto& entry) {
    const Round& of = entry.first;
    return options_.rules.view_check_on_data ? of == done : of.step == done.step;
  });
  Do(peer, actions);
  if (peer.alive && peer.machine->phase() == Phase::kDone && reduction.empty) Over(peer);
  // Once more, when the next step is on its way, or the view has ended.
  if (!reduction.empty) {
    Repeat(peer.id, 0.05, [this, reduced](Peer& again) {
      if (again.todo.empty()) Ask(again, reduced);
    });
  }
  return true;
}

void PeerJob::Over(Peer& peer) {
  peer.machine->SetTraining({"done", peer.machine->state()->step >= options_.steps, ""});
  world_.Report(peer);
}

void PeerJob::OnShare(Peer& peer, ViewNumber view, const MemberId& from, const Content& content,
                      std::size_t holders) {
  const membership::View* current = peer.machine->view();
  if (current == nullptr || current->number != view) return;
  if (peer.machine->phase() != Phase::kCopy) return;
  ++peer.shares[{view, from}];
  peer.staged = content;
  // Who has no state receives where it belongs, piece by piece; without staging, so does who has
  // one.
  const bool has_none = !peer.machine->state();
  if (has_none || !options_.rules.staging) {
    peer.content = content;
    peer.content.prefix.back() ^= 0xdead;
  }
  if (has_none) peer.half_copied = true;
  world_.Hit(Point::kCopy, peer);
  std::size_t whole = 0;
  for (const auto& [key, halves] : peer.shares) {
    whole += key.first == view && halves >= 2 ? 1 : 0;
  }
  if (!peer.alive || whole != holders) return;
  peer.whole = view;
  Do(peer, peer.machine->OnCopied(view));
  Repeat(peer.id, 0.1, [this, view](Peer& again) { Do(again, again.machine->OnCopied(view)); });
}

}  // namespace starling::simulation
