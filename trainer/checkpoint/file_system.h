// SPDX-License-Identifier: Apache-2.0
// The few things that a checkpoint does to a disk, behind an interface so that tests can make each
// of them fail.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace starling::checkpoint {

// Thread-safe. Errors carry the path and the system's reason: RESOURCE_EXHAUSTED (no space),
// PERMISSION_DENIED, NOT_FOUND, ALREADY_EXISTS, else DATA_LOSS.
class FileSystem {
 public:
  virtual ~FileSystem() = default;

  // Makes the folder and those above it, durably.
  virtual absl::Status MakeFolder(const std::string& path) = 0;
  // Makes a new file of these pieces and syncs it; a file that could not be written or synced as a
  // whole is an error (and is not tried again on the same descriptor).
  virtual absl::Status WriteFile(const std::string& path,
                                 std::span<const std::span<const std::byte>> pieces) = 0;
  virtual absl::Status SyncFolder(const std::string& path) = 0;
  // A file that is there is replaced, a folder is not (ALREADY_EXISTS).
  virtual absl::Status Rename(const std::string& from, const std::string& to) = 0;
  // The file, or the folder with all that is in it; well if it is not there.
  virtual absl::Status Remove(const std::string& path) = 0;
  // Names in a folder, sorted; none if it is not there.
  virtual absl::StatusOr<std::vector<std::string>> List(const std::string& path) = 0;
  // RESOURCE_EXHAUSTED above `limit` bytes.
  virtual absl::StatusOr<std::vector<std::byte>> ReadFile(const std::string& path,
                                                          std::size_t limit) = 0;
};

std::unique_ptr<FileSystem> MakePosixFileSystem();

}  // namespace starling::checkpoint
