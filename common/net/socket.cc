// SPDX-License-Identifier: Apache-2.0
#include "common/net/socket.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <string>
#include <string_view>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "common/status/check.h"
#include "common/status/macros.h"

namespace starling::net {
namespace {

void SetOption(const FileDescriptor& socket, int level, int name) {
  const int on = 1;
  // Fails only for kinds of sockets that have no such option, and they need none.
  (void)setsockopt(socket.get(), level, name, &on, sizeof on);
}

absl::StatusOr<FileDescriptor> NewSocket(int family, const std::string& what) {
  FileDescriptor socket(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket.valid()) return ErrnoStatus(errno, what);
  return socket;
}

bool IsLoopback(const Address& end) { return end.host.starts_with("127."); }

absl::StatusOr<Address> AddressOf(const FileDescriptor& socket,
                                  int (*end)(int, sockaddr*, socklen_t*)) {
  SocketAddress address;
  address.size = sizeof address.storage;
  if (end(socket.get(), address.get(), &address.size) != 0) {
    return ErrnoStatus(errno, "cannot read a socket's address");
  }
  return FromSocketAddress(address);
}

}  // namespace

void SendUnpacedOnOneMachine(const FileDescriptor& socket) {
  const auto here = LocalAddress(socket);
  const auto there = PeerAddress(socket);
  if (!here.ok() || !there.ok()) return;
  if (here->host != there->host && !(IsLoopback(*here) && IsLoopback(*there))) return;
  constexpr std::string_view kUnpaced = "reno";  // which every Linux has, for every user
  (void)::setsockopt(socket.get(), IPPROTO_TCP, TCP_CONGESTION, kUnpaced.data(), kUnpaced.size());
  constexpr int kSendBytes = 160 << 10;  // the kernel takes twice as many, for its own part of them
  (void)::setsockopt(socket.get(), SOL_SOCKET, SO_SNDBUF, &kSendBytes, sizeof kSendBytes);
}

void FileDescriptor::Reset() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

EventFd::EventFd() : fd_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  STARLING_CHECK(fd_.valid(), "the system has a file descriptor left for an event");
}

void EventFd::Signal() {
  const std::uint64_t one = 1;
  (void)!::write(fd_.get(), &one, sizeof one);  // full means signalled already
}

void EventFd::Drain() {
  std::uint64_t count = 0;
  (void)!::read(fd_.get(), &count, sizeof count);
}

absl::Status ErrnoStatus(int error, std::string_view what) {
  const std::string text =
      absl::StrCat(std::string(what), ": ", std::generic_category().message(error));
  switch (error) {
    case EMFILE:
    case ENFILE:
    case ENOMEM:
    case ENOBUFS:
      return absl::ResourceExhaustedError(text);
    case EACCES:
    case EPERM:
      return absl::PermissionDeniedError(text);
    case EINVAL:
    case EAFNOSUPPORT:
      return absl::InvalidArgumentError(text);
    default:
      return absl::UnavailableError(text);
  }
}

absl::StatusOr<FileDescriptor> Listen(const Address& address, int backlog) {
  const std::string what = absl::StrCat("cannot listen on ", ToString(address));
  ASSIGN_OR_RETURN(const SocketAddress target, ToSocketAddress(address));
  ASSIGN_OR_RETURN(FileDescriptor socket, NewSocket(target.storage.ss_family, what));
  SetOption(socket, SOL_SOCKET, SO_REUSEADDR);
  if (::bind(socket.get(), target.get(), target.size) != 0) return ErrnoStatus(errno, what);
  if (::listen(socket.get(), backlog) != 0) return ErrnoStatus(errno, what);
  return socket;
}

absl::StatusOr<FileDescriptor> Accept(const FileDescriptor& listener) {
  FileDescriptor socket(::accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (socket.valid()) {
    SetOption(socket, IPPROTO_TCP, TCP_NODELAY);
    return socket;
  }
  switch (errno) {
    case EAGAIN:
    case ECONNABORTED:
    case EINTR:
    case EPROTO:
    case ENETDOWN:
    case EHOSTUNREACH:
    case ENETUNREACH:
      return FileDescriptor();
    default:
      return ErrnoStatus(errno, "cannot accept a connection");
  }
}

absl::StatusOr<FileDescriptor> StartConnect(const Address& address,
                                            const std::optional<Address>& source) {
  const std::string what = absl::StrCat("cannot connect to ", ToString(address));
  ASSIGN_OR_RETURN(const SocketAddress target, ToSocketAddress(address));
  ASSIGN_OR_RETURN(FileDescriptor socket, NewSocket(target.storage.ss_family, what));
  SetOption(socket, IPPROTO_TCP, TCP_NODELAY);
  if (source.has_value()) {
    ASSIGN_OR_RETURN(const SocketAddress from, ToSocketAddress(*source));
    // The port is chosen at connect, per destination, so that ports do not run out.
    if (source->port == 0) SetOption(socket, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT);
    if (::bind(socket.get(), from.get(), from.size) != 0) {
      return ErrnoStatus(errno, absl::StrCat(what, " from ", ToString(*source)));
    }
  }
  if (::connect(socket.get(), target.get(), target.size) != 0 && errno != EINPROGRESS &&
      errno != EINTR) {
    return ErrnoStatus(errno, what);
  }
  return socket;
}

absl::Status ConnectResult(const FileDescriptor& socket, const Address& address) {
  int error = 0;
  socklen_t size = sizeof error;
  if (::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size) != 0) error = errno;
  if (error == 0) return absl::OkStatus();
  return ErrnoStatus(error, absl::StrCat("cannot connect to ", ToString(address)));
}

absl::StatusOr<FileDescriptor> Connect(const Address& address, Deadline deadline,
                                       const std::optional<Address>& source) {
  ASSIGN_OR_RETURN(FileDescriptor socket, StartConnect(address, source));
  pollfd wait{socket.get(), POLLOUT, 0};
  while (true) {
    const int ready = ::poll(&wait, 1, deadline.PollTimeout());
    if (ready > 0) break;
    if (ready < 0 && errno != EINTR) return ErrnoStatus(errno, "cannot poll a socket");
    if (deadline.Expired()) {
      return absl::DeadlineExceededError(
          absl::StrCat("cannot connect to ", ToString(address), ": no answer in time"));
    }
  }
  RETURN_IF_ERROR(ConnectResult(socket, address));
  return socket;
}

absl::StatusOr<Address> LocalAddress(const FileDescriptor& socket) {
  return AddressOf(socket, ::getsockname);
}
absl::StatusOr<Address> PeerAddress(const FileDescriptor& socket) {
  return AddressOf(socket, ::getpeername);
}

absl::StatusOr<std::pair<FileDescriptor, FileDescriptor>> SocketPair() {
  int ends[2] = {-1, -1};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) != 0) {
    return ErrnoStatus(errno, "cannot make a pair of sockets");
  }
  return std::pair(FileDescriptor(ends[0]), FileDescriptor(ends[1]));
}

}  // namespace starling::net
