// SPDX-License-Identifier: Apache-2.0
// Opens files of a job's folder, and no others: what lies there was written by programs of users.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/http/body_stream.h"
#include "common/net/socket.h"

namespace starling::service {

struct OpenFile {
  net::FileDescriptor file;
  std::uint64_t size = 0;
};

// The regular file `relative` below `folder`, for reading. No symbolic link on the way is followed,
// and nothing outside the folder is reached (openat2; where the kernel lacks it, one folder after
// the other). NotFound: there is none. PermissionDenied: the path leads elsewhere, or the file is
// no regular one.
absl::StatusOr<OpenFile> OpenBeneath(const std::string& folder, const std::string& relative);

// `length` bytes of an open file from `offset` on. A file that is shorter ends the answer without
// its end.
std::shared_ptr<http::BodyStream> StreamFile(OpenFile file, std::uint64_t offset,
                                             std::uint64_t length);

}  // namespace starling::service
