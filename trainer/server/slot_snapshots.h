// SPDX-License-Identifier: Apache-2.0
// Snapshots of slots on storage: one folder a slot, each a checkpoint store of its own, so that
// what was half written is never chosen and what was damaged is never loaded. Slots are saved
// independently, each with its own ledger: any cut restores to every lease once.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/checkpoint/checkpoint_store.h"
#include "trainer/membership/types.h"

namespace starling::server {

// Thread-safe if `files` is.
class SlotSnapshots {
 public:
  // In `<root>/<job uid>/slots/`. `files` outlives it; several servers may share the folder.
  SlotSnapshots(checkpoint::FileSystem& files, std::string_view root, std::string_view job_uid,
                std::size_t slots);

  // Writes under a temporary name, which it returns, and gives that its own.
  absl::StatusOr<std::string> Prepare(std::size_t slot, const membership::StateId& id,
                                      std::string_view bytes);
  // Older ones than the `keep` newest go.
  absl::Status Commit(std::size_t slot, const membership::StateId& id, const std::string& prepared,
                      int keep);

  // <root>/<job uid>/slots.
  const std::string& folder() const { return folder_; }

  // The highest that verifies, or nothing; of an incarnation up to the given one.
  std::optional<membership::StateId> Newest(std::size_t slot, std::uint64_t incarnation) const;
  absl::StatusOr<std::string> Load(std::size_t slot, const membership::StateId& id) const;

 private:
  const std::string folder_;
  std::vector<std::unique_ptr<checkpoint::CheckpointStore>> stores_;
};

}  // namespace starling::server
