// SPDX-License-Identifier: Apache-2.0
// Blobs under names: what checkpoints, models and data sets lie in, whether that is a disk, a web
// server or an object store.
//
//   ASSIGN_OR_RETURN(auto store, storage::Open("file:///checkpoints/job"));
//   RETURN_IF_ERROR(store->Put("model.safetensors", pieces, IfPresent::kReplace));
//
// The interface is what object stores have in common: a blob is written as a whole or not at all,
// and there is no rename, no append and no folder. Whoever has several blobs that belong together
// writes a manifest last: its PutIfAbsent is what commits them. To add a store: implement
// BlobStore, a line in Open, a line in the contract suite (blob_store_test.cc).
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace starling::storage {

using Pieces = std::span<const std::span<const std::byte>>;

inline std::size_t SizeOf(Pieces pieces) {
  std::size_t size = 0;
  for (const auto& piece : pieces) size += piece.size();
  return size;
}

enum class IfPresent { kReplace, kFail };

struct BlobInfo {
  std::size_t size = 0;
  // Another content of the same blob has another one; "": the store does not tell.
  std::string version = {};
};

// Thread-safe, also between processes. Names are relative, with '/' between their parts; CheckName
// says which there are, and another one is INVALID_ARGUMENT. No name may be another's first parts:
// "a" and "a/b" exclude each other. Every error carries the blob's URI, the reason, and what to do:
// NOT_FOUND, PERMISSION_DENIED, FAILED_PRECONDITION (the store itself is not where the URI says),
// RESOURCE_EXHAUSTED (no space), UNAVAILABLE (no connection, or this machine lacks what reading
// takes: the same call may succeed later), UNIMPLEMENTED (such as writing to a store that can only
// be read), else DATA_LOSS.
class BlobStore {
 public:
  virtual ~BlobStore() = default;

  // Makes the blob of these pieces, one behind another. When it returns OK, the blob survives a
  // power cut. Readers see all of it or what was there before. ALREADY_EXISTS with kFail if there
  // is one; of several that put at once with kFail, one wins. After another error the blob may be
  // there or not, never a part of it.
  virtual absl::Status Put(const std::string& name, Pieces pieces, IfPresent if_present) = 0;

  // Its bytes. NOT_FOUND if there is none.
  virtual absl::StatusOr<std::size_t> Size(const std::string& name) = 0;

  // The same, and which version it is.
  virtual absl::StatusOr<BlobInfo> Look(const std::string& name);

  // Fills `into` with its bytes from `offset` on. OUT_OF_RANGE if it ends before.
  virtual absl::Status Read(const std::string& name, std::size_t offset,
                            std::span<std::byte> into) = 0;

  // OK also if there is none. A power cut may undo it.
  virtual absl::Status Delete(const std::string& name) = 0;

  // The names that begin with `prefix`, sorted. Nothing that was half written is among them.
  virtual absl::StatusOr<std::vector<std::string>> List(const std::string& prefix) = 0;

  // What to call the blob, or all that begin so, to people and to other programs.
  virtual std::string UriOf(std::string_view name) const = 0;
};

// 1 to 1024 bytes in parts of 1 to 255, which are not "." or ".." and hold no control characters;
// the first is not ".tmp".
absl::Status CheckName(std::string_view name);

// The whole blob. OUT_OF_RANGE if it has more than `limit` bytes.
absl::StatusOr<std::vector<std::byte>> ReadAll(BlobStore& store, const std::string& name,
                                               std::size_t limit);

// A blob of one piece.
absl::Status Put(BlobStore& store, const std::string& name, std::string_view text,
                 IfPresent if_present);

// The folder, site or bucket that `uri` names, with all blobs below it. INVALID_ARGUMENT: the URI
// is wrong, or a variable of the environment that an object store's access is read from
// (s3_settings.h). PERMISSION_DENIED: there are no credentials in it. Nothing is touched yet: a
// folder is made with the first blob.
absl::StatusOr<std::unique_ptr<BlobStore>> Open(std::string_view uri);

// One blob by its own URI.
struct Located {
  std::unique_ptr<BlobStore> store;
  std::string name;
};
absl::StatusOr<Located> Locate(std::string_view uri);

// The same in two steps, for many files of one folder: its store is Open(SplitUri(uri).folder).
absl::StatusOr<std::string> BlobNameOf(std::string_view uri);

}  // namespace starling::storage
