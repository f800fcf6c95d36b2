// SPDX-License-Identifier: Apache-2.0
#include "common/http/http_client.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/bytes/bytes.h"
#include "common/http/http_connection.h"
#include "common/status/macros.h"
#include "common/status/to_absl.h"
#include "common/sync/mutex.h"

namespace starling::http {
namespace {

using Instant = Connection::Instant;

constexpr absl::Duration kFirstBackOff = absl::Milliseconds(100);
constexpr absl::Duration kLongestBackOff = absl::Seconds(10);
constexpr int kMostAttempts = 10;
constexpr std::size_t kErrorLimit = std::size_t{1} << 20;  // of a stream's answer that is an error

Instant Now() { return std::chrono::steady_clock::now(); }

Instant After(absl::Duration wait) {
  const auto limit = std::min(std::max(wait, absl::ZeroDuration()), absl::Hours(24 * 365));
  return Now() + absl::ToChronoNanoseconds(limit);
}

absl::Status Check(const Request& request) {
  bool good = IsToken(request.method) && !request.target.empty() && request.target[0] == '/' &&
              request.target.find_first_of(" \t") == std::string::npos &&
              IsHeaderText(request.target);
  for (const auto& [name, value] : request.headers) {
    good = good && IsToken(name) && IsHeaderText(value);
  }
  if (good) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "a request's method, target or headers have characters that do not belong there; "
      "percent-encode the target");
}

double RandomShare() {
  std::uint64_t random = 0;
  const std::string text = bytes::RandomBytes(sizeof(random));
  std::memcpy(&random, text.data(), sizeof(random));
  return static_cast<double>(random >> 11U) * 0x1.0p-53;
}

std::string Printable(std::string_view text, std::size_t most) {
  std::string result;
  for (const char c : text.substr(0, most)) {
    result += absl::ascii_isprint(static_cast<unsigned char>(c)) ? c : ' ';
  }
  return std::string(absl::StripAsciiWhitespace(result));
}

}  // namespace

