// SPDX-License-Identifier: Apache-2.0
// For tests and measurements: a client of parameter servers whose calls wait, one after another.
// A worker's client is SlotPipe, which never waits for one call while another could go on.
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "trainer/parameter_server/courier.h"
#include "trainer/parameter_server/filters.h"
#include "trainer/parameter_server/server_loop.h"
#include "trainer/parameter_server/slot_client.h"

namespace starling::parameter_server {

// Confined to one thread.
class ClientLoop {
 public:
  ClientLoop(MemberId id, std::size_t slots, bool key_cache = false)
      : machine_(std::move(id), slots), rows_(key_cache, slots) {}

  // Enters a view; what is not acknowledged is sent again. `mesh` lives until the next Enter.
  absl::Status Enter(const ClientView& view, const Ranks& ranks, transport::Mesh& mesh);
  // Waits for the welcome of all slots: where this client starts. ABORTED if the view ended.
  absl::StatusOr<Clock> WaitUntilReady(net::Deadline deadline);
  // This client has no work: nobody waits for it. Then it has some again: where it goes on;
  // FAILED_PRECONDITION if it did not rest.
  void Rest() { PostAll(machine_.Rest()); }
  absl::StatusOr<Clock> Wake(net::Deadline deadline);
  // Sends; the acknowledgement is waited for by Drain.
  Sequence Push(std::size_t slot, const Entry& entry);
  // The values, when the model allows this read.
  absl::StatusOr<ReadDone> Pull(std::size_t slot, const Read& read, net::Deadline deadline);
  // Moves what was pushed as far as the links take it now.
  absl::Status Poll();
  // Returns when everything pushed is acknowledged in this view.
  absl::Status Drain(net::Deadline deadline);

  const SlotClient& machine() const { return machine_; }

 private:
  void PostAll(const ClientSends& sends);
  // Handles messages until `done` holds of what has happened.
  absl::Status RunUntil(const std::function<bool()>& done, net::Deadline deadline);

  SlotClient machine_;
  RowSender rows_;
  Ranks ranks_;
  std::unique_ptr<Courier> courier_;
  std::vector<ClientEvent> events_;
};

}  // namespace starling::parameter_server
