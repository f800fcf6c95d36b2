// SPDX-License-Identifier: Apache-2.0
#include "trainer/testing/client_loop.h"

#include "common/status/macros.h"

namespace starling::parameter_server {

absl::Status ClientLoop::Enter(const ClientView& view, const Ranks& ranks, transport::Mesh& mesh) {
  courier_ = std::make_unique<Courier>(mesh);
  ranks_ = ranks;
  rows_.OnView();
  PostAll(machine_.OnView(view));
  return mesh.status();
}

void ClientLoop::PostAll(const ClientSends& sends) {
  for (const ClientSend& send : sends) {
    const int rank = RankOf(ranks_, send.send.to);
    if (rank < 0) continue;
    const auto packed = rows_.Pack(send.slot, send.send.to, send.send.message);
    courier_->Post(rank, send.slot, packed ? *packed : send.send.message);
  }
}

absl::Status ClientLoop::RunUntil(const std::function<bool()>& done, net::Deadline deadline) {
  while (!done()) {
    ASSIGN_OR_RETURN(const std::optional<Delivery> delivery, courier_->Receive(deadline));
    if (!delivery) {
      return absl::DeadlineExceededError(
          "the parameter servers did not answer in time; wait for the next view");
    }
    const auto* unknown = std::get_if<KeysUnknown>(&delivery->message);
    if (unknown != nullptr) rows_.Forget(delivery->slot, *unknown);
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

absl::Status ClientLoop::Poll() {
  const absl::Status status =
      RunUntil([] { return false; }, net::Deadline::After(absl::ZeroDuration()));
  return absl::IsDeadlineExceeded(status) ? absl::OkStatus() : status;
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
