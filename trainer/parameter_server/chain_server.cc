// SPDX-License-Identifier: Apache-2.0
#include "trainer/parameter_server/chain_server.h"

#include <algorithm>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/macros.h"
#include "trainer/compression/codec.h"

namespace starling::parameter_server {
namespace {

constexpr std::size_t kMostRecords = 4096;
constexpr std::size_t kMostLogBytes = 32 << 20;
constexpr std::size_t kMostGaps = 256;  // pushes of one client that came before an earlier one

// The values of a table of numbers, by the codec that the reader has asked for.
absl::StatusOr<std::string> EncodedAs(compression::CodecNumber number, std::string values) {
  if (number == compression::kIdentity) return values;
  ASSIGN_OR_RETURN(const compression::Codec* codec, compression::FindCodec(number));
  return compression::EncodeText(
      *codec, buffer::ConstView(buffer::DType::kF32, buffer::Device::kCpu, values.data(),
                                values.size() / sizeof(float)));
}

}  // namespace

ChainServer::ChainServer(Options options)
    : options_(std::move(options)), rules_(options_.shard.rules) {}

std::optional<StateId> ChainServer::state_id() const {
  if (!state_) return std::nullopt;
  return StateId{synced_view_, state_->index()};
}

Sends ChainServer::OnView(const ShardView& view, const ReadableSnapshot& snapshot) {
  Sends sends;
  if (view.group.epoch <= fence_) return sends;
  fence_ = view.group.epoch;
  sync_messages_.clear();
  wants_checkpoint_.reset();
  copies_.clear();
  copiers_waiting_.clear();
  synced_.clear();
  open_ = false;
  refused_ = absl::OkStatus();
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
  if (group().restore && !snapshot.ok()) {
    phase_ = ServerPhase::kAborted;
    refused_ = snapshot.status();
    return sends;
  }
  phase_ = ServerPhase::kSync;
  SyncMessage message;
  message.view = message.id.view = fence_;
  message.id.member = options_.id;
  message.id.state = state_id();
  if (group().restore) message.id.checkpoint = *snapshot;
  if (cache_) message.cache = cache_id_;
  if (cache_ && !rules_.cache_is_no_state && message.cache > message.id.state) {
    state_ = std::move(cache_);
    synced_view_ = cache_id_.view;
    message.id.state = cache_id_;
  }
  for (const MemberId& id : group().members) {
    if (id != options_.id) sends.push_back({id, message});
  }
  On(message, sends);
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
  if (active && group().epoch == view) phase_ = ServerPhase::kAborted;
}

void ChainServer::On(const SyncMessage& message, Sends& sends) {
  if (phase_ != ServerPhase::kSync || message.view != group().epoch) return;
  sync_messages_[message.id.member] = message;
  if (sync_messages_.size() == group().members.size()) Decide(sends);
}

void ChainServer::Decide(Sends& sends) {
  std::map<MemberId, membership::SyncId> sync_ids;
  for (const auto& [id, message] : sync_messages_) sync_ids[id] = message.id;
  decision_ = membership::DecideSync(group(), sync_ids, rules_.sync);
  if (decision_.missing_witness != 0 || decision_.fenced_by != 0) {
    phase_ = ServerPhase::kLost;
    return;
  }
  const auto& holders = decision_.holders;
  const bool holds = std::find(holders.begin(), holders.end(), options_.id) != holders.end();
  if (holds && !decision_.from_checkpoint) {
    if (!decision_.base) {
      state_ = std::make_unique<ShardState>(options_.shard);
      ClearLog();
      log_begin_ = {};
    }
    Run(sends);
    return;
  }
  phase_ = ServerPhase::kCopy;
  if (holds) {
    wants_checkpoint_ = decision_.base;
    return;
  }
  const auto rank = static_cast<std::size_t>(group().RankOf(options_.id));
  sends.push_back({holders[rank % holders.size()], CopyRequest{group().epoch, options_.id}});
}

Sends ChainServer::OnLoaded(ViewNumber view, std::string_view snapshot) {
  Sends sends;
  if (phase_ != ServerPhase::kCopy || !wants_checkpoint_ || group().epoch != view) return sends;
  wants_checkpoint_.reset();
  auto staged = std::make_unique<ShardState>(options_.shard);
  if (!staged->Load(snapshot).ok()) {
    phase_ = ServerPhase::kAborted;
    return sends;
  }
  state_ = std::move(staged);
  ClearLog();
  log_begin_ = *decision_.base;
  Run(sends);
  return sends;
}

void ChainServer::On(const CopyRequest& request, Sends& sends) {
  const bool here =
      phase_ == ServerPhase::kSync || phase_ == ServerPhase::kCopy || phase_ == ServerPhase::kRun;
  if (!here || request.view != group().epoch) return;
  if (phase_ == ServerPhase::kRun) {
    SendCopy(request.from, sends);
  } else {
    copiers_waiting_.push_back(request.from);
  }
}

std::optional<StateId> ChainServer::HaveOf(const SyncMessage& message) {
  return std::max(message.id.state, message.cache);
}

std::optional<std::vector<LogRecord>> ChainServer::RecordsSince(
    const std::optional<StateId>& have) const {
  if (!have || decision_.from_checkpoint) return std::nullopt;
  std::optional<std::vector<LogRecord>> records;
  if (*have == log_begin_) records.emplace();
  for (const LogRecord& record : log_) {
    if (records) records->push_back(record);
    if (record.after == *have) records.emplace();
  }
  return records;
}

// Before anything of this view changes the base.
void ChainServer::KeepForCopiers() {
  std::shared_ptr<const std::string> snapshot;
  for (const MemberId& copier : decision_.copiers) {
    CopyReply& reply = copies_[copier];
    reply.view = group().epoch;
    reply.state = *decision_.base;
    const std::optional<StateId> have = HaveOf(sync_messages_.at(copier));
    if (auto records = RecordsSince(have)) {
      reply.since = *have;
      reply.records = *std::move(records);
      continue;
    }
    if (!snapshot) snapshot = std::make_shared<const std::string>(state_->Save());
    reply.snapshot = snapshot;
  }
}

void ChainServer::SendCopy(const MemberId& to, Sends& sends) const {
  const auto copy = copies_.find(to);
  if (copy != copies_.end()) sends.push_back({to, copy->second});
}

void ChainServer::On(const CopyReply& reply, Sends& sends) {
  if (phase_ != ServerPhase::kCopy || reply.view != group().epoch) return;
  bool whole = reply.state == *decision_.base;
  if (whole && reply.snapshot) {
    // Into staging: the old state is whole until the new one is.
    auto staged = std::make_unique<ShardState>(options_.shard);
    whole = staged->Load(*reply.snapshot).ok();
    if (whole) {
      state_ = std::move(staged);
      ClearLog();
      log_begin_ = reply.state;
    }
  } else if (whole) {
    whole = Replay(reply);
  }
  if (!whole) {
    phase_ = ServerPhase::kAborted;
    return;
  }
  cache_.reset();
  Run(sends);
}

// All records are here, and lead from what I have to the base. None are needed where what was
// fetched ahead is the base itself.
bool ChainServer::Replay(const CopyReply& reply) {
  const StateId& end = reply.records.empty() ? reply.since : reply.records.back().after;
  if (end != reply.state) return false;
  if (cache_ && cache_id_ == reply.since) {
    state_ = std::move(cache_);
    ClearLog();
    log_begin_ = reply.since;
  } else if (!state_ || state_id() != reply.since) {
    return false;
  }
  for (const LogRecord& record : reply.records) {
    if (record.entry) {
      if (!AppendAsReplica(*record.entry).ok()) return false;
    } else {
      state_->OnView(record.clients);
    }
    synced_view_ = record.after.view;
    Log(record);
  }
  return true;
}

void ChainServer::ClearLog() {
  log_.clear();
  log_bytes_ = 0;
}

void ChainServer::Log(LogRecord record) {
  if (record.entry && record.entry->update) log_bytes_ += record.entry->update->bytes();
  log_.push_back(std::move(record));
  while (log_.size() > kMostRecords || log_bytes_ > kMostLogBytes) {
    const LogRecord& first = log_.front();
    if (first.entry && first.entry->update) log_bytes_ -= first.entry->update->bytes();
    log_begin_ = first.after;
    log_.pop_front();
  }
}

Sends ChainServer::Prefetch() const {
  if (phase_ != ServerPhase::kOut || !installed_ || group().members.empty()) return {};
  return {{group().members.back(), PrefetchRequest{group().epoch, options_.id}}};
}

void ChainServer::On(const PrefetchRequest& request, Sends& sends) {
  if (!Runs(request.view)) return;
  sends.push_back(
      {request.from, PrefetchReply{request.view, *state_id(),
                                   std::make_shared<const std::string>(state_->Save())}});
}

void ChainServer::On(const PrefetchReply& reply, Sends& /*sends*/) {
  if (phase_ != ServerPhase::kOut || reply.view != fence_) return;
  auto staged = std::make_unique<ShardState>(options_.shard);
  if (!staged->Load(*reply.snapshot).ok()) return;
  cache_ = std::move(staged);
  cache_id_ = reply.state;
}

// I hold the base: the view's clients are admitted on it, and I go on.
void ChainServer::Run(Sends& sends) {
  KeepForCopiers();
  for (const MemberId& copier : std::exchange(copiers_waiting_, {})) SendCopy(copier, sends);
  state_->OnView(installed_->clients);
  synced_view_ = group().epoch;
  Log({*state_id(), std::nullopt, installed_->clients});
  phase_ = ServerPhase::kRun;
  const Synced synced{group().epoch, options_.id};
  if (IsTail()) {
    On(synced, sends);
  } else {
    sends.push_back({group().members.back(), synced});
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
  copies_.clear();
  for (const auto& [entry, outcome] : std::exchange(unanswered_, {})) {
    Acknowledge(entry, outcome, sends);
  }
  for (const Hello& hello : std::exchange(hellos_, {})) On(hello, sends);
  ServeWaiting(sends);
}

void ChainServer::On(const Push& push, Sends& sends) {
  if (!Runs(push.view) || !IsHead()) return;
  const Entry& entry = push.entry;
  if (entry.kind == EntryKind::kAggregate) {
    OrderWhole(entry, sends);
    return;
  }
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
  OrderWaiting(entry.client, sends);
}

// Rule S12: all of its parts or none, and none is ever tried again as a part: their clients push
// them by themselves.
void ChainServer::OrderWhole(const Entry& aggregate, Sends& sends) {
  absl::StatusOr<DecodedUpdate> update = state_->Check(aggregate);
  const bool whole = update.ok() && state_->TakesWhole(aggregate);
  if (!whole && (rules_.whole_aggregates || !update.ok())) {
    for (const Constituent& part : aggregate.parts) {
      sends.push_back({part.client.id, Individually{group().epoch, part.client, part.sequence}});
    }
    return;
  }
  const Outcome outcome = Appended(aggregate, state_->Append(aggregate, *std::move(update)));
  PassDown({group().epoch, state_->index(), false, aggregate}, outcome, sends);
  for (const Constituent& part : aggregate.parts) OrderWaiting(part.client, sends);
}

// What came before an earlier one that is in now.
void ChainServer::OrderWaiting(const Client& client, Sends& sends) {
  std::map<Sequence, Entry>& waiting = gaps_[client];
  while (!waiting.empty() &&
         state_->StandingOf(client, waiting.begin()->first) == Standing::kNext) {
    Order(waiting.extract(waiting.begin()).mapped(), sends);
  }
}

void ChainServer::Order(const Entry& entry, Sends& sends) {
  absl::StatusOr<DecodedUpdate> update = state_->Check(entry);
  if (!update.ok()) {
    sends.push_back(
        {entry.client.id, Rejection{group().epoch, entry.client, entry.sequence, update.status()}});
    return;
  }
  const Outcome outcome = Appended(entry, state_->Append(entry, *std::move(update)));
  PassDown({group().epoch, state_->index(), false, entry}, outcome, sends);
}

Outcome ChainServer::Appended(const Entry& entry, Outcome outcome) {
  if (options_.observer) options_.observer(entry, outcome);
  Log({*state_id(), entry, {}});
  return outcome;
}

void ChainServer::PassDown(const Forward& forward, Outcome outcome, Sends& sends) {
  if (IsTail()) {
    Acknowledge(forward.entry, outcome, sends);
    ServeWaiting(sends);
    return;
  }
  const auto next = static_cast<std::size_t>(group().RankOf(options_.id)) + 1;
  sends.push_back({group().members[next], forward});
}

void ChainServer::On(const Forward& forward, Sends& sends) {
  if (phase_ != ServerPhase::kSync && phase_ != ServerPhase::kCopy && phase_ != ServerPhase::kRun) {
    return;
  }
  if (rules_.same_view_chain && forward.view != group().epoch) return;
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
  const absl::StatusOr<Outcome> outcome = AppendAsReplica(entry);
  if (!outcome.ok()) {
    phase_ = ServerPhase::kAborted;
    return;
  }
  PassDown(forward, Appended(entry, *outcome), sends);
}

absl::StatusOr<Outcome> ChainServer::AppendAsReplica(const Entry& entry) {
  absl::StatusOr<DecodedUpdate> update = state_->Check(entry);
  if (update.ok()) return state_->Append(entry, *std::move(update));
  refused_ = absl::InvalidArgumentError(absl::StrCat(
      "a replica was told to append push ", entry.sequence, " of ", entry.client.id.pod_uid,
      ", which is no update of this shard (", update.status().message(),
      "); its servers must be of one version, and the network must not change bytes"));
  return refused_;
}

Outcome ChainServer::OutcomeOf(const Client& client, Sequence sequence) const {
  const Outcomes not_taken = state_->NotTakenOf(client);
  const auto found = not_taken.find(sequence);
  return found == not_taken.end() ? Outcome::kTaken : found->second;
}

void ChainServer::Acknowledge(const Entry& entry, Outcome outcome, Sends& sends) {
  if (rules_.tail_only && !MayAnswer()) {
    unanswered_.emplace_back(entry, outcome);
    return;
  }
  const auto answer = [&](const Client& client, Sequence sequence) {
    sends.push_back({client.id, Acknowledgement{group().epoch, client, sequence, outcome,
                                                state_->StartOf(client)}});
  };
  for (const Constituent& part : entry.parts) answer(part.client, part.sequence);
  // Who summed up is answered for its own part alone.
  if (entry.kind != EntryKind::kAggregate) answer(entry.client, entry.sequence);
}

void ChainServer::On(const Hello& hello, Sends& sends) {
  const bool here =
      phase_ == ServerPhase::kSync || phase_ == ServerPhase::kCopy || phase_ == ServerPhase::kRun;
  if (!here || hello.view != group().epoch || (!IsTail() && rules_.tail_only)) return;
  if (!MayAnswer()) {
    hellos_.push_back(hello);
    return;
  }
  sends.push_back(
      {hello.client.id, Welcome{hello.view, hello.client, state_->LastOf(hello.client),
                                state_->NotTakenOf(hello.client), state_->StartOf(hello.client)}});
}

void ChainServer::On(const Read& read, Sends& sends) {
  const bool here =
      phase_ == ServerPhase::kSync || phase_ == ServerPhase::kCopy || phase_ == ServerPhase::kRun;
  if (!here || read.view != group().epoch || (!IsTail() && rules_.tail_only)) return;
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
  ReadReply reply{group().epoch,   read.client, read.request, state_->model().version(),
                  values.status(), nullptr};
  if (values.ok()) values = EncodedAs(read.codec, *std::move(values));
  reply.status = values.status();
  if (values.ok()) reply.values = std::make_shared<const std::string>(*std::move(values));
  sends.push_back({read.client.id, std::move(reply)});
}

}  // namespace starling::parameter_server