absl::StatusOr<Endpoint> Endpoint::Parse(std::string_view url) {
  const auto wrong = [url] {
    return absl::InvalidArgumentError(
        absl::StrCat("server \"", ToAbsl(url), "\" must be https://host[:port][/path]"));
  };
  Endpoint endpoint;
  const std::size_t scheme = url.find("://");
  if (scheme == std::string_view::npos) return wrong();
  endpoint.tls = url.substr(0, scheme) == "https";
  if (!endpoint.tls && url.substr(0, scheme) != "http") return wrong();
  const std::string_view rest = url.substr(scheme + 3);
  const std::size_t slash = rest.find_first_of("/?#");
  const std::string authority(rest.substr(0, slash));
  if (slash != std::string_view::npos) endpoint.path = std::string(rest.substr(slash));
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

std::string Endpoint::Authority() const {
  const bool is_v6 = host.find(':') != std::string::npos;
  return absl::StrCat(is_v6 ? "[" : "", host, is_v6 ? "]" : "", ":", port);
}

absl::Status StatusOf(const Response& response, std::string_view peer) {
  const int code = response.status;
  const std::string text = Printable(response.body, 200);
  const std::string message =
      absl::StrCat(ToAbsl(peer), " answers with status ", code, text.empty() ? "" : ": ", text);
  if (code >= 200 && code < 300) return absl::OkStatus();
  if (code >= 300 && code < 400) {
    const std::string to = Printable(response.Header("Location"), 200);
    return absl::FailedPreconditionError(
        absl::StrCat(message, to.empty() ? "" : ", which sends us to ", to,
                     "; redirects are not followed: give the address that answers by itself"));
  }
  switch (code) {
    case 401:
    case 403:
      return absl::PermissionDeniedError(message);
    case 404:
      return absl::NotFoundError(message);
    case 409:
    case 412:
      return absl::AbortedError(message);
    case 416:
      return absl::OutOfRangeError(message);
    case 429:
      return absl::ResourceExhaustedError(message);
    default:
      return code >= 400 && code < 500 ? absl::InvalidArgumentError(message)
                                       : absl::UnavailableError(message);
  }
}

// Thread-safe.
class HttpClient::Core {
 public:
  Core(Endpoint endpoint, ClientOptions options)
      : endpoint_(std::move(endpoint)), options_(std::move(options)) {}

  const ClientOptions& options() const { return options_; }

  absl::StatusOr<std::unique_ptr<Connection>> Make() {
    std::shared_ptr<const TlsContext> tls;
    if (endpoint_.tls) {
      ASSIGN_OR_RETURN(tls, Tls());
    }
    return Connection::Make(endpoint_, options_.peer, tls.get());
  }

  absl::StatusOr<std::unique_ptr<Connection>> Borrow(bool fresh) {
    std::vector<Idle> stale;  // closed outside the lock
    {
      const sync::MutexLock lock(mutex_);
      while (!fresh && !idle_.empty()) {
        Idle idle = std::move(idle_.back());
        idle_.pop_back();
        if (Now() < idle.until && idle.connection->IsReusable()) return std::move(idle.connection);
        stale.push_back(std::move(idle));
      }
    }
    return Make();
  }

  void Release(std::unique_ptr<Connection> connection) {
    if (!connection->is_kept()) return;
    const sync::MutexLock lock(mutex_);
    std::erase_if(idle_, [now = Now()](const Idle& idle) { return idle.until <= now; });
    if (idle_.size() >= options_.most_idle_connections) return;
    idle_.push_back({std::move(connection), After(options_.longest_idle)});
  }

  // The request with the headers that every request carries.
  absl::StatusOr<Request> Complete(Request request, bool again) const {
    request.headers.insert(request.headers.end(), options_.headers.begin(), options_.headers.end());
    if (options_.authorize) RETURN_IF_ERROR(options_.authorize(request, again));
    RETURN_IF_ERROR(Check(request));
    return request;
  }

  absl::Duration TokenWait() const {
    return options_.take_token ? options_.take_token() : absl::ZeroDuration();
  }

  // The limit is this client's own: that must not look like a server that does not answer.
  absl::Status HeldBack(absl::Duration wait, absl::Duration left) const {
    return absl::ResourceExhaustedError(absl::StrCat(
        options_.peer, ": the request was not sent: this client's own limit of requests",
        " holds it for ", absl::FormatDuration(wait), ", and it has ",
        absl::FormatDuration(std::max(left, absl::ZeroDuration())),
        "; raise the limit, or ask less often"));
  }

  void Observe(const Request& request, int status, Instant begin) const {
    if (!options_.observe) return;
    options_.observe({request.method, status, absl::FromChrono(Now() - begin)});
  }

  absl::StatusOr<Response> Exchange(const Request& request);

 private:
  struct Idle {
    std::unique_ptr<Connection> connection;
    Instant until;
  };

  // That of the last connection, if the certificates are still the same. What the system believes
  // may be another thing by now.
  absl::StatusOr<std::shared_ptr<const TlsContext>> Tls() {
    ClientTls wanted;
    if (options_.tls) {
      ASSIGN_OR_RETURN(wanted, options_.tls());
    }
    if (wanted.authority.empty() && !wanted.insecure) return TlsContext::Make(std::move(wanted));
    const sync::MutexLock lock(mutex_);
    if (tls_ == nullptr || tls_->tls() != wanted) {
      ASSIGN_OR_RETURN(tls_, TlsContext::Make(std::move(wanted)));
    }
    return tls_;
  }

  absl::StatusOr<Response> Once(const Request& request, Instant deadline, bool fresh, bool& stale);
  absl::StatusOr<Response> Receive(Connection& connection, Instant deadline) const;
  std::optional<absl::Duration> WaitWanted(const Response& answer, int attempt) const;

  const Endpoint endpoint_;
  const ClientOptions options_;
  sync::Mutex mutex_;
  std::vector<Idle> idle_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<const TlsContext> tls_ ABSL_GUARDED_BY(mutex_);  // null: none was needed yet
};

absl::StatusOr<Response> HttpClient::Core::Receive(Connection& connection, Instant deadline) const {
  Response answer;
  const auto where = [this] {
    return absl::StrCat(options_.peer, " ", endpoint_.tls ? "https" : "http", "://",
                        endpoint_.Authority());
  };
  while (true) {
    const bool in_time = connection.AwaitPiece(deadline);
    const std::string piece = connection.TakePiece();
    if (!in_time) {
      return absl::UnavailableError(
          absl::StrCat(where(), ": no whole answer in time, ", ToAbsl(connection.Doing())));
    }
    RETURN_IF_ERROR(connection.status());
    if (answer.body.size() + piece.size() > options_.body_limit) {
      return absl::FailedPreconditionError(
          absl::StrCat(where(), ": an answer of more than ", options_.body_limit,
                       " bytes, which is the most that this client takes; ask for less at once"));
    }
    answer.body += piece;
    if (!connection.ended()) continue;
    answer.status = connection.head()->status;
    answer.content_type = connection.head()->content_type;
    answer.headers = connection.head()->headers;
    return answer;
  }
}

// `stale`: no answer, since the connection had been idle and was dead.
absl::StatusOr<Response> HttpClient::Core::Once(const Request& request, Instant deadline,
                                                bool fresh, bool& stale) {
  ASSIGN_OR_RETURN(std::unique_ptr<Connection> connection, Borrow(fresh));
  const Instant begin = Now();
  connection->Start(request, absl::ZeroDuration());
  absl::StatusOr<Response> answer = Receive(*connection, deadline);
  stale = connection->was_used() && absl::IsUnavailable(answer.status()) && !connection->head() &&
          Now() < deadline;
  Observe(request, answer.ok() ? answer->status : 0, begin);
  Release(std::move(connection));
  return answer;
}

// How long to wait before asking again; nothing: the answer stands.
std::optional<absl::Duration> HttpClient::Core::WaitWanted(const Response& answer,
                                                           int attempt) const {
  std::int64_t seconds = 0;
  const bool says_when =
      absl::SimpleAtoi(ToAbsl(answer.Header("Retry-After")), &seconds) && seconds >= 0;
  const bool later = answer.status == 429 || (answer.status == 503 && says_when);
  if (!later || attempt + 1 >= kMostAttempts) return std::nullopt;
  const absl::Duration back_off = std::min(kFirstBackOff * (1 << attempt), kLongestBackOff);
  return std::max(back_off, absl::Seconds(std::min<std::int64_t>(seconds, 3600)));
}

absl::StatusOr<Response> HttpClient::Core::Exchange(const Request& request) {
  const Instant deadline = After(options_.timeout);
  const auto left = [deadline] { return absl::FromChrono(deadline - Now()); };
  bool again = false;
  for (int attempt = 0;; ++attempt) {
    const absl::Duration wait_for_token = TokenWait();
    if (wait_for_token > left()) return HeldBack(wait_for_token, left());
    absl::SleepFor(wait_for_token);
    ASSIGN_OR_RETURN(const Request complete, Complete(request, again));
    bool stale = false;
    absl::StatusOr<Response> answer = Once(complete, deadline, /*fresh=*/false, stale);
    if (stale && (request.method == "GET" || request.method == "HEAD")) {
      answer = Once(complete, deadline, /*fresh=*/true, stale);
    }
    if (!answer.ok()) return answer;
    if (answer->status == 401 && options_.authorize && !again) {
      again = true;  // what shows who we are may have been replaced
      continue;
    }
    const std::optional<absl::Duration> wait = WaitWanted(*answer, attempt);
    if (!wait || *wait * 1.25 >= left()) return answer;
    absl::SleepFor(*wait * (1 + 0.25 * RandomShare()));
  }
}

// One stream's exchange. Confined to the stream's thread, except Stop().
class HttpStream::Call {
 public:
  Call(HttpClient::Core& core, Request request, absl::Duration lifetime)
      : core_(core), end_(After(lifetime)), begin_(Now()), begun_(Begin(std::move(request))) {}

  ~Call() {
    if (connection_ && connection_->ended()) core_.Release(std::move(connection_));
  }

  absl::Status AwaitHead(Instant until) {
    const std::optional<absl::Status> head = Head(until);
    if (stopped_) return absl::CancelledError("stopped");
    return head.value_or(TooLate("no answer in time"));
  }

  // Nothing: none came in time.
  absl::StatusOr<std::optional<std::string>> Next(Instant until, bool& ended) {
    const std::optional<absl::Status> head = Head(until);
    if (!head) return Late();
    RETURN_IF_ERROR(*head);
    if (!connection_->AwaitPiece(std::min(until, end_))) return Late();
    if (stopped_) return absl::CancelledError("stopped");
    std::string piece = connection_->TakePiece();
    if (!piece.empty()) return std::optional<std::string>(std::move(piece));
    RETURN_IF_ERROR(connection_->status());
    ended = true;
    return absl::OutOfRangeError(absl::StrCat(core_.options().peer, ": the answer has ended"));
  }

  void Stop() {
    stopped_ = true;
    if (connection_) connection_->Cut();
  }

 private:
  absl::Status Begin(Request request) {
    ASSIGN_OR_RETURN(request_, core_.Complete(std::move(request), /*again=*/false));
    const absl::Duration wait = core_.TokenWait();
    const absl::Duration left = absl::FromChrono(end_ - Now());
    if (wait > left) return core_.HeldBack(wait, left);
    ASSIGN_OR_RETURN(connection_, core_.Borrow(/*fresh=*/wait > absl::ZeroDuration()));
    connection_->Start(request_, wait);
    return absl::OkStatus();
  }

  // What the answer's head says, all of its body read if that is an error; nothing: not yet.
  std::optional<absl::Status> Head(Instant until) {
    if (!begun_.ok()) return begun_;
    if (!connection_->AwaitHead(std::min(until, end_))) return std::nullopt;
    Observe();
    if (!connection_->status().ok()) return connection_->status();
    const int status = connection_->head()->status;
    if (status >= 200 && status < 300) return absl::OkStatus();
    while (!connection_->ended() && connection_->status().ok() && error_.size() < kErrorLimit) {
      if (!connection_->AwaitPiece(std::min(until, end_))) return std::nullopt;
      error_ += connection_->TakePiece();
    }
    Response answer = *connection_->head();
    answer.body = std::move(error_);
    const auto& status_of = core_.options().status_of;
    return begun_ = status_of ? status_of(answer) : StatusOf(answer, core_.options().peer);
  }

  void Observe() {
    if (observed_) return;
    observed_ = true;
    core_.Observe(request_, connection_->head() ? connection_->head()->status : 0, begin_);
  }

  absl::Status TooLate(std::string_view what) const {
    return absl::UnavailableError(absl::StrCat(core_.options().peer, ": ", ToAbsl(what)));
  }

  absl::StatusOr<std::optional<std::string>> Late() const {
    if (stopped_) return absl::CancelledError("stopped");
    if (Now() >= end_) return TooLate("the answer has lasted longer than it may");
    return std::optional<std::string>();
  }

  HttpClient::Core& core_;
  const Instant end_;
  const Instant begin_;
  std::atomic<bool> stopped_ = false;
  bool observed_ = false;
  Request request_;
  std::unique_ptr<Connection> connection_;
  std::string error_;  // the answer's body, if it is an error
  absl::Status
      begun_;  // last: Begin fills the others. Later, what an answer that is an error means
};

absl::StatusOr<std::unique_ptr<HttpClient>> HttpClient::Open(std::string_view url,
                                                             ClientOptions options) {
  ASSIGN_OR_RETURN(Endpoint endpoint, Endpoint::Parse(url));
  auto core = std::make_unique<Core>(std::move(endpoint), std::move(options));
  // What is wrong with certificates shows now and not with the first request.
  RETURN_IF_ERROR(core->Make().status());
  return std::unique_ptr<HttpClient>(new HttpClient(std::move(core)));
}

HttpClient::HttpClient(std::unique_ptr<Core> core) : core_(std::move(core)) {}
HttpClient::~HttpClient() = default;

double HttpClient::Jitter() { return RandomShare(); }
const ClientOptions& HttpClient::options() const { return core_->options(); }
absl::StatusOr<Response> HttpClient::Exchange(const Request& request) {
  return core_->Exchange(request);
}
std::unique_ptr<HttpStream> HttpClient::Stream(Request request, absl::Duration lifetime) {
  return std::unique_ptr<HttpStream>(
      new HttpStream(std::make_unique<HttpStream::Call>(*core_, std::move(request), lifetime)));
}

HttpStream::HttpStream(std::unique_ptr<Call> call) : call_(std::move(call)) {}
HttpStream::~HttpStream() = default;

absl::Status HttpStream::AwaitHead(absl::Duration timeout) {
  return call_->AwaitHead(After(timeout));
}
absl::StatusOr<std::optional<std::string>> HttpStream::Next(absl::Duration timeout) {
  return call_->Next(After(timeout), ended_);
}
void HttpStream::Stop() { call_->Stop(); }

}  // namespace starling::http
