// SPDX-License-Identifier: Apache-2.0
// Messages of servers and clients over the mesh of a view: whoever speaks first is heard, bodies
// are received into buffers of their own and used there.
//
// A message is three frames: prefix, head, body (none if it is empty). One prefix per peer is
// always awaited; the rest is received when its length is known. Sent buffers live until the link
// has taken them.
#pragma once

#include <array>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/sync/mutex.h"
#include "trainer/parameter_server/wire.h"
#include "trainer/transport/mesh.h"

namespace starling::parameter_server {

struct Delivery {
  int rank = 0;
  std::uint64_t shard = 0;
  Message message;
  std::size_t bytes = 0;  // of its body
};

// Buffers that nobody holds any more, to be filled again: fresh memory costs as much as receiving
// into it. Whoever drops the last reference gives the buffer back, on whatever thread. Thread-safe.
class BufferPool : public std::enable_shared_from_this<BufferPool> {
 public:
  // One of exactly `bytes` bytes, of any content; it may outlive the pool.
  std::shared_ptr<std::string> Take(std::size_t bytes);

 private:
  void GiveBack(std::unique_ptr<std::string> buffer);

  sync::Mutex mutex_;
  std::deque<std::unique_ptr<std::string>> free_ ABSL_GUARDED_BY(mutex_);
};

// Confined to one thread, as its mesh is.
class MessageChannel {
 public:
  // `mesh` outlives it.
  explicit MessageChannel(transport::Mesh& mesh);

  // To another rank. What the link takes at once is on its way when this returns.
  void Post(int rank, std::uint64_t shard, const Message& message);
  void Post(int rank, std::shared_ptr<const Packet> packet);
  // The next message, or nothing once `deadline` has passed or the mesh was told to wake. An error
  // ends the mesh: a link broke, it was cancelled, or a peer sent what is no message of ours.
  absl::StatusOr<std::optional<Delivery>> Receive(net::Deadline deadline);
  // Waits until all that was posted has left; what arrives meanwhile is kept for Receive.
  absl::Status Flush(net::Deadline deadline);
  // Whether anything that was posted may not have left: only Receive and Flush move it.
  bool sending() const { return !outgoing_.empty(); }

 private:
  struct Incoming {
    std::array<std::byte, kPrefixBytes> prefix_bytes;
    Prefix prefix;
    std::string head;
    std::shared_ptr<std::string> body;
    std::vector<transport::Ticket> awaited;  // the prefix; then head and body
    bool in_head = false;
  };

  void AwaitPrefix(int rank);
  // One ticket of `rank` has come: perhaps a message is whole.
  absl::StatusOr<std::optional<Delivery>> Advance(int rank, transport::Ticket ticket);
  absl::StatusOr<bool> WaitOnce(net::Deadline deadline);

  transport::Mesh& mesh_;
  const std::shared_ptr<BufferPool> buffers_ = std::make_shared<BufferPool>();
  std::map<int, Incoming> incoming_;
  std::map<transport::Ticket, std::shared_ptr<const Packet>> outgoing_;
  std::deque<Delivery> delivered_;
};

}  // namespace starling::parameter_server
