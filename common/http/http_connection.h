// SPDX-License-Identifier: Apache-2.0
// One connection of HttpClient: an exchange is begun, and gets on while somebody waits for it.
//
// Internal to this folder. Everything from the connect to the last byte of the answer is a chain of
// steps, none of which waits (http_channel.h); between them the waiting thread polls. A deadline is
// the instant at which it stops, so it holds for every step alike. A connection whose exchange has
// not ended is destroyed, never used again. The lookup of a name alone cannot be stopped: it has a
// thread of its own (Lookup), which is left behind.
#pragma once

#include <atomic>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/http/http_channel.h"
#include "common/http/http_client.h"
#include "common/http/message.h"
#include "common/net/socket.h"

namespace starling::http {

// The addresses of a name. The system's resolver can neither be interrupted nor told a deadline, so
// it is asked on a thread of its own. Whoever no longer wants the answer destroys this and goes on:
// the thread ends when the resolver does (its own limits are some seconds a name server), and
// touches nothing of the asker's. Confined to one thread.
class Lookup {
 public:
  struct Answer {
    boost::system::error_code error;
    std::vector<Channel::Address> addresses;
  };

  Lookup(const std::string& host, int port);

  int fd() const;  // readable once there is an answer
  std::optional<Answer> Take();

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;
};

// Whom the connections of one client believe, and how they prove who they are: reading that takes
// longer than a handshake. Thread-safe.
class TlsContext {
 public:
  // INVALID_ARGUMENT: the certificates cannot be used.
  static absl::StatusOr<std::shared_ptr<const TlsContext>> Make(ClientTls tls);

  const ClientTls& tls() const { return tls_; }
  // A session with `host`; its certificate must be that of `host`, or of tls().server_name.
  absl::StatusOr<SSL*> Open(const std::string& host) const;

 private:
  TlsContext(ClientTls tls, SSL_CTX* made) : tls_(std::move(tls)), context_(made) {}
  absl::Status Prepare();

  const ClientTls tls_;
  mutable boost::asio::ssl::context context_;
};

// Confined to one thread at a time, except Cut().
class Connection {
 public:
  using Instant = std::chrono::steady_clock::time_point;

  // `tls` null: https is not spoken.
  static absl::StatusOr<std::unique_ptr<Connection>> Make(const Endpoint& endpoint,
                                                          const std::string& peer,
                                                          const TlsContext* tls);
  ~Connection() = default;
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // Begins an exchange, after `wait`; the one before must have ended well.
  void Start(const Request& request, absl::Duration wait);

  // Until the answer's head is there, or the exchange has failed; false at `until`.
  bool AwaitHead(Instant until);
  // Until more of the body is there, or the exchange has ended or failed; false at `until`.
  bool AwaitPiece(Instant until);

  // Why the exchange has failed. UNAVAILABLE: no whole answer. FAILED_PRECONDITION: its headers are
  // longer than a client takes. CANCELLED: it was cut.
  const absl::Status& status() const { return status_; }
  const std::optional<Response>& head() const { return head_; }  // without a body
  std::string TakePiece() { return std::exchange(piece_, {}); }
  // What is under way, for a message: "while its name was looked up".
  std::string_view Doing() const;
  bool ended() const { return ended_; }  // well; what TakePiece gives is the last of it

  bool was_used() const { return was_used_; }
  // Whether the last exchange left it open.
  bool is_kept() const;
  // Whether it did, and the server has sent nothing since, not even its end.
  bool IsReusable();

  // Ends the exchange under way, and all later ones. Thread-safe.
  void Cut();

 private:
  enum class Step { kPause, kLookup, kConnect, kHandshake, kSend, kReceive };
  using Error = Channel::Error;
  using Parser = boost::beast::http::response_parser<boost::beast::http::buffer_body>;
  // What a step that can do nothing now waits for: the descriptor, or the instant.
  struct Wait {
    int fd = -1;
    short events = 0;
    Instant until = Instant::max();
  };
  // Nothing: it got on, and there is more to do.
  using Pending = std::optional<Wait>;

  Connection(const Endpoint& endpoint, const std::string& peer);
  void Connect(std::size_t index);
  Pending Advance();
  Pending Begin();
  Pending AwaitAddresses();
  Pending AwaitConnect();
  Pending Handshake();
  Pending Send();
  Pending ReadHead();
  Pending ReadSome();
  void TakeHead();
  bool Turn(Instant until);
  Pending Fail(const Error& error);
  Pending FailOrWait(const Error& error);
  absl::Status Explain(const Error& error);

  const Endpoint endpoint_;
  const std::string where_;  // for messages
  std::atomic<bool> cut_ = false;
  net::EventFd cut_told_;

  Channel channel_;
  Instant begin_;  // not before
  std::optional<Lookup> lookup_;
  std::vector<Channel::Address> addresses_;
  std::size_t address_ = 0;  // of them, the one that is tried
  Instant step_end_;         // of the lookup, or of the connect

  Step step_ = Step::kPause;
  bool was_used_ = false;
  bool busy_ = false;  // from Start to the end
  bool head_only_ = false;
  std::string request_;   // as it is sent
  std::size_t sent_ = 0;  // bytes of it
  std::optional<Parser> parser_;
  boost::beast::flat_buffer buffer_;
  std::optional<Response> head_;
  std::vector<char> block_;
  std::string piece_;
  bool ended_ = false;
  absl::Status status_;
};

}  // namespace starling::http
