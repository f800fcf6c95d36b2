// SPDX-License-Identifier: Apache-2.0
// The checkpoints of one job: blobs <prefix>/<state id>/{manifest.json, *.safetensors}.
//
// The shards of a checkpoint are written first, under names that no other writer uses. What commits
// it is its manifest, put last and only if there is none: it names every shard with size and
// SHA-256, and reading verifies all of them. Shards without a manifest are no checkpoint and are
// never chosen. Newest means the highest state id. Only settled states are committed: the store
// does not know what is settled, its caller does (CheckpointWriter). A writer deletes only what is
// below the newest state that it committed itself, so never anything of a later view.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/storage/blob_store.h"
#include "trainer/checkpoint/safetensors.h"

namespace starling::checkpoint {

// Equal ids mean equal bytes: the view last synced, (incarnation, epoch), and the step.
struct StateId {
  std::int64_t incarnation = 0;
  std::int64_t epoch = 0;
  std::int64_t step = 0;
  friend auto operator<=>(const StateId&, const StateId&) = default;  // NOLINT(*-use-nullptr)
};

// "0000000003-0000000012-000000000000000456": zero-padded, so that names sort as ids do.
std::string NameOf(const StateId& id);
std::optional<StateId> ParseName(std::string_view name);

// What is to be kept: tensors, and texts beside them.
struct State {
  StateId id;
  std::vector<TensorView> tensors;
  std::map<std::string, std::string> attributes;  // such as the digests of spec and data
};

// A checkpoint that was read and verified; the state's tensors point into its bytes. Movable.
class LoadedCheckpoint {
 public:
  LoadedCheckpoint(State state, std::vector<std::vector<std::byte>> shards)
      : state_(std::move(state)), shards_(std::move(shards)) {}
  const State& state() const { return state_; }
  const TensorView* Find(std::string_view name) const;

 private:
  State state_;
  std::vector<std::vector<std::byte>> shards_;
};

// Why a checkpoint was not chosen.
struct Skipped {
  std::string name;
  absl::Status why;
};

struct NewestResult {
  std::optional<LoadedCheckpoint> checkpoint;  // none: start at step 0
  std::vector<Skipped> skipped;                // newer ones that are damaged
};

// Where the blobs of one job lie: `uri` (spec.checkpoint.uri) with the job's UID below it, or, if
// the spec names no place, the job's folder.
std::string JobPlace(std::string_view uri, std::string_view job_uid, std::string_view job_dir);

// Opens it. An object store is asked at once whether it takes us, since a job that cannot write
// there had better not begin; one that does not answer now may do so later. Errors name
// spec.checkpoint.uri.
absl::StatusOr<std::unique_ptr<storage::BlobStore>> OpenJobPlace(std::string_view uri,
                                                                 std::string_view job_uid,
                                                                 std::string_view job_dir);

// Below it: the checkpoints of workers, and the model.
inline constexpr char kCheckpoints[] = "checkpoints";
inline constexpr char kModel[] = "model.safetensors";

// A checkpoint whose shards are there and whose manifest is not.
struct Prepared {
  StateId id;
  std::vector<std::string> shards;  // names of blobs
  std::string manifest;
};

// Thread-safe. One prefix may have several writers (an old side, and the new one).
class CheckpointStore {
 public:
  static constexpr std::size_t kShardBytes = std::size_t{1} << 28;

  // `blobs` must outlive the store. A shard is closed when it holds `shard_bytes` or more.
  CheckpointStore(storage::BlobStore& blobs, std::string prefix,
                  std::size_t shard_bytes = kShardBytes);

  // What to call the checkpoint of that state, which need not be there, or all of them.
  std::string UriOf(const StateId& id) const;
  std::string Uri() const;

  // Writes the shards. On error nothing of them is left.
  absl::StatusOr<Prepared> Prepare(const State& state);
  // Puts the manifest. One of the same state that is there already has the same bytes: it is
  // verified and kept, and replaced only if it is broken. ABORTED when somebody has removed the
  // shards meanwhile, since a later view has its checkpoints here.
  absl::Status Commit(const Prepared& prepared);
  // Removes the shards.
  absl::Status Discard(const Prepared& prepared);
  // Prepare and Commit.
  absl::Status Write(const State& state);

  // Removes checkpoints older than the `keep` newest (at least 1) of those up to `newest_own`, the
  // newest that this writer committed. Higher ones belong to a later view: they are neither counted
  // nor removed. Shards without a manifest that a dead writer left below `newest_own` go too.
  absl::Status Retain(int keep, const StateId& newest_own);

  // Ids of all committed checkpoints, highest first. Nothing is verified.
  absl::StatusOr<std::vector<StateId>> List() const;

  // Reads and verifies one. DATA_LOSS with the shard's name when it is not what its manifest says.
  absl::StatusOr<LoadedCheckpoint> Load(const StateId& id) const;

  // The highest that verifies; damaged ones above it are skipped. One that storage does not hand
  // out now (UNAVAILABLE, PERMISSION_DENIED and the like) may well be whole: that is the error of
  // all, for going on from an older one would undo what was trained. ABORTED when one of a higher
  // incarnation than `max_incarnation` is there: whoever sees that has been fenced, and must halt.
  absl::StatusOr<NewestResult> NewestVerified(std::int64_t max_incarnation) const;

 private:
  // Names of blobs by the state that they belong to.
  absl::StatusOr<std::map<StateId, std::vector<std::string>>> Names() const;
  std::string FolderOf(const StateId& id) const;
  std::string ManifestOf(const StateId& id) const;
  absl::Status WriteShards(const State& state, Prepared& prepared);
  absl::Status CheckShards(const Prepared& prepared) const;
  absl::StatusOr<LoadedCheckpoint> Read(const StateId& id) const;
  absl::Status Remove(const StateId& id, const std::vector<std::string>& names);

  storage::BlobStore& blobs_;
  std::string prefix_;
  std::size_t shard_bytes_;
};

// Puts `tensors` as the model `name`; returns its SHA-256 in hexadecimal. Equal tensors and
// metadata give equal digests.
absl::StatusOr<std::string> WriteModel(storage::BlobStore& blobs, const std::string& name,
                                       std::span<const TensorView> tensors,
                                       const Metadata& metadata);

}  // namespace starling::checkpoint
