// SPDX-License-Identifier: Apache-2.0
#include "common/http/http_server.h"

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ip/v6_only.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>
#include <boost/beast/ssl.hpp>
#include <chrono>
#include <exception>
#include <optional>
#include <thread>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "common/http/server_certificate.h"
#include "common/log/log.h"

namespace starling::http {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
using Error = beast::error_code;
using Tcp = asio::ip::tcp;
using Parser = beast::http::request_parser<beast::http::string_body>;
using Field = beast::http::field;

constexpr std::size_t kDrainLimit = 1 << 20;
constexpr auto kDrainTime = std::chrono::seconds(1);
constexpr auto kAcceptPause = std::chrono::milliseconds(100);
constexpr char kBusy[] =
    "HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";

beast::string_view ToBeast(std::string_view text) { return {text.data(), text.size()}; }
absl::string_view ToAbsl(std::string_view text) { return {text.data(), text.size()}; }

void CloseOnExec(int file) { ::fcntl(file, F_SETFD, FD_CLOEXEC); }

Response Refusal(int status, std::string_view why) {
  return {.status = status, .body = absl::StrCat(ToAbsl(why), "\n"), .headers = {}};
}

// Requests that a proxy in front of us might read differently, and methods that we never serve.
std::optional<Response> Refuse(const Parser& parser) {
  const auto& request = parser.get();
  if (request.version() != 10 && request.version() != 11) {
    return Refusal(505, "only HTTP/1.0 and HTTP/1.1 are spoken here");
  }
  if (request.count(Field::content_length) > 1 || request.count(Field::transfer_encoding) > 1 ||
      (request.count(Field::content_length) > 0 && request.count(Field::transfer_encoding) > 0)) {
    return Refusal(400, "the body's length is given more than once");
  }
  const auto coding = request.find(Field::transfer_encoding);
  if (coding != request.end() &&
      (request.version() == 10 || !beast::iequals(coding->value(), "chunked"))) {
    return Refusal(400, "the only transfer encoding is chunked, in HTTP/1.1");
  }
  if (request.count(Field::host) > 1 || (request.version() == 11 && !request.count(Field::host))) {
    return Refusal(400, "send exactly one Host header");
  }
  if (request.count(Field::content_encoding) > 0) {
    return Refusal(415, "send the body without Content-Encoding");
  }
  if (request.target().empty() || request.target().front() != '/') {
    return Refusal(400, "the target must be a path");
  }
  const auto method = request.method();
  const bool bodyless = method == beast::http::verb::get || method == beast::http::verb::head;
  if (bodyless && (parser.chunked() || parser.content_length().value_or(0) > 0)) {
    return Refusal(400, "a GET or HEAD request has no body");
  }
  return std::nullopt;
}

Response RefusalOf(const Error& error) {
  namespace http = beast::http;
  if (error == http::error::header_limit || error == http::error::buffer_overflow) {
    return Refusal(431, "the headers are too large");
  }
  if (error == http::error::body_limit) return Refusal(413, "the body is too large");
  return Refusal(400, "this is not a well-formed HTTP request");
}

// Whether the peer sent something wrong, rather than nothing or no more.
bool IsProtocolError(const Error& error) {
  return error.category() == make_error_code(beast::http::error::bad_method).category() &&
         error != beast::http::error::end_of_stream && error != beast::http::error::partial_message;
}

// A connection's TLS and the context that it was begun with.
struct TlsStream {
  TlsStream(const std::shared_ptr<SSL_CTX>& shared, Tcp::socket socket)
      : context(Own(shared)), tls(std::move(socket), context) {}

  static SSL_CTX* Own(const std::shared_ptr<SSL_CTX>& shared) {
    SSL_CTX_up_ref(shared.get());
    return shared.get();
  }

  asio::ssl::context context;
  beast::ssl_stream<beast::tcp_stream> tls;
};

Request ToRequest(Parser& parser) {
  auto& message = parser.get();
  Request request;
  request.method = std::string(message.method_string());
  request.target = std::string(message.target());
  for (const auto& field : message) {
    request.headers.emplace_back(std::string(field.name_string()), std::string(field.value()));
  }
  request.body = std::move(message.body());
  return request;
}

// The head of `response`, to which any body type can be given.
template <typename Body>
beast::http::response<Body> ToMessage(const Response& response, bool keep_alive) {
  beast::http::response<Body> message;
  message.version(11);
  message.result(static_cast<unsigned>(std::clamp(response.status, 100, 999)));
  if (IsHeaderText(response.content_type)) {
    message.set(Field::content_type, ToBeast(response.content_type));
  }
  message.set(Field::cache_control, "no-store");
  message.set("X-Content-Type-Options", "nosniff");
  for (const auto& [name, value] : response.headers) {
    if (IsToken(name) && IsHeaderText(value)) message.set(ToBeast(name), ToBeast(value));
  }
  message.keep_alive(keep_alive);
  message.content_length(response.body.size());
  return message;
}

// Of IPv6 where the kernel has it, which takes connections of IPv4 too.
asio::ip::address AnyAddress() {
  Error error;
  asio::io_context context;
  Tcp::acceptor probe(context);
  probe.open(Tcp::v6(), error);
  if (error) return asio::ip::address_v4::any();
  return asio::ip::address_v6::any();
}

}  // namespace

