// SPDX-License-Identifier: Apache-2.0
// An HTTP/1.1 server that strangers may talk to: metrics, health, webhook, REST.
//
// One thread serves all connections without blocking (Boost.Beast), so a slow client costs a socket
// and nothing else. It bounds everything a client can make it hold: header and body bytes, time for
// a request and for an answer, connections, streams. Where there is no room for another connection,
// the one goes that has been idle, or unknown, for the longest: who holds connections shuts nobody
// out. What could be read as two different requests by two parsers (both lengths given, odd
// whitespace, bodies where none belong) is refused with 400 and the connection closed.
//
// Handlers run on the server's thread and answer from memory, or, with `handler_threads`, on those:
// then they may wait for a disk or another server. An answer may be a BodyStream, which goes on for
// as long as the client keeps reading. With a certificate the server speaks HTTPS; the handshake
// counts as part of the first request.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

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
  // Where all of these are of known callers and busy, further ones are answered 503 and closed
  // (closed without an answer with a certificate).
  int max_connections = 512;
  int max_streams = 256;  // further ones are answered 503
  // A stream whose client takes no byte for so long is over.
  absl::Duration stream_patience = absl::Seconds(30);
  int handler_threads = 0;          // 0: handlers run on the server's thread
  std::size_t handler_queue = 256;  // requests that may wait for one; further ones are answered 503
  // What a client is told that does not get as far as the handler; null: the reason as plain text.
  std::function<Response(int status, std::string_view why)> refusal = nullptr;
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
  int connections() const;  // now
  int streams() const;      // of those

  // Takes no more connections and requests, lets what is under way come to its end, and has streams
  // say goodbye. Returns when all connections have ended or `limit` has passed.
  void Drain(absl::Duration limit);

 private:
  class Core;
  explicit HttpServer(std::unique_ptr<Core> core);
  std::unique_ptr<Core> core_;
};

}  // namespace starling::http
