// SPDX-License-Identifier: Apache-2.0
#include "common/http/http_connection.h"

#include <netdb.h>
#include <openssl/ssl.h>
#include <openssl/x509_vfy.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <ctime>
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
constexpr std::size_t kReadAtOnce = 16 << 10;  // a record of TLS, as long as one may be

asio::const_buffer Bytes(const std::string& text) { return asio::buffer(text.data(), text.size()); }

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

// As the resolver's errors are called by asio.
boost::system::error_code ErrorOf(int code) {
  if (code == 0) return {};
  if (code == EAI_AGAIN) return asio::error::host_not_found_try_again;
  const bool unknown = code == EAI_NONAME || code == EAI_NODATA || code == EAI_FAMILY;
  return unknown ? asio::error::host_not_found : asio::error::no_recovery;
}

Lookup::Answer AskResolver(const std::string& host, int port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  Lookup::Answer answer;
  answer.error = ErrorOf(::getaddrinfo(host.c_str(), absl::StrCat(port).c_str(), &hints, &found));
  if (answer.error) return answer;
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    Channel::Address address;
    if (one->ai_addrlen > address.capacity()) continue;
    std::memcpy(address.data(), one->ai_addr, one->ai_addrlen);
    address.resize(one->ai_addrlen);
    answer.addresses.push_back(address);
  }
  ::freeaddrinfo(found);
  if (answer.addresses.empty()) answer.error = asio::error::host_not_found;
  return answer;
}

// The request as it is sent.
std::string Serialize(const Endpoint& endpoint, const Request& request) {
  beast::http::request<beast::http::empty_body> head;
  head.version(11);
  head.method_string(request.method);
  head.target(endpoint.path + request.target);
  head.set(beast::http::field::host, endpoint.Authority());
  head.set(beast::http::field::accept_encoding, "identity");
  for (const auto& [name, value] : request.headers) head.set(name, value);
  head.prepare_payload();
  if (!request.body.empty()) head.content_length(request.body.size());
  std::string text;
  beast::http::request_serializer<beast::http::empty_body> serializer(head);
  boost::system::error_code error;
  while (!error && !serializer.is_done()) {
    serializer.next(error, [&](boost::system::error_code&, const auto& buffers) {
      for (const asio::const_buffer part : beast::buffers_range_ref(buffers)) {
        text.append(static_cast<const char*>(part.data()), part.size());
      }
      serializer.consume(beast::buffer_bytes(buffers));
    });
  }
  return text.append(request.body);
}

// Whether one of them was ready within that time, or a signal came: then it is to be seen again.
bool Poll(std::array<pollfd, 2> polled, std::chrono::nanoseconds left) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(left);
  const timespec time{.tv_sec = static_cast<std::time_t>(seconds.count()),
                      .tv_nsec = static_cast<long>((left - seconds).count())};
  return ::ppoll(polled.data(), polled.size(), &time, nullptr) != 0;
}

}  // namespace

// What the asker and the resolver's thread have in common, for as long as either lives.
struct Lookup::Shared {
  net::EventFd answered;
  sync::Mutex mutex;
  std::optional<Answer> answer ABSL_GUARDED_BY(mutex);

  void Tell(Answer told) {
    {
      const sync::MutexLock lock(mutex);
      answer = std::move(told);
    }
    answered.Signal();
  }
};

Lookup::Lookup(const std::string& host, int port) : shared_(std::make_shared<Shared>()) {
  try {
    std::thread([host, port, shared = shared_] { shared->Tell(AskResolver(host, port)); }).detach();
  } catch (const std::system_error&) {  // no thread is left
    shared_->Tell({.error = asio::error::no_memory, .addresses = {}});
  }
}

int Lookup::fd() const { return shared_->answered.get(); }

std::optional<Lookup::Answer> Lookup::Take() {
  const sync::MutexLock lock(shared_->mutex);
  return std::exchange(shared_->answer, std::nullopt);
}

Connection::Connection(const Endpoint& endpoint, const std::string& peer)
    : endpoint_(endpoint),
      where_(absl::StrCat(peer, endpoint.tls ? " https://" : " http://", endpoint.Authority())),
      buffer_(kHeadLimit + kBlock),
      block_(kBlock) {
  buffer_.reserve(kReadAtOnce);
}

