// SPDX-License-Identifier: Apache-2.0
#include "common/http/http_connection.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <openssl/ssl.h>
#include <openssl/x509_vfy.h>
#include <poll.h>
#include <sys/socket.h>

#include <boost/asio/post.hpp>
#include <cstring>
#include <limits>
#include <system_error>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/status/macros.h"
#include "common/sync/mutex.h"

namespace starling::http {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;

constexpr auto kLookupTime = std::chrono::seconds(10);
constexpr auto kConnectTime = std::chrono::seconds(10);
constexpr std::uint32_t kHeadLimit = 256 << 10;
constexpr std::size_t kBlock = 64 << 10;

asio::const_buffer Bytes(const std::string& text) { return asio::buffer(text.data(), text.size()); }

void SetOption(int socket, int level, int name, int value) {
  (void)::setsockopt(socket, level, name, &value, sizeof(value));
}

// Close-on-exec, and alive only as long as the peer is: one that is gone without a word is noticed
// after 30 s of silence, or of data that it does not acknowledge.
void Prepare(int socket) {
  ::fcntl(socket, F_SETFD, FD_CLOEXEC);
  SetOption(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  SetOption(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  SetOption(socket, IPPROTO_TCP, TCP_KEEPIDLE, 15);
  SetOption(socket, IPPROTO_TCP, TCP_KEEPINTVL, 5);
  SetOption(socket, IPPROTO_TCP, TCP_KEEPCNT, 3);
  SetOption(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, 30'000);
}

absl::Status UseCertificate(const ClientTls& tls, asio::ssl::context& context) {
  boost::system::error_code error;
  context.use_certificate_chain(Bytes(tls.certificate), error);
  if (error) return absl::InvalidArgumentError("the client certificate is no certificate in PEM");
  // An encrypted key must not ask a terminal for its password.
  context.set_password_callback([](auto&&...) { return std::string(); }, error);
  context.use_private_key(Bytes(tls.key), asio::ssl::context::pem, error);
  if (!error) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "the client key is no unencrypted key in PEM, or not that of the client certificate");
}

absl::Status UseAuthority(const ClientTls& tls, asio::ssl::context& context) {
  boost::system::error_code error;
  if (tls.insecure) return absl::OkStatus();
  SSL_CTX_set_verify(context.native_handle(), SSL_VERIFY_PEER, nullptr);
  if (tls.authority.empty()) {
    context.set_default_verify_paths(error);
  } else {
    context.add_certificate_authority(Bytes(tls.authority), error);
  }
  if (!error) return absl::OkStatus();
  return absl::InvalidArgumentError("the certificate authority is no certificate in PEM");
}

using Tcp = asio::ip::tcp;

// As the resolver's errors are called by asio.
boost::system::error_code ErrorOf(int code) {
  if (code == 0) return {};
  if (code == EAI_AGAIN) return asio::error::host_not_found_try_again;
  const bool unknown = code == EAI_NONAME || code == EAI_NODATA || code == EAI_FAMILY;
  return unknown ? asio::error::host_not_found : asio::error::no_recovery;
}

Lookup::Addresses AskResolver(const std::string& host, int port, boost::system::error_code& error) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  error = ErrorOf(::getaddrinfo(host.c_str(), absl::StrCat(port).c_str(), &hints, &found));
  Lookup::Addresses addresses;
  for (const addrinfo* one = error ? nullptr : found; one != nullptr; one = one->ai_next) {
    Tcp::endpoint address;
    if (one->ai_addrlen > address.capacity()) continue;
    std::memcpy(address.data(), one->ai_addr, one->ai_addrlen);
    address.resize(one->ai_addrlen);
    addresses.push_back(address);
  }
  if (!error) ::freeaddrinfo(found);
  if (!error && addresses.empty()) error = asio::error::host_not_found;
  return addresses;
}

}  // namespace

// What the asker and the resolver's thread have in common, for as long as either lives.
struct Lookup::Shared {
  sync::Mutex mutex;
  asio::io_context* context ABSL_GUARDED_BY(mutex) = nullptr;  // null: nobody asks any more
  Done done ABSL_GUARDED_BY(mutex);
};

Lookup::Lookup(asio::io_context& context, const std::string& host, int port, Done done)
    : shared_(std::make_shared<Shared>()), work_(context.get_executor()) {
  {
    const sync::MutexLock lock(shared_->mutex);
    shared_->context = &context;
    shared_->done = std::move(done);
  }
  const auto answer = [shared = shared_](const boost::system::error_code& error,
                                         Addresses addresses) {
    const sync::MutexLock lock(shared->mutex);
    if (shared->context == nullptr) return;
    asio::post(*shared->context, [done = shared->done, error, addresses = std::move(addresses)] {
      done(error, addresses);
    });
  };
  try {
    std::thread([host, port, answer] {
      boost::system::error_code error;
      Addresses addresses = AskResolver(host, port, error);
      answer(error, std::move(addresses));
    }).detach();
  } catch (const std::system_error&) {  // no thread is left
    answer(asio::error::no_memory, {});
  }
}

Lookup::~Lookup() {
  const sync::MutexLock lock(shared_->mutex);
  shared_->context = nullptr;
}

Connection::Connection(const Endpoint& endpoint, const std::string& peer)
    : endpoint_(endpoint),
      where_(absl::StrCat(peer, endpoint.tls ? " https://" : " http://", endpoint.Authority())),
      buffer_(kHeadLimit + kBlock),
      block_(kBlock) {}

absl::StatusOr<std::unique_ptr<Connection>> Connection::Make(const Endpoint& endpoint,
                                                             const std::string& peer,
                                                             const ClientTls& tls) {
  std::unique_ptr<Connection> connection(new Connection(endpoint, peer));
  if (endpoint.tls) RETURN_IF_ERROR(connection->PrepareTls(tls));
  return connection;
}

absl::Status Connection::PrepareTls(const ClientTls& tls) {
  SSL_CTX* made = SSL_CTX_new(TLS_client_method());
  if (made == nullptr) return absl::ResourceExhaustedError("no TLS context could be made");
  tls_context_.emplace(made);  // takes it over
  SSL_CTX_set_min_proto_version(made, TLS1_2_VERSION);
  RETURN_IF_ERROR(UseAuthority(tls, *tls_context_));
  if (!tls.certificate.empty()) RETURN_IF_ERROR(UseCertificate(tls, *tls_context_));
  tls_.emplace(socket_, *tls_context_);
  // OpenSSL would free its buffers after each record, and allocate them anew for the next.
  SSL_clear_mode(tls_->native_handle(), SSL_MODE_RELEASE_BUFFERS);
  const std::string& name = tls.server_name.empty() ? endpoint_.host : tls.server_name;
  boost::system::error_code no_address;
  asio::ip::make_address(name, no_address);
  if (no_address) {
    SSL_set1_host(tls_->native_handle(), name.c_str());
    SSL_set_tlsext_host_name(tls_->native_handle(), name.c_str());
  } else {
    X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(tls_->native_handle()), name.c_str());
  }
  return absl::OkStatus();
}

