// SPDX-License-Identifier: Apache-2.0
#include "trainer/parameter_server/server_loop.h"

#include <algorithm>
#include <utility>

#include "common/status/macros.h"

namespace starling::parameter_server {

int RankOf(const Ranks& ranks, const MemberId& id) {
  const auto found = std::find(ranks.begin(), ranks.end(), id);
  return found == ranks.end() ? -1 : static_cast<int>(found - ranks.begin());
}

ServerLoop::ServerLoop(MemberId id, const std::vector<SlotOptions>& slots) : id_(std::move(id)) {
  for (const SlotOptions& slot : slots) {
    slots_.push_back(std::make_unique<ChainServer>(ChainServer::Options{id_, slot, {}}));
  }
}

void ServerLoop::PostAll(Courier& courier, const Ranks& ranks, std::size_t slot,
                         const Sends& sends) {
  for (const Send& send : sends) {
    if (const int rank = RankOf(ranks, send.to); rank >= 0) {
      courier.Post(rank, slot, send.message);
    }
  }
}

absl::Status ServerLoop::Serve(const std::vector<SlotView>& views, const Ranks& ranks,
                               transport::Mesh& mesh) {
  Courier courier(mesh);
  for (std::size_t slot = 0; slot < slots_.size(); ++slot) {
    PostAll(courier, ranks, slot, slots_[slot]->OnView(views[slot]));
  }
  while (true) {
    absl::StatusOr<std::optional<Delivery>> delivery = courier.Receive(net::Deadline::Never());
    if (!delivery.ok()) {
      for (const auto& slot : slots_) slot->OnBroken(mesh.view());
      return delivery.status();
    }
    if (!*delivery || (*delivery)->slot >= slots_.size()) continue;
    // Nobody speaks for another: a worker's mistake must not use up another's numbers.
    const MemberId* sender =
        std::visit([](const auto& one) { return SenderOf(one); }, (*delivery)->message);
    if (sender != nullptr && RankOf(ranks, *sender) != (*delivery)->rank) continue;
    const std::size_t slot = (*delivery)->slot;
    PostAll(courier, ranks, slot, slots_[slot]->OnMessage((*delivery)->message));
  }
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
