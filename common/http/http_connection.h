// SPDX-License-Identifier: Apache-2.0
// One connection of HttpClient: an exchange is begun, and gets on while somebody waits for it.
//
// Internal to this folder. Everything from the connect to the last byte of the answer is one chain
// of asynchronous operations on an io_context of the connection's own, which the waiting thread
// runs. A deadline is the instant at which it stops running it, so it holds for every step alike. A
// connection whose exchange has not ended is destroyed, never used again. The lookup of a name
// alone cannot be stopped: it has a thread of its own (Lookup), which is left behind.
#pragma once

#include <atomic>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/http/http_client.h"
#include "common/http/message.h"

namespace starling::http {

// The addresses of a name. The system's resolver can neither be interrupted nor told a deadline, so
// it is asked on a thread of its own. Whoever no longer wants the answer destroys this and goes on:
// the thread ends when the resolver does (its own limits are some seconds a name server), and
// touches nothing of the asker's. Confined to the thread that runs `context`.
class Lookup {
 public:
  using Addresses = std::vector<boost::asio::ip::tcp::endpoint>;
  using Done = std::function<void(const boost::system::error_code& error, Addresses addresses)>;

  // `done` is called by whoever runs `context`, and not any more once this is destroyed.
  Lookup(boost::asio::io_context& context, const std::string& host, int port, Done done);
  ~Lookup();
  Lookup(const Lookup&) = delete;
  Lookup& operator=(const Lookup&) = delete;

 private:
  struct Shared;
  const std::shared_ptr<Shared> shared_;
  // Until the answer is posted there is something to wait for.
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_;
};

// Confined to one thread at a time, except Cut().
class Connection {
 public:
  using Instant = std::chrono::steady_clock::time_point;

  // INVALID_ARGUMENT: the certificates cannot be used. `tls` counts for https only.
  static absl::StatusOr<std::unique_ptr<Connection>> Make(const Endpoint& endpoint,
                                                          const std::string& peer,
                                                          const ClientTls& tls);
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
  // Whether the last exchange left it open and the server has sent nothing since, not even its end.
  bool IsReusable();

  // Ends the exchange under way, and all later ones. Thread-safe.
  void Cut();

 private:
  enum class Step { kLookup, kConnect, kHandshake, kSend, kReceive };
  using Tcp = boost::asio::ip::tcp;
  // What the context runs is known when this is compiled: an executor of any kind is an allocation
  // and several indirect calls for each of the many steps of an exchange.
  using Executor = boost::asio::io_context::executor_type;
  using Socket = boost::asio::basic_stream_socket<Tcp, Executor>;
  using Timer = boost::asio::basic_waitable_timer<
      std::chrono::steady_clock, boost::asio::wait_traits<std::chrono::steady_clock>, Executor>;
  using Error = boost::system::error_code;
  using Parser = boost::beast::http::response_parser<boost::beast::http::buffer_body>;

  Connection(const Endpoint& endpoint, const std::string& peer);
  absl::Status PrepareTls(const ClientTls& tls);
  template <typename Function>
  void OnStream(const Function& function);
  void Resolve();
  void Connect(std::size_t index);
  void Handshake();
  void Send();
  void ReadHead();
  void TakeHead();
  void ReadSome();
  bool Turn(Instant until);
  void Fail(const Error& error);
  absl::Status Explain(const Error& error);

  const Endpoint endpoint_;
  const std::string where_;  // for messages
  std::atomic<bool> cut_ = false;

  // One thread at a time runs it and uses its socket; others only post to it.
  boost::asio::io_context context_{BOOST_ASIO_CONCURRENCY_HINT_UNSAFE_IO};
  std::optional<Lookup> lookup_;  // under way
  Timer timer_{context_};
  Socket socket_{context_};
  std::optional<boost::asio::ssl::context> tls_context_;
  std::optional<boost::asio::ssl::stream<Socket&>> tls_;
  std::vector<Tcp::endpoint> addresses_;

  Step step_ = Step::kLookup;
  bool was_used_ = false;
  bool busy_ = false;  // from Start to the end
  bool reading_ = false;
  boost::beast::http::request<boost::beast::http::string_body> request_;
  std::optional<Parser> parser_;
  boost::beast::flat_buffer buffer_;
  std::optional<Response> head_;
  std::vector<char> block_;
  std::string piece_;
  bool ended_ = false;
  absl::Status status_;
};

}  // namespace starling::http
