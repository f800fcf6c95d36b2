// SPDX-License-Identifier: Apache-2.0
#include "trainer/server/shard_server.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/log/log.h"
#include "common/status/macros.h"

namespace starling::server {

using parameter_server::ServerHooks;
using parameter_server::ShardView;

namespace {

constexpr absl::Duration kTryAgain = absl::Seconds(1);
// Of snapshots taken between two messages: pushes go on in between.
constexpr std::uint64_t kMostBytesAtOnce = 32 << 20;

}  // namespace

ShardServer::ShardServer(Options options, transport::Transport& transport,
                         ShardSnapshots& snapshots, control::Failpoints& failpoints)
    : options_(std::move(options)),
      transport_(transport),
      snapshots_(snapshots),
      failpoints_(failpoints),
      loop_(options_.id, options_.shards, options_.executors, parameter_server::kMostKeptKeys,
            options_.stopwatch),
      saved_(options_.shards.size()),
      writer_(snapshots, failpoints) {
  Tell(/*broken=*/false);
}

void ShardServer::OnDirective(const ServerDirective& directive) {
  const sync::MutexLock lock(mutex_);
  const membership::ViewNumber known = directive_.view ? directive_.view->number : 0;
  std::optional<membership::View> view = std::move(directive_.view);
  const bool newer = directive.view && directive.view->number > known;
  directive_ = directive;
  if (!newer) directive_.view = std::move(view);
  changed_.NotifyAll();
  if (newer && interrupt_) interrupt_(absl::AbortedError("a newer view has begun"));
}

ServerReport ShardServer::Report() const {
  const sync::MutexLock lock(mutex_);
  return report_;
}

void ShardServer::Stop() {
  const sync::MutexLock lock(mutex_);
  stopped_ = true;
  changed_.NotifyAll();
  if (interrupt_) interrupt_(absl::CancelledError("this server stops"));
}

absl::Status ShardServer::Run() {
  while (true) {
    transport::Cancellation ended;
    {
      const sync::MutexLock lock(mutex_);
      const std::uint64_t done = installed_ ? installed_->number : 0;
      while (!stopped_ && (!directive_.view || directive_.view->number <= done)) {
        changed_.Wait(mutex_);
      }
      if (stopped_) return absl::OkStatus();
      const bool planned = !installed_ || directive_.view->at_boundary;
      entering_ = planned ? observe::Activity::kJoining : observe::Activity::kRecovery;
      installed_ = directive_.view;
      interrupt_ = [&ended](const absl::Status& reason) { ended.Cancel(reason); };
    }
    absl::Status status = ServeView(*installed_, ended);
    {
      const sync::MutexLock lock(mutex_);
      interrupt_ = nullptr;
    }
    if (failed_) return status;
    Tell(/*broken=*/true);
    if (!unreadable_.exchange(false)) continue;
    // The next view would fail in the same way at once.
    const net::Deadline later = net::Deadline::After(kTryAgain);
    const sync::MutexLock lock(mutex_);
    while (!stopped_ && !later.Expired()) changed_.WaitFor(mutex_, later.Remaining());
  }
}

void ShardServer::Enter(observe::Activity activity) {
  if (options_.stopwatch == nullptr) return;
  options_.stopwatch->CountAs(std::nullopt);
  options_.stopwatch->Enter(activity);
}

// Fence, mesh, serve: nothing of an older view is taken once the report names this one.
absl::Status ShardServer::ServeView(const membership::View& view, transport::Cancellation& ended) {
  Enter(entering_);
  transport_.Fence(view.number);
  unreachable_.clear();
  ForgetOthersTurns();
  Tell(/*broken=*/false);
  const parameter_server::Ranks ranks = parameter_server::RanksOf(view);
  const int rank = parameter_server::RankOf(ranks, options_.id);
  std::vector<ShardView> shards;
  for (std::size_t shard = 0; shard < loop_.shards(); ++shard)
    shards.push_back(parameter_server::ShardViewOf(view, shard));
  if (rank < 0) return absl::NotFoundError("this server is not in the view");
  std::vector<transport::Peer> peers;
  for (const membership::ViewMember& member : view.members) {
    peers.push_back({options_.peer_name(member.id), member.address, member.pod});
  }
  absl::StatusOr<std::unique_ptr<transport::Mesh>> opened = transport_.Open(
      view.number, peers, rank, net::Deadline::After(options_.open_timeout), &ended);
  if (!opened.ok()) {
    NoteUnreachable(view, opened.status());
    return opened.status();
  }
  const std::unique_ptr<transport::Mesh> mesh = *std::move(opened);
  {
    const sync::MutexLock lock(mutex_);
    interrupt_ = [&mesh](const absl::Status& reason) { mesh->Cancel(reason); };
  }
  if (const absl::Status early = ended.status(); !early.ok()) mesh->Cancel(early);
  ServerHooks hooks;
  hooks.offer = [&](std::size_t shard) -> parameter_server::ReadableSnapshot {
    const absl::StatusOr<std::optional<membership::StateId>> newest =
        snapshots_.Newest(shard, membership::IncarnationOf(view.number));
    if (!newest.ok()) {
      unreadable_ = true;
      return newest.status();
    }
    if (!*newest) return std::nullopt;
    return membership::CheckpointOffer{**newest, {}};
  };
  hooks.load = [this](std::size_t shard, const membership::StateId& id) {
    return snapshots_.Load(shard, id);
  };
  hooks.tick = [this] {
    Tick();
    return !failed_.load();
  };
  hooks.fail = [this](std::string_view point) {
    if (failpoints_.Hit(point)) failed_ = true;
    return failed_.load();
  };
  hooks.applied = options_.applied;
  absl::Status status = loop_.Serve(shards, ranks, *mesh, hooks);
  Enter(observe::Activity::kRecovery);
  NoteUnreachable(view, status);
  const sync::MutexLock lock(mutex_);
  interrupt_ = nullptr;  // before the mesh goes
  return status;
}

void ShardServer::Tick() {
  std::vector<std::size_t> ahead;
  std::int64_t turn = 0;
  int keep = 1;
  {
    const sync::MutexLock lock(mutex_);
    ahead = std::exchange(directive_.fetch_ahead, {});
    turn = directive_.checkpoint_turn;
    keep = directive_.keep_snapshots;
  }
  for (const std::size_t shard : ahead) {
    if (shard < loop_.shards()) loop_.FetchAhead(shard);
  }
  TakeSnapshots();
  OrderSnapshots(turn, keep);
  if (options_.watch) options_.watch(loop_);
  Tell(/*broken=*/false);
}

bool ShardServer::IsTail(std::size_t shard) const {
  if (!installed_ || shard >= installed_->groups.size()) return false;
  const auto& chain = installed_->groups[shard].members;
  return !chain.empty() && chain.back() == options_.id;
}

// What others save from now on they answer for.
void ShardServer::ForgetOthersTurns() {
  for (std::size_t shard = 0; shard < saved_.size(); ++shard) {
    if (!IsTail(shard)) saved_[shard].turn = 0;
  }
}

// What has become of those that were handed over. What cannot be written is tried again after a
// while; nothing depends on it but a restore.
void ShardServer::TakeSnapshots() {
  if (writer_.failed()) failed_ = true;
  for (const SnapshotOutcome& outcome : writer_.Take()) {
    Saved& saved = saved_[outcome.shard];
    saved.ordered = false;
    if (outcome.kind == SnapshotOutcome::Kind::kNone) continue;
    if (outcome.kind == SnapshotOutcome::Kind::kSaved) {
      if (IsTail(outcome.shard)) saved.turn = outcome.turn;
      continue;
    }
    const absl::Status before = std::exchange(snapshot_failure_, outcome.status);
    if (!outcome.status.ok()) {
      ++snapshot_failures_;
      next_try_ = net::Deadline::After(kTryAgain);
      if (before == outcome.status) continue;
      log::Warning("a snapshot was not written",
                   {{"shard", outcome.shard}, {"why", std::string(outcome.status.message())}});
      continue;
    }
    saved.id = outcome.id;
    if (IsTail(outcome.shard)) saved.turn = outcome.turn;
    ++snapshots_written_;
    newest_snapshot_ = std::max(newest_snapshot_.value_or(outcome.id), outcome.id);
    if (options_.clock != nullptr) newest_snapshot_time_ = options_.clock->WallNow();
  }
}

void ShardServer::OrderSnapshots(std::int64_t turn, int keep) {
  if (!next_try_.Expired()) return;
  std::uint64_t taken = 0;
  for (std::size_t shard = 0; shard < loop_.shards(); ++shard) {
    Saved& saved = saved_[shard];
    if (saved.turn >= turn || saved.ordered || !IsTail(shard)) continue;
    const auto status = loop_.status(shard);
    if (!status->open) continue;
    if (!writer_.HasRoom() || taken > kMostBytesAtOnce) return;
    if (saved.id != status->state) taken += status->bytes;
    saved.ordered = true;
    loop_.Look(shard, [=, this, known = saved.id](const parameter_server::ChainServer& machine) {
      HandOver(shard, turn, keep, known, machine);
    });
  }
}

// What is saved is what is there now, not what the status said.
void ShardServer::HandOver(std::size_t shard, std::int64_t turn, int keep,
                           const std::optional<membership::StateId>& saved,
                           const parameter_server::ChainServer& machine) {
  using Kind = SnapshotOutcome::Kind;
  if (!machine.open()) return writer_.Note({shard, {}, turn, Kind::kNone, {}});
  const membership::StateId id = *machine.state_id();
  if (saved == id) return writer_.Note({shard, id, turn, Kind::kSaved, {}});
  writer_.Write({shard, id, turn, keep, machine.state()->Save()});
}

// The turn that is written wherever this server answers; the one that is asked for, if nowhere.
std::int64_t ShardServer::SavedTurn() const {
  const sync::MutexLock lock(mutex_);
  // Of a newer view nothing is known yet.
  if (!installed_ || !directive_.view || directive_.view->number != installed_->number) return 0;
  std::int64_t turn = directive_.checkpoint_turn;
  for (std::size_t shard = 0; shard < saved_.size(); ++shard) {
    if (IsTail(shard)) turn = std::min(turn, saved_[shard].turn);
  }
  return turn;
}

void ShardServer::NoteUnreachable(const membership::View& view, const absl::Status& status) {
  unreachable_.clear();
  const parameter_server::Ranks ranks = parameter_server::RanksOf(view);
  for (const int rank : transport::UnreachableRanks(status)) {
    const auto at = static_cast<std::size_t>(rank);
    if (rank >= 0 && at < ranks.size()) unreachable_.push_back(ranks[at]);
  }
}

void ShardServer::Tell(bool broken) {
  using membership::Phase;
  std::vector<parameter_server::ShardReport> shards;
  std::map<std::size_t, parameter_server::LeaseLedger> ledgers;
  bool aborted = broken, lost = false, synced = true;
  const double now = parameter_server::ServerLoop::Seconds();
  std::string told = absl::StrCat(installed_ ? installed_->number : 0);
  for (std::size_t shard = 0; shard < loop_.shards(); ++shard) {
    const auto status = loop_.status(shard);
    const bool here = installed_ && status->fence == installed_->number;
    const parameter_server::ServerPhase phase = status->phase;
    const bool is_lost = here && phase == parameter_server::ServerPhase::kLost;
    const bool runs = here && (phase == parameter_server::ServerPhase::kRun ||
                               phase == parameter_server::ServerPhase::kOut);
    shards.push_back({status->state, status->cached, is_lost, status->load.PerSecond(now)});
    aborted = aborted || (here && phase == parameter_server::ServerPhase::kAborted);
    lost = lost || is_lost;
    synced = synced && runs;
    const bool open = here && status->open;
    if (open) ledgers[shard] = status->ledger;
    absl::StrAppend(&told, status->cached ? "c" : "", is_lost ? "l" : "", runs ? "r" : "",
                    open ? "o" : "", ";");
  }
  const bool serves = installed_ && synced && !aborted;
  if (options_.stopwatch != nullptr) {
    options_.stopwatch->CountAs(serves ? std::nullopt : std::optional(entering_));
  }
  const std::int64_t turn = SavedTurn();
  absl::StrAppend(&told, aborted ? " broken " : " ", turn);
  {
    const sync::MutexLock lock(mutex_);
    report_.installed = installed_;
    report_.broken = aborted;
    report_.unreachable = unreachable_;
    report_.phase = !installed_ ? Phase::kOut
                    : lost      ? Phase::kLost
                    : aborted   ? Phase::kAborted
                    : synced    ? Phase::kRun
                                : Phase::kSync;
    report_.shards = std::move(shards);
    report_.ledgers = std::move(ledgers);
    report_.checkpoint_turn = turn;
    report_.snapshots = snapshots_written_;
    report_.snapshot_failures = snapshot_failures_;
    report_.newest_snapshot = newest_snapshot_;
    report_.newest_snapshot_time = newest_snapshot_time_;
    report_.snapshot_failure = snapshot_failure_;
  }
  if (std::exchange(told_, told) != told && options_.changed) options_.changed();
}

}  // namespace starling::server
