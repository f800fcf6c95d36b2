// SPDX-License-Identifier: Apache-2.0
// The one reader of the URIs by which people name files and folders.
//
// A plain path, file:///path (with %20 and the like for what a URI cannot hold), s3://bucket/key
// (the key stands as it is), or https://host[:port]/path and http://. To add a scheme: a line here,
// and in Open.
#pragma once

#include <string>
#include <string_view>
#include <vector>

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

// A URI cut at its last slash: that of the folder, and the name as it stands in the URI. Of a plain
// path without a slash the folder is ".".
struct UriParts {
  std::string folder;
  std::string name;
};
UriParts SplitUri(std::string_view uri);

// The URIs that one with ranges of numbers in braces stands for: data-{000..127}.tar is 128 of
// them, with as many digits as the longer end has if one begins with 0. Of several ranges the last
// counts fastest. Other braces stay as they are. INVALID_ARGUMENT, as a message goes on after the
// URI: a range that counts down, or more than kMostUris.
inline constexpr std::size_t kMostUris = 100'000;
absl::StatusOr<std::vector<std::string>> ExpandRanges(std::string_view uri);

// file:// and the path; ParsePlace reads it back.
std::string FileUri(std::string_view path);

// The URI of `name` below `uri`.
std::string Below(std::string_view uri, std::string_view name);

}  // namespace starling::storage
