// SPDX-License-Identifier: Apache-2.0
// Checkpoints of one worker: turns carried out in the background, and the search for the newest
// when nobody has a state.
//
// Only the view's first member writes. The membership machine says when: a snapshot at a turn's
// boundary, its commit once the next reduction has settled it, its removal if the view broke first.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/clock/clock.h"
#include "starling/v1alpha1/training_job.pb.h"
#include "trainer/checkpoint/checkpoint_store.h"
#include "trainer/checkpoint/checkpoint_writer.h"
#include "trainer/checkpoint/state_parts.h"
#include "trainer/membership/types.h"

namespace starling::worker {

// The attribute that names the data that a state was trained on.
inline constexpr char kDataDigest[] = "dataDigest";

checkpoint::StateId ToCheckpointId(const membership::StateId& id);
membership::StateId FromCheckpointId(const checkpoint::StateId& id);
// As the job's status shows it, written now.
v1alpha1::CheckpointStatus ToStatus(const checkpoint::WriteResult& result,
                                    const clock::Clock& clock);

// Confined to the training loop's thread.
class Checkpointing {
 public:
  // What became of a snapshot, on the writer's thread; not told of dropped ones.
  using OnWritten = std::function<void(const checkpoint::WriteResult&)>;

  // `attributes` go into every checkpoint.
  Checkpointing(checkpoint::CheckpointStore store, int64_t keep,
                std::map<std::string, std::string> attributes, OnWritten on_written);

  // Copies the state and starts to write it without committing. False when the writer is still busy
  // after `patience`.
  bool Begin(const checkpoint::StateParts& state, const membership::StateId& id,
             const membership::Agreed& agreed, absl::Duration patience);
  // The snapshot `id` is settled: it gets its name. False when it is not one of ours.
  bool Commit(const membership::StateId& id);
  void Drop(const membership::StateId& id) { writer_.Discard(ToCheckpointId(id)); }
  void SetKeep(int64_t keep) { writer_.SetKeep(static_cast<int>(keep)); }
  // Until what was committed is on the disk.
  bool Flush(absl::Duration timeout) { return writer_.Flush(timeout); }

  // The newest checkpoint that can be read and verified; it is kept for Load.
  absl::StatusOr<std::optional<membership::CheckpointOffer>> FindNewest();
  // The state that the checkpoint `id` holds, in memory of its own. `own`: with the parts that each
  // member has for itself (checkpoint::Scope), which only one member of a view takes.
  absl::StatusOr<checkpoint::StateParts> Load(const checkpoint::StateParts& state,
                                              const membership::StateId& id, bool own);

  const checkpoint::CheckpointStore& store() const { return store_; }

 private:
  const checkpoint::CheckpointStore store_;
  const std::map<std::string, std::string> attributes_;
  std::optional<membership::StateId> begun_;
  std::optional<checkpoint::LoadedCheckpoint> found_;
  checkpoint::CheckpointWriter writer_;  // last: its thread ends first
};

}  // namespace starling::worker
