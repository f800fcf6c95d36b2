// SPDX-License-Identifier: Apache-2.0
#include "trainer/parameter_server/server_loop.h"

#include <algorithm>
#include <utility>

#include "common/status/macros.h"

namespace starling::parameter_server {
namespace {

constexpr absl::Duration kTick = absl::Milliseconds(10);

// Where sending this message may be made to fail; null: nowhere.
const char* PointOf(const Message& message) {
  if (std::holds_alternative<Forward>(message)) return kFailReplicate;
  if (std::holds_alternative<Acknowledgement>(message)) return kFailAcknowledge;
  const bool copy = std::holds_alternative<CopyReply>(message);
  return copy || std::holds_alternative<PrefetchReply>(message) ? kFailRebalance : nullptr;
}

}  // namespace

int RankOf(const Ranks& ranks, const MemberId& id) {
  const auto found = std::find(ranks.begin(), ranks.end(), id);
  return found == ranks.end() ? -1 : static_cast<int>(found - ranks.begin());
}

ServerLoop::ServerLoop(MemberId id, const std::vector<SlotOptions>& slots) : id_(std::move(id)) {
  for (const SlotOptions& slot : slots) {
    slots_.push_back(std::make_unique<ChainServer>(ChainServer::Options{id_, slot, {}}));
  }
}

void ServerLoop::PostAll(Session& session, std::size_t slot, const Sends& sends) {
  for (const Send& send : sends) {
    const char* point = PointOf(send.message);
    if (session.failed || Fails(session, point)) return;
    if (const int rank = RankOf(session.ranks, send.to); rank >= 0) {
      session.courier.Post(rank, slot, send.message);
    }
  }
}

bool ServerLoop::Fails(Session& session, const char* point) {
  if (point == nullptr || !session.hooks.fail) return false;
  session.failed = session.hooks.fail(point);
  return session.failed;
}

absl::Status ServerLoop::Serve(const std::vector<SlotView>& views, const Ranks& ranks,
                               transport::Mesh& mesh, const ServerHooks& hooks) {
  Courier courier(mesh);
  Session session{ranks, courier, hooks};
  session_ = &session;
  absl::Status ended = Run(views, session);
  session_ = nullptr;
  for (const auto& slot : slots_) slot->OnBroken(mesh.view());
  return ended;
}

absl::Status ServerLoop::Run(const std::vector<SlotView>& views, Session& session) {
  const ServerHooks& hooks = session.hooks;
  for (std::size_t slot = 0; slot < slots_.size(); ++slot) {
    std::optional<membership::CheckpointOffer> offer;
    if (views[slot].group.restore && hooks.offer) offer = hooks.offer(slot);
    PostAll(session, slot, slots_[slot]->OnView(views[slot], offer));
    LoadIfWanted(slot, session);
  }
  net::Deadline next_tick = net::Deadline::Never();
  if (hooks.tick) next_tick = net::Deadline::After(absl::ZeroDuration());
  while (!session.failed) {
    if (next_tick.Expired()) {
      if (!hooks.tick()) break;
      next_tick = net::Deadline::After(kTick);
    }
    ASSIGN_OR_RETURN(const std::optional<Delivery> delivery, session.courier.Receive(next_tick));
    if (delivery && delivery->slot < slots_.size()) Handle(*delivery, session);
  }
  return absl::CancelledError("this server was made to fail");
}

void ServerLoop::Handle(const Delivery& delivery, Session& session) {
  // Nobody speaks for another: a worker's mistake must not use up another's numbers.
  const MemberId* sender =
      std::visit([](const auto& one) { return SenderOf(one); }, delivery.message);
  if (sender != nullptr && RankOf(session.ranks, *sender) != delivery.rank) return;
  const bool push = std::holds_alternative<Push>(delivery.message);
  const bool change = push || std::holds_alternative<Forward>(delivery.message);
  counts_.pushes += push ? 1 : 0;
  counts_.reads += std::holds_alternative<Read>(delivery.message) ? 1 : 0;
  if (push && Fails(session, kFailPush)) return;
  const Sends sends = slots_[delivery.slot]->OnMessage(delivery.message);
  if (change && Fails(session, kFailApply)) return;
  PostAll(session, delivery.slot, sends);
  LoadIfWanted(delivery.slot, session);
}

// A snapshot that can no longer be read ends nothing: the view waits, and another is made without
// this server.
void ServerLoop::LoadIfWanted(std::size_t slot, Session& session) {
  const std::optional<StateId> wanted = slots_[slot]->WantsCheckpoint();
  if (!wanted || !session.hooks.load) return;
  const absl::StatusOr<std::string> snapshot = session.hooks.load(slot, *wanted);
  if (!snapshot.ok()) return;
  PostAll(session, slot, slots_[slot]->OnLoaded(slots_[slot]->fence(), *snapshot));
}

void ServerLoop::FetchAhead(std::size_t slot) {
  if (session_ != nullptr) PostAll(*session_, slot, slots_[slot]->Prefetch());
}

absl::Status ClientLoop::Enter(const ClientView& view, const Ranks& ranks, transport::Mesh& mesh) {
  courier_ = std::make_unique<Courier>(mesh);
  ranks_ = ranks;
  PostAll(machine_.OnView(view));
  return mesh.status();
}

void ClientLoop::PostAll(const ClientSends& sends) {
  for (const ClientSend& send : sends) {
    if (const int rank = RankOf(ranks_, send.send.to); rank >= 0) {
      courier_->Post(rank, send.slot, send.send.message);
    }
  }
}

absl::Status ClientLoop::RunUntil(const std::function<bool()>& done, net::Deadline deadline) {
  while (!done()) {
    ASSIGN_OR_RETURN(const std::optional<Delivery> delivery, courier_->Receive(deadline));
    if (!delivery) {
      return absl::DeadlineExceededError(
          "the parameter servers did not answer in time; wait for the next view");
    }
    PostAll(machine_.OnMessage(delivery->slot, delivery->message));
    for (ClientEvent& event : machine_.TakeEvents()) events_.push_back(std::move(event));
  }
  return absl::OkStatus();
}

absl::StatusOr<Clock> ClientLoop::WaitUntilReady(net::Deadline deadline) {
  std::optional<Clock> start;
  RETURN_IF_ERROR(RunUntil(
      [&] {
        for (const ClientEvent& event : events_) {
          if (const auto* ready = std::get_if<Ready>(&event)) start = ready->start;
        }
        events_.clear();
        return start.has_value();
      },
      deadline));
  return *start;
}

absl::StatusOr<Clock> ClientLoop::Wake(net::Deadline deadline) {
  if (!machine_.rests()) {
    return absl::FailedPreconditionError("this client does not rest; it goes on as it is");
  }
  PostAll(machine_.Wake());
  return WaitUntilReady(deadline);
}

Sequence ClientLoop::Push(std::size_t slot, const Entry& entry) {
  Sequence sequence = 0;
  PostAll(machine_.Push(slot, entry, sequence));
  return sequence;
}

absl::StatusOr<ReadDone> ClientLoop::Pull(std::size_t slot, const Read& read,
                                          net::Deadline deadline) {
  std::int64_t request = 0;
  PostAll(machine_.Read(slot, read, request));
  std::optional<ReadDone> answer;
  RETURN_IF_ERROR(RunUntil(
      [&] {
        for (const ClientEvent& event : events_) {
          const auto* read_done = std::get_if<ReadDone>(&event);
          if (read_done != nullptr && read_done->request == request) answer = *read_done;
        }
        events_.clear();
        return answer.has_value();
      },
      deadline));
  RETURN_IF_ERROR(answer->status);
  return *std::move(answer);
}

absl::Status ClientLoop::Drain(net::Deadline deadline) {
  absl::Status rejected;
  const auto done = [&] {
    for (const ClientEvent& event : events_) {
      if (const auto* one = std::get_if<Rejected>(&event)) rejected = one->why;
    }
    events_.clear();
    for (std::size_t slot = 0; slot < machine_.slots(); ++slot) {
      if (machine_.unacknowledged(slot) > 0) return !rejected.ok();
    }
    return true;
  };
  RETURN_IF_ERROR(RunUntil(done, deadline));
  return rejected;
}

}  // namespace starling::parameter_server
