// SPDX-License-Identifier: Apache-2.0
// The checkpoints of one job in one folder: <root>/<job UID>/<state id>/{manifest.json,
// *.safetensors}.
//
// A checkpoint is written under a temporary name, synced, and renamed, so that a half-written one
// never has a name. Its manifest names every shard with size and SHA-256; reading verifies all of
// them. Newest means the highest state id. Only settled states are committed: the store does not
// know what is settled, its caller does (CheckpointWriter). Folders of other jobs are never looked
// at, and a writer deletes only names below its own view.
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
#include "trainer/checkpoint/file_system.h"
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
  std::vector<Skipped> skipped;                // newer ones that could not be read or verified
};

// <root>/<job UID>, the job's part of a place for checkpoints; `root` is an absolute path or
// file:///.
std::string JobFolder(std::string_view root, std::string_view job_uid);

// Thread-safe if `files` is. One folder may have several writers (an old side, and the new one).
class CheckpointStore {
 public:
  static constexpr std::size_t kShardBytes = std::size_t{1} << 28;

  // `root` is an absolute path or file:///. `files` must outlive the store. A shard is closed when
  // it holds `shard_bytes` or more.
  CheckpointStore(FileSystem& files, std::string_view root, std::string_view job_uid,
                  std::size_t shard_bytes = kShardBytes);

  const std::string& folder() const { return folder_; }
  // Where the checkpoint of that name lies, or would.
  std::string PathOf(const StateId& id) const;

  // Writes and syncs under a temporary name, which it returns. On error nothing of it is left.
  absl::StatusOr<std::string> Prepare(const State& state);
  // Gives a prepared one its name. One of the same name that is there already has the same bytes:
  // it is verified and kept, and replaced only if it is broken.
  absl::Status Commit(const std::string& prepared, const StateId& id);
  // Removes a prepared one.
  absl::Status Discard(const std::string& prepared);
  // Prepare and Commit.
  absl::Status Write(const State& state);

  // Removes checkpoints older than the `keep` newest (at least 1) of those up to `newest_own`, the
  // newest that this writer committed. Higher ones belong to a later view: they are neither counted
  // nor removed. Temporary folders that a dead writer left below `newest_own` go too.
  absl::Status Retain(int keep, const StateId& newest_own);

  // Ids of all committed checkpoints, highest first. Nothing is verified.
  absl::StatusOr<std::vector<StateId>> List() const;

  // Reads and verifies one. DATA_LOSS with the shard's name when it is not what its manifest says.
  absl::StatusOr<LoadedCheckpoint> Load(const StateId& id) const;

  // The highest that verifies. ABORTED when one of a higher incarnation than `max_incarnation` is
  // there: whoever sees that has been fenced, and must halt.
  absl::StatusOr<NewestResult> NewestVerified(std::int64_t max_incarnation) const;

 private:
  absl::StatusOr<LoadedCheckpoint> LoadFrom(const std::string& path, const StateId& id) const;
  absl::Status RemoveNamed(const std::string& name);

  FileSystem& files_;
  std::string folder_;
  std::size_t shard_bytes_;
};

// Writes `tensors` (sorted by name) as the model file `path`, atomically; returns its SHA-256 in
// hexadecimal. Equal tensors and metadata give equal digests.
absl::StatusOr<std::string> WriteModel(FileSystem& files, const std::string& path,
                                       std::span<const TensorView> tensors,
                                       const Metadata& metadata);

}  // namespace starling::checkpoint
