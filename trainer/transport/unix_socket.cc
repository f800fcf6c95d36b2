// SPDX-License-Identifier: Apache-2.0
#include "trainer/transport/unix_socket.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/status/macros.h"

namespace starling::transport {
namespace {

constexpr int kBacklog = 128;

struct Name {
  sockaddr_un address = {};
  socklen_t size = 0;
};

absl::StatusOr<Name> MakeName(std::string_view text) {
  Name name;
  if (text.empty() || text.size() >= sizeof name.address.sun_path) {
    return absl::InvalidArgumentError(absl::StrCat("\"", std::string(text), "\" must have 1 to ",
                                                   sizeof name.address.sun_path - 1,
                                                   " characters to be a socket's name"));
  }
  name.address.sun_family = AF_UNIX;
  // A zero in front makes it abstract.
  std::memcpy(name.address.sun_path + 1, text.data(), text.size());
  name.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
  return name;
}

absl::StatusOr<net::FileDescriptor> NewSocket(std::string_view what) {
  net::FileDescriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket.valid()) return net::ErrnoStatus(errno, what);
  return socket;
}

}  // namespace

absl::StatusOr<net::FileDescriptor> ListenAtName(std::string_view name) {
  const std::string what = absl::StrCat("cannot listen on the socket ", std::string(name));
  ASSIGN_OR_RETURN(const Name target, MakeName(name));
  ASSIGN_OR_RETURN(net::FileDescriptor socket, NewSocket(what));
  const auto* const address = reinterpret_cast<const sockaddr*>(&target.address);
  if (::bind(socket.get(), address, target.size) != 0) return net::ErrnoStatus(errno, what);
  if (::listen(socket.get(), kBacklog) != 0) return net::ErrnoStatus(errno, what);
  return socket;
}

absl::StatusOr<net::FileDescriptor> ConnectToName(std::string_view name) {
  const std::string what = absl::StrCat("cannot connect to the socket ", std::string(name));
  ASSIGN_OR_RETURN(const Name target, MakeName(name));
  ASSIGN_OR_RETURN(net::FileDescriptor socket, NewSocket(what));
  const auto* const address = reinterpret_cast<const sockaddr*>(&target.address);
  // Connects, or fails, immediately.
  if (::connect(socket.get(), address, target.size) != 0) return net::ErrnoStatus(errno, what);
  if (PeerIsSameUser(socket)) return socket;
  return absl::PermissionDeniedError(absl::StrCat(what, ": it belongs to another user"));
}

bool IsUnixSocket(const net::FileDescriptor& socket) {
  int domain = 0;
  socklen_t size = sizeof domain;
  return ::getsockopt(socket.get(), SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0 &&
         domain == AF_UNIX;
}

bool PeerIsSameUser(const net::FileDescriptor& socket) {
  ucred peer = {};
  socklen_t size = sizeof peer;
  return ::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
         peer.uid == ::geteuid();
}

}  // namespace starling::transport
