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

absl::StatusOr<std::string> BlobNameOf(std::string_view uri) {
  ASSIGN_OR_RETURN(const Place place, ParsePlace(uri));
  if (place.kind == Place::Kind::kS3 && place.path.find('/') == std::string::npos) {
    return absl::InvalidArgumentError("must name a file in the bucket: s3://bucket/key");
  }
  std::string name = SplitUri(place.path).name;
  if (place.kind == Place::Kind::kHttp && !name.empty()) {
    // It stands percent-encoded in the URL, which the store does by itself.
    ASSIGN_OR_RETURN(const Place decoded, ParsePlace("file:///" + name));
    name = decoded.path.substr(1);
  }
  if (!CheckName(name).ok()) return absl::InvalidArgumentError("must name a file, not a folder");
  return name;
}

absl::StatusOr<Located> Locate(std::string_view uri) {
  ASSIGN_OR_RETURN(std::string name, BlobNameOf(uri));
  ASSIGN_OR_RETURN(std::unique_ptr<BlobStore> store, Open(SplitUri(uri).folder));
  return Located{std::move(store), std::move(name)};
}

}  // namespace starling::storage
