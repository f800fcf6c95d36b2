// SPDX-License-Identifier: Apache-2.0
// An HTTP/1.1 client of one server, over TLS or not, that cannot hang, can be cut, and holds no
// more than it was told to.
//
//   ASSIGN_OR_RETURN(auto client, http::HttpClient::Open("https://store.example:8443/v1", {}));
//   ASSIGN_OR_RETURN(const http::Response answer, client->Exchange({"GET", "/things/1", "", {}}));
//
// Exchange is for answers of bounded size and time; a Stream is for answers without an end, read in
// pieces. Connections are kept and shared. Redirects are not followed and nothing is decompressed.
// Every exchange has a deadline that covers lookup, connection, handshake and answer alike, however
// slowly bytes drip in.
//
// A request is sent again only where that is certainly harmless: when the server says "later" (429,
// or 503 with Retry-After), when it says that it does not know us (401) and there are fresh
// credentials, and when a read broke on a connection that had been idle. A write that broke is
// never sent twice: its result is unknown, and the caller must look.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/http/message.h"

namespace starling::http {

// Where a server is.
struct Endpoint {
  bool tls = true;
  std::string host;  // without brackets
  int port = 443;
  std::string path;  // before every request's; no slash at its end

  // Of https://host[:port][/path], or http://. InvalidArgument for anything else.
  static absl::StatusOr<Endpoint> Parse(std::string_view url);
  std::string Authority() const;  // host:port
};

// Whom the client believes, and how it proves who it is. All texts are PEM.
struct ClientTls {
  std::string authority;    // only these authorities; empty: the system's
  bool insecure = false;    // believe any certificate
  std::string server_name;  // whose certificate it must be, if not the host's
  std::string certificate;  // ours, perhaps with what it is signed by after it; empty: none
  std::string key;

  friend bool operator==(const ClientTls&, const ClientTls&) = default;
};

// One request as it went, for metrics.
struct Observation {
  std::string_view method;
  int status = 0;          // 0: no answer
  absl::Duration latency;  // of a stream: until its head
};

struct ClientOptions {
  std::string peer = "server";                     // what messages call it
  Headers headers;                                 // of every request
  absl::Duration timeout = absl::Seconds(30);      // for an exchange, waits included
  std::size_t body_limit = std::size_t{64} << 20;  // bytes of an answer
  std::size_t most_idle_connections = 16;
  absl::Duration longest_idle = absl::Seconds(30);

  // All of these may be empty, and must be thread-safe.
  // For each new connection, since certificates rotate.
  std::function<absl::StatusOr<ClientTls>()> tls;
  // Adds to a request what shows who we are. `again`: it did not serve (401).
  std::function<absl::Status(Request& request, bool again)> authorize;
  // Before each request: how long to wait, by client-side limits.
  std::function<absl::Duration()> take_token;
  std::function<void(const Observation&)> observe;
  // What an answer other than 2xx means to the readers of streams; by default StatusOf.
  std::function<absl::Status(const Response&)> status_of;
};

// The usual meaning of an answer that is no success, with the answer's text: 3xx is
// FAILED_PRECONDITION and says where to, since nobody follows; 404 is NOT_FOUND, 401 and 403
// PERMISSION_DENIED, 409 and 412 ABORTED, 416 OUT_OF_RANGE, 429 RESOURCE_EXHAUSTED, other 4xx
// INVALID_ARGUMENT, the rest UNAVAILABLE. `peer` is what the message calls the server.
absl::Status StatusOf(const Response& response, std::string_view peer);

class HttpStream;

// Thread-safe.
class HttpClient {
 public:
  // INVALID_ARGUMENT, NOT_FOUND: the URL or the certificates are wrong. Connects to nothing yet.
  static absl::StatusOr<std::unique_ptr<HttpClient>> Open(std::string_view url,
                                                          ClientOptions options);
  ~HttpClient();  // nothing may be under way any more
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  // The server's answer, whatever its status. UNAVAILABLE: there is none, and the message says why;
  // the request may or may not have been carried out. RESOURCE_EXHAUSTED: it was not sent, for the
  // limits of take_token would hold it longer than it has. FAILED_PRECONDITION: the answer is
  // larger than this client takes, and would be the next time.
  absl::StatusOr<Response> Exchange(const Request& request);

  // Begins to ask for an answer that is read in pieces; it is cut after `lifetime`.
  std::unique_ptr<HttpStream> Stream(Request request, absl::Duration lifetime);

  const ClientOptions& options() const;
  // Between 0 and 1, for jitter.
  static double Jitter();

 private:
  friend class HttpStream;
  class Core;
  explicit HttpClient(std::unique_ptr<Core> core);
  std::unique_ptr<Core> core_;
};

// Confined to one thread, except Stop(). It has no thread of its own: it gets on while its reader
// waits in one of these calls, so a slow reader slows the server and nothing else. It must not
// outlive its client.
class HttpStream {
 public:
  ~HttpStream();
  HttpStream(const HttpStream&) = delete;
  HttpStream& operator=(const HttpStream&) = delete;

  // Waits for the answer's head. An answer other than 2xx is the status that the client's options
  // give it. UNAVAILABLE: none came in time, or the connection broke.
  absl::Status AwaitHead(absl::Duration timeout);

  // The next piece, cut anywhere; nothing if none came within `timeout`. Errors as of AwaitHead.
  // OUT_OF_RANGE: the answer has ended in good order. CANCELLED: after Stop().
  absl::StatusOr<std::optional<std::string>> Next(absl::Duration timeout);
  // Whether Next has said OUT_OF_RANGE because of the answer's end.
  bool ended() const { return ended_; }

  void Stop();  // thread-safe

 private:
  friend class HttpClient;
  class Call;
  explicit HttpStream(std::unique_ptr<Call> call);
  std::unique_ptr<Call> call_;
  bool ended_ = false;
};

}  // namespace starling::http
