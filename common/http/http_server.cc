// SPDX-License-Identifier: Apache-2.0
#include "common/http/http_server.h"

#include <fcntl.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ip/v6_only.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/http/http_session.h"
#include "common/http/server_certificate.h"
#include "common/http/worker_pool.h"
#include "common/status/to_absl.h"

namespace starling::http {
namespace {

namespace asio = boost::asio;
using Error = boost::system::error_code;
using Tcp = asio::ip::tcp;

constexpr auto kAcceptPause = std::chrono::milliseconds(100);
constexpr absl::Duration kDrainPoll = absl::Milliseconds(5);
constexpr char kBusy[] =
    "HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nRetry-After: 1\r\n"
    "Content-Length: 0\r\n\r\n";

void CloseOnExec(int file) { ::fcntl(file, F_SETFD, FD_CLOEXEC); }

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

// Confined to its thread, but for the constructor, Listen, Drain and the destructor.
class HttpServer::Core {
 public:
  Core(HttpServerOptions options, Handler handler)
      : options_(std::move(options)),
        handler_(std::move(handler)),
        acceptor_(context_),
        retry_(context_) {
    if (options_.handler_threads > 0) {
      pool_.emplace(options_.handler_threads, options_.handler_queue);
      host_.pool = &*pool_;
    }
  }

  // Handlers end before the connections that wait for them.
  ~Core() {
    context_.stop();
    if (thread_.joinable()) thread_.join();
    for (Session* session : host_.table.All()) session->Detach();
    pool_.reset();
  }

  absl::Status Listen();
  void Run() {
    Accept();
    thread_ = std::thread([this] { context_.run(); });
  }
  void Drain(absl::Duration limit);
  int port() const { return port_; }
  int connections() const { return host_.table.size(); }
  int streams() const { return host_.streams; }

 private:
  void Accept();
  void OnAccept(const Error& error, Tcp::socket socket);
  bool MakeRoom();

  const HttpServerOptions options_;
  const Handler handler_;
  int port_ = 0;
  // Before context_: sessions that it destroys still leave the table.
  SessionHost host_{options_, handler_, context_, nullptr, {}};
  std::optional<WorkerPool> pool_;
  asio::io_context context_{1};
  Tcp::acceptor acceptor_;
  asio::steady_timer retry_;
  std::thread thread_;
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

// Whether one more connection may come: the oldest that can be dispensed with goes for it.
bool HttpServer::Core::MakeRoom() {
  while (host_.table.size() >= options_.max_connections) {
    Session* oldest = host_.table.Oldest();
    if (oldest == nullptr) return false;
    oldest->Close();
  }
  return true;
}

void HttpServer::Core::OnAccept(const Error& error, Tcp::socket socket) {
  if (host_.draining) return;
  if (error) {
    // Most likely we are out of descriptors, which come back when connections end.
    if (Session* oldest = host_.table.Oldest(); oldest != nullptr) oldest->Close();
    retry_.expires_after(kAcceptPause);
    retry_.async_wait([this](const Error& wait_error) {
      if (!wait_error) Accept();
    });
    return;
  }
  CloseOnExec(socket.native_handle());
  if (MakeRoom()) {
    const auto& certificate = options_.certificate;
    MakeSession(host_, std::move(socket), certificate ? certificate->context() : nullptr)->Start();
  } else {
    Error ignored;
    socket.non_blocking(true, ignored);
    if (options_.certificate == nullptr) {
      socket.write_some(asio::buffer(kBusy, sizeof(kBusy) - 1), ignored);
    }
  }
  Accept();
}

void HttpServer::Core::Drain(absl::Duration limit) {
  asio::post(context_, [this] {
    host_.draining = true;
    Error ignored;
    acceptor_.close(ignored);
    for (Session* session : host_.table.All()) session->Drain();
  });
  const absl::Time until = absl::Now() + limit;
  do {
    absl::SleepFor(kDrainPoll);
  } while (connections() > 0 && absl::Now() < until);
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
int HttpServer::connections() const { return core_->connections(); }
int HttpServer::streams() const { return core_->streams(); }
void HttpServer::Drain(absl::Duration limit) { core_->Drain(limit); }

}  // namespace starling::http
