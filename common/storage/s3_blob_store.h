// SPDX-License-Identifier: Apache-2.0
// Blobs as objects of a store that speaks S3: s3://bucket/prefix/name.
//
// What the interface promises is what S3 gives: an object is there as a whole or not at all, and
// "If-None-Match: *" lets one of many writers win. Large blobs are sent in parts, which belong to
// no object until the last request; a writer that fails takes them back, and what a dead one leaves
// only the bucket's lifecycle rules remove. Every blob carries the random mark of its Put, by which
// a writer whose answer was lost knows that the blob that it finds is its own.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "common/storage/blob_store.h"
#include "common/storage/s3_client.h"
#include "common/storage/s3_settings.h"

namespace starling::storage {

inline constexpr std::size_t kS3PartBytes = std::size_t{16} << 20;

// Of a place "bucket" or "bucket/prefix", with what the variables say. INVALID_ARGUMENT: one of
// them is wrong. PERMISSION_DENIED: there are no credentials.
absl::StatusOr<std::unique_ptr<BlobStore>> OpenS3BlobStore(std::string_view place,
                                                           const Variables& variables);

// Below `prefix`, which may be empty; a blob of more than `part` bytes is sent in parts.
std::unique_ptr<BlobStore> MakeS3BlobStore(S3Options options, std::string prefix,
                                           std::size_t part = kS3PartBytes);

}  // namespace starling::storage
