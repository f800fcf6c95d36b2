// SPDX-License-Identifier: Apache-2.0
// What the HTTP client wants of its sockets beyond the library's own settings.
#pragma once

#include <cstdint>

namespace starling::kube {

// Close-on-exec, and alive only as long as the peer is: one that is gone without a word is noticed
// after 30 s of silence, or of data that it does not acknowledge.
void PrepareSocket(int socket);

// By TCP since it was connected; 0 where that is not known.
std::uint64_t BytesReceived(int socket);

}  // namespace starling::kube
