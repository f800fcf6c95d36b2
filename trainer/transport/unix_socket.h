// SPDX-License-Identifier: Apache-2.0
// Stream sockets in the system's abstract namespace: names without files.
//
// A name is gone with its listener, however that ended, and can be seen by the processes of one
// network namespace only. Who reaches one is therefore on this machine, in this pod: the test of
// whether memory can be shared is the connection itself. Ends that belong to another user are
// refused immediately, before any handshake.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/net/socket.h"

namespace starling::transport {

// UNAVAILABLE when the name is taken, INVALID_ARGUMENT when it is empty or too long.
absl::StatusOr<net::FileDescriptor> ListenAtName(std::string_view name);

// UNAVAILABLE when nobody listens, or too many wait already; PERMISSION_DENIED when the listener is
// another user's.
absl::StatusOr<net::FileDescriptor> ConnectToName(std::string_view name);

bool IsUnixSocket(const net::FileDescriptor& socket);

// Sends `bytes`, and `file` with them if it is valid, at once or not at all; errno says why not.
bool SendWithFile(const net::FileDescriptor& socket, std::span<const std::byte> bytes,
                  const net::FileDescriptor& file);
// As recv without waiting. A file that came along replaces `file`; of several, one does.
ssize_t ReceiveWithFile(const net::FileDescriptor& socket, std::span<std::byte> bytes,
                        net::FileDescriptor& file);

// Whether the process at the other end of a UNIX socket runs as the same user as this one.
bool PeerIsSameUser(const net::FileDescriptor& socket);

}  // namespace starling::transport
