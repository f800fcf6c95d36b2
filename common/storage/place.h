// SPDX-License-Identifier: Apache-2.0
// The one reader of the URIs by which people name files and folders.
//
// A plain path, file:///path (with %20 and the like for what a URI cannot hold), s3://bucket/key
// (the key stands as it is), or https://host[:port]/path and http://. To add a scheme: a line here,
// and in Open.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace starling::storage {

struct Place {
  enum class Kind { kFile, kHttp, kS3 };
  Kind kind = Kind::kFile;
  // Of kFile: decoded, perhaps relative. Of kHttp: the whole URL. Of kS3: bucket, or bucket/key.
  std::string path;
};

// INVALID_ARGUMENT, with the remedy, for other schemes, other hosts of files, control characters.
absl::StatusOr<Place> ParsePlace(std::string_view uri);

// file:// and the path; ParsePlace reads it back.
std::string FileUri(std::string_view path);

// The URI of `name` below `uri`.
std::string Below(std::string_view uri, std::string_view name);

}  // namespace starling::storage
