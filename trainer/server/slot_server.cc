// SPDX-License-Identifier: Apache-2.0
#include "trainer/server/slot_server.h"

#include <algorithm>
#include <utility>

#include "common/status/macros.h"

namespace starling::server {

using parameter_server::JobView;
using parameter_server::ServerHooks;
using parameter_server::SlotView;

SlotServer::SlotServer(Options options, transport::Transport& transport, SlotSnapshots& snapshots,
                       Failpoints& failpoints)
    : options_(std::move(options)),
      transport_(transport),
      snapshots_(snapshots),
      failpoints_(failpoints),
      loop_(options_.id, options_.slots),
      saved_(options_.slots.size()) {
  if (options_.snapshot_interval < absl::InfiniteDuration()) {
    next_snapshot_ = net::Deadline::After(options_.snapshot_interval);
  }
  Tell(/*broken=*/false);
}

// Directives of a coordinator that was replaced are refused; views only go up.
void SlotServer::OnDirective(const ServerDirective& directive) {
  const sync::MutexLock lock(mutex_);
  if (directive.incarnation < report_.incarnation) return;
  report_.incarnation = directive.incarnation;
  const std::uint64_t known = directive_.view ? directive_.view->number : 0;
  std::optional<JobView> view = std::move(directive_.view);
  const bool newer = directive.view && directive.view->number > known &&
                     membership::IncarnationOf(directive.view->number) >= directive.incarnation;
  directive_ = directive;
  directive_.view = newer ? directive.view : std::move(view);
  changed_.NotifyAll();
  if ((newer || directive.released) && interrupt_) {
    interrupt_(absl::AbortedError("a newer view has begun"));
  }
}

ServerReport SlotServer::Report() const {
  const sync::MutexLock lock(mutex_);
  return report_;
}

void SlotServer::Stop() {
  const sync::MutexLock lock(mutex_);
  stopped_ = true;
  changed_.NotifyAll();
  if (interrupt_) interrupt_(absl::CancelledError("this server stops"));
}

absl::Status SlotServer::Run() {
  while (true) {
    transport::Cancellation ended;
    {
      const sync::MutexLock lock(mutex_);
      const std::uint64_t done = installed_ ? installed_->number : 0;
      while (!stopped_ && !directive_.released &&
             (!directive_.view || directive_.view->number <= done)) {
        changed_.Wait(mutex_);
      }
      if (stopped_ || directive_.released) return absl::OkStatus();
      installed_ = directive_.view;
      interrupt_ = [&ended](const absl::Status& reason) { ended.Cancel(reason); };
    }
    const absl::Status status = ServeView(*installed_, ended);
    {
      const sync::MutexLock lock(mutex_);
      interrupt_ = nullptr;
    }
    if (failed_) return status;
    Tell(/*broken=*/true);
  }
}

// Fence, mesh, serve: nothing of an older view is taken once the report names this one.
absl::Status SlotServer::ServeView(const JobView& view, transport::Cancellation& ended) {
  transport_.Fence(view.number);
  Tell(/*broken=*/false);
  const parameter_server::Ranks ranks = RanksOf(view);
  const int rank = parameter_server::RankOf(ranks, options_.id);
  std::vector<SlotView> slots;
  for (std::size_t slot = 0; slot < loop_.slots(); ++slot) slots.push_back(SlotViewOf(view, slot));
  if (rank < 0) return absl::NotFoundError("this server is not in the view");
  std::vector<transport::Peer> peers;
  for (const auto* members : {&view.servers, &view.clients}) {
    for (const membership::ViewMember& member : *members) {
      peers.push_back({options_.peer_name(member.id), member.address});
    }
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<transport::Mesh> mesh,
                   transport_.Open(view.number, peers, rank,
                                   net::Deadline::After(options_.open_timeout), &ended));
  {
    const sync::MutexLock lock(mutex_);
    interrupt_ = [&mesh](const absl::Status& reason) { mesh->Cancel(reason); };
  }
  if (const absl::Status early = ended.status(); !early.ok()) mesh->Cancel(early);
  ServerHooks hooks;
  hooks.offer = [&](std::size_t slot) -> std::optional<membership::CheckpointOffer> {
    const auto newest = snapshots_.Newest(slot, membership::IncarnationOf(view.number));
    if (!newest) return std::nullopt;
    return membership::CheckpointOffer{*newest, {}};
  };
  hooks.load = [this](std::size_t slot, const membership::StateId& id) {
    return snapshots_.Load(slot, id);
  };
  hooks.tick = [this] {
    Tick();
    return !failed_;
  };
  hooks.fail = [this](std::string_view point) {
    failed_ = failed_ || failpoints_.Hit(point);
    return failed_;
  };
  const absl::Status status = loop_.Serve(slots, ranks, *mesh, hooks);
  const sync::MutexLock lock(mutex_);
  interrupt_ = nullptr;  // before the mesh goes
  return status;
}

void SlotServer::Tick() {
  std::vector<std::size_t> ahead;
  {
    const sync::MutexLock lock(mutex_);
    ahead = std::exchange(directive_.fetch_ahead, {});
  }
  for (const std::size_t slot : ahead) {
    if (slot < loop_.slots()) loop_.FetchAhead(slot);
  }
  if (next_snapshot_.Expired()) {
    SaveSnapshots();
    next_snapshot_ = net::Deadline::After(options_.snapshot_interval);
  }
  Tell(/*broken=*/false);
}

// The tail saves: what it holds all others hold too. What cannot be written is tried again at the
// next turn; nothing depends on it but a restore.
void SlotServer::SaveSnapshots() {
  for (std::size_t slot = 0; slot < loop_.slots() && !failed_; ++slot) {
    const parameter_server::ChainServer& machine = loop_.slot(slot);
    if (!machine.open() || *machine.state_id() == saved_[slot]) continue;
    snapshot_failure_ = Save(slot);
  }
}

absl::Status SlotServer::Save(std::size_t slot) {
  const parameter_server::ChainServer& machine = loop_.slot(slot);
  const membership::StateId id = *machine.state_id();
  ASSIGN_OR_RETURN(const std::string prepared,
                   snapshots_.Prepare(slot, id, machine.state()->Save()));
  failed_ = failed_ || failpoints_.Hit(kFailCheckpoint);
  if (failed_) return absl::CancelledError("this server was made to fail");
  RETURN_IF_ERROR(snapshots_.Commit(slot, id, prepared, options_.keep_snapshots));
  saved_[slot] = id;
  ++snapshots_written_;
  return absl::OkStatus();
}

void SlotServer::Tell(bool broken) {
  std::vector<parameter_server::SlotReport> slots;
  std::map<std::size_t, parameter_server::LeaseLedger> ledgers;
  bool aborted = false;
  for (std::size_t slot = 0; slot < loop_.slots(); ++slot) {
    const parameter_server::ChainServer& machine = loop_.slot(slot);
    const bool here = installed_ && machine.fence() == installed_->number;
    slots.push_back({machine.state_id(), machine.cached(),
                     here && machine.phase() == parameter_server::ServerPhase::kLost});
    aborted = aborted || (here && machine.phase() == parameter_server::ServerPhase::kAborted);
    if (here && machine.open()) ledgers[slot] = machine.state()->ledger();
  }
  const sync::MutexLock lock(mutex_);
  report_.installed = installed_;
  report_.broken = broken || aborted;
  report_.slots = std::move(slots);
  report_.ledgers = std::move(ledgers);
  report_.snapshots = snapshots_written_;
  report_.snapshot_failure = snapshot_failure_;
}

}  // namespace starling::server
