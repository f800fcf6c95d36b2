// SPDX-License-Identifier: Apache-2.0
// Files on this machine for what was read from object stores and web servers, bounded in bytes and
// shared by whatever processes use the folder (dataset.cache).
//
// What is kept is a stretch of bytes of one version of a blob, in a file named by the digest of all
// that. A file is written beside its place and then gets its name, and ends with the digest of its
// content: so one that a dead process or a full disk left half written, or that has rotted, is
// never taken for whole. One at a time writes, under a lock in whose file stands how many bytes
// there are. That is raised before anything is written, so that the bound holds whoever dies; then
// it is too high, until the next who needs room counts anew.
//
// What has not been used since this process began goes, the least recently used first. What has
// been used stays, for in the next epoch each image is as likely to be wanted as any other: giving
// up the least recent of them would leave half a data set that fits by half with 15 % of hits
// instead of 50 %.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/storage/blob_store.h"
#include "common/sync/mutex.h"

namespace starling::data {

// Thread-safe, also between processes.
class ObjectCache {
 public:
  // The folder is made when something is kept.
  ObjectCache(std::string folder, std::uint64_t most_bytes);

  // Fills `into` with the bytes from `offset` on of the blob's `version`: from here, or from the
  // store, and then they are kept here. Errors are the store's alone: what this machine's disk
  // cannot do costs time, and a line in the log. Of an empty version nothing is kept.
  absl::Status Read(storage::BlobStore& store, const std::string& name, std::string_view version,
                    std::uint64_t offset, std::span<std::byte> into);

 private:
  struct Entry;
  class Lock;

  std::string PathOf(const std::string& key) const;
  bool Find(const std::string& path, std::span<std::byte> into) const;
  void Keep(const std::string& path, std::span<const std::byte> content);
  absl::Status TryToKeep(const std::string& path, std::span<const std::byte> content);
  // Counts what is there and removes what may go until `wanted` more fit well; the bytes left.
  std::uint64_t MakeRoom(std::uint64_t wanted) const;
  absl::Status Write(const std::string& path, std::span<const std::byte> content) const;
  void Tell(const absl::Status& problem);

  const std::string folder_;
  const std::uint64_t most_;
  const absl::Time began_;
  std::atomic<bool> full_ = false;  // of what is used: nothing more is kept
  mutable sync::Mutex mutex_;
  absl::Time silent_until_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();  // after a failure
};

}  // namespace starling::data