template <typename Function>
void Connection::OnStream(const Function& function) {
  if (tls_) {
    function(*tls_);
  } else {
    function(socket_);
  }
}

void Connection::Start(const Request& request, absl::Duration wait) {
  head_.reset();
  piece_.clear();
  ended_ = false;
  busy_ = true;
  request_ = {};
  request_.version(11);
  request_.method_string(request.method);
  request_.target(endpoint_.path + request.target);
  request_.set(beast::http::field::host, endpoint_.Authority());
  request_.set(beast::http::field::accept_encoding, "identity");
  for (const auto& [name, value] : request.headers) request_.set(name, value);
  request_.body() = request.body;
  request_.prepare_payload();
  if (cut_) return Fail(asio::error::operation_aborted);
  if (socket_.is_open()) return Send();
  if (wait <= absl::ZeroDuration()) return Resolve();
  timer_.expires_after(absl::ToChronoNanoseconds(wait));
  timer_.async_wait([this](const Error& error) { error ? Fail(error) : Resolve(); });
}

void Connection::Resolve() {
  step_ = Step::kLookup;
  Error error;
  const auto address = asio::ip::make_address(endpoint_.host, error);
  if (!error) {
    addresses_ = {Tcp::endpoint(address, static_cast<std::uint16_t>(endpoint_.port))};
    return Connect(0);
  }
  timer_.expires_after(kLookupTime);
  timer_.async_wait([this](const Error& cancelled) {
    if (cancelled || !lookup_) return;
    lookup_.reset();
    Fail(asio::error::timed_out);
  });
  lookup_.emplace(context_, endpoint_.host, endpoint_.port,
                  [this](const Error& failed, Lookup::Addresses addresses) {
                    if (!lookup_) return;
                    lookup_.reset();
                    timer_.cancel();
                    if (failed) return Fail(failed);
                    addresses_ = std::move(addresses);
                    Connect(0);
                  });
}

