// SPDX-License-Identifier: Apache-2.0
#include "trainer/transport/unix_socket.h"

#include <sys/socket.h>
#include <sys/uio.h>
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

bool SendWithFile(const net::FileDescriptor& socket, std::span<const std::byte> bytes,
                  const net::FileDescriptor& file) {
  iovec piece{const_cast<std::byte*>(bytes.data()), bytes.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message = {};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  if (file.valid()) {
    message.msg_control = control;
    message.msg_controllen = CMSG_LEN(sizeof(int));
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    const int descriptor = file.get();
    std::memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
  }
  const ssize_t sent = ::sendmsg(socket.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent >= 0 && sent != static_cast<ssize_t>(bytes.size())) errno = ENOBUFS;
  return sent == static_cast<ssize_t>(bytes.size());
}

ssize_t ReceiveWithFile(const net::FileDescriptor& socket, std::span<std::byte> bytes,
                        net::FileDescriptor& file) {
  iovec piece{bytes.data(), bytes.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message = {};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control;
  // Room for exactly one descriptor: more are closed by the system.
  message.msg_controllen = CMSG_LEN(sizeof(int));
  const ssize_t read = ::recvmsg(socket.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (read < 0) return read;
  const cmsghdr* const header = CMSG_FIRSTHDR(&message);
  if (header != nullptr && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS &&
      header->cmsg_len == CMSG_LEN(sizeof(int))) {
    int descriptor = -1;
    std::memcpy(&descriptor, CMSG_DATA(header), sizeof descriptor);
    file = net::FileDescriptor(descriptor);
  }
  return read;
}

bool PeerIsSameUser(const net::FileDescriptor& socket) {
  ucred peer = {};
  socklen_t size = sizeof peer;
  return ::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
         peer.uid == ::geteuid();
}

}  // namespace starling::transport
