// SPDX-License-Identifier: Apache-2.0
// Requests to an API server: connections kept and shared, credentials shown, answers bounded.
//
// Exchange is for answers of bounded size and time. It asks again where that is certainly harmless:
// when the server says "later" (429, or 503 with Retry-After), and when a read broke on a
// connection that had been idle. A write that broke is never sent twice: its result is unknown, and
// the caller must look. Streams (watches, logs) take a connection for themselves.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/sync/mutex.h"
#include "controller/kube/cluster_config.h"
#include "controller/kube/http_connection.h"

namespace starling::kube {

struct HttpAnswer {
  HttpHead head;
  std::string body;
};

// One request as it went, for metrics.
struct HttpObservation {
  std::string_view method;
  int status = 0;  // 0: no answer
  absl::Duration latency;
};

struct HttpTransportOptions {
  std::string user_agent = "starling";
  absl::Duration timeout = absl::Seconds(30);  // for an exchange, waits included
  std::size_t largest_answer = 64U << 20U;     // bytes
  std::size_t most_idle_connections = 16;
  absl::Duration longest_idle = absl::Seconds(30);
  // Before each request: how long to wait, by client-side limits. Must be thread-safe.
  std::function<absl::Duration()> take_token;
  std::function<void(const HttpObservation&)> observe;  // must be thread-safe
};

// Thread-safe.
class HttpTransport {
 public:
  // InvalidArgument, NotFound: the configuration is wrong. Connects to nothing yet.
  static absl::StatusOr<std::unique_ptr<HttpTransport>> Open(ClusterConfig config,
                                                             HttpTransportOptions options);
  ~HttpTransport();  // nothing may be under way any more

  // The server's answer, whatever its status. Unavailable: there is none, and the message says why;
  // the request may or may not have been carried out.
  absl::StatusOr<HttpAnswer> Exchange(const HttpRequest& request);

  // A connection that belongs to the caller until Release, with which it may be used again.
  absl::StatusOr<std::shared_ptr<HttpConnection>> Borrow(bool fresh);
  void Release(std::shared_ptr<HttpConnection> connection);

  // The request with the headers that every request carries.
  absl::StatusOr<HttpRequest> Authorized(HttpRequest request, bool reread_token);

  // Waits for the client-side limits' consent.
  void Throttle(absl::Time deadline);
  void Observe(const HttpRequest& request, int status, absl::Duration latency) const;

  const ClusterConfig& config() const { return config_; }
  const HttpTransportOptions& options() const { return options_; }

  // Between 0 and 1, for jitter.
  double Share();

 private:
  struct Idle {
    std::shared_ptr<HttpConnection> connection;
    absl::Time since;
  };

  HttpTransport(ClusterConfig config, HttpTransportOptions options, HttpEndpoint endpoint);
  absl::StatusOr<HttpAnswer> Once(const HttpRequest& request, absl::Time deadline, bool fresh,
                                  bool& was_used);
  absl::StatusOr<HttpAnswer> OnceMore(const HttpRequest& request, absl::Time deadline);
  std::optional<absl::Duration> WaitWanted(const HttpAnswer& answer, int attempt);
  absl::StatusOr<std::string> Token(bool reread);
  void Wait(absl::Duration wait);
  void WatchOver();

  const ClusterConfig config_;
  const HttpTransportOptions options_;
  const HttpEndpoint endpoint_;

  sync::Mutex mutex_;
  sync::Condition wake_;
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  bool resting_ ABSL_GUARDED_BY(mutex_) = false;  // the watchdog, for want of work
  std::vector<Idle> idle_ ABSL_GUARDED_BY(mutex_);
  std::set<std::shared_ptr<HttpConnection>> busy_ ABSL_GUARDED_BY(mutex_);
  std::string token_ ABSL_GUARDED_BY(mutex_);
  absl::Time token_read_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  std::uint64_t share_state_ ABSL_GUARDED_BY(mutex_);
  std::thread watchdog_;
};

}  // namespace starling::kube
