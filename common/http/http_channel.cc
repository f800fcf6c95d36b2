// SPDX-License-Identifier: Apache-2.0
#include "common/http/http_channel.h"

#include <netinet/tcp.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/error.hpp>
#include <cerrno>
#include <limits>

namespace starling::http {
namespace {

namespace asio = boost::asio;

constexpr int kMostAtOnce = std::numeric_limits<int>::max();

// Alive only as long as the peer is: one that is gone without a word is noticed after 30 s of
// silence, or of data that it does not acknowledge.
void Prepare(int socket) {
  SetOption(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  SetOption(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  SetOption(socket, IPPROTO_TCP, TCP_KEEPIDLE, 15);
  SetOption(socket, IPPROTO_TCP, TCP_KEEPINTVL, 5);
  SetOption(socket, IPPROTO_TCP, TCP_KEEPCNT, 3);
  SetOption(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, 30'000);
}

bool IsPassing(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }

// How TLS reaches the socket. OpenSSL's own way would end the process when it writes to a peer that
// has gone.
int SendTo(BIO* bio, const char* data, int size) {
  BIO_clear_retry_flags(bio);
  const int socket = static_cast<const Channel*>(BIO_get_data(bio))->fd();
  const ssize_t sent = ::send(socket, data, static_cast<std::size_t>(size), MSG_NOSIGNAL);
  if (sent < 0 && IsPassing(errno)) BIO_set_retry_write(bio);
  return static_cast<int>(sent);
}

int ReceiveFrom(BIO* bio, char* data, int size) {
  BIO_clear_retry_flags(bio);
  const int socket = static_cast<const Channel*>(BIO_get_data(bio))->fd();
  const ssize_t got = ::recv(socket, data, static_cast<std::size_t>(size), 0);
  if (got < 0 && IsPassing(errno)) BIO_set_retry_read(bio);
  return static_cast<int>(got);
}

long Control(BIO* /*bio*/, int command, long /*number*/, void* /*pointer*/) {
  return command == BIO_CTRL_FLUSH ? 1 : 0;
}

const BIO_METHOD* Method() {
  static const BIO_METHOD* const kMethod = [] {
    BIO_METHOD* method = BIO_meth_new(BIO_TYPE_SOURCE_SINK | BIO_get_new_index(), "channel");
    BIO_meth_set_write(method, SendTo);
    BIO_meth_set_read(method, ReceiveFrom);
    BIO_meth_set_ctrl(method, Control);
    return method;
  }();
  return kMethod;
}

}  // namespace

void SetOption(int socket, int level, int name, int value) {
  (void)::setsockopt(socket, level, name, &value, sizeof(value));
}

void Channel::FreeTls::operator()(SSL* tls) const { SSL_free(tls); }

Channel::Channel() = default;
Channel::~Channel() = default;

void Channel::UseTls(SSL* tls) {
  tls_.reset(tls);
  BIO* bio = BIO_new(Method());
  BIO_set_data(bio, this);
  BIO_set_init(bio, 1);
  SSL_set_bio(tls, bio, bio);
  SSL_set_connect_state(tls);
}

bool Channel::has_unread() const { return tls_ != nullptr && SSL_has_pending(tls_.get()) == 1; }

Channel::Error Channel::ErrorOfSystem(short wanted) {
  wanted_ = wanted;
  if (IsPassing(errno)) return asio::error::would_block;
  return {errno, boost::system::system_category()};
}

Channel::Error Channel::ErrorOfTls(int result) {
  switch (SSL_get_error(tls_.get(), result)) {
    case SSL_ERROR_NONE:
      return {};
    case SSL_ERROR_WANT_READ:
      wanted_ = POLLIN;
      return asio::error::would_block;
    case SSL_ERROR_WANT_WRITE:
      wanted_ = POLLOUT;
      return asio::error::would_block;
    case SSL_ERROR_ZERO_RETURN:
      return asio::error::eof;
    default:  // cut off without TLS' own end, or no TLS at all
      return asio::error::connection_reset;
  }
}

void Channel::StartConnect(const Address& address, Error& error) {
  error = {};
  const int family = address.protocol().family();
  socket_ = net::FileDescriptor(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket_.valid()) {
    error = ErrorOfSystem(POLLOUT);
    return;
  }
  Prepare(fd());
  const bool begun = ::connect(fd(), address.data(), static_cast<socklen_t>(address.size())) == 0 ||
                     errno == EINPROGRESS || errno == EINTR;
  if (!begun) error = ErrorOfSystem(POLLOUT);
}

void Channel::FinishConnect(Error& error) {
  error = {};
  pollfd connected{fd(), POLLOUT, 0};
  if (::poll(&connected, 1, 0) <= 0) {
    wanted_ = POLLOUT;
    error = asio::error::would_block;
    return;
  }
  int failure = 0;
  socklen_t size = sizeof(failure);
  if (::getsockopt(fd(), SOL_SOCKET, SO_ERROR, &failure, &size) != 0) failure = errno;
  if (failure != 0) error = {failure, boost::system::system_category()};
}

void Channel::Handshake(Error& error) {
  error = {};
  if (tls_ == nullptr) return;
  ERR_clear_error();
  error = ErrorOfTls(SSL_do_handshake(tls_.get()));
}

std::size_t Channel::Write(std::string_view bytes, Error& error) {
  error = {};
  const std::size_t size = std::min<std::size_t>(bytes.size(), kMostAtOnce);
  if (tls_ != nullptr) {
    ERR_clear_error();
    const int written = SSL_write(tls_.get(), bytes.data(), static_cast<int>(size));
    error = ErrorOfTls(written);
    return error ? 0 : static_cast<std::size_t>(written);
  }
  const ssize_t sent = ::send(fd(), bytes.data(), size, MSG_NOSIGNAL);
  if (sent < 0) error = ErrorOfSystem(POLLOUT);
  return error ? 0 : static_cast<std::size_t>(sent);
}

std::size_t Channel::Read(void* place, std::size_t size, Error& error) {
  error = {};
  if (tls_ != nullptr) {
    ERR_clear_error();
    const int most = static_cast<int>(std::min<std::size_t>(size, kMostAtOnce));
    const int got = SSL_read(tls_.get(), place, most);
    error = ErrorOfTls(got);
    return error ? 0 : static_cast<std::size_t>(got);
  }
  const ssize_t got = ::recv(fd(), place, size, 0);
  if (got < 0) error = ErrorOfSystem(POLLIN);
  if (got == 0) error = asio::error::eof;
  return error ? 0 : static_cast<std::size_t>(got);
}

}  // namespace starling::http
