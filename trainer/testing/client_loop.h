// SPDX-License-Identifier: Apache-2.0
// For tests and measurements: a worker's own pipe to parameter servers
// (client::ParameterServerClient) with calls that wait, one after another.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/net/deadline.h"
#include "common/status/macros.h"
#include "trainer/client/parameter_server_client.h"

namespace starling::parameter_server {

// Confined to one thread.
class ClientLoop {
 public:
  ClientLoop(MemberId id, std::size_t shards, bool key_cache = false)
      : shards_(shards),
        pipe_(std::move(id), shards, {absl::InfiniteDuration(), absl::InfiniteDuration()},
              key_cache) {
    client::ParameterServerClient::Handlers handlers;
    handlers.started_over = [this] { start_.reset(); };
    handlers.ready = [this](Clock start) { start_ = start; };
    pipe_.SetHandlers(std::move(handlers));
  }
  ClientLoop(const ClientLoop&) = delete;
  ClientLoop& operator=(const ClientLoop&) = delete;

  // Enters a view; what is not acknowledged is sent again. `mesh` lives until the next Enter.
  absl::Status Enter(const ClientView& view, const Ranks& ranks, transport::Mesh& mesh) {
    if (view.joined == 0) start_.reset();
    joined_ = view.joined;
    pipe_.Enter(view, ranks, mesh);
    return mesh.status();
  }
  // The view in which the present life of this client began; 0: it was in none.
  ViewNumber joined() const { return joined_; }
  // All shards have welcomed it in that life.
  bool ready() const { return start_.has_value(); }
  // Waits until they have: where this client starts. UNAVAILABLE if the view ended.
  absl::StatusOr<Clock> WaitUntilReady(net::Deadline deadline) {
    RETURN_IF_ERROR(Await([this] { return ready(); }, deadline));
    return *start_;
  }
  // This client has no work: nobody waits for it. Then it has some again: where it goes on;
  // FAILED_PRECONDITION if it did not rest.
  void Rest() { pipe_.Rest(); }
  absl::StatusOr<Clock> Wake(net::Deadline deadline) {
    if (!pipe_.rests()) {
      return absl::FailedPreconditionError("this client does not rest; it goes on as it is");
    }
    start_.reset();
    pipe_.Wake();
    return WaitUntilReady(deadline);
  }
  // Sends; the acknowledgement is waited for by Drain.
  Sequence Push(std::size_t shard, const Entry& entry) { return pipe_.Push(shard, entry); }
  // The values, when the model allows this read.
  absl::StatusOr<ReadDone> Pull(std::size_t shard, const parameter_server::Read& read,
                                net::Deadline deadline) {
    const auto answer = std::make_shared<std::optional<ReadDone>>();
    pipe_.Read(shard, read, [answer](const ReadDone& done) { *answer = done; });
    RETURN_IF_ERROR(Await([&] { return answer->has_value(); }, deadline));
    RETURN_IF_ERROR((*answer)->status);
    return **answer;
  }
  // Moves what was pushed as far as the links take it now.
  absl::Status Poll() { return pipe_.Poll(); }
  // Returns when everything pushed is acknowledged in this view; INTERNAL if something is refused
  // as malformed.
  absl::Status Drain(net::Deadline deadline) {
    const auto done = [this] {
      for (std::size_t shard = 0; shard < shards_; ++shard) {
        if (pipe_.unacknowledged(shard) > 0) return false;
      }
      return true;
    };
    return Await(done, deadline);
  }

 private:
  absl::Status Await(const std::function<bool()>& done, net::Deadline deadline) {
    const absl::Status status = pipe_.Await(done, deadline);
    if (!absl::IsDeadlineExceeded(status)) return status;
    return absl::DeadlineExceededError(
        "the parameter servers did not answer in time; wait for the next view");
  }

  const std::size_t shards_;
  client::ParameterServerClient pipe_;
  ViewNumber joined_ = 0;
  std::optional<Clock> start_;
};

}  // namespace starling::parameter_server
