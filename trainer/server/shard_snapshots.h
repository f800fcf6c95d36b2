// SPDX-License-Identifier: Apache-2.0
// Snapshots of shards on storage: one prefix a shard, each a checkpoint store of its own, so that
// what was half written is never chosen and what was damaged is never loaded. Shards are saved
// independently, each with its own ledger: any cut restores to every lease once.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/storage/blob_store.h"
#include "trainer/checkpoint/checkpoint_store.h"
#include "trainer/membership/types.h"

namespace starling::server {

// Thread-safe.
class ShardSnapshots {
 public:
  // Below shards/ in `blobs`, which outlives it; several servers may share them.
  ShardSnapshots(storage::BlobStore& blobs, std::size_t shards);

  // Writes all but the manifest, which Commit puts.
  absl::StatusOr<checkpoint::Prepared> Prepare(std::size_t shard, const membership::StateId& id,
                                               std::string_view bytes);
  // Older ones than the `keep` newest go.
  absl::Status Commit(std::size_t shard, const checkpoint::Prepared& prepared, int keep);

  // Where all of them are.
  const std::string& uri() const { return uri_; }

  // The highest that verifies, or nothing; of an incarnation up to the given one. Errors as of
  // CheckpointStore::NewestVerified.
  absl::StatusOr<std::optional<membership::StateId>> Newest(std::size_t shard,
                                                            std::uint64_t incarnation) const;
  absl::StatusOr<std::string> Load(std::size_t shard, const membership::StateId& id) const;

 private:
  const std::string uri_;
  std::vector<std::unique_ptr<checkpoint::CheckpointStore>> stores_;
};

}  // namespace starling::server
