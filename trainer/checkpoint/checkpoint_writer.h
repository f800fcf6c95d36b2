// SPDX-License-Identifier: Apache-2.0
// Writes checkpoints in the background while training goes on.
//
// At a checkpoint's turn the training loop hands over a view of its state, which is copied at once
// (into buffers that are reused) and written by a thread, all but its manifest. The state is not
// settled yet: when the next reduction completes, the loop calls Commit; if the view breaks first,
// Discard. A disk that stalls or is full delays checkpoints, never steps.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "trainer/checkpoint/checkpoint_store.h"

namespace starling::checkpoint {

struct WriteResult {
  StateId id;
  absl::Status status;  // OK: committed and durable. CANCELLED: discarded
  std::string uri;      // where it lies, when OK
  absl::Duration elapsed;
};

// Thread-safe.
class CheckpointWriter {
 public:
  // `done` is called on the writer's thread, once for each Begin that returned true.
  CheckpointWriter(CheckpointStore store, int keep, std::function<void(const WriteResult&)> done);
  // Discards what is not committed yet; finishes what is.
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  // Copies `state` and starts to write it. False, and nothing happens, while one is under way.
  bool Begin(const State& state);

  // The state of Begin is settled, or will never be. Other ids are ignored.
  void Commit(const StateId& id);
  void Discard(const StateId& id);

  // How many checkpoints are kept from now on, at least 1.
  void SetKeep(int keep);

  // Waits until nothing is under way that was committed or discarded; false after `timeout`.
  bool Flush(absl::Duration timeout);

 private:
  class Core;
  std::unique_ptr<Core> core_;
};

}  // namespace starling::checkpoint
