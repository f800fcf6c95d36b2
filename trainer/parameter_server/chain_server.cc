// SPDX-License-Identifier: Apache-2.0
#include "trainer/parameter_server/chain_server.h"

#include <algorithm>
#include <utility>

namespace starling::parameter_server {
namespace {

constexpr std::size_t kMostGaps = 256;  // pushes of one client that came before an earlier one

}  // namespace

ChainServer::ChainServer(Options options)
    : options_(std::move(options)), rules_(options_.slot.rules) {}

std::optional<StateId> ChainServer::state_id() const {
  if (!state_) return std::nullopt;
  return StateId{synced_view_, state_->index()};
}

Sends ChainServer::OnView(const SlotView& view,
                          const std::optional<membership::CheckpointOffer>& checkpoint) {
  Sends sends;
  if (view.group.number <= fence_) return sends;
  fence_ = view.group.number;
  sync_ids_.clear();
  decision_ = {};
  wants_checkpoint_.reset();
  base_.reset();
  copiers_waiting_.clear();
  synced_.clear();
  open_ = false;
  parked_.clear();
  gaps_.clear();
  reads_.clear();
  hellos_.clear();
  unanswered_.clear();
  installed_ = view;
  if (!group().Has(options_.id)) {
    phase_ = ServerPhase::kOut;  // what it holds stays: it is still a copy
    return sends;
  }
  phase_ = ServerPhase::kSync;
  membership::SyncId sync_id;
  sync_id.view = fence_;
  sync_id.member = options_.id;
  sync_id.state = state_id();
  if (group().restore) sync_id.checkpoint = checkpoint;
  for (const membership::ViewMember& member : group().members) {
    if (member.id != options_.id) sends.push_back({member.id, sync_id});
  }
  On(sync_id, sends);
  return sends;
}

Sends ChainServer::OnMessage(const Message& message) {
  Sends sends;
  std::visit([&](const auto& one) { On(one, sends); }, message);
  return sends;
}

void ChainServer::OnBroken(ViewNumber view) {
  const bool active =
      phase_ == ServerPhase::kSync || phase_ == ServerPhase::kCopy || phase_ == ServerPhase::kRun;
  if (active && group().number == view) phase_ = ServerPhase::kAborted;
}

void ChainServer::On(const membership::SyncId& sync_id, Sends& sends) {
  if (phase_ != ServerPhase::kSync || sync_id.view != group().number) return;
  sync_ids_[sync_id.member] = sync_id;
  if (sync_ids_.size() == group().members.size()) Decide(sends);
}

void ChainServer::Decide(Sends& sends) {
  decision_ = membership::DecideSync(group(), sync_ids_, rules_.sync);
  if (decision_.missing_witness != 0 || decision_.fenced_by != 0) {
    phase_ = ServerPhase::kLost;
    return;
  }
  const auto& holders = decision_.holders;
  const bool holds = std::find(holders.begin(), holders.end(), options_.id) != holders.end();
  if (holds && !decision_.from_checkpoint) {
    if (!decision_.base) state_ = std::make_unique<SlotState>(options_.slot);
    Run(sends);
    return;
  }
  phase_ = ServerPhase::kCopy;
  if (holds) {
    wants_checkpoint_ = decision_.base;
    return;
  }
  const auto rank = static_cast<std::size_t>(group().RankOf(options_.id));
  sends.push_back({holders[rank % holders.size()], CopyRequest{group().number, options_.id}});
}

Sends ChainServer::OnLoaded(ViewNumber view, std::string_view snapshot) {
  Sends sends;
  if (phase_ != ServerPhase::kCopy || !wants_checkpoint_ || group().number != view) return sends;
  wants_checkpoint_.reset();
  auto staged = std::make_unique<SlotState>(options_.slot);
  if (!staged->Load(snapshot).ok()) {
    phase_ = ServerPhase::kAborted;
    return sends;
  }
  state_ = std::move(staged);
  Run(sends);
  return sends;
}

void ChainServer::On(const CopyRequest& request, Sends& sends) {
  const bool here =
      phase_ == ServerPhase::kSync || phase_ == ServerPhase::kCopy || phase_ == ServerPhase::kRun;
  if (!here || request.view != group().number) return;
  if (base_) {
    sends.push_back({request.from, CopyReply{request.view, *decision_.base, base_}});
  } else {
    copiers_waiting_.push_back(request.from);
  }
}

void ChainServer::On(const CopyReply& reply, Sends& sends) {
  if (phase_ != ServerPhase::kCopy || reply.view != group().number) return;
  // Into staging: the old state is whole until the new one is.
  auto staged = std::make_unique<SlotState>(options_.slot);
  if (!staged->Load(*reply.snapshot).ok() || reply.state != *decision_.base) {
    phase_ = ServerPhase::kAborted;
    return;
  }
  state_ = std::move(staged);
  Run(sends);
}

// I hold the base: the view's clients are admitted on it, and I go on.
void ChainServer::Run(Sends& sends) {
  if (!decision_.copiers.empty()) base_ = std::make_shared<const std::string>(state_->Save());
  for (const MemberId& copier : std::exchange(copiers_waiting_, {})) {
    sends.push_back({copier, CopyReply{group().number, *decision_.base, base_}});
  }
  state_->OnView(installed_->clients);
  synced_view_ = group().number;
  phase_ = ServerPhase::kRun;
  const Synced synced{group().number, options_.id};
  if (IsTail()) {
    On(synced, sends);
  } else {
    sends.push_back({group().members.back().id, synced});
  }
  for (const Forward& forward : std::exchange(parked_, {})) On(forward, sends);
}

void ChainServer::On(const Synced& synced, Sends& sends) {
  if (synced.view != fence_) return;
  synced_.insert(synced.from);
  OpenIfAllSynced(sends);
}

void ChainServer::OpenIfAllSynced(Sends& sends) {
  if (phase_ != ServerPhase::kRun || synced_.size() < group().members.size()) return;
  open_ = true;
  base_.reset();
  for (const auto& [entry, outcome] : std::exchange(unanswered_, {})) {
    Acknowledge(entry, outcome, sends);
  }
  for (const Hello& hello : std::exchange(hellos_, {})) On(hello, sends);
  ServeWaiting(sends);
}

void ChainServer::On(const Push& push, Sends& sends) {
  if (!Runs(push.view) || !IsHead()) return;
  const Entry& entry = push.entry;
  switch (state_->StandingOf(entry.client, entry.sequence)) {
    case Standing::kStranger:
      return;
    case Standing::kOld:
      if (!rules_.tail_only) {
        Acknowledge(entry, OutcomeOf(entry.client, entry.sequence), sends);
        return;
      }
      PassDown({push.view, state_->index(), true, entry}, OutcomeOf(entry.client, entry.sequence),
               sends);
      return;
    case Standing::kGap:
      if (gaps_[entry.client].size() < kMostGaps) gaps_[entry.client][entry.sequence] = entry;
      return;
    case Standing::kNext:
      Order(entry, sends);
      break;
  }
  std::map<Sequence, Entry>& waiting = gaps_[entry.client];
  while (!waiting.empty()) {
    const Standing standing = state_->StandingOf(entry.client, waiting.begin()->first);
    if (standing == Standing::kGap) break;
    const Entry next = waiting.begin()->second;
    waiting.erase(waiting.begin());
    if (standing == Standing::kNext) Order(next, sends);
  }
}

void ChainServer::Order(const Entry& entry, Sends& sends) {
  const absl::Status good = state_->Check(entry);
  if (!good.ok()) {
    sends.push_back(
        {entry.client.id, Rejection{group().number, entry.client, entry.sequence, good}});
    return;
  }
  const Outcome outcome = Append(entry);
  PassDown({group().number, state_->index(), false, entry}, outcome, sends);
}

Outcome ChainServer::Append(const Entry& entry) {
  const Outcome outcome = state_->Append(entry);
  if (options_.observer) options_.observer(entry, outcome);
  return outcome;
}

void ChainServer::PassDown(const Forward& forward, Outcome outcome, Sends& sends) {
  if (IsTail()) {
    Acknowledge(forward.entry, outcome, sends);
    ServeWaiting(sends);
    return;
  }
  const auto next = static_cast<std::size_t>(group().RankOf(options_.id)) + 1;
  sends.push_back({group().members[next].id, forward});
}

void ChainServer::On(const Forward& forward, Sends& sends) {
  if (phase_ != ServerPhase::kSync && phase_ != ServerPhase::kCopy && phase_ != ServerPhase::kRun) {
    return;
  }
  if (rules_.same_view_chain && forward.view != group().number) return;
  if (phase_ != ServerPhase::kRun) {
    parked_.push_back(forward);
    return;
  }
  const Entry& entry = forward.entry;
  if (forward.old && forward.index <= state_->index()) {
    PassDown(forward, OutcomeOf(entry.client, entry.sequence), sends);
    return;
  }
  if (forward.old || forward.index != state_->index() + 1) {
    // Links keep their order, so this is one that lost something.
    if (rules_.same_view_chain) phase_ = ServerPhase::kAborted;
    return;
  }
  const Outcome outcome = Append(entry);
  PassDown(forward, outcome, sends);
}

Outcome ChainServer::OutcomeOf(const Client& client, Sequence sequence) const {
  return state_->RefusedOf(client).contains(sequence) ? Outcome::kRefused : Outcome::kTaken;
}

void ChainServer::Acknowledge(const Entry& entry, Outcome outcome, Sends& sends) {
  if (rules_.tail_only && !MayAnswer()) {
    unanswered_.emplace_back(entry, outcome);
    return;
  }
  sends.push_back({entry.client.id, Acknowledgement{group().number, entry.client, entry.sequence,
                                                    outcome, state_->StartOf(entry.client)}});
}

void ChainServer::On(const Hello& hello, Sends& sends) {
  const bool here =
      phase_ == ServerPhase::kSync || phase_ == ServerPhase::kCopy || phase_ == ServerPhase::kRun;
  if (!here || hello.view != group().number || (!IsTail() && rules_.tail_only)) return;
  if (!MayAnswer()) {
    hellos_.push_back(hello);
    return;
  }
  sends.push_back(
      {hello.client.id, Welcome{hello.view, hello.client, state_->LastOf(hello.client),
                                state_->RefusedOf(hello.client), state_->StartOf(hello.client)}});
}

void ChainServer::On(const Read& read, Sends& sends) {
  const bool here =
      phase_ == ServerPhase::kSync || phase_ == ServerPhase::kCopy || phase_ == ServerPhase::kRun;
  if (!here || read.view != group().number || (!IsTail() && rules_.tail_only)) return;
  std::erase_if(reads_, [&](const Read& one) {
    return one.client == read.client && one.request == read.request;
  });
  reads_.push_back(read);
  ServeWaiting(sends);
}

void ChainServer::ServeWaiting(Sends& sends) {
  if (reads_.empty() || (rules_.tail_only && !MayAnswer())) return;
  if (phase_ != ServerPhase::kRun) return;
  std::vector<Read> waiting;
  for (const Read& read : std::exchange(reads_, {})) {
    if (state_->MayRead(read.client, read.clock, read.sequence)) {
      Answer(read, sends);
    } else {
      waiting.push_back(read);
    }
  }
  reads_ = std::move(waiting);
}

void ChainServer::Answer(const Read& read, Sends& sends) {
  const Selection selection{read.first, read.rows, read.keys};
  absl::StatusOr<std::string> values =
      read.remembered ? state_->ReadRemembered(read.client, selection) : state_->Read(selection);
  ReadReply reply{group().number,  read.client, read.request, state_->model().version(),
                  values.status(), nullptr};
  if (values.ok()) reply.values = std::make_shared<const std::string>(*std::move(values));
  sends.push_back({read.client.id, std::move(reply)});
}

}  // namespace starling::parameter_server
