// SPDX-License-Identifier: Apache-2.0
#include "trainer/server/server_member.h"

#include <algorithm>
#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/log/log.h"
#include "common/status/macros.h"
#include "starling/v1alpha1/membership.pb.h"
#include "trainer/checkpoint/checkpoint_store.h"
#include "trainer/control/options.h"
#include "trainer/membership/convert.h"
#include "trainer/parameter_server/convert.h"

namespace starling::server {

using parameter_server::Layout;

namespace {

constexpr int kKeep = 3;  // the schema's default

int KeepOf(const v1alpha1::TrainingJobSpec& spec, const membership::Settings& settings) {
  const absl::StatusOr<v1alpha1::Settings> now = membership::ParseSettings(settings);
  if (now.ok() && now->checkpoint().has_keep()) return static_cast<int>(now->checkpoint().keep());
  return spec.checkpoint().has_keep() ? static_cast<int>(spec.checkpoint().keep()) : kKeep;
}

ServerDirective Convert(const membership::Directive& from,
                        const v1alpha1::ParameterServerDirective& more, int keep) {
  ServerDirective to;
  to.view = from.view;
  for (const std::int64_t shard : more.fetch_ahead()) {
    if (shard >= 0) to.fetch_ahead.push_back(static_cast<std::size_t>(shard));
  }
  to.checkpoint_turn = from.checkpoint_turn;
  to.keep_snapshots = std::max(1, keep);
  return to;
}

}  // namespace

ServerMember::ServerMember(ServerConfig config, ServerParts parts)
    : config_(std::move(config)),
      parts_(std::move(parts)),
      stopwatch_(parts_.clock, config_.began, parts_.recorder),
      activities_(parts_.registry, "starling_server_activity_seconds_total"),
      metrics_(parts_.registry),
      session_({.id = config_.self, .last_exit = config_.last_exit}) {}

ServerMember::~ServerMember() = default;

std::shared_ptr<ShardServer> ServerMember::server() const {
  const sync::MutexLock lock(mutex_);
  return server_;
}

absl::StatusOr<std::shared_ptr<ShardServer>> ServerMember::MakeServer(const Layout& layout) {
  ASSIGN_OR_RETURN(const parameter_server::JobTables tables,
                   parameter_server::TablesOf(config_.spec, layout));
  snapshots_ = std::make_unique<ShardSnapshots>(parts_.storage, tables.shards.size());
  ShardServer::Options options;
  options.id = config_.self;
  options.shards = tables.shards;
  options.peer_name = control::NameOf;
  options.changed = parts_.notify;
  options.watch = [this](const parameter_server::ServerLoop& loop) { Watch(loop); };
  options.clock = &parts_.clock;
  options.executors.count = config_.executors;
  options.stopwatch = &stopwatch_;
  options.applied = [histogram = metrics_.apply_seconds()](double seconds) mutable {
    histogram.Observe(seconds);
  };
  return std::make_shared<ShardServer>(std::move(options), parts_.transport, *snapshots_,
                                       parts_.failpoints);
}

absl::Status ServerMember::Run() {
  stopwatch_.Enter(observe::Activity::kJoining);
  std::optional<Layout> layout;
  {
    const sync::MutexLock lock(mutex_);
    while (session_.exit().empty() && !layout_) changed_.Wait(mutex_);
    if (!session_.exit().empty()) return absl::OkStatus();
    layout = layout_;
  }
  absl::StatusOr<std::shared_ptr<ShardServer>> made = MakeServer(*layout);
  if (!made.ok()) {
    {
      const sync::MutexLock lock(mutex_);
      failure_ = std::string(made.status().message());
    }
    parts_.notify();
    return made.status();
  }
  log::Info("serving", {{"parameters", layout->parameters}, {"snapshots", snapshots_->uri()}});
  ServerDirective newest;
  {
    const sync::MutexLock lock(mutex_);
    server_ = *made;
    newest = newest_;
    if (!session_.exit().empty()) return absl::OkStatus();
  }
  (*made)->OnDirective(newest);
  parts_.notify();
  return (*made)->Run();
}

bool ServerMember::IsHung(const membership::Directive& directive) const {
  const sync::MutexLock lock(mutex_);
  return directive.hung == config_.self &&
         directive.incarnation >= session_.highest_incarnation() && server_ != nullptr;
}

void ServerMember::OnDirective(const membership::Directive& directive) {
  // First of all: what follows may need what the thread that hangs holds.
  if (parts_.on_hung && IsHung(directive)) parts_.on_hung(server()->Standing().thread);
  v1alpha1::ParameterServerDirective more;
  if (!more.ParseFromString(directive.parameter_server)) {
    log::Warning("a directive cannot be read; it is left out");
    return;
  }
  ServerDirective mine = Convert(directive, more, KeepOf(config_.spec, directive.settings));
  std::shared_ptr<ShardServer> server;
  {
    const sync::MutexLock lock(mutex_);
    if (session_.OnDirective(directive) == membership::Session::Heard::kStale) return;
    if (more.has_layout()) {
      const Layout layout = parameter_server::FromProto(more.layout());
      if (!layout_) layout_ = layout;
      // Its views are of other tables than these.
      if (*layout_ != layout) mine.view.reset();
    }
    if (mine.view && session_.MayEnter(*mine.view)) {
      session_.Enter(*mine.view);
    } else {
      mine.view = newest_.view;
    }
    settings_generation_ = std::max(settings_generation_, directive.settings.generation);
    newest_ = mine;
    server = server_;
    changed_.NotifyAll();
  }
  End();
  if (server) server->OnDirective(mine);
}

// If the session says that this process is to end.
void ServerMember::End() {
  std::shared_ptr<ShardServer> server;
  {
    const sync::MutexLock lock(mutex_);
    if (session_.exit().empty() || std::exchange(ended_, true)) return;
    log::Info("this process ends", {{"why", session_.exit()}});
    server = server_;
    changed_.NotifyAll();
  }
  if (server) server->Stop();
}

void ServerMember::Terminate() {
  {
    const sync::MutexLock lock(mutex_);
    session_.Leave();
    if (server_ == nullptr) session_.End("asked to stop; nobody needs me");
  }
  parts_.notify();
  End();
}

void ServerMember::GraceOver() {
  {
    const sync::MutexLock lock(mutex_);
    session_.End("the grace period is over");
  }
  End();
}

membership::Report ServerMember::MakeReport() {
  membership::Report report;
  v1alpha1::ParameterServerReport more;
  v1alpha1::TrainingReport training;
  std::shared_ptr<ShardServer> server;
  {
    const sync::MutexLock lock(mutex_);
    report = session_.MakeReport();
    report.settings_generation = settings_generation_;
    report.training.failure = failure_;
    server = server_;
    if (server && layout_) parameter_server::Put(*layout_, *more.mutable_layout());
  }
  // What the serving thread has not yet fenced is not installed.
  report.installed.reset();
  report.fence = 0;
  if (server) {
    const ServerReport from = server->Report();
    report.standing = server->Standing();
    report.phase = from.phase;
    report.checkpoint_turn = from.checkpoint_turn;
    report.unreachable = from.unreachable;
    report.installed = from.installed;
    if (from.installed) report.fence = from.installed->number;
    more.set_broken(from.broken);
    for (const parameter_server::ShardReport& shard : from.shards) {
      parameter_server::Put(shard, *more.add_shards());
    }
    for (const auto& [shard, ledger] : from.ledgers) {
      v1alpha1::ShardLedger& added = *more.add_ledgers();
      added.set_shard(static_cast<std::int64_t>(shard));
      parameter_server::Put(ledger, added);
    }
    if (from.newest_snapshot) *training.mutable_checkpoint() = CheckpointOf(from);
  }
  seconds_.Fill(report.highest_incarnation, training);
  report.training.bytes = training.SerializeAsString();
  report.parameter_server = more.SerializeAsString();
  return report;
}

v1alpha1::CheckpointStatus ServerMember::CheckpointOf(const ServerReport& from) const {
  v1alpha1::CheckpointStatus checkpoint;
  const membership::StateId& id = *from.newest_snapshot;
  checkpoint.set_name(
      checkpoint::NameOf({static_cast<std::int64_t>(membership::IncarnationOf(id.view)),
                          static_cast<std::int64_t>(membership::EpochOf(id.view)), id.step}));
  checkpoint.set_uri(snapshots_->uri());
  checkpoint.mutable_time()->set_seconds(absl::ToUnixSeconds(from.newest_snapshot_time));
  return checkpoint;
}

// On the serving thread.
void ServerMember::Watch(const parameter_server::ServerLoop& loop) {
  metrics_.Watch(loop, parts_.transport.ledger().Total());
  if (const std::shared_ptr<ShardServer> serving = server()) {
    const ServerReport report = serving->Report();
    metrics_.OnSnapshots(report.snapshots, report.snapshot_failures, report.newest_snapshot_time);
  }
  if (config_.progress_file.empty()) return;
  std::int64_t entries = 0;
  for (std::size_t shard = 0; shard < loop.shards(); ++shard) {
    entries += loop.status(shard)->index;
  }
  if (entries <= progress_) return;
  progress_ = entries;
  std::ofstream(config_.progress_file) << entries;
}

}  // namespace starling::server