// Confined to its thread, but for the constructor, Listen and the destructor.
class HttpServer::Core {
 public:
  Core(HttpServerOptions options, Handler handler)
      : options_(std::move(options)),
        handler_(std::move(handler)),
        deadline_(absl::ToChronoMilliseconds(options_.deadline)),
        acceptor_(context_),
        retry_(context_) {}

  ~Core() {
    context_.stop();
    if (thread_.joinable()) thread_.join();
  }

  absl::Status Listen();
  void Run() {
    Accept();
    thread_ = std::thread([this] { context_.run(); });
  }
  int port() const { return port_; }

 private:
  template <typename Stream>
  class Session;

  void Accept();
  void OnAccept(const Error& error, Tcp::socket socket);
  Response Handle(const Request& request) const;

  const HttpServerOptions options_;
  const Handler handler_;
  const std::chrono::milliseconds deadline_;
  int port_ = 0;
  int connections_ = 0;  // before context_: sessions that it destroys still count down
  asio::io_context context_{1};
  Tcp::acceptor acceptor_;
  asio::steady_timer retry_;
  std::thread thread_;
};

// One connection: read a request, answer it, and again while both sides keep it alive. Stream is
// PlainStream or TlsStream.
template <typename Stream>
class HttpServer::Core::Session : public std::enable_shared_from_this<Session<Stream>> {
 public:
  template <typename... Arguments>
  explicit Session(Core& core, Arguments&&... arguments)
      : core_(core),
        stream_(std::forward<Arguments>(arguments)...),
        buffer_(core.options_.header_limit + core.options_.body_limit + kSlack) {
    ++core_.connections_;
  }
  ~Session() { --core_.connections_; }

  void Start() {
    if constexpr (kTls) {
      Lowest().expires_after(core_.deadline_);
      stream_.tls.async_handshake(asio::ssl::stream_base::server,
                                  [self = this->shared_from_this()](const Error& error) {
                                    if (!error) self->Read(/*first=*/true);
                                  });
    } else {
      Read(/*first=*/true);
    }
  }

 private:
  static constexpr std::size_t kSlack = 4096;
  static constexpr bool kTls = std::is_same_v<Stream, TlsStream>;

  auto& Bytes() {
    if constexpr (kTls) {
      return stream_.tls;
    } else {
      return stream_;
    }
  }
  beast::tcp_stream& Lowest() { return beast::get_lowest_layer(Bytes()); }

  // The time of the handshake is part of the first request's.
  void Read(bool first = false) {
    parser_.emplace();
    parser_->header_limit(static_cast<std::uint32_t>(core_.options_.header_limit));
    parser_->body_limit(core_.options_.body_limit);
    if (!kTls || !first) Lowest().expires_after(core_.deadline_);
    beast::http::async_read_header(Bytes(), buffer_, *parser_,
                                   [self = this->shared_from_this()](
                                       const Error& error, std::size_t) { self->OnHeader(error); });
  }

  void OnHeader(const Error& error) {
    if (error) return Fail(error);
    if (const auto refusal = Refuse(*parser_)) return Write(*refusal, /*keep_alive=*/false);
    beast::http::async_read(
        Bytes(), buffer_, *parser_,
        [self = this->shared_from_this()](const Error& read_error, std::size_t) {
          self->OnRequest(read_error);
        });
  }

  void OnRequest(const Error& error) {
    if (error) return Fail(error);
    head_ = parser_->get().method() == beast::http::verb::head;
    const bool keep_alive = parser_->get().keep_alive();
    Write(core_.Handle(ToRequest(*parser_)), keep_alive);
  }

  void Fail(const Error& error) {
    if (IsProtocolError(error)) return Write(RefusalOf(error), /*keep_alive=*/false);
    Error ignored;
    Lowest().socket().shutdown(Tcp::socket::shutdown_both, ignored);
  }

  void Write(const Response& response, bool keep_alive) {
    Lowest().expires_after(core_.deadline_);
    if (head_) {
      Send(ToMessage<beast::http::empty_body>(response, keep_alive), keep_alive);
    } else {
      auto message = ToMessage<beast::http::string_body>(response, keep_alive);
      message.body() = response.body;
      Send(std::move(message), keep_alive);
    }
  }

