// SPDX-License-Identifier: Apache-2.0
// Blobs as files below a folder: <root>/<name>.
//
// A blob is written into <root>/.tmp, synced, and then gets its name by a rename or a link, after
// which the folder is synced too: so no name ever belongs to half a blob, and two writers that
// create one name have one winner. What a dead writer leaves in .tmp is never listed and is removed
// an hour later by the next writer. Folders come and go with their blobs.
#pragma once

#include <atomic>
#include <string>
#include <string_view>
#include <vector>

#include "common/storage/blob_store.h"

namespace starling::storage {

inline constexpr std::string_view kTemporaryFolder = ".tmp";

// Syncs the folders that a file or folder lies in, from the nearest on, up to the first in which
// this user can have made nothing. What was made there has its name on the disk then; without it a
// power cut may leave a synced file that no folder knows.
absl::Status SyncAbove(const std::string& path);

// Thread-safe, also between processes.
class FileBlobStore final : public BlobStore {
 public:
  explicit FileBlobStore(std::string root);

  absl::Status Put(const std::string& name, Pieces pieces, IfPresent if_present) override;
  absl::StatusOr<std::size_t> Size(const std::string& name) override;
  absl::Status Read(const std::string& name, std::size_t offset,
                    std::span<std::byte> into) override;
  absl::Status Delete(const std::string& name) override;
  absl::StatusOr<std::vector<std::string>> List(const std::string& prefix) override;
  std::string UriOf(std::string_view name) const override;

 private:
  absl::Status PutOnce(const std::string& path, Pieces pieces, IfPresent if_present);
  absl::Status Walk(const std::string& folder, const std::string& prefix,
                    std::vector<std::string>& names) const;
  void RemoveLeftovers();

  const std::string root_;  // ends with a slash
  std::atomic<bool> has_removed_leftovers_ = false;
  std::atomic<bool> has_synced_above_ = false;  // the folders in which the root lies
};

}  // namespace starling::storage
