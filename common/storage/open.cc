// SPDX-License-Identifier: Apache-2.0
// Which store a URI means. It stands apart from the interface, so that only programs that open
// stores by their URIs are linked with libcurl.
#include <string>
#include <utility>

#include "common/status/macros.h"
#include "common/storage/blob_store.h"
#include "common/storage/file_blob_store.h"
#include "common/storage/http_blob_store.h"
#include "common/storage/place.h"
#include "common/storage/s3_blob_store.h"
#include "common/storage/s3_settings.h"

namespace starling::storage {

absl::StatusOr<std::unique_ptr<BlobStore>> Open(std::string_view uri) {
  ASSIGN_OR_RETURN(Place place, ParsePlace(uri));
  if (place.kind == Place::Kind::kHttp) return OpenHttpBlobStore(place.path, {});
  if (place.kind == Place::Kind::kS3) {
    while (place.path.ends_with('/')) place.path.pop_back();
    return OpenS3BlobStore(place.path, ProcessVariables());
  }
  return std::make_unique<FileBlobStore>(std::move(place.path));
}

absl::StatusOr<Located> Locate(std::string_view uri) {
  ASSIGN_OR_RETURN(const Place place, ParsePlace(uri));
  const std::size_t slash = place.path.rfind('/');
  const std::string name = place.path.substr(slash == std::string::npos ? 0 : slash + 1);
  if (const absl::Status status = CheckName(name); !status.ok()) {
    return absl::InvalidArgumentError("must name a file, not a folder");
  }
  std::string folder = slash == std::string::npos ? "." : place.path.substr(0, slash + 1);
  Located located{nullptr, name};
  if (place.kind == Place::Kind::kHttp) {
    // The name stands percent-encoded in the URL, which the store does by itself.
    ASSIGN_OR_RETURN(located.store, OpenHttpBlobStore(folder, {}));
    ASSIGN_OR_RETURN(const Place decoded, ParsePlace("file:///" + name));
    located.name = decoded.path.substr(1);
    return located;
  }
  if (place.kind == Place::Kind::kS3) {
    if (slash == std::string::npos) {
      return absl::InvalidArgumentError("must name a file in the bucket: s3://bucket/key");
    }
    folder.pop_back();
    ASSIGN_OR_RETURN(located.store, OpenS3BlobStore(folder, ProcessVariables()));
    return located;
  }
  located.store = std::make_unique<FileBlobStore>(std::move(folder));
  return located;
}

}  // namespace starling::storage
