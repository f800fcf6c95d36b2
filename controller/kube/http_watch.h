// SPDX-License-Identifier: Apache-2.0
// A watch of an API server that outlives the connections it needs.
//
// The server ends each request after a while and connections break; the watch then goes on from the
// last version it has seen, which bookmarks keep fresh. No connection is believed to be alive for
// longer than its request may last, so one that hangs half open costs a minute at most. Only what
// the reader must know reaches it: that versions are forgotten (OutOfRange), that it may not, or
// that the server has been away for longer than patience lasts.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/http/http_client.h"
#include "common/sync/mutex.h"
#include "controller/kube/kept_fields.h"
#include "controller/kube/kube_client.h"

namespace starling::kube {

struct HttpWatchOptions {
  absl::Duration request = absl::Seconds(45);   // after which the server ends one request
  absl::Duration grace = absl::Seconds(10);     // after which we do
  absl::Duration patience = absl::Seconds(30);  // with a server that cannot be reached
};

// Next() is confined to one thread; Stop() is thread-safe.
class HttpWatch final : public WatchStream {
 public:
  HttpWatch(http::HttpClient& http, const ResourceKind& kind, std::string ns, Selection selection,
            std::string version, const HttpWatchOptions& options, KeptFields kept = {});

  // `present` are reported as ADDED first. Waits until the server has accepted the watch.
  absl::Status Start(std::vector<Json> present);

  // Unavailable: out of patience; the next call goes on trying.
  absl::StatusOr<std::optional<WatchEvent>> Next(absl::Duration timeout) override;
  void Stop() override;

 private:
  std::shared_ptr<http::HttpStream> Open();
  absl::Status Await(absl::Time deadline);
  absl::StatusOr<bool> TakeStream(absl::Time deadline);
  absl::Status TakeText(std::string_view text);
  absl::Status TakeLine(std::string_view line);
  absl::Status Broken(const absl::Status& status);
  void TryLater();

  http::HttpClient& http_;
  const ResourceKind kind_;
  const std::string ns_;
  const Selection selection_;
  const HttpWatchOptions options_;
  const KeptFields kept_;

  std::string version_;  // everything up to here has been seen
  std::string line_;     // the beginning of an event
  std::deque<WatchEvent> events_;
  int failures_ = 0;  // in a row
  absl::Time failing_since_ = absl::InfiniteFuture();
  absl::Time next_try_ = absl::InfinitePast();

  sync::Mutex mutex_;
  sync::Condition woken_;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::shared_ptr<http::HttpStream> stream_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace starling::kube
