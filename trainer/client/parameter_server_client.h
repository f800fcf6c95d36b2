// SPDX-License-Identifier: Apache-2.0
// A worker's pushes to the shards and its reads of them, many at a time: the client machine
// (parameter_server/shard_client.h) over the mesh of the present view.
//
// Rows that a server knows by name (parameter_server/filters.h) are named here, on the way to the
// wire. Nothing here waits but Await, which handles what arrives until a condition holds. What was
// pushed or read and has no answer when a view ends is sent again in the next, unless the client
// starts over there. To react to another event: a handler here.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "common/net/deadline.h"
#include "trainer/parameter_server/filters.h"
#include "trainer/parameter_server/server_loop.h"
#include "trainer/parameter_server/shard_client.h"

namespace starling::client {

// Confined to one thread.
class ParameterServerClient {
 public:
  // Called while something arrives, on the thread that awaits it.
  struct Handlers {
    std::function<void()> started_over;
    std::function<void(parameter_server::Clock)> ready;
    std::function<void(const parameter_server::Acknowledged&)> acknowledged;
  };
  using OnRead = std::function<void(const parameter_server::ReadDone&)>;

  // Where pushes go through a group: how long who sums up waits for parts that are missing, and the
  // others for it.
  struct Patience {
    absl::Duration gather;
    absl::Duration delegate;
  };

  ParameterServerClient(membership::MemberId id, std::size_t shards, const Patience& patience,
                        bool key_cache = false)
      : machine_(std::move(id), shards),
        rows_(key_cache, shards),
        gather_{patience.gather},
        delegate_{patience.delegate} {}
  void SetHandlers(Handlers handlers) { handlers_ = std::move(handlers); }

  // `mesh` lives until Leave.
  void Enter(const parameter_server::ClientView& view, const parameter_server::Ranks& ranks,
             transport::Mesh& mesh);
  void Leave() { messages_.reset(); }

  // Between views too: then it is sent in the next one.
  parameter_server::Sequence Push(std::size_t shard, parameter_server::Entry entry);
  // `on_read` is called once, unless the client starts over or forgets its reads.
  void Read(std::size_t shard, parameter_server::Read read, OnRead on_read);
  void ForgetReads() { reads_.clear(); }
  // This client has no work: nobody waits for it; then it has some again, and is told ready().
  void Rest() { Post(machine_.Rest()); }
  void Wake() { Post(machine_.Wake()); }
  bool rests() const { return machine_.rests(); }
  // Whether others push through this client; and it will not answer for a while.
  bool sums_up() const { return machine_.sums_up(); }
  void StandDown() { Post(machine_.StandDown()); }

  // Handles what arrives until `done`: OK; or until `deadline`: DEADLINE_EXCEEDED. UNAVAILABLE,
  // with the ranks that could not be reached, means that the view has ended here. INTERNAL, from
  // then on always: a server refused a push as malformed, a mistake of this program that sending
  // again would repeat.
  absl::Status Await(const std::function<bool()>& done, net::Deadline deadline);
  // Handles what has arrived, and moves what was posted as far as the links take it.
  absl::Status Poll();
  // Whether anything that was posted may not have left yet.
  bool sending() const { return messages_ != nullptr && messages_->sending(); }

  std::size_t unacknowledged(std::size_t shard) const { return machine_.unacknowledged(shard); }

 private:
  // Whether what a number names has waited for so long.
  struct Wait {
    bool Ended(std::uint64_t what);

    absl::Duration length;
    std::uint64_t waiting = 0;
    net::Deadline until = net::Deadline::Never();
  };

  // Sends what has waited long enough; when to look again.
  net::Deadline LosePatience();
  void Handle(const parameter_server::Delivery& delivery);
  void Post(const parameter_server::ClientSends& sends);
  void HandleEvents();
  void On(const parameter_server::StartedOver& event);
  void On(const parameter_server::Ready& event);
  void On(const parameter_server::Acknowledged& event);
  void On(const parameter_server::Rejected& event);
  void On(const parameter_server::ReadDone& event);

  parameter_server::ShardClient machine_;
  parameter_server::RowSender rows_;
  Handlers handlers_;
  parameter_server::Ranks ranks_;
  std::unique_ptr<parameter_server::MessageChannel> messages_;  // null between views
  Wait gather_;
  Wait delegate_;
  std::map<std::int64_t, OnRead> reads_;
  absl::Status rejected_;
};

}  // namespace starling::client