// Tries the host's addresses one after another.
void Connection::Connect(std::size_t index) {
  step_ = Step::kConnect;
  Error error;
  socket_.close(error);
  socket_.open(addresses_[index].protocol(), error);
  if (error) {  // this machine may lack the address's family
    if (index + 1 == addresses_.size()) return Fail(error);
    return Connect(index + 1);
  }
  Prepare(socket_.native_handle());
  timer_.expires_after(kConnectTime);
  timer_.async_wait([this](const Error&) {
    // Also called when the timer was cancelled or set anew.
    const bool due = timer_.expiry() <= std::chrono::steady_clock::now();
    Error ignored;
    if (due && step_ == Step::kConnect) socket_.close(ignored);
  });
  socket_.async_connect(addresses_[index], [this, index](const Error& failed) {
    timer_.cancel();
    if (!failed) return Handshake();
    if (cut_ || index + 1 == addresses_.size()) return Fail(failed);
    Connect(index + 1);
  });
}

void Connection::Handshake() {
  if (!tls_) return Send();
  step_ = Step::kHandshake;
  tls_->async_handshake(asio::ssl::stream_base::client,
                        [this](const Error& error) { error ? Fail(error) : Send(); });
}

void Connection::Send() {
  step_ = Step::kSend;
  OnStream([this](auto& stream) {
    beast::http::async_write(stream, request_, [this](const Error& error, std::size_t) {
      error ? Fail(error) : ReadHead();
    });
  });
}

void Connection::ReadHead() {
  step_ = Step::kReceive;
  parser_.emplace();
  parser_->header_limit(kHeadLimit);
  parser_->body_limit(std::numeric_limits<std::uint64_t>::max());  // whoever reads counts
  if (request_.method() == beast::http::verb::head) parser_->skip(true);
  OnStream([this](auto& stream) {
    beast::http::async_read_header(
        stream, buffer_, *parser_,
        [this](const Error& error, std::size_t) { error ? Fail(error) : TakeHead(); });
  });
}

void Connection::TakeHead() {
  const auto& message = parser_->get();
  Response& head = head_.emplace();
  head.status = static_cast<int>(message.result_int());
  head.content_type.clear();
  for (const auto& field : message) {
    const bool is_type = field.name() == beast::http::field::content_type;
    if (is_type) head.content_type = std::string(field.value());
    head.headers.emplace_back(std::string(field.name_string()), std::string(field.value()));
  }
  ended_ = parser_->is_done();
}

void Connection::ReadSome() {
  reading_ = true;
  parser_->get().body().data = block_.data();
  parser_->get().body().size = block_.size();
  OnStream([this](auto& stream) {
    beast::http::async_read_some(
        stream, buffer_, *parser_, [this](const Error& error, std::size_t) {
          reading_ = false;
          piece_.assign(block_.data(), block_.size() - parser_->get().body().size);
          ended_ = parser_->is_done();
          if (error && error != beast::http::error::need_buffer && !ended_) Fail(error);
        });
  });
}