  template <typename Message>
  void Send(Message message, bool keep_alive) {
    const auto kept = std::make_shared<Message>(std::move(message));
    beast::http::async_write(
        Bytes(), *kept,
        [self = this->shared_from_this(), kept, keep_alive](const Error& error, std::size_t) {
          if (error) return;
          self->head_ = false;
          keep_alive ? self->Read() : self->Close();
        });
  }

  // Says goodbye in TLS first; whatever comes of that, the rest is as without it.
  void Close() {
    if constexpr (kTls) {
      Lowest().expires_after(kDrainTime);
      stream_.tls.async_shutdown(
          [self = this->shared_from_this()](const Error&) { self->Drain(); });
    } else {
      Drain();
    }
  }

  // What the peer still sends is read for a moment: closing on unread bytes would reset the
  // connection and could destroy our answer on its way.
  void Drain() {
    Error ignored;
    Lowest().socket().shutdown(Tcp::socket::shutdown_send, ignored);
    Lowest().expires_after(kDrainTime);
    DrainMore();
  }

  void DrainMore() {
    Lowest().async_read_some(asio::buffer(scrap_), [self = this->shared_from_this()](
                                                       const Error& error, std::size_t count) {
      self->drained_ += count;
      if (!error && self->drained_ < kDrainLimit) self->DrainMore();
    });
  }

  Core& core_;
  Stream stream_;
  beast::flat_buffer buffer_;
  std::optional<Parser> parser_;
  bool head_ = false;
  std::size_t drained_ = 0;
  std::array<char, 4096> scrap_;
};

absl::Status HttpServer::Core::Listen() {
  const auto failed = [this](std::string_view what, const Error& error) {
    return absl::UnavailableError(absl::StrCat("cannot ", ToAbsl(what), " ", options_.address, ":",
                                               options_.port, ": ", error.message(),
                                               "; choose another address or port"));
  };
  Error error;
  const bool any = options_.address.empty();
  const auto address = any ? AnyAddress() : asio::ip::make_address(options_.address, error);
  if (error) return failed("read the address", error);
  if (options_.port < 0 || options_.port > 65535) {
    return failed("use the port of", make_error_code(boost::system::errc::invalid_argument));
  }
  const Tcp::endpoint endpoint(address, static_cast<std::uint16_t>(options_.port));
  acceptor_.open(endpoint.protocol(), error);
  if (error) return failed("open a socket for", error);
  CloseOnExec(acceptor_.native_handle());
  acceptor_.set_option(asio::socket_base::reuse_address(true), error);
  if (any && address.is_v6()) acceptor_.set_option(asio::ip::v6_only(false), error);
  acceptor_.bind(endpoint, error);
  if (error) return failed("bind", error);
  acceptor_.listen(asio::socket_base::max_listen_connections, error);
  if (error) return failed("listen on", error);
  port_ = acceptor_.local_endpoint(error).port();
  return absl::OkStatus();
}

void HttpServer::Core::Accept() {
  acceptor_.async_accept(
      [this](const Error& error, Tcp::socket socket) { OnAccept(error, std::move(socket)); });
}

void HttpServer::Core::OnAccept(const Error& error, Tcp::socket socket) {
  if (error) {
    // Most likely we are out of descriptors, which come back when connections end.
    retry_.expires_after(kAcceptPause);
    retry_.async_wait([this](const Error& wait_error) {
      if (!wait_error) Accept();
    });
    return;
  }
  CloseOnExec(socket.native_handle());
  if (connections_ >= options_.max_connections) {
    Error ignored;
    socket.non_blocking(true, ignored);
    if (options_.certificate == nullptr) {
      socket.write_some(asio::buffer(kBusy, sizeof(kBusy) - 1), ignored);
    }
  } else if (options_.certificate != nullptr) {
    std::make_shared<Session<TlsStream>>(*this, options_.certificate->context(), std::move(socket))
        ->Start();
  } else {
    std::make_shared<Session<beast::tcp_stream>>(*this, std::move(socket))->Start();
  }
  Accept();
}

Response HttpServer::Core::Handle(const Request& request) const {
  try {
    return handler_(request);
  } catch (const std::exception& exception) {
    log::Error("an HTTP handler threw; its answer was replaced by 500",
               {{"target", request.target}, {"error", exception.what()}});
    return Refusal(500, "internal error");
  }
}

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(HttpServerOptions options,
                                                              Handler handler) {
  auto core = std::make_unique<Core>(std::move(options), std::move(handler));
  if (absl::Status status = core->Listen(); !status.ok()) return status;
  core->Run();
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(core)));
}

HttpServer::HttpServer(std::unique_ptr<Core> core) : core_(std::move(core)) {}
HttpServer::~HttpServer() = default;

int HttpServer::port() const { return core_->port(); }

}  // namespace starling::http
