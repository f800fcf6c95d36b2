// SPDX-License-Identifier: Apache-2.0
#include "trainer/client/parameter_server_client.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "trainer/exchange/exchange.h"

namespace starling::client {

using parameter_server::ClientEvent;
using parameter_server::ClientSend;

void ParameterServerClient::Enter(const parameter_server::ClientView& view,
                                  const parameter_server::Ranks& ranks, transport::Mesh& mesh) {
  messages_ = std::make_unique<parameter_server::MessageChannel>(mesh);
  ranks_ = ranks;
  rows_.OnView();
  Post(machine_.OnView(view));
  HandleEvents();
}

void ParameterServerClient::Post(const parameter_server::ClientSends& sends) {
  if (messages_ == nullptr) return;
  for (const ClientSend& send : sends) {
    const int rank = parameter_server::RankOf(ranks_, send.send.to);
    if (rank < 0) continue;
    const auto packed = rows_.Pack(send.shard, send.send.to, send.send.message);
    messages_->Post(rank, send.shard, packed ? *packed : send.send.message);
  }
}

parameter_server::Sequence ParameterServerClient::Push(std::size_t shard,
                                                       parameter_server::Entry entry) {
  parameter_server::Sequence sequence = 0;
  Post(machine_.Push(shard, std::move(entry), sequence));
  return sequence;
}

void ParameterServerClient::Read(std::size_t shard, parameter_server::Read read, OnRead on_read) {
  std::int64_t request = 0;
  const parameter_server::ClientSends sends = machine_.Read(shard, std::move(read), request);
  reads_[request] = std::move(on_read);
  Post(sends);
}

absl::Status ParameterServerClient::Await(const std::function<bool()>& done,
                                          net::Deadline deadline) {
  while (rejected_.ok() && !done()) {
    if (messages_ == nullptr) return absl::UnavailableError("there is no view");
    const net::Deadline patience = LosePatience();
    const absl::StatusOr<std::optional<parameter_server::Delivery>> received =
        messages_->Receive(std::min(deadline, patience));
    if (!received.ok()) return exchange::ViewEnded(received.status());
    if (*received) {
      Handle(**received);
    } else if (deadline.Expired()) {
      return absl::DeadlineExceededError("nothing came in time");
    }
  }
  return rejected_;
}

// A message must come from the client that it names, or from that client's aggregator in a push of
// its own; any other is dropped, since it could acknowledge what was never received.
void ParameterServerClient::Handle(const parameter_server::Delivery& delivery) {
  const membership::MemberId* sender =
      std::visit([](const auto& one) { return parameter_server::SenderOf(one); }, delivery.message);
  if (sender != nullptr && parameter_server::RankOf(ranks_, *sender) != delivery.rank) return;
  if (delivery.shard < machine_.shards()) {
    const auto* unknown = std::get_if<parameter_server::KeysUnknown>(&delivery.message);
    if (unknown != nullptr) rows_.Forget(delivery.shard, *unknown);
    Post(machine_.OnMessage(delivery.shard, delivery.message));
  }
  HandleEvents();
}

bool ParameterServerClient::Wait::Ended(std::uint64_t what) {
  if (what != std::exchange(waiting, what)) {
    until = what == 0 ? net::Deadline::Never() : net::Deadline::After(length);
  }
  return until.Expired();
}

net::Deadline ParameterServerClient::LosePatience() {
  if (gather_.Ended(machine_.gathering())) Post(machine_.FlushGathered());
  if (delegate_.Ended(machine_.delegated())) Post(machine_.PushIndividually());
  (void)gather_.Ended(machine_.gathering());
  (void)delegate_.Ended(machine_.delegated());
  return std::min(gather_.until, delegate_.until);
}

absl::Status ParameterServerClient::Poll() {
  const absl::Status status =
      Await([] { return false; }, net::Deadline::After(absl::ZeroDuration()));
  return absl::IsDeadlineExceeded(status) ? absl::OkStatus() : status;
}

void ParameterServerClient::HandleEvents() {
  for (const ClientEvent& event : machine_.TakeEvents()) {
    std::visit([this](const auto& one) { On(one); }, event);
  }
}

void ParameterServerClient::On(const parameter_server::StartedOver&) {
  reads_.clear();
  if (handlers_.started_over) handlers_.started_over();
}

void ParameterServerClient::On(const parameter_server::Ready& event) {
  if (handlers_.ready) handlers_.ready(event.start);
}

void ParameterServerClient::On(const parameter_server::Acknowledged& event) {
  if (handlers_.acknowledged) handlers_.acknowledged(event);
}

void ParameterServerClient::On(const parameter_server::Rejected& event) {
  rejected_ = absl::InternalError(
      absl::StrCat("a parameter server refuses what this worker pushes: ", event.why.message()));
}

void ParameterServerClient::On(const parameter_server::ReadDone& event) {
  const auto read = reads_.find(event.request);
  if (read == reads_.end()) return;
  const OnRead on_read = std::move(read->second);
  reads_.erase(read);
  on_read(event);
}

}  // namespace starling::client
