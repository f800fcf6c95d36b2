// SPDX-License-Identifier: Apache-2.0
// The socket of one connection, with TLS over it or not. Nothing here waits.
//
// Internal to this folder. What cannot be done now fails with would_block, and is to be called
// again with the same arguments once the socket is what wanted() says. Beast's functions that read
// from a stream take it as one, and go on where they were when they are called again.
#pragma once

#include <poll.h>

#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/system/system_error.hpp>
#include <cstddef>
#include <memory>
#include <string_view>

#include "common/net/socket.h"

using SSL = struct ssl_st;

namespace starling::http {

// An option that a kernel does not know is left as it is.
void SetOption(int socket, int level, int name, int value);

// Confined to one thread at a time.
class Channel {
 public:
  using Error = boost::system::error_code;
  using Address = boost::asio::ip::tcp::endpoint;

  Channel();
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  // Before it is connected: from then on everything goes through TLS. It takes `tls` over.
  void UseTls(SSL* tls);
  SSL* tls() const { return tls_.get(); }

  // Begins to connect, in place of a socket that was there.
  void StartConnect(const Address& address, Error& error);
  void FinishConnect(Error& error);
  // Of TLS; without it there is none to be made.
  void Handshake(Error& error);
  // How much of it was written; with would_block: nothing.
  std::size_t Write(std::string_view bytes, Error& error);
  std::size_t Read(void* place, std::size_t size, Error& error);
  void Close() { socket_.Reset(); }

  bool is_open() const { return socket_.valid(); }
  int fd() const { return socket_.get(); }
  short wanted() const { return wanted_; }  // POLLIN or POLLOUT
  bool has_unread() const;                  // what TLS has taken from the socket, and nobody read

  // As Beast reads. One buffer is filled; an end of the stream is eof.
  template <typename Buffers>
  std::size_t read_some(const Buffers& buffers, Error& error) {
    const boost::asio::mutable_buffer first = *boost::asio::buffer_sequence_begin(buffers);
    return Read(first.data(), first.size(), error);
  }
  template <typename Buffers>
  std::size_t read_some(const Buffers& buffers) {
    Error error;
    const std::size_t size = read_some(buffers, error);
    if (error) throw boost::system::system_error(error);
    return size;
  }

 private:
  struct FreeTls {
    void operator()(SSL* tls) const;
  };

  Error ErrorOfTls(int result);
  Error ErrorOfSystem(short wanted);

  net::FileDescriptor socket_;
  std::unique_ptr<SSL, FreeTls> tls_;
  short wanted_ = POLLIN;
};

}  // namespace starling::http
