// SPDX-License-Identifier: Apache-2.0
#include "trainer/transport/socket_stream.h"

#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace starling::transport {
namespace {

absl::Status Failed(std::string_view what, int error) {
  return absl::UnavailableError(
      absl::StrCat(std::string(what), ": ", std::generic_category().message(error)));
}

}  // namespace

absl::StatusOr<std::size_t> SocketStream::Write(std::span<const iovec> pieces) {
  msghdr message = {};
  message.msg_iov = const_cast<iovec*>(pieces.data());
  message.msg_iovlen = pieces.size();
  const ssize_t written = ::sendmsg(socket_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (written >= 0) return static_cast<std::size_t>(written);
  if (net::NotNow(errno)) return 0;
  return Failed("cannot send", errno);
}

absl::StatusOr<std::size_t> SocketStream::Read(std::span<const iovec> pieces) {
  const ssize_t read = ::readv(socket_.get(), pieces.data(), static_cast<int>(pieces.size()));
  if (read > 0) return static_cast<std::size_t>(read);
  if (read == 0) {
    return absl::UnavailableError("the connection ended without a farewell: the process is gone");
  }
  if (net::NotNow(errno)) return 0;
  return Failed("cannot receive", errno);
}

Attention SocketStream::Await(const Interest& interest) {
  int events = 0;
  if (interest.input) events |= POLLIN;
  if (interest.output) events |= POLLOUT;
  if (interest.hangup) events |= POLLRDHUP;
  return {static_cast<short>(events), false};
}

void SocketStream::Finish(std::span<const std::byte> last, bool orderly) {
  if (!last.empty()) {
    // Best effort: a peer that does not hear it sees the connection end.
    (void)!::send(socket_.get(), last.data(), last.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }
  if (orderly) {
    // Closing with unread bytes would reset the connection and lose what the peer has yet to read.
    std::array<std::byte, 4096> discarded;
    for (int i = 0; i < 1024; ++i) {
      if (::recv(socket_.get(), discarded.data(), discarded.size(), MSG_DONTWAIT) <= 0) break;
    }
  }
  // Ends the connection now, even if another thread still polls the descriptor.
  (void)::shutdown(socket_.get(), SHUT_RDWR);
  socket_.Reset();
}

}  // namespace starling::transport
