// SPDX-License-Identifier: Apache-2.0
// A small HTTP/1.1 server that strangers may talk to: metrics, health, pages, later REST.
//
// One thread serves all connections without blocking (Boost.Beast), so a slow client costs a socket
// and nothing else. It bounds everything a client can make it hold: header and body bytes, time for
// a request and for an answer, connections. What could be read as two different requests by two
// parsers (both lengths given, odd whitespace, bodies where none belong) is refused with 400 and
// the connection closed. Handlers run on the server's thread and should answer from memory. With a
// certificate it speaks HTTPS; the handshake counts as part of the first request.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/http/message.h"

namespace starling::http {

class ServerCertificate;  // server_certificate.h

using Handler = std::function<Response(const Request&)>;

struct HttpServerOptions {
  std::string address = "127.0.0.1";  // "": every one of this machine, of IPv6 and IPv4 alike
  int port = 0;                       // 0: any free one, see HttpServer::port()
  std::size_t header_limit = 8 * 1024;
  std::size_t body_limit = 1024 * 1024;
  absl::Duration deadline = absl::Seconds(10);  // for one whole request, and for one whole answer
  // Further ones are answered 503 and closed (closed without an answer with a certificate).
  int max_connections = 128;
  std::shared_ptr<ServerCertificate> certificate = nullptr;  // not null: HTTPS
};

// Thread-safe.
class HttpServer {
 public:
  // Listens and serves until it is destroyed. UNAVAILABLE when the address cannot be bound.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(HttpServerOptions options,
                                                           Handler handler);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  int port() const;

 private:
  class Core;
  explicit HttpServer(std::unique_ptr<Core> core);
  std::unique_ptr<Core> core_;
};

}  // namespace starling::http
