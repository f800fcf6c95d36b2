// SPDX-License-Identifier: Apache-2.0
#include "controller/kube/http_connection.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <httplib.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509_vfy.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <ctime>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/status/macros.h"
#include "controller/kube/http_socket.h"

namespace starling::kube {
namespace {

constexpr absl::Duration kConnectTimeout = absl::Seconds(10);
constexpr std::uint64_t kLargestHead = 1U << 20U;

// OpenSSL writes without MSG_NOSIGNAL: a broken connection must not end a program that has not
// ignored SIGPIPE. Confined to a function.
class NoSigpipe {
 public:
  NoSigpipe() {
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    sigset_t pending;
    sigpending(&pending);
    was_pending_ = sigismember(&pending, SIGPIPE) == 1;
    pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~NoSigpipe() {
    sigset_t pending;
    sigpending(&pending);
    if (!was_pending_ && sigismember(&pending, SIGPIPE) == 1) {
      const timespec at_once{};
      sigtimedwait(&pipe_, nullptr, &at_once);
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  NoSigpipe(const NoSigpipe&) = delete;
  NoSigpipe& operator=(const NoSigpipe&) = delete;

 private:
  sigset_t pipe_{};
  sigset_t before_{};
  bool was_pending_ = false;
};

struct FreeBio {
  void operator()(BIO* bio) const { BIO_free(bio); }
};
struct FreeCertificate {
  void operator()(X509* certificate) const { X509_free(certificate); }
};
struct FreeKey {
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
};
using Bio = std::unique_ptr<BIO, FreeBio>;
using Certificate = std::unique_ptr<X509, FreeCertificate>;

Bio ReadOnly(const std::string& text) {
  return Bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

absl::Status UseCertificate(SSL_CTX* context, const std::string& chain, const std::string& key) {
  const Bio bio = ReadOnly(chain);
  const Certificate leaf(PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr));
  if (!leaf || SSL_CTX_use_certificate(context, leaf.get()) != 1) {
    return absl::InvalidArgumentError("the client certificate is no certificate in PEM");
  }
  while (X509* more = PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr)) {
    SSL_CTX_add_extra_chain_cert(context, more);  // takes it over
  }
  const auto no_password = [](char*, int, int, void*) { return 0; };
  const std::unique_ptr<EVP_PKEY, FreeKey> parsed(
      PEM_read_bio_PrivateKey(ReadOnly(key).get(), nullptr, no_password, nullptr));
  if (!parsed || SSL_CTX_use_PrivateKey(context, parsed.get()) != 1) {
    return absl::InvalidArgumentError(
        "the client key is no unencrypted key in PEM, or not that of the client certificate");
  }
  return absl::OkStatus();
}

// A file without a name, for what only wants paths.
absl::StatusOr<net::FileDescriptor> Anonymous(const std::string& text) {
  net::FileDescriptor file(::memfd_create("starling-authority", MFD_CLOEXEC));
  if (!file.valid() ||
      ::write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    return absl::ResourceExhaustedError("no memory for a certificate authority");
  }
  return file;
}

// The library takes an answer's head byte by byte, each by a call of OpenSSL of its own. Confined
// to one exchange; reads no further than what has come, and requests are not pipelined, so nothing
// is left in it at the end.
class BlockStream final : public httplib::Stream {
 public:
  BlockStream(SSL* tls, int socket, int read_ms, int write_ms)
      : tls_(tls), socket_(socket), read_ms_(read_ms), write_ms_(write_ms) {
    SSL_clear_mode(tls_, SSL_MODE_AUTO_RETRY);
  }

  bool is_readable() const override { return at_ < end_ || Await(POLLIN, read_ms_); }
  bool is_writable() const override { return Await(POLLOUT, write_ms_); }

  ssize_t read(char* to, std::size_t size) override {
    if (at_ == end_) {
      const ssize_t got = Fill();
      if (got <= 0) return got;
    }
    const std::size_t taken = std::min(size, end_ - at_);
    std::memcpy(to, block_ + at_, taken);
    at_ += taken;
    return static_cast<ssize_t>(taken);
  }

  ssize_t write(const char* from, std::size_t size) override {
    if (!is_writable()) return -1;
    for (int tries = 0; tries < kTries; ++tries) {
      const int sent = SSL_write(tls_, from, static_cast<int>(std::min<std::size_t>(size, kMost)));
      if (sent > 0 || SSL_get_error(tls_, sent) != SSL_ERROR_WANT_WRITE || !is_writable()) {
        return sent;
      }
    }
    return -1;
  }

  // Nobody asks.
  void get_remote_ip_and_port(std::string&, int&) const override {}
  void get_local_ip_and_port(std::string&, int&) const override {}
  socket_t socket() const override { return socket_; }

 private:
  static constexpr int kMost = 1 << 30;
  static constexpr int kTries = 1000;

  bool Await(short what, int milliseconds) const {
    pollfd waiting{socket_, what, 0};
    return ::poll(&waiting, 1, milliseconds) > 0;
  }

  ssize_t Fill() {
    at_ = end_ = 0;
    for (int tries = 0; tries < kTries; ++tries) {
      if (SSL_pending(tls_) == 0 && !Await(POLLIN, read_ms_)) return -1;
      const int got = SSL_read(tls_, block_, sizeof(block_));
      if (got > 0) end_ = static_cast<std::size_t>(got);
      // A record that is not data, such as a session ticket, comes in between.
      if (got > 0 || SSL_get_error(tls_, got) != SSL_ERROR_WANT_READ) return got;
    }
    return -1;
  }

  SSL* const tls_;
  const int socket_;
  const int read_ms_;
  const int write_ms_;
  char block_[16 << 10];  // a record of TLS
  std::size_t at_ = 0;
  std::size_t end_ = 0;
};

class BlockSslClient final : public httplib::SSLClient {
 public:
  using SSLClient::SSLClient;

 private:
  bool process_socket(const Socket& socket,
                      std::function<bool(httplib::Stream&)> callback) override {
    const auto milliseconds = [](time_t seconds, time_t micros) {
      return static_cast<int>(std::min<time_t>(seconds, 1'000'000) * 1000 + micros / 1000);
    };
    BlockStream stream(socket.ssl, socket.sock, milliseconds(read_timeout_sec_, read_timeout_usec_),
                       milliseconds(write_timeout_sec_, write_timeout_usec_));
    return callback(stream);
  }
};

}  // namespace

absl::StatusOr<HttpEndpoint> HttpEndpoint::Parse(const std::string& url) {
  HttpEndpoint endpoint;
  const auto wrong = [&url] {
    return absl::InvalidArgumentError(
        absl::StrCat("server \"", url, "\" must be https://host[:port][/path]"));
  };
  const std::size_t scheme = url.find("://");
  if (scheme == std::string::npos) return wrong();
  endpoint.tls = url.substr(0, scheme) == "https";
  if (!endpoint.tls && url.substr(0, scheme) != "http") return wrong();
  const std::string rest = url.substr(scheme + 3);
  const std::size_t slash = rest.find_first_of("/?#");
  const std::string authority = rest.substr(0, slash);
  if (slash != std::string::npos) endpoint.path = rest.substr(slash);
  while (!endpoint.path.empty() && endpoint.path.back() == '/') endpoint.path.pop_back();
  if (endpoint.path.find_first_of("?# \t\r\n") != std::string::npos) return wrong();
  const bool bracket = !authority.empty() && authority.front() == '[';
  const std::size_t end = bracket ? authority.find(']') : authority.rfind(':');
  if (bracket && end == std::string::npos) return wrong();
  endpoint.host = bracket ? authority.substr(1, end - 1) : authority.substr(0, end);
  std::string port = end == std::string::npos ? "" : authority.substr(end + 1);
  if (bracket && !port.empty()) port.erase(0, 1);
  endpoint.port = endpoint.tls ? 443 : 80;
  if (!port.empty() &&
      (!absl::SimpleAtoi(port, &endpoint.port) || endpoint.port < 1 || endpoint.port > 65535)) {
    return wrong();
  }
  if (endpoint.host.empty() || endpoint.host.find_first_of("@ \t\r\n") != std::string::npos) {
    return wrong();
  }
  return endpoint;
}

std::string HttpEndpoint::Authority() const {
  const bool is_v6 = host.find(':') != std::string::npos;
  return absl::StrCat(is_v6 ? "[" : "", host, is_v6 ? "]" : "", ":", port);
}

HttpConnection::HttpConnection(const HttpEndpoint& endpoint, const ClusterConfig& config)
    : endpoint_(endpoint), origin_(config.origin) {}

HttpConnection::~HttpConnection() {
  const NoSigpipe guard;  // closing says goodbye
  client_.reset();
}

absl::StatusOr<std::unique_ptr<HttpConnection>> HttpConnection::Make(const HttpEndpoint& endpoint,
                                                                     const ClusterConfig& config) {
  std::unique_ptr<HttpConnection> connection(new HttpConnection(endpoint, config));
  if (endpoint.tls) {
    RETURN_IF_ERROR(connection->PrepareTls(config));
  } else {
    connection->client_ = std::make_unique<httplib::ClientImpl>(endpoint.host, endpoint.port);
  }
  httplib::ClientImpl& client = *connection->client_;
  client.set_keep_alive(true);
  client.set_follow_location(false);
  client.set_decompress(false);
  client.set_url_encode(false);
  client.set_tcp_nodelay(true);
  HttpConnection* self = connection.get();
  client.set_socket_options([self](socket_t socket) { self->AdoptSocket(socket); });
  return connection;
}

absl::Status HttpConnection::PrepareTls(const ClusterConfig& config) {
  const auto with_origin = [&](const absl::Status& status) {
    return absl::Status(status.code(),
                        absl::StrCat(config.origin, ": ", std::string(status.message())));
  };
  const std::string name = config.tls_server_name.empty() ? endpoint_.host : config.tls_server_name;
  auto client = std::make_unique<BlockSslClient>(name, endpoint_.port);
  if (!client->is_valid()) return absl::InternalError("no TLS context could be made");
  in6_addr ip;
  if (name != endpoint_.host && ::inet_pton(AF_INET, endpoint_.host.c_str(), &ip) != 1 &&
      ::inet_pton(AF_INET6, endpoint_.host.c_str(), &ip) != 1) {
    return with_origin(absl::InvalidArgumentError(
        "tls-server-name is supported only where the server is given by its IP address"));
  }
  if (name != endpoint_.host) client->set_hostname_addr_map({{name, endpoint_.host}});
  SSL_CTX* context = client->ssl_context();
  SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
  if (!config.certificate.empty()) {
    const auto chain = config.certificate.Read();
    if (!chain.ok()) return with_origin(chain.status());
    const auto key = config.key.Read();
    if (!key.ok()) return with_origin(key.status());
    const absl::Status used = UseCertificate(context, *chain, *key);
    if (!used.ok()) return with_origin(used);
  }
  client->enable_server_certificate_verification(!config.insecure);
  if (!config.authority.empty() && !config.insecure) {
    const auto authority = config.authority.Read();
    if (!authority.ok()) return with_origin(authority.status());
    // By path and not as a store: beside a store the library would believe the system's too.
    ASSIGN_OR_RETURN(authority_, Anonymous(*authority));
    client->set_ca_cert_path(absl::StrCat("/proc/self/fd/", authority_.get()));
  }
  client_ = std::move(client);
  return absl::OkStatus();
}

void HttpConnection::AdoptSocket(int socket) {
  PrepareSocket(socket);
  sync::MutexLock lock(mutex_);
  socket_ = net::FileDescriptor(::fcntl(socket, F_DUPFD_CLOEXEC, 0));
  received_before_ = 0;
  if (cut_) ::shutdown(socket, SHUT_RDWR);
}

void HttpConnection::Shut(bool due) {
  sync::MutexLock lock(mutex_);
  if (due) due_ = true;
  cut_ = true;
  if (socket_.valid()) ::shutdown(socket_.get(), SHUT_RDWR);
}

void HttpConnection::Cut() { Shut(false); }

void HttpConnection::CutIfDue(absl::Time now) {
  bool due = false;
  bool flooded = false;
  {
    sync::MutexLock lock(mutex_);
    due = now >= deadline_;
    flooded = in_head_ && socket_.valid() &&
              BytesReceived(socket_.get()) > received_before_ + kLargestHead;
  }
  if (flooded) flooded_ = true;
  if (due || flooded) Shut(due);
}

bool HttpConnection::IsReusable() const {
  if (cut_ || !client_->is_socket_open()) return false;
  sync::MutexLock lock(mutex_);
  if (!socket_.valid()) return false;
  pollfd waiting{socket_.get(), POLLIN | POLLRDHUP, 0};
  return ::poll(&waiting, 1, 0) == 0;
}

absl::Status HttpConnection::Explain(int error) const {
  const std::string where =
      absl::StrCat("API server ", endpoint_.tls ? "https://" : "http://", endpoint_.Authority());
  if (due_) return absl::DeadlineExceededError(absl::StrCat(where, ": no whole answer in time"));
  if (flooded_) {
    return absl::UnavailableError(absl::StrCat(where, ": the answer's headers have no end"));
  }
  if (cut_) return absl::CancelledError(absl::StrCat(where, ": cut off"));
  const auto say = [&](std::string_view what) {
    return absl::UnavailableError(absl::StrCat(where, ": ", std::string(what)));
  };
  switch (static_cast<httplib::Error>(error)) {
    case httplib::Error::Connection:
      return say("cannot be reached");
    case httplib::Error::ConnectionTimeout:
      return say("cannot be reached: it does not answer");
    case httplib::Error::Write:
      return say("the connection broke while the request was sent");
    case httplib::Error::Read:
      return say("the connection broke before the answer was whole");
    case httplib::Error::SSLLoadingCerts:
      return say(absl::StrCat("the certificate authority of ", origin_, " cannot be read"));
    case httplib::Error::SSLConnection:
      return say("the TLS handshake failed; is it a TLS server, and does it take our certificate?");
    case httplib::Error::SSLServerVerification: {
      const auto* tls = static_cast<const httplib::SSLClient*>(client_.get());
      const long result = tls->get_openssl_verify_result();
      if (result == X509_V_OK) return say("its certificate is not one for this host name");
      return say(absl::StrCat("its certificate is not to be trusted: ",
                              X509_verify_cert_error_string(result)));
    }
    default:
      return say(httplib::to_string(static_cast<httplib::Error>(error)));
  }
}

bool HttpConnection::Run(httplib::Request& request, int& error) {
  const NoSigpipe guard;
  httplib::Response response;
  httplib::Error failure = httplib::Error::Success;
  bool done = false;
  try {
    done = client_->send(request, response, failure);
  } catch (const std::exception&) {
    failure = httplib::Error::Unknown;
  }
  error = static_cast<int>(failure);
  return done;
}

absl::Status HttpConnection::Exchange(const HttpRequest& request, absl::Time deadline,
                                      const OnHead& on_head, const OnBody& on_body) {
  const absl::Duration left = deadline - absl::Now();
  if (left <= absl::ZeroDuration()) return absl::DeadlineExceededError("no time was left");
  const auto whole = absl::ToChronoMilliseconds(std::min(left, absl::Hours(24)));
  client_->set_connection_timeout(absl::ToChronoMilliseconds(std::min(left, kConnectTimeout)));
  client_->set_read_timeout(whole);
  client_->set_write_timeout(whole);
  httplib::Request wanted;
  wanted.method = request.method;
  wanted.path = endpoint_.path + request.target;
  wanted.headers = {{"Host", endpoint_.Authority()}, {"Accept-Encoding", "identity"}};
  for (const auto& [name, value] : request.headers) wanted.headers.emplace(name, value);
  if (!request.body.empty()) wanted.headers.emplace("Content-Type", request.content_type);
  wanted.body = request.body;
  bool enough = false;
  wanted.response_handler = [&](const httplib::Response& response) {
    in_head_ = false;
    enough =
        !on_head({response.status, response.get_header_value("Content-Type"),
                  response.get_header_value("Retry-After"), response.get_header_value("Location")});
    return !enough;
  };
  wanted.content_receiver = [&](const char* data, std::size_t size, std::uint64_t, std::uint64_t) {
    enough = enough || !on_body(data, size);
    return !enough;
  };
  {
    sync::MutexLock lock(mutex_);
    deadline_ = deadline;
    if (socket_.valid()) received_before_ = BytesReceived(socket_.get());
  }
  in_head_ = true;
  int error = 0;
  const bool done = !cut_ && Run(wanted, error);
  in_head_ = false;
  was_used_ = true;
  // The library's own limits come a little before ours.
  if (!done && !enough && absl::Now() >= deadline - absl::Milliseconds(20)) due_ = true;
  {
    sync::MutexLock lock(mutex_);
    deadline_ = absl::InfiniteFuture();
    if (!done) socket_.Reset();
  }
  if (done && !enough) return absl::OkStatus();
  if (enough) return absl::CancelledError("the rest of the answer was not wanted");
  return Explain(error);
}

}  // namespace starling::kube
