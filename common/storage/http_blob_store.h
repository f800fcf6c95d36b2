// SPDX-License-Identifier: Apache-2.0
// Blobs that a web server hands out, by ranges; they can only be read.
//
// The server must answer HEAD with a Content-Length and GET with Range (RFC 9110). It cannot list:
// who reads from it knows the names, from a job file or a manifest.
#pragma once

#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "common/http/http_client.h"
#include "common/storage/blob_store.h"

namespace starling::storage {

// Below `url`, https://host[:port][/path] or http://.
absl::StatusOr<std::unique_ptr<BlobStore>> OpenHttpBlobStore(std::string_view url,
                                                             http::ClientOptions options);

}  // namespace starling::storage