// One step of what is under way; false: there was none before `until`.
bool Connection::Turn(Instant until) {
  context_.restart();
  const bool in_time = std::chrono::steady_clock::now() < until;
  return (in_time ? context_.run_one_until(until) : context_.poll_one()) > 0;
}

bool Connection::AwaitHead(Instant until) {
  while (!head_ && status_.ok()) {
    if (!Turn(until)) return false;
  }
  return true;
}

bool Connection::AwaitPiece(Instant until) {
  if (!AwaitHead(until)) return false;
  while (piece_.empty() && !ended_ && status_.ok()) {
    if (!reading_) ReadSome();
    if (!Turn(until)) return false;
  }
  if (ended_) {
    busy_ = false;
    was_used_ = true;
  }
  return true;
}

void Connection::Fail(const Error& error) {
  status_ = Explain(error);
  Error ignored;
  socket_.close(ignored);
}

absl::Status Connection::Explain(const Error& error) {
  if (cut_) return absl::CancelledError(absl::StrCat(where_, ": cut off"));
  const auto say = [this](const auto&... what) {
    return absl::UnavailableError(absl::StrCat(where_, ": ", what...));
  };
  switch (step_) {
    case Step::kLookup:
      return say(
          "the addresses of its name cannot be found: ",
          error == asio::error::timed_out ? "the name servers do not answer" : error.message(),
          "; check the name, and the name servers of this machine");
    case Step::kConnect:
      if (error == asio::error::operation_aborted) {
        return say("cannot be reached: it does not answer");
      }
      return say("cannot be reached: ", error.message());
    case Step::kHandshake: {
      const long verdict = SSL_get_verify_result(tls_->native_handle());
      if (verdict == X509_V_ERR_HOSTNAME_MISMATCH || verdict == X509_V_ERR_IP_ADDRESS_MISMATCH) {
        return say("its certificate is not one for this host name");
      }
      if (verdict != X509_V_OK) {
        return say("its certificate is not to be trusted: ",
                   X509_verify_cert_error_string(verdict));
      }
      return say("the TLS handshake failed; is it a TLS server, and does it take our certificate?");
    }
    case Step::kSend:
      return say("the connection broke while the request was sent");
    case Step::kReceive:
      break;
  }
  if (error == beast::http::error::header_limit || error == beast::http::error::buffer_overflow) {
    return absl::FailedPreconditionError(
        absl::StrCat(where_, ": the answer's headers are longer than ", kHeadLimit,
                     " bytes, or have no end; is it the server that is meant?"));
  }
  const bool broke = error == beast::http::error::end_of_stream ||
                     error == beast::http::error::partial_message ||
                     error.category() != make_error_code(beast::http::error::bad_method).category();
  if (broke) return say("the connection broke before the answer was whole");
  return say("the answer is not HTTP: ", error.message());
}

std::string_view Connection::Doing() const {
  switch (step_) {
    case Step::kLookup:
      return "while its name was looked up";
    case Step::kConnect:
      return "while it was connected to";
    case Step::kHandshake:
      return "during the TLS handshake";
    case Step::kSend:
      return "while the request was sent";
    case Step::kReceive:
      break;
  }
  return "after the request was sent";
}

bool Connection::IsReusable() {
  if (cut_ || busy_ || !status_.ok() || !socket_.is_open() || buffer_.size() > 0) return false;
  if (!parser_ || !parser_->keep_alive()) return false;
  pollfd waiting{socket_.native_handle(), POLLIN | POLLRDHUP, 0};
  return ::poll(&waiting, 1, 0) == 0;
}

void Connection::Cut() {
  cut_ = true;
  asio::post(context_, [this] {
    Error ignored;
    timer_.cancel();
    socket_.close(ignored);
    if (!lookup_) return;
    lookup_.reset();
    Fail(asio::error::operation_aborted);
  });
}

}  // namespace starling::http