absl::StatusOr<std::shared_ptr<const TlsContext>> TlsContext::Make(ClientTls tls) {
  SSL_CTX* made = SSL_CTX_new(TLS_client_method());
  if (made == nullptr) return absl::ResourceExhaustedError("no TLS context could be made");
  std::shared_ptr<TlsContext> context(new TlsContext(std::move(tls), made));  // takes it over
  RETURN_IF_ERROR(context->Prepare());
  return std::shared_ptr<const TlsContext>(std::move(context));
}

absl::Status TlsContext::Prepare() {
  SSL_CTX* made = context_.native_handle();
  SSL_CTX_set_min_proto_version(made, TLS1_2_VERSION);
  RETURN_IF_ERROR(UseAuthority(tls_, context_));
  if (!tls_.certificate.empty()) RETURN_IF_ERROR(UseCertificate(tls_, context_));
  // More than one record may come at once; and what is written may be written in parts.
  SSL_CTX_set_read_ahead(made, 1);
  SSL_CTX_set_mode(made, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  return absl::OkStatus();
}

absl::StatusOr<SSL*> TlsContext::Open(const std::string& host) const {
  SSL* session = SSL_new(context_.native_handle());
  if (session == nullptr) return absl::ResourceExhaustedError("no TLS session could be made");
  // OpenSSL would free its buffers after each record, and allocate them anew for the next.
  SSL_clear_mode(session, SSL_MODE_RELEASE_BUFFERS);
  const std::string& name = tls_.server_name.empty() ? host : tls_.server_name;
  boost::system::error_code no_address;
  asio::ip::make_address(name, no_address);
  if (no_address) {
    SSL_set1_host(session, name.c_str());
    SSL_set_tlsext_host_name(session, name.c_str());
  } else {
    X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(session), name.c_str());
  }
  return session;
}

absl::StatusOr<std::unique_ptr<Connection>> Connection::Make(const Endpoint& endpoint,
                                                             const std::string& peer,
                                                             const TlsContext* tls) {
  std::unique_ptr<Connection> connection(new Connection(endpoint, peer));
  if (tls != nullptr) {
    ASSIGN_OR_RETURN(SSL * session, tls->Open(endpoint.host));
    connection->channel_.UseTls(session);
  }
  return connection;
}

void Connection::Start(const Request& request, absl::Duration wait) {
  head_.reset();
  piece_.clear();
  ended_ = false;
  busy_ = true;
  request_ = Serialize(endpoint_, request);
  sent_ = 0;
  head_only_ = request.method == "HEAD";
  begin_ = std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(wait);
  step_ = channel_.is_open() ? Step::kSend : Step::kPause;
}

Connection::Pending Connection::Begin() {
  if (std::chrono::steady_clock::now() < begin_) return Wait{.until = begin_};
  step_ = Step::kLookup;
  Error error;
  const auto address = asio::ip::make_address(endpoint_.host, error);
  if (!error) {
    addresses_ = {Channel::Address(address, static_cast<std::uint16_t>(endpoint_.port))};
    Connect(0);
    return std::nullopt;
  }
  step_end_ = std::chrono::steady_clock::now() + kLookupTime;
  lookup_.emplace(endpoint_.host, endpoint_.port);
  return std::nullopt;
}

Connection::Pending Connection::AwaitAddresses() {
  std::optional<Lookup::Answer> answer = lookup_->Take();
  if (!answer.has_value()) {
    if (std::chrono::steady_clock::now() >= step_end_) return Fail(asio::error::timed_out);
    return Wait{lookup_->fd(), POLLIN, step_end_};
  }
  lookup_.reset();
  if (answer->error) return Fail(answer->error);
  addresses_ = std::move(answer->addresses);
  Connect(0);
  return std::nullopt;
}

// Tries the host's addresses one after another; this machine may lack the family of one.
void Connection::Connect(std::size_t index) {
  step_ = Step::kConnect;
  step_end_ = std::chrono::steady_clock::now() + kConnectTime;
  Error error;
  for (address_ = index; address_ < addresses_.size(); ++address_) {
    channel_.StartConnect(addresses_[address_], error);
    if (!error) return;
  }
  Fail(error);
}

