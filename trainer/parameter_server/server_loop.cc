// SPDX-License-Identifier: Apache-2.0
#include "trainer/parameter_server/server_loop.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "common/log/log.h"
#include "common/status/macros.h"

namespace starling::parameter_server {
namespace {

constexpr absl::Duration kTick = absl::Milliseconds(10);
constexpr absl::Duration kPublish = absl::Milliseconds(5);

using observe::Activity;
using observe::While;
using Kind = membership::Standing::Kind;
constexpr observe::Doing kWaiting = {Activity::kIdle, Kind::kWaits, "idle"};
constexpr observe::Doing kApplying = {Activity::kOptimizer, Kind::kWorks, "serving"};
constexpr observe::Doing kAnswering = {Activity::kExchange, Kind::kWorks, "serving"};
// How long these take goes by how much there is.
constexpr observe::Doing kCopying = {Activity::kExchange, Kind::kAnnounced, "copy"};
constexpr observe::Doing kLoading = {Activity::kCheckpoint, Kind::kAnnounced, "checkpoint"};

bool IsUpdate(const Message& message) {
  return std::holds_alternative<Push>(message) || std::holds_alternative<Forward>(message);
}

const observe::Doing& DoingOf(const Message& message) {
  const bool copy = std::holds_alternative<CopyRequest>(message) ||
                    std::holds_alternative<CopyReply>(message) ||
                    std::holds_alternative<PrefetchRequest>(message) ||
                    std::holds_alternative<PrefetchReply>(message);
  return copy ? kCopying : IsUpdate(message) ? kApplying : kAnswering;
}

// Where sending this message may be made to fail; null: nowhere.
const char* PointOf(const Message& message) {
  if (std::holds_alternative<Forward>(message)) return kFailReplicate;
  if (std::holds_alternative<Acknowledgement>(message)) return kFailAcknowledge;
  const bool copy = std::holds_alternative<CopyReply>(message);
  return copy || std::holds_alternative<PrefetchReply>(message) ? kFailRebalance : nullptr;
}

// The bytes of an update that comes in, and of values that go out.
double BytesOf(const UpdatePtr& update) {
  return update == nullptr ? 0 : static_cast<double>(update->bytes());
}
double LoadOf(const Message& message) {
  if (const auto* push = std::get_if<Push>(&message)) return BytesOf(push->entry.update);
  if (const auto* forward = std::get_if<Forward>(&message)) return BytesOf(forward->entry.update);
  const auto* reply = std::get_if<ReadReply>(&message);
  return reply == nullptr || !reply->values ? 0 : static_cast<double>(reply->values->size());
}

// Of rows that come to life nobody knows how many there will be.
std::uint64_t LikelyBytes(const ShardOptions& shard) {
  if (shard.table->kind == TableKind::kKeyValue) return 0;
  if (shard.table->kind == TableKind::kSparse) return Executors().least_bytes;
  return shard.range.size() * shard.table->width * sizeof(float);
}

}  // namespace

int RankOf(const Ranks& ranks, const MemberId& id) {
  const auto found = std::find(ranks.begin(), ranks.end(), id);
  return found == ranks.end() ? -1 : static_cast<int>(found - ranks.begin());
}

ServerLoop::ServerLoop(MemberId id, const std::vector<ShardOptions>& shards,
                       const Executors& executors, std::size_t kept_keys,
                       observe::Stopwatch* stopwatch)
    : id_(std::move(id)), executors_(executors) {
  for (int executor = 0; executor < std::max(1, executors.count); ++executor) {
    const bool given = executor == 0 && stopwatch != nullptr;
    if (!given) own_stopwatches_.push_back(std::make_unique<observe::Stopwatch>(clock_));
    stopwatches_.push_back(given ? stopwatch : own_stopwatches_.back().get());
  }
  for (const ShardOptions& shard : shards) {
    Shard& added = *shards_.emplace_back(std::make_unique<Shard>());
    added.machine = std::make_unique<ChainServer>(ChainServer::Options{id_, shard, {}});
    added.rows = RowReceiver(kept_keys);
    added.work.bytes = LikelyBytes(shard);
    Publish(shards_.size() - 1);
  }
}

double ServerLoop::Seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

absl::Status ServerLoop::Serve(const std::vector<ShardView>& views, const Ranks& ranks,
                               transport::Mesh& mesh, const ServerHooks& hooks) {
  MessageChannel messages(mesh);
  Session session{views, ranks, mesh, messages, hooks};
  session_ = &session;
  stopwatches_[0]->BeginView();
  const While serving(*stopwatches_[0], kAnswering);
  StartExecutors(session);
  absl::Status ended = Carry(session);
  session.executors.clear();
  session_ = nullptr;
  for (std::size_t shard = 0; shard < shards_.size(); ++shard) {
    shards_[shard]->machine->OnBroken(mesh.view());
    Publish(shard);
  }
  return ended;
}

void ServerLoop::StartExecutors(Session& session) {
  std::vector<ExecutorWork> work;
  for (std::size_t shard = 0; shard < shards_.size(); ++shard) {
    work.push_back(shards_[shard]->work);
    work.back().served = session.views[shard].group.Has(id_);
  }
  session.executor_of = ExecutorsOf(work, executors_);
  session.shards_of.resize(static_cast<std::size_t>(std::max(1, executors_.count)));
  for (std::size_t shard = 0; shard < shards_.size(); ++shard) {
    session.shards_of[static_cast<std::size_t>(session.executor_of[shard])].push_back(shard);
  }
  for (std::size_t executor = 1; executor < session.shards_of.size(); ++executor) {
    session.executors.push_back(std::make_unique<Executor>(
        [this, &shards = session.shards_of[executor]] { return PublishDue(shards); }));
    session.executors.back()->PutCall([&mine = *stopwatches_[executor]] { mine.BeginView(); });
  }
  for (std::size_t shard = 0; shard < shards_.size(); ++shard) {
    Call(shard, [this, shard, &session] { Begin(shard, session); });
  }
}

// On the shard's executor: at once, where that is the caller.
void ServerLoop::Call(std::size_t shard, std::function<void()> call) {
  const int executor = session_->executor_of[shard];
  if (executor == 0) return call();
  session_->executors[static_cast<std::size_t>(executor - 1)]->PutCall(std::move(call));
}

observe::Stopwatch& ServerLoop::StopwatchOf(std::size_t shard) const {
  return *stopwatches_[session_ == nullptr
                           ? 0
                           : static_cast<std::size_t>(session_->executor_of[shard])];
}

membership::Standing ServerLoop::Standing() const {
  const auto rank = [](const membership::Standing& one) {
    return std::pair(one.kind == Kind::kWorks       ? 2
                     : one.kind == Kind::kAnnounced ? 1
                                                    : 0,
                     one.since);
  };
  membership::Standing most = stopwatches_[0]->Look();
  for (std::size_t executor = 1; executor < stopwatches_.size(); ++executor) {
    membership::Standing one = stopwatches_[executor]->Look();
    if (rank(one) > rank(most)) most = std::move(one);
  }
  return most;
}

absl::Status ServerLoop::Carry(Session& session) {
  const ServerHooks& hooks = session.hooks;
  net::Deadline next_tick = net::Deadline::Never();
  if (hooks.tick) next_tick = net::Deadline::After(absl::ZeroDuration());
  while (!session.failed) {
    if (next_tick.Expired()) {
      (void)PublishDue(session.shards_of[0]);
      if (!hooks.tick()) break;
      next_tick = net::Deadline::After(kTick);
    }
    for (const auto& executor : session.executors) {
      for (Outgoing& sent : executor->TakeSent()) {
        session.messages.Post(sent.rank, std::move(sent.packet));
      }
    }
    // An executor that is far behind must not keep this thread from its ticks, nor from the view's
    // end.
    if (session.held && !HandOn(session, net::Deadline::After(kTick))) {
      RETURN_IF_ERROR(session.mesh.status());
      continue;
    }
    ASSIGN_OR_RETURN(std::optional<Delivery> delivery, Receive(session, next_tick));
    if (delivery && delivery->shard < shards_.size()) Handle(*std::move(delivery), session);
  }
  return absl::CancelledError("this server was made to fail");
}

absl::StatusOr<std::optional<Delivery>> ServerLoop::Receive(Session& session,
                                                            net::Deadline deadline) {
  const While waiting(*stopwatches_[0], kWaiting);
  return session.messages.Receive(deadline);
}

void ServerLoop::Handle(Delivery delivery, Session& session) {
  // Nobody speaks for another: a worker's mistake must not use up another's numbers.
  const MemberId* sender =
      std::visit([](const auto& one) { return SenderOf(one); }, delivery.message);
  if (sender != nullptr && RankOf(session.ranks, *sender) != delivery.rank) return;
  counts_.pushes += std::holds_alternative<Push>(delivery.message) ? 1 : 0;
  counts_.reads += std::holds_alternative<Read>(delivery.message) ? 1 : 0;
  const std::size_t shard = delivery.shard;
  const int executor = session.executor_of[shard];
  if (executor == 0) return Unpack(shard, delivery.message, session);
  session.held_bytes = delivery.bytes;
  session.held_executor = static_cast<std::size_t>(executor - 1);
  session.held = [this, shard, message = std::move(delivery.message), &session] {
    Unpack(shard, message, session);
  };
  (void)HandOn(session, net::Deadline::After(absl::ZeroDuration()));
}

bool ServerLoop::HandOn(Session& session, net::Deadline deadline) {
  const While waiting(*stopwatches_[0], kWaiting);
  return session.executors[session.held_executor]->PutMessage(session.held, session.held_bytes,
                                                              deadline);
}

void ServerLoop::Begin(std::size_t shard, Session& session) {
  if (session.failed) return;
  const While loading(StopwatchOf(shard), kLoading);
  shards_[shard]->rows.OnView();
  const ShardView& view = session.views[shard];
  ReadableSnapshot offer = std::nullopt;
  if (view.group.restore && session.hooks.offer) offer = session.hooks.offer(shard);
  PostAll(session, shard, shards_[shard]->machine->OnView(view, offer));
  LoadIfWanted(shard, session);
  Touch(shard);
}

// What filters have left out is put back before the machine sees it.
void ServerLoop::Unpack(std::size_t shard, const Message& message, Session& session) {
  if (session.failed) return;
  const While doing(StopwatchOf(shard), DoingOf(message));
  const RowReceiver::Unpacked unpacked = shards_[shard]->rows.Unpack(message);
  if (unpacked.answer) return PostAll(session, shard, {*unpacked.answer});
  Feed(shard, unpacked.whole ? *unpacked.whole : message, session);
}

void ServerLoop::Feed(std::size_t shard, const Message& message, Session& session) {
  if (session.failed) return;
  const bool change = IsUpdate(message);
  if (std::holds_alternative<Push>(message) && Fails(session, kFailPush)) return;
  const double began = Seconds();
  Sends sends = shards_[shard]->machine->OnMessage(message);
  if (change && session.hooks.applied) session.hooks.applied(Seconds() - began);
  if (change && Fails(session, kFailApply)) return;
  double load = kBytesOfAMessage + LoadOf(message);
  for (const Send& send : sends) {
    if (std::holds_alternative<ReadReply>(send.message)) load += LoadOf(send.message);
  }
  shards_[shard]->load.Add(load, Seconds());
  PostAll(session, shard, sends);
  LoadIfWanted(shard, session);
  Touch(shard);
}

// What is for another rank leaves at once on executor 0, and else when the carrying thread looks.
void ServerLoop::PostAll(Session& session, std::size_t shard, const Sends& sends) {
  const int executor = session.executor_of[shard];
  bool sent = false;
  for (const Send& send : sends) {
    const char* point = PointOf(send.message);
    if (session.failed || Fails(session, point)) break;
    const int rank = RankOf(session.ranks, send.to);
    if (rank < 0) continue;
    auto packet = std::make_shared<const Packet>(EncodePacket(shard, send.message));
    if (executor == 0) {
      session.messages.Post(rank, std::move(packet));
    } else {
      session.executors[static_cast<std::size_t>(executor - 1)]->Send({rank, std::move(packet)});
      sent = true;
    }
  }
  if (sent) session.mesh.Wake();
}

bool ServerLoop::Fails(Session& session, const char* point) {
  if (point == nullptr || !session.hooks.fail) return false;
  if (!session.hooks.fail(point)) return false;
  session.failed = true;
  session.mesh.Wake();
  return true;
}

// A snapshot that can no longer be read ends nothing: the view waits, and another is made without
// this server.
void ServerLoop::LoadIfWanted(std::size_t shard, Session& session) {
  ChainServer& machine = *shards_[shard]->machine;
  const std::optional<StateId> wanted = machine.WantsCheckpoint();
  if (!wanted || !session.hooks.load) return;
  const While loading(StopwatchOf(shard), kLoading);
  const absl::StatusOr<std::string> snapshot = session.hooks.load(shard, *wanted);
  if (!snapshot.ok()) return;
  PostAll(session, shard, machine.OnLoaded(machine.fence(), *snapshot));
}

void ServerLoop::FetchAhead(std::size_t shard) {
  if (session_ == nullptr) return;
  Call(shard, [this, shard, &session = *session_] {
    const While copying(StopwatchOf(shard), kCopying);
    PostAll(session, shard, shards_[shard]->machine->Prefetch());
  });
}

void ServerLoop::Look(std::size_t shard, std::function<void(const ChainServer&)> look) {
  ChainServer* machine = shards_[shard]->machine.get();
  if (session_ == nullptr) return look(*machine);
  Call(shard, [machine, look = std::move(look), &mine = StopwatchOf(shard)] {
    const While saving(mine, kLoading);
    look(*machine);
  });
}

std::shared_ptr<const ShardStatus> ServerLoop::status(std::size_t shard) const {
  const sync::MutexLock lock(shards_[shard]->mutex);
  return shards_[shard]->status;
}

// A shard's machine has been fed. What somebody waits for is told at once.
void ServerLoop::Touch(std::size_t at) {
  Shard& shard = *shards_[at];
  shard.changed = true;
  const std::shared_ptr<const ShardStatus> told = status(at);
  const ChainServer& machine = *shard.machine;
  const bool news = told->phase != machine.phase() || told->fence != machine.fence() ||
                    told->open != machine.open() || told->cached != machine.cached();
  if (told->phase != machine.phase() && !machine.refused().ok()) {
    log::Warning("a shard waits for the next view",
                 {{"shard", at}, {"why", std::string(machine.refused().message())}});
  }
  if (news || shard.publish_at.Expired()) Publish(at);
}

// Publishes what has waited long enough; when the next is due.
absl::Duration ServerLoop::PublishDue(const std::vector<std::size_t>& shards) {
  absl::Duration next = absl::InfiniteDuration();
  for (const std::size_t at : shards) {
    if (!shards_[at]->changed) continue;
    if (shards_[at]->publish_at.Expired()) {
      Publish(at);
    } else {
      next = std::min(next, shards_[at]->publish_at.Remaining());
    }
  }
  return next;
}

void ServerLoop::Publish(std::size_t at) {
  Shard& shard = *shards_[at];
  const ChainServer& machine = *shard.machine;
  auto status = std::make_shared<ShardStatus>();
  status->state = machine.state_id();
  status->phase = machine.phase();
  status->fence = machine.fence();
  status->cached = machine.cached();
  status->open = machine.open();
  status->load = shard.load;
  if (machine.state() != nullptr) {
    status->ledger = machine.state()->ledger();
    status->index = machine.state()->index();
    status->bytes = machine.state()->bytes();
    status->staleness = machine.state()->model().staleness().counts();
  }
  shard.changed = false;
  shard.publish_at = net::Deadline::After(kPublish);
  const sync::MutexLock lock(shard.mutex);
  shard.status = std::move(status);
}

}  // namespace starling::parameter_server
