// SPDX-License-Identifier: Apache-2.0
#include "trainer/parameter_server/message_channel.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/macros.h"

namespace starling::parameter_server {
namespace {

constexpr std::size_t kBuffers = 8;
constexpr transport::Tag kTag{0, 0x70737276};  // one channel: messages of a pair keep their order

}  // namespace

MessageChannel::MessageChannel(transport::Mesh& mesh) : mesh_(mesh) {
  for (int rank = 0; rank < mesh_.size(); ++rank) {
    if (rank != mesh_.rank()) AwaitPrefix(rank);
  }
}

std::shared_ptr<std::string> BufferPool::Take(std::size_t bytes) {
  std::unique_ptr<std::string> buffer;
  {
    const sync::MutexLock lock(mutex_);
    const auto fits = std::find_if(free_.begin(), free_.end(),
                                   [&](const auto& one) { return one->size() == bytes; });
    if (fits != free_.end()) {
      buffer = std::move(*fits);
      free_.erase(fits);
    }
  }
  if (buffer == nullptr) buffer = std::make_unique<std::string>(bytes, '\0');
  return {buffer.release(), [pool = weak_from_this()](std::string* used) {
            std::unique_ptr<std::string> returned(used);
            if (const auto alive = pool.lock()) alive->GiveBack(std::move(returned));
          }};
}

void BufferPool::GiveBack(std::unique_ptr<std::string> buffer) {
  std::unique_ptr<std::string> oldest;  // freed without the mutex
  const sync::MutexLock lock(mutex_);
  free_.push_back(std::move(buffer));
  if (free_.size() <= kBuffers) return;
  oldest = std::move(free_.front());
  free_.pop_front();
}

void MessageChannel::AwaitPrefix(int rank) {
  Incoming& incoming = incoming_[rank];
  incoming.in_head = false;
  incoming.awaited = {mesh_.PostReceive(rank, kTag, incoming.prefix_bytes)};
}

void MessageChannel::Post(int rank, std::uint64_t shard, const Message& message) {
  Post(rank, std::make_shared<const Packet>(EncodePacket(shard, message)));
}

void MessageChannel::Post(int rank, std::shared_ptr<const Packet> packet) {
  const auto post = [&](std::span<const std::byte> bytes) {
    outgoing_[mesh_.PostSend(rank, kTag, bytes)] = packet;
  };
  post(packet->prefix);
  post(std::as_bytes(std::span(packet->head)));
  if (packet->body && !packet->body->empty()) post(std::as_bytes(std::span(*packet->body)));
}

absl::StatusOr<bool> MessageChannel::WaitOnce(net::Deadline deadline) {
  std::vector<transport::Ticket> tickets;
  std::map<transport::Ticket, int> from;
  for (const auto& [rank, incoming] : incoming_) {
    for (const transport::Ticket ticket : incoming.awaited) {
      tickets.push_back(ticket);
      from[ticket] = rank;
    }
  }
  for (const auto& [ticket, packet] : outgoing_) tickets.push_back(ticket);
  ASSIGN_OR_RETURN(const std::optional<transport::Ticket> done, mesh_.WaitAny(tickets, deadline));
  if (!done) return false;
  if (outgoing_.erase(*done) > 0) return true;
  ASSIGN_OR_RETURN(std::optional<Delivery> whole, Advance(from.at(*done), *done));
  if (whole) delivered_.push_back(*std::move(whole));
  return true;
}

absl::StatusOr<std::optional<Delivery>> MessageChannel::Advance(int rank,
                                                                transport::Ticket ticket) {
  Incoming& incoming = incoming_.at(rank);
  std::erase(incoming.awaited, ticket);
  if (!incoming.in_head) {
    absl::StatusOr<Prefix> prefix = DecodePrefix(incoming.prefix_bytes);
    if (!prefix.ok()) {
      mesh_.Cancel(absl::Status(
          prefix.status().code(),
          absl::StrCat(mesh_.member(rank), ": ", std::string(prefix.status().message()))));
      return mesh_.status();
    }
    incoming.prefix = *prefix;
    incoming.in_head = true;
    incoming.head.resize(prefix->head_bytes);
    incoming.awaited.push_back(
        mesh_.PostReceive(rank, kTag, std::as_writable_bytes(std::span(incoming.head))));
    if (prefix->body_bytes > 0) {
      incoming.body = buffers_->Take(prefix->body_bytes);
      incoming.awaited.push_back(
          mesh_.PostReceive(rank, kTag, std::as_writable_bytes(std::span(*incoming.body))));
    }
  }
  if (!incoming.awaited.empty()) return std::nullopt;
  absl::StatusOr<Message> message =
      DecodeMessage(incoming.prefix, incoming.head, std::move(incoming.body));
  if (!message.ok()) {
    mesh_.Cancel(message.status());
    return mesh_.status();
  }
  Delivery delivery{rank, incoming.prefix.shard, *std::move(message), incoming.prefix.body_bytes};
  AwaitPrefix(rank);
  return delivery;
}

absl::StatusOr<std::optional<Delivery>> MessageChannel::Receive(net::Deadline deadline) {
  while (delivered_.empty()) {
    ASSIGN_OR_RETURN(const bool moved, WaitOnce(deadline));
    if (!moved) return std::nullopt;
  }
  Delivery delivery = std::move(delivered_.front());
  delivered_.pop_front();
  return delivery;
}

absl::Status MessageChannel::Flush(net::Deadline deadline) {
  while (!outgoing_.empty()) {
    ASSIGN_OR_RETURN(const bool moved, WaitOnce(deadline));
    if (!moved) {
      return absl::DeadlineExceededError(
          "not all messages left in time; a peer does not receive: wait for the next view");
    }
  }
  return absl::OkStatus();
}

}  // namespace starling::parameter_server