Connection::Pending Connection::AwaitConnect() {
  Error error;
  channel_.FinishConnect(error);
  if (!error) {
    step_ = Step::kHandshake;
    return std::nullopt;
  }
  if (error == asio::error::would_block) {
    if (std::chrono::steady_clock::now() < step_end_) {
      return Wait{channel_.fd(), channel_.wanted(), step_end_};
    }
    error = asio::error::operation_aborted;
  }
  if (address_ + 1 == addresses_.size()) return Fail(error);
  Connect(address_ + 1);
  return std::nullopt;
}

Connection::Pending Connection::Handshake() {
  Error error;
  channel_.Handshake(error);
  if (!error) step_ = Step::kSend;
  return FailOrWait(error);
}

Connection::Pending Connection::Send() {
  Error error;
  sent_ += channel_.Write(std::string_view(request_).substr(sent_), error);
  if (error || sent_ < request_.size()) return FailOrWait(error);
  request_.clear();
  step_ = Step::kReceive;
  parser_.emplace();
  parser_->header_limit(kHeadLimit);
  parser_->body_limit(std::numeric_limits<std::uint64_t>::max());  // whoever reads counts
  if (head_only_) parser_->skip(true);
  // The answer takes longer than looking for it would.
  return channel_.has_unread() ? Pending() : Wait{.fd = channel_.fd(), .events = POLLIN};
}

Connection::Pending Connection::ReadHead() {
  Error error;
  beast::http::read_header(channel_, buffer_, *parser_, error);
  if (!error) TakeHead();
  return FailOrWait(error);
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
  parser_->eager(true);  // of the body all that is there
}

Connection::Pending Connection::ReadSome() {
  Error error;
  parser_->get().body().data = block_.data();
  parser_->get().body().size = block_.size();
  beast::http::read_some(channel_, buffer_, *parser_, error);
  piece_.assign(block_.data(), block_.size() - parser_->get().body().size);
  ended_ = parser_->is_done();
  if (ended_ || error == beast::http::error::need_buffer) return std::nullopt;
  if (error == asio::error::would_block && !piece_.empty()) return std::nullopt;
  return FailOrWait(error);
}

Connection::Pending Connection::Advance() {
  switch (step_) {
    case Step::kPause:
      return Begin();
    case Step::kLookup:
      return AwaitAddresses();
    case Step::kConnect:
      return AwaitConnect();
    case Step::kHandshake:
      return Handshake();
    case Step::kSend:
      return Send();
    case Step::kReceive:
      break;
  }
  return head_ ? ReadSome() : ReadHead();
}

// One step of what is under way, or a wait for it; false: it could not get on before `until`.
bool Connection::Turn(Instant until) {
  const Pending wait = cut_ ? Fail(asio::error::operation_aborted) : Advance();
  if (!wait.has_value()) return true;
  const Instant now = std::chrono::steady_clock::now();
  if (now >= until) return false;
  const Instant end = std::min(until, wait->until);
  return Poll({{{wait->fd, wait->events, 0}, {cut_told_.get(), POLLIN, 0}}}, end - now) ||
         end == wait->until;
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
    if (!Turn(until)) return false;
  }
  if (ended_) {
    busy_ = false;
    was_used_ = true;
  }
  return true;
}

Connection::Pending Connection::Fail(const Error& error) {
  status_ = Explain(error);
  lookup_.reset();
  channel_.Close();
  return std::nullopt;
}

Connection::Pending Connection::FailOrWait(const Error& error) {
  if (!error) return std::nullopt;
  if (error != asio::error::would_block) return Fail(error);
  return Wait{.fd = channel_.fd(), .events = channel_.wanted()};
}

absl::Status Connection::Explain(const Error& error) {
  if (cut_) return absl::CancelledError(absl::StrCat(where_, ": cut off"));
  const auto say = [this](const auto&... what) {
    return absl::UnavailableError(absl::StrCat(where_, ": ", what...));
  };
  switch (step_) {
    case Step::kPause:
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
      const long verdict = SSL_get_verify_result(channel_.tls());
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
    case Step::kPause:
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

bool Connection::is_kept() const {
  if (cut_ || busy_ || !status_.ok() || !channel_.is_open() || buffer_.size() > 0) return false;
  return parser_ && parser_->keep_alive();
}

bool Connection::IsReusable() {
  if (!is_kept()) return false;
  pollfd waiting{channel_.fd(), POLLIN | POLLRDHUP, 0};
  return ::poll(&waiting, 1, 0) == 0;
}

void Connection::Cut() {
  cut_ = true;
  cut_told_.Signal();
}

}  // namespace starling::http
