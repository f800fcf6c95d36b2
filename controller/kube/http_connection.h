// SPDX-License-Identifier: Apache-2.0
// One HTTP/1.1 connection to an API server, over TLS or not, that cannot hang and can be cut.
//
// A thin shell around cpp-httplib, which stays hidden here. What the library would do is bounded or
// undone: redirects are not followed, answers not decompressed, the system's authorities not added
// to the cluster's own, SIGPIPE raised in no thread of ours; and every exchange has a deadline that
// holds even where the library has none, in a handshake or in dripping headers, because CutIfDue
// shuts the socket down.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/net/socket.h"
#include "common/sync/mutex.h"
#include "controller/kube/cluster_config.h"

namespace httplib {
class ClientImpl;
struct Request;
}  // namespace httplib

namespace starling::kube {

struct HttpRequest {
  std::string method;  // GET, POST, PUT, PATCH, DELETE
  std::string target;  // path and query, percent-encoded
  std::string body;
  std::string content_type;                                  // of the body
  std::vector<std::pair<std::string, std::string>> headers;  // no control characters
};

struct HttpHead {
  int status = 0;
  std::string content_type;
  std::string retry_after;
  std::string location;
};

// Where a server is.
struct HttpEndpoint {
  bool tls = true;
  std::string host;  // without brackets
  int port = 443;
  std::string path;  // before every request's; no slash at its end

  // Of https://host[:port][/path]. InvalidArgument for anything else.
  static absl::StatusOr<HttpEndpoint> Parse(const std::string& url);
  std::string Authority() const;  // host:port, for the Host header
};

// Confined to one thread at a time, but for Cut and CutIfDue, which are thread-safe.
class HttpConnection {
 public:
  // Reads certificates and keys; connects with the first exchange.
  static absl::StatusOr<std::unique_ptr<HttpConnection>> Make(const HttpEndpoint& endpoint,
                                                              const ClusterConfig& config);
  ~HttpConnection();
  HttpConnection(const HttpConnection&) = delete;
  HttpConnection& operator=(const HttpConnection&) = delete;

  using OnHead = std::function<bool(const HttpHead& head)>;           // false: enough
  using OnBody = std::function<bool(const char* data, std::size_t)>;  // false: enough

  // Sends the request and hands over the answer. Unavailable: no whole answer, and why not.
  // Cancelled: it was cut, or a callback had enough. DeadlineExceeded.
  absl::Status Exchange(const HttpRequest& request, absl::Time deadline, const OnHead& on_head,
                        const OnBody& on_body);

  // Whether the last exchange left it open and the server has sent nothing since, not even its end.
  bool IsReusable() const;
  bool was_used() const { return was_used_; }

  // Ends the exchange under way, and all later ones.
  void Cut();
  // Cuts if the deadline has passed, or if the answer's headers have no end.
  void CutIfDue(absl::Time now);

 private:
  HttpConnection(const HttpEndpoint& endpoint, const ClusterConfig& config);
  absl::Status PrepareTls(const ClusterConfig& config);
  void AdoptSocket(int socket);
  void Shut(bool due);
  absl::Status Explain(int error) const;
  bool Run(httplib::Request& request, int& error);

  const HttpEndpoint endpoint_;
  const std::string origin_;
  net::FileDescriptor authority_;  // the PEM as a file without a name
  std::unique_ptr<httplib::ClientImpl> client_;
  bool was_used_ = false;

  std::atomic<bool> cut_ = false;
  std::atomic<bool> due_ = false;  // cut because its time was up
  std::atomic<bool> flooded_ = false;
  std::atomic<bool> in_head_ = false;
  mutable sync::Mutex mutex_;
  // The same socket as the library's, held so that cutting it never meets another's descriptor.
  net::FileDescriptor socket_ ABSL_GUARDED_BY(mutex_);
  absl::Time deadline_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();
  std::uint64_t received_before_ ABSL_GUARDED_BY(mutex_) = 0;  // by earlier exchanges
};

}  // namespace starling::kube
