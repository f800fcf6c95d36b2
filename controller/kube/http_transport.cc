// SPDX-License-Identifier: Apache-2.0
#include "controller/kube/http_transport.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/bytes/bytes.h"
#include "common/status/macros.h"

namespace starling::kube {
namespace {

constexpr absl::Duration kTick = absl::Milliseconds(200);
constexpr absl::Duration kTokenLifetime = absl::Seconds(30);  // then its file is read again
constexpr absl::Duration kFirstBackOff = absl::Milliseconds(100);
constexpr absl::Duration kLongestBackOff = absl::Seconds(10);
constexpr int kMostAttempts = 10;

std::uint64_t Seed() {
  std::uint64_t seed = 0;
  const std::string random = bytes::RandomBytes(sizeof(seed));
  std::memcpy(&seed, random.data(), sizeof(seed));
  return seed;
}

bool IsHeaderText(const std::string& text) {
  return std::all_of(text.begin(), text.end(), [](unsigned char c) { return c > ' ' && c < 0x7f; });
}

// Of one cause under all the names it has on its way here.
absl::Status AsUnavailable(const absl::Status& status) {
  if (absl::IsInvalidArgument(status) || absl::IsNotFound(status)) return status;
  return absl::UnavailableError(status.message());
}

}  // namespace

HttpTransport::HttpTransport(ClusterConfig config, HttpTransportOptions options,
                             HttpEndpoint endpoint)
    : config_(std::move(config)),
      options_(std::move(options)),
      endpoint_(std::move(endpoint)),
      share_state_(Seed()),
      watchdog_([this] { WatchOver(); }) {}

absl::StatusOr<std::unique_ptr<HttpTransport>> HttpTransport::Open(ClusterConfig config,
                                                                   HttpTransportOptions options) {
  ASSIGN_OR_RETURN(HttpEndpoint endpoint, HttpEndpoint::Parse(config.server));
  if (!endpoint.tls && !(config.token.empty() && config.certificate.empty())) {
    return absl::InvalidArgumentError(
        absl::StrCat(config.origin, ": credentials are not sent over http://; use https://"));
  }
  // What is wrong with certificates shows now and not with the first request.
  RETURN_IF_ERROR(HttpConnection::Make(endpoint, config).status());
  return std::unique_ptr<HttpTransport>(
      new HttpTransport(std::move(config), std::move(options), std::move(endpoint)));
}

HttpTransport::~HttpTransport() {
  {
    sync::MutexLock lock(mutex_);
    ending_ = true;
    wake_.NotifyAll();
  }
  watchdog_.join();
}

// Cuts what is late. It rests while nothing is under way, so an idle program stays idle.
void HttpTransport::WatchOver() {
  int quiet = 0;
  sync::MutexLock lock(mutex_);
  while (!ending_) {
    quiet = busy_.empty() ? quiet + 1 : 0;
    if (quiet > 10) {
      resting_ = true;
      wake_.WaitFor(mutex_, absl::Hours(1));
      resting_ = false;
      quiet = 0;
    } else {
      wake_.WaitFor(mutex_, kTick);
    }
    const absl::Time now = absl::Now();
    for (const auto& connection : busy_) connection->CutIfDue(now);
    std::erase_if(idle_, [&](const Idle& idle) {
      return now - idle.since > options_.longest_idle || !idle.connection->IsReusable();
    });
  }
}

absl::StatusOr<std::shared_ptr<HttpConnection>> HttpTransport::Borrow(bool fresh) {
  std::vector<Idle> stale;  // closed outside the lock
  {
    sync::MutexLock lock(mutex_);
    const absl::Time now = absl::Now();
    while (!fresh && !idle_.empty()) {
      Idle idle = std::move(idle_.back());
      idle_.pop_back();
      if (now - idle.since <= options_.longest_idle && idle.connection->IsReusable()) {
        busy_.insert(idle.connection);
        if (resting_) wake_.NotifyAll();
        return std::move(idle.connection);
      }
      stale.push_back(std::move(idle));
    }
  }
  ASSIGN_OR_RETURN(std::shared_ptr<HttpConnection> connection,
                   HttpConnection::Make(endpoint_, config_));
  sync::MutexLock lock(mutex_);
  busy_.insert(connection);
  if (resting_) wake_.NotifyAll();
  return connection;
}

void HttpTransport::Release(std::shared_ptr<HttpConnection> connection) {
  const bool reusable = connection->IsReusable();
  sync::MutexLock lock(mutex_);
  busy_.erase(connection);
  if (reusable && idle_.size() < options_.most_idle_connections) {
    idle_.push_back({std::move(connection), absl::Now()});
  }
}

absl::StatusOr<std::string> HttpTransport::Token(bool reread) {
  if (config_.token.empty()) return std::string();
  {
    sync::MutexLock lock(mutex_);
    const bool fresh = absl::Now() - token_read_ < kTokenLifetime || config_.token.file.empty();
    if (!reread && !token_.empty() && fresh) return token_;
  }
  ASSIGN_OR_RETURN(const std::string text, config_.token.Read());
  const std::string token(absl::StripAsciiWhitespace(text));
  if (token.empty() || !IsHeaderText(token)) {
    return absl::InvalidArgumentError(
        absl::StrCat(config_.origin, ": the token is empty or has spaces in it"));
  }
  sync::MutexLock lock(mutex_);
  token_ = token;
  token_read_ = absl::Now();
  return token;
}

absl::StatusOr<HttpRequest> HttpTransport::Authorized(HttpRequest request, bool reread_token) {
  ASSIGN_OR_RETURN(const std::string token, Token(reread_token));
  request.headers.emplace_back("User-Agent", options_.user_agent);
  request.headers.emplace_back("Accept", "application/json");
  if (!token.empty()) request.headers.emplace_back("Authorization", "Bearer " + token);
  return request;
}

void HttpTransport::Wait(absl::Duration wait) {
  const absl::Time until = absl::Now() + wait;
  sync::MutexLock lock(mutex_);
  for (absl::Time now = absl::Now(); now < until && !ending_; now = absl::Now()) {
    wake_.WaitFor(mutex_, until - now);
  }
}

void HttpTransport::Throttle(absl::Time deadline) {
  if (!options_.take_token) return;
  const absl::Duration wait = options_.take_token();
  if (wait > absl::ZeroDuration()) Wait(std::min(wait, deadline - absl::Now()));
}

void HttpTransport::Observe(const HttpRequest& request, int status, absl::Duration latency) const {
  if (options_.observe) options_.observe({request.method, status, latency});
}

double HttpTransport::Share() {
  sync::MutexLock lock(mutex_);
  share_state_ = share_state_ * 6364136223846793005U + 1442695040888963407U;
  return static_cast<double>(share_state_ >> 11U) * 0x1.0p-53;
}

absl::StatusOr<HttpAnswer> HttpTransport::Once(const HttpRequest& request, absl::Time deadline,
                                               bool fresh, bool& was_used) {
  ASSIGN_OR_RETURN(std::shared_ptr<HttpConnection> connection, Borrow(fresh));
  was_used = connection->was_used();
  HttpAnswer answer;
  bool too_large = false;
  const absl::Time begin = absl::Now();
  const absl::Status status = connection->Exchange(
      request, deadline,
      [&](const HttpHead& head) {
        answer.head = head;
        return true;
      },
      [&](const char* data, std::size_t size) {
        too_large = answer.body.size() + size > options_.largest_answer;
        if (!too_large) answer.body.append(data, size);
        return !too_large;
      });
  was_used = was_used && answer.head.status == 0;
  Observe(request, status.ok() ? answer.head.status : 0, absl::Now() - begin);
  Release(std::move(connection));
  if (too_large) {
    return absl::UnavailableError(absl::StrCat("API server ", config_.server,
                                               ": an answer of more than ", options_.largest_answer,
                                               " bytes"));
  }
  if (!status.ok()) return AsUnavailable(status);
  return answer;
}

// A read is repeated on a new connection if an old one turns out to be dead.
absl::StatusOr<HttpAnswer> HttpTransport::OnceMore(const HttpRequest& request,
                                                   absl::Time deadline) {
  bool was_used = false;
  auto answer = Once(request, deadline, /*fresh=*/false, was_used);
  if (answer.ok() || !was_used || request.method != "GET" || absl::Now() >= deadline) return answer;
  return Once(request, deadline, /*fresh=*/true, was_used);
}

// How long to wait before asking again; nothing: the answer stands.
std::optional<absl::Duration> HttpTransport::WaitWanted(const HttpAnswer& answer, int attempt) {
  std::int64_t seconds = 0;
  const bool says_when = absl::SimpleAtoi(answer.head.retry_after, &seconds) && seconds >= 0;
  const bool later = answer.head.status == 429 || (answer.head.status == 503 && says_when);
  if (!later || attempt + 1 >= kMostAttempts) return std::nullopt;
  const absl::Duration back_off = std::min(kFirstBackOff * (1 << attempt), kLongestBackOff);
  const absl::Duration wanted = absl::Seconds(std::min<std::int64_t>(seconds, 3600));
  return std::max(back_off, wanted) * (1.0 + 0.25 * Share());
}

absl::StatusOr<HttpAnswer> HttpTransport::Exchange(const HttpRequest& request) {
  const absl::Time deadline = absl::Now() + options_.timeout;
  bool reread = false;
  for (int attempt = 0;; ++attempt) {
    Throttle(deadline);
    ASSIGN_OR_RETURN(const HttpRequest authorized, Authorized(request, reread));
    ASSIGN_OR_RETURN(HttpAnswer answer, OnceMore(authorized, deadline));
    if (answer.head.status == 401 && !config_.token.file.empty() && !reread) {
      reread = true;  // it may have been replaced since we read it
      continue;
    }
    const std::optional<absl::Duration> wait = WaitWanted(answer, attempt);
    if (!wait || absl::Now() + *wait >= deadline) return answer;
    Wait(*wait);
  }
}

}  // namespace starling::kube
